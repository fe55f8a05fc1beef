/* Comparing weights: which storage of B stands for which of A, which entries it kept, and
 * how far the values are from each other. */
#include "session/compare/compare_storages.h"

#include "ir/name_map.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Entries of an axis are the same where their difference is at most this share of their
 * norm: weights that were trained a little further are, those of other units are not.
 * Entries of few numbers tell nothing. */
#define ENTRY_TOLERANCE 0.5
#define ENTRY_NUMBERS   8

const char *storage_change_name(StorageChange change) {
    static const char *const NAMES[] = {
        [STORAGE_EQUAL] = "equal",     [STORAGE_CLOSE] = "close",
        [STORAGE_CHANGED] = "changed", [STORAGE_CUT] = "cut",
        [STORAGE_OTHER] = "other",     [STORAGE_REMOVED] = "removed",
        [STORAGE_ADDED] = "added"};
    return NAMES[change];
}

/* ---- entries ---- */

/* Indices of A along each axis for each entry of B; NULL = all, one to one. */
typedef struct EntryMap {
    int64_t *index[RANK_MAX];
} EntryMap;

/* Lines of a tensor along its last axis, cut to the entries that a map names, in B's
 * order: `dim` are B's dimensions. */
typedef struct Lines {
    const Tensor *tensor;
    const EntryMap *map;
    const int64_t *dim;
    int64_t at[RANK_MAX];
    double *whole; /* owned: one line before it is cut */
} Lines;

static Lines lines_start(const Tensor *tensor, const EntryMap *map, const int64_t *dim) {
    const int64_t whole = tensor->rank ? tensor->dim[tensor->rank - 1] : 1;
    return (Lines){
        tensor, map, dim, {0}, memory_alloc((size_t)whole + 1, sizeof(double))};
}

/* Reads the next line into `out`. */
static void lines_next(Lines *lines, double *out) {
    const Tensor *tensor = lines->tensor;
    const int rank = tensor->rank;
    const int64_t whole = rank ? tensor->dim[rank - 1] : 1;
    const int64_t part = rank ? lines->dim[rank - 1] : 1;
    const int64_t *last = rank ? lines->map->index[rank - 1] : NULL;
    int64_t line = 0;
    for (int i = 0; i + 1 < rank; i++) {
        const int64_t *index = lines->map->index[i];
        line = line * tensor->dim[i] + (index ? index[lines->at[i]] : lines->at[i]);
    }
    tensor_read_f64(tensor, line * whole, whole, lines->whole);
    for (int64_t i = 0; i < part; i++) out[i] = lines->whole[last ? last[i] : i];
    for (int axis = rank - 2; axis >= 0 && ++lines->at[axis] == lines->dim[axis]; axis--)
        lines->at[axis] = 0;
}

/* Nothing is cut. */
static const EntryMap ALL_ENTRIES = {0};

/* A tensor's values as [outer, dim, inner] around an axis. */
typedef struct Slices {
    Tensor values; /* f64, owned */
    int64_t outer, dim, inner;
} Slices;

/* Reads all lines. Fails with STATUS_MEMORY. */
static Status slices_read(Slices *out, const Tensor *tensor, const EntryMap *map,
                          const int64_t *dim, int axis, Diag *diag) {
    void *data;
    *out = (Slices){.outer = 1, .dim = dim[axis], .inner = 1};
    for (int d = 0; d < axis; d++) out->outer *= dim[d];
    for (int d = axis + 1; d < tensor->rank; d++) out->inner *= dim[d];
    TRY(tensor_create(&out->values, DTYPE_F64, tensor->rank, dim, diag));
    TRY(tensor_writable(&out->values, &data, diag));
    Lines lines = lines_start(tensor, map, dim);
    const int64_t count = tensor_count(&out->values), part = dim[tensor->rank - 1];
    for (int64_t done = 0; done < count; done += part)
        lines_next(&lines, (double *)data + done);
    free(lines.whole);
    return STATUS_OK;
}

/* ---- which entries were kept ---- */

/* Positions in A of the entries of B, both told by their lineages. */
static bool entries_by_lineage(const Lineage *a, int64_t count_a, const Lineage *b,
                               int64_t count_b, int64_t *out) {
    int64_t i = 0;
    if (b->count == 0 || a->lost) return false;
    for (int64_t j = 0; j < count_b; j++) {
        const int64_t wanted = lineage_index(b, j);
        while (i < count_a && lineage_index(a, i) < wanted) i++;
        if (i == count_a || lineage_index(a, i) != wanted) return false;
        out[j] = i++;
    }
    return true;
}

/* Whether entry `i` of A and `j` of B differ by no more than this share of their norm. */
static bool same_entry(const Slices *a, int64_t i, const Slices *b, int64_t j,
                       double tolerance) {
    const double *all_a = tensor_data(&a->values), *all_b = tensor_data(&b->values);
    double squares = 0, error = 0;
    for (int64_t o = 0; o < a->outer; o++) {
        const double *x = all_a + (o * a->dim + i) * a->inner;
        const double *y = all_b + (o * b->dim + j) * b->inner;
        for (int64_t k = 0; k < a->inner; k++) {
            squares += x[k] * x[k];
            error += (x[k] - y[k]) * (x[k] - y[k]);
        }
    }
    return error <= tolerance * tolerance * squares;
}

/* Positions in A of the entries of B, which kept their order: each is the next one of A
 * that is the same. */
static bool match_entries(const Slices *a, const Slices *b, double tolerance,
                          int64_t *out) {
    int64_t j = 0;
    for (int64_t i = 0; j < b->dim && i < a->dim; i++)
        if (same_entry(a, i, b, j, tolerance)) out[j++] = i;
    return j == b->dim;
}

/* The same by their values: equal ones, else such as are nearly the same. `*found` = all
 * were found. Fails with STATUS_MEMORY. */
static Status entries_by_values(bool *found, const StoragePair *pair, const EntryMap *map,
                                int axis, int64_t *out, Diag *diag) {
    const Tensor *a = &pair->a->tensor, *b = &pair->b->tensor;
    int64_t dim[RANK_MAX];
    Slices x = {0}, y = {0};
    EntryMap others = *map; /* of the axis itself all entries of A */
    others.index[axis] = NULL;
    memcpy(dim, b->dim, sizeof dim);
    Status status = slices_read(&y, b, &ALL_ENTRIES, dim, axis, diag);
    dim[axis] = a->dim[axis];
    if (status == STATUS_OK) status = slices_read(&x, a, &others, dim, axis, diag);
    *found =
        status == STATUS_OK && x.outer * x.inner >= ENTRY_NUMBERS &&
        (match_entries(&x, &y, 0, out) || match_entries(&x, &y, ENTRY_TOLERANCE, out));
    tensor_release(&x.values);
    tensor_release(&y.values);
    return status;
}

/* Entries of the first axis as another pair of the same nodes has them: a bias keeps the
 * rows that its weight keeps. */
static bool entries_beside(const StoragePair *beside, const StoragePair *pair,
                           int64_t *out) {
    const Tensor *a = &pair->a->tensor, *b = &pair->b->tensor;
    if (!beside || beside->change != STORAGE_CUT || beside->kept[0].count == 0 ||
        beside->a->tensor.dim[0] != a->dim[0] || beside->b->tensor.dim[0] != b->dim[0])
        return false;
    for (int64_t j = 0; j < b->dim[0]; j++) out[j] = lineage_index(&beside->kept[0], j);
    return true;
}

/* Finds A's entries for every axis that B has fewer of; `*found` = all are known. Fails
 * with STATUS_MEMORY. */
static Status find_entries(bool *found, StoragePair *pair, const StoragePair *beside,
                           Arena *arena, EntryMap *map, Diag *diag) {
    const Tensor *a = &pair->a->tensor, *b = &pair->b->tensor;
    int unknown = -1;
    *found = false;
    if (a->rank != b->rank || tensor_count(b) == 0) return STATUS_OK;
    for (int axis = 0; axis < a->rank; axis++) {
        const int64_t count = b->dim[axis];
        if (count > a->dim[axis]) return STATUS_OK;
        if (count == a->dim[axis]) continue;
        map->index[axis] = ARENA_ARRAY(arena, int64_t, (size_t)count + 1);
        if (entries_by_lineage(&pair->a->kept[axis], a->dim[axis], &pair->b->kept[axis],
                               count, map->index[axis]))
            continue;
        if (axis == 0 && entries_beside(beside, pair, map->index[0])) {
            pair->by_values = beside->by_values;
            continue;
        }
        if (unknown >= 0) return STATUS_OK;
        unknown = axis;
    }
    *found = unknown < 0;
    if (*found || !tensor_data(a) || !tensor_data(b)) return STATUS_OK;
    pair->by_values = true;
    return entries_by_values(found, pair, map, unknown, map->index[unknown], diag);
}

/* Heads of the attention that a node in this place belongs to, 0 where it has none. */
static int64_t heads_at(const NodePair *at) {
    static const struct {
        Role role, attention;
        bool keys;
    } ROLES[] = {{ROLE_Q, ROLE_ATTENTION, false},
                 {ROLE_K, ROLE_ATTENTION, true},
                 {ROLE_V, ROLE_ATTENTION, true},
                 {ROLE_CROSS_Q, ROLE_CROSS_ATTENTION, false},
                 {ROLE_CROSS_K, ROLE_CROSS_ATTENTION, true},
                 {ROLE_CROSS_V, ROLE_CROSS_ATTENTION, true}};
    for (size_t i = 0; i < sizeof ROLES / sizeof *ROLES; i++) {
        if (at->a->role != ROLES[i].role) continue;
        for (const Node *node = at->a; node; node = node->next)
            if (node->role == ROLES[i].attention &&
                node_is_in(node, at->a->stack, at->a->layer))
                return ROLES[i].keys && node_key_heads(node) > 0 ? node_key_heads(node)
                                                                 : node_heads(node);
    }
    return 0;
}

/* Says which heads are left, where whole ones are. */
static void find_heads(StoragePair *pair, Arena *arena, const int64_t *index) {
    const int64_t heads = heads_at(pair->at), rows = pair->a->tensor.dim[0];
    const int64_t count = pair->b->tensor.dim[0];
    const int64_t width = heads > 0 && rows % heads == 0 ? rows / heads : 0;
    if (width == 0 || count % width != 0) return;
    int64_t *kept = ARENA_ARRAY(arena, int64_t, (size_t)(count / width) + 1);
    for (int64_t j = 0; j < count; j++) {
        kept[j / width] = index[j] / width;
        if (index[j] % width != j % width ||
            kept[j / width] != index[j - j % width] / width)
            return;
    }
    pair->heads = heads;
    pair->kept_heads = lineage_keep(arena, &(Lineage){0}, kept, count / width);
}

/* ---- errors ---- */

/* Sums over all entries that both have. */
static void measure(StoragePair *pair, const EntryMap *map) {
    const Tensor *a = &pair->a->tensor, *b = &pair->b->tensor;
    const int64_t count = tensor_count(b), part = b->rank ? b->dim[b->rank - 1] : 1;
    double *x = memory_alloc((size_t)part + 1, sizeof *x);
    double *y = memory_alloc((size_t)part + 1, sizeof *y);
    Lines of_a = lines_start(a, map, b->dim), of_b = lines_start(b, &ALL_ENTRIES, b->dim);
    double squares = 0, error = 0;
    for (int64_t done = 0; done < count; done += part) {
        lines_next(&of_a, x);
        lines_next(&of_b, y);
        for (int64_t i = 0; i < part; i++) {
            const double difference = fabs(x[i] - y[i]);
            squares += x[i] * x[i];
            error += difference * difference;
            if (difference > pair->largest) pair->largest = difference;
        }
    }
    free(x);
    free(y);
    free(of_a.whole);
    free(of_b.whole);
    pair->relative = error == 0 ? 0 : sqrt(error) / sqrt(squares);
    pair->measured = true;
}

static bool same_bytes(const Tensor *a, const Tensor *b) {
    const size_t bytes = tensor_bytes(a);
    return tensor_same_form(a, b) &&
           (bytes == 0 || memcmp(tensor_data(a), tensor_data(b), bytes) == 0);
}

static Status compare_values(StoragePair *pair, const StoragePair *beside, Arena *arena,
                             double tolerance, Diag *diag) {
    const Tensor *a = &pair->a->tensor, *b = &pair->b->tensor;
    const bool shaped = tensor_same_shape(a, b);
    const bool stored = tensor_data(a) && tensor_data(b);
    bool found = shaped;
    EntryMap map = {0};
    pair->change = STORAGE_OTHER;
    if (!shaped) TRY(find_entries(&found, pair, beside, arena, &map, diag));
    if (!found) return STATUS_OK;
    for (int axis = 0; axis < b->rank; axis++)
        if (map.index[axis])
            pair->kept[axis] =
                lineage_keep(arena, &(Lineage){0}, map.index[axis], b->dim[axis]);
    if (pair->at && b->rank > 0 && map.index[0]) find_heads(pair, arena, map.index[0]);
    if (stored && shaped && same_bytes(a, b))
        pair->measured = true;
    else if (stored)
        measure(pair, &map);
    if (!shaped)
        pair->change = STORAGE_CUT;
    else if (pair->relative == 0 && tensor_same_type(a, b))
        pair->change = STORAGE_EQUAL;
    else if (tolerance > 0 && pair->relative <= tolerance)
        pair->change = STORAGE_CLOSE;
    else
        pair->change = STORAGE_CHANGED;
    return STATUS_OK;
}

/* ---- pairs ---- */

typedef struct PairList {
    Arena *arena;
    StorageComparison *out;
    int capacity;
    NameMap seen;    /* "a\nb" of the pairs so far */
    NameMap done[2]; /* names of the storages that are in some pair */
    double tolerance;
    Diag *diag;
} PairList;

/* Fails with STATUS_MEMORY. */
static Status add_pair(PairList *list, const Storage *a, const Storage *b,
                       const NodePair *at, const char *operand) {
    StorageComparison *out = list->out;
    const Storage *sides[] = {a, b};
    const char *key =
        arena_printf(list->arena, "%s\n%s", a ? a->name : "", b ? b->name : "");
    if (!name_map_add(&list->seen, key, list)) return STATUS_OK;
    for (int side = 0; side < 2; side++)
        if (sides[side]) name_map_add(&list->done[side], sides[side]->name, list);
    if (out->count == list->capacity) {
        list->capacity = list->capacity ? 2 * list->capacity : 64;
        StoragePair *pairs =
            ARENA_ARRAY(list->arena, StoragePair, (size_t)list->capacity);
        if (out->count > 0) memcpy(pairs, out->pairs, (size_t)out->count * sizeof *pairs);
        out->pairs = pairs;
    }
    StoragePair *pair = &out->pairs[out->count++];
    *pair = (StoragePair){
        .a = a, .b = b, .at = at, .change = a ? STORAGE_REMOVED : STORAGE_ADDED};
    if (at) pair->where = arena_printf(list->arena, "%s %s", at->name, operand);
    if (a && b) {
        const bool same_nodes = out->count > 1 && at && pair[-1].at == at;
        TRY(compare_values(pair, same_nodes ? pair - 1 : NULL, list->arena,
                           list->tolerance, list->diag));
        out->retyped += !tensor_same_type(&a->tensor, &b->tensor);
    }
    out->counts[pair->change]++;
    return STATUS_OK;
}

static const Storage *operand_storage(const Node *node, int i) {
    return i >= 0 && node_has(node, i) ? node->in[i]->storage : NULL;
}

static const char *operand_name(const Node *node, int i) {
    const int declared = op_operand_count(node->op);
    return node->op->operands[i < declared ? i : declared - 1].name;
}

/* Storages that the two nodes of a pair read as operands of one name. */
static Status add_operands(PairList *list, const NodePair *at) {
    for (int i = 0; i < at->a->in_count; i++) {
        const char *name = operand_name(at->a, i);
        const int j = at->a->op == at->b->op ? i : op_operand_index(at->b->op, name);
        const Storage *a = operand_storage(at->a, i), *b = operand_storage(at->b, j);
        if (a && b) TRY(add_pair(list, a, b, at, name));
    }
    return STATUS_OK;
}

/* Storages of one side that are in no pair: those of the same name in the other model,
 * else alone. */
static Status add_rest(PairList *list, const NodeComparison *nodes, int side,
                       const Graph *others) {
    for (int p = 0; p < nodes->count; p++) {
        const NodePair *at = &nodes->pairs[p];
        const Node *node = side ? at->b : at->a;
        for (int i = 0; node && i < node->in_count; i++) {
            const Storage *own = operand_storage(node, i);
            if (!own || name_map_get(&list->done[side], own->name)) continue;
            const Storage *match = graph_storage(others, own->name);
            if (match && name_map_get(&list->done[!side], match->name)) match = NULL;
            const NodePair *where = match ? NULL : at;
            TRY(add_pair(list, side ? match : own, side ? own : match, where,
                         operand_name(node, i)));
        }
    }
    return STATUS_OK;
}

static int *use_count(NameMap *counts, Arena *arena, const Storage *storage) {
    int *count = name_map_get(counts, storage->name);
    if (!count) {
        count = ARENA_NEW(arena, int);
        name_map_add(counts, storage->name, count);
    }
    return count;
}

/* Says of which storages one became several, or several one. */
static void find_shared(StorageComparison *out, Arena *arena) {
    NameMap of_a = {.arena = arena}, of_b = {.arena = arena};
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < out->count; i++) {
            StoragePair *pair = &out->pairs[i];
            if (!pair->a || !pair->b) continue;
            int *split = use_count(&of_a, arena, pair->a);
            int *merged = use_count(&of_b, arena, pair->b);
            if (round == 0) {
                ++*split;
                ++*merged;
                continue;
            }
            pair->split = *split;
            pair->merged = *merged;
            out->reshared += *split > 1 || *merged > 1;
        }
}

Status compare_storages(StorageComparison *out, Arena *arena, const NodeComparison *nodes,
                        const Model *a, const Model *b, double tolerance, Diag *diag) {
    *out = (StorageComparison){0};
    PairList list = {.arena = arena, .out = out, .tolerance = tolerance, .diag = diag};
    list.seen.arena = list.done[0].arena = list.done[1].arena = arena;
    for (int i = 0; i < nodes->count; i++)
        if (nodes->pairs[i].a && nodes->pairs[i].b)
            TRY(add_operands(&list, &nodes->pairs[i]));
    TRY(add_rest(&list, nodes, 0, b->graph));
    TRY(add_rest(&list, nodes, 1, a->graph));
    find_shared(out, arena);
    return STATUS_OK;
}
