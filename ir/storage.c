/* Storages: see storage.h. */
#include "ir/storage.h"

#include "ir/graph_unchecked.h"
#include "ir/memory_array.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Elements handled together. */
enum { CHUNK = 1024 };

/* ---- reading ---- */

const Tensor *storage_tensor(const Storage *storage) {
    return &storage->tensor;
}

bool storage_has_data(const Storage *storage) {
    return storage->tensor.buf != NULL;
}

/* Values of a matrix by columns. */
static Status read_turned(double *out, const Tensor *matrix, const char *name,
                          Diag *diag) {
    const int64_t rows = matrix->dim[0], columns = matrix->dim[1];
    double *row;
    TRY(MEMORY_ARRAY(&row, (size_t)columns, name, diag));
    for (int64_t r = 0; r < rows; r++) {
        tensor_read_f64(matrix, r * columns, columns, row);
        for (int64_t c = 0; c < columns; c++) out[c * rows + r] = row[c];
    }
    free(row);
    return STATUS_OK;
}

Status storage_read_f64(double **out, const Storage *storage, bool turned, Diag *diag) {
    const Tensor *tensor = &storage->tensor;
    const int64_t count = tensor_count(tensor);
    Status status = MEMORY_ARRAY(out, (size_t)count, storage->name, diag);
    if (status == STATUS_OK && turned)
        status = read_turned(*out, tensor, storage->name, diag);
    else if (status == STATUS_OK)
        tensor_read_f64(tensor, 0, count, *out);
    if (status == STATUS_OK) return STATUS_OK;
    free(*out);
    *out = NULL;
    return status;
}

const Gaussian *storage_gaussian(const Storage *storage) {
    return storage->gaussian;
}

/* ---- making ---- */

Status storage_create(Node **leaf, Graph *graph, const char *name, Init init, int rank,
                      const int64_t *dim, Diag *diag) {
    Storage *storage = NULL;
    const Tensor shape = tensor_shape(DTYPE_F32, rank, dim);
    TRY(graph_add_storage(&storage, graph, graph_fresh_name(graph, name), &shape, diag));
    storage->init = init;
    *leaf = graph_param(graph, storage);
    return STATUS_OK;
}

void storage_copy(Arena *arena, Storage *storage, const Storage *from) {
    storage_copy_values(storage, from);
    storage->init = from->init;
    storage->frozen = from->frozen;
    storage_set_gaussian(storage, gaussian_copy(arena, from->gaussian));
    for (int axis = 0; axis < RANK_MAX; axis++)
        storage->kept[axis] = lineage_copy(arena, &from->kept[axis]);
}

Status storage_blank(Tensor *out, void **data, const Storage *from, DType dtype, int rank,
                     const int64_t *dim, Diag *diag) {
    *data = NULL;
    if (!storage_has_data(from)) {
        *out = tensor_shape(dtype, rank, dim);
        return STATUS_OK;
    }
    TRY(tensor_create(out, dtype, rank, dim, diag));
    return tensor_writable(out, data, diag); /* nobody else has it: cannot fail */
}

/* ---- who uses it ---- */

static bool reads(const Node *node, const Node *leaf) {
    for (int i = 0; i < node->in_count; i++)
        if (node->in[i] == leaf) return true;
    return false;
}

static bool is_meant(StorageUsers users, const Node *node) {
    for (int i = 0; i < users.count; i++)
        if (users.nodes[i] == node) return true;
    return users.nodes == NULL;
}

/* The first node that reads a leaf and is, or is not, meant; NULL = none. */
static const Node *find_user(const Graph *graph, const Node *leaf, StorageUsers users,
                             bool meant) {
    for (const Node *node = graph->first; node; node = node->next)
        if (reads(node, leaf) && is_meant(users, node) == meant) return node;
    return NULL;
}

/* The name of the first output that is a leaf, when outputs are not meant. */
static const char *find_output(const Graph *graph, const Node *leaf, StorageUsers users) {
    for (int i = 0; users.nodes && i < graph->output_count; i++)
        if (graph->outputs[i].node == leaf) return graph->outputs[i].name;
    return NULL;
}

bool storage_used_by(const Graph *graph, const Node *leaf, StorageUsers users) {
    return !find_user(graph, leaf, users, false) && !find_output(graph, leaf, users);
}

/* "encoder.3 q (linear)", cut when long; returns `out`. */
enum { USER_BYTES = 120 };
static const char *user_text(char out[USER_BYTES], const Node *node) {
    char layer[16] = "";
    if (!node) return "nobody";
    if (node->layer >= 0) snprintf(layer, sizeof layer, ".%d", node->layer);
    snprintf(out, USER_BYTES, "%.60s%s%s%s (%s)", node->stack ? node->stack : "", layer,
             node->stack ? " " : "", role_name(node->role), node->op->name);
    return out;
}

Status storage_check_users(const Graph *graph, const Node *leaf, StorageUsers users,
                           Diag *diag) {
    if (storage_used_by(graph, leaf, users)) return STATUS_OK;
    char meant[USER_BYTES], other[USER_BYTES];
    const Node *user = find_user(graph, leaf, users, false);
    const char *output = find_output(graph, leaf, users);
    Status status =
        diag_fail(diag, STATUS_MODEL, LOC_NONE, leaf->storage->name,
                  "the weights cannot be changed for %s alone: %s%s uses them too",
                  user_text(meant, find_user(graph, leaf, users, true)),
                  user ? "" : "output ", user ? user_text(other, user) : output);
    diag_hint(diag, "weights are shared: change all that use them, or none");
    return status;
}

Status storage_separate(Node **leaf, Graph *graph, StorageUsers users, Diag *diag) {
    const Storage *from = (*leaf)->storage;
    Storage *own = NULL;
    if (storage_used_by(graph, *leaf, users)) return STATUS_OK;
    TRY(graph_add_storage(&own, graph, graph_fresh_name(graph, from->name), &from->tensor,
                          diag));
    storage_copy(graph->arena, own, from);
    Node *copy = graph_param(graph, own);
    Node *const old = *leaf; /* `leaf` may be one of the operands */
    for (int u = 0; u < users.count; u++)
        for (int i = 0; i < users.nodes[u]->in_count; i++)
            if (users.nodes[u]->in[i] == old) users.nodes[u]->in[i] = copy;
    *leaf = copy;
    return STATUS_OK;
}

/* ---- changing ---- */

/* What a factor of a matrix is drawn from: nothing that is not square is an identity. */
static void init_as_factor(Storage *storage) {
    const Tensor *tensor = &storage->tensor;
    if (storage->init.kind == INIT_IDENTITY && tensor->dim[0] != tensor->dim[1])
        storage->init = (Init){INIT_TRUNC_NORMAL, 0.02};
}

/* Puts another tensor in place, and gives the leaf its type. */
static void set_tensor(Node *leaf, Tensor tensor) {
    tensor_release(&leaf->storage->tensor);
    leaf->storage->tensor = tensor;
    leaf->type = storage_type(leaf->storage);
}

Status storage_keep(Graph *graph, Node *leaf, StorageUsers users, int axis,
                    const int64_t *keep, int64_t count, Diag *diag) {
    Storage *storage = leaf->storage;
    const Tensor *whole = &storage->tensor;
    int64_t outer = 1, dim[RANK_MAX];
    TRY(storage_check_users(graph, leaf, users, diag));
    memcpy(dim, whole->dim, sizeof dim);
    for (int i = 0; i < axis; i++) outer *= dim[i];
    dim[axis] = count;
    const bool floats = whole->dtype == DTYPE_Q4 && axis > 0;
    Tensor cut = floats ? tensor_shape(DTYPE_F32, whole->rank, dim)
                        : tensor_shape_like(whole, whole->rank, dim);
    TRY(tensor_keep(&cut, whole, outer, whole->dim[axis], keep, count, diag));
    if (storage->gaussian) {
        const Status status = gaussian_keep(storage->gaussian, axis, keep, count, diag);
        if (status != STATUS_OK) {
            tensor_release(&cut);
            return status;
        }
    }
    set_tensor(leaf, cut);
    storage->kept[axis] = lineage_keep(graph->arena, &storage->kept[axis], keep, count);
    return STATUS_OK;
}

void storage_forget_lineage(Storage *storage, int axis) {
    storage->kept[axis] = (Lineage){0};
}

void storage_lose_lineage(Storage *storage, int axis) {
    storage->kept[axis] = (Lineage){.lost = true};
}

Status storage_replace(Graph *graph, Node *leaf, StorageUsers users, Tensor values,
                       int axis, Diag *diag) {
    Storage *storage = leaf->storage;
    Status status = storage_check_users(graph, leaf, users, diag);
    bool fits = values.rank == storage->tensor.rank;
    for (int i = 0; fits && i < values.rank; i++)
        fits = i == axis || values.dim[i] == storage->tensor.dim[i];
    if (status == STATUS_OK && !fits)
        status = diag_fail(diag, STATUS_INTERNAL, LOC_NONE, storage->name,
                           "new values do not have the shape of the weights");
    if (status != STATUS_OK) {
        tensor_release(&values);
        return status;
    }
    set_tensor(leaf, values);
    if (axis >= 0) {
        storage_forget_lineage(storage, axis);
        init_as_factor(storage);
    }
    storage_drop_gaussian(storage);
    return STATUS_OK;
}

Status storage_raise_rank(Graph *graph, Node *leaf, StorageUsers users, int rank,
                          Diag *diag) {
    Storage *storage = leaf->storage;
    Tensor *tensor = &storage->tensor;
    const int more = rank - tensor->rank;
    TRY(storage_check_users(graph, leaf, users, diag));
    if (dtype_is_quantised(tensor->dtype)) TRY(storage_to_f32(storage, diag));
    for (int axis = rank - 1; axis >= 0 && more > 0; axis--) {
        const bool old = axis >= more;
        tensor->dim[axis] = old ? tensor->dim[axis - more] : 1;
        storage->kept[axis] = old ? storage->kept[axis - more] : (Lineage){0};
    }
    if (more > 0) tensor->rank = rank;
    leaf->type = storage_type(storage);
    if (storage->gaussian &&
        !gaussian_reshape(storage->gaussian, tensor->rank, tensor->dim))
        storage_drop_gaussian(storage);
    return STATUS_OK;
}

/* Numbers of `each` bytes from [rows, columns] to [columns, rows], square by square. */
static void turn_numbers(char *to, const char *from, int64_t rows, int64_t columns,
                         size_t each) {
    enum { SIDE = 32 };
    for (int64_t r = 0; r < rows; r += SIDE)
        for (int64_t c = 0; c < columns; c += SIDE)
            for (int64_t i = r; i < rows && i < r + SIDE; i++)
                for (int64_t j = c; j < columns && j < c + SIDE; j++)
                    memcpy(to + (size_t)(j * rows + i) * each,
                           from + (size_t)(i * columns + j) * each, each);
}

Status storage_turn(Graph *graph, Node *leaf, StorageUsers users, Diag *diag) {
    Storage *storage = leaf->storage;
    const Tensor *from = &storage->tensor;
    const int64_t dim[] = {from->dim[1], from->dim[0]};
    Tensor turned;
    void *data;
    TRY(storage_check_users(graph, leaf, users, diag));
    TRY(storage_blank(&turned, &data, storage, from->dtype, 2, dim, diag));
    if (data)
        turn_numbers(data, tensor_data(from), dim[1], dim[0], dtype_bytes(from->dtype));
    set_tensor(leaf, turned);
    const Lineage rows = storage->kept[0];
    storage->kept[0] = storage->kept[1];
    storage->kept[1] = rows;
    storage_drop_gaussian(storage);
    return STATUS_OK;
}

/* ---- several become one ---- */

static void read_one_leaf(StorageUsers users, const char *operand, Node *leaf) {
    for (int u = 0; u < users.count; u++) {
        Node *node = users.nodes[u];
        node->in[op_operand_index(node->op, operand)] = leaf;
    }
}

void storage_share(StorageUsers users, const char *operand) {
    read_one_leaf(users, operand, node_operand(users.nodes[0], operand));
}

/* The leaves that users read as an operand; to be freed. */
static Node **read_leaves(StorageUsers users, const char *operand, bool *one) {
    Node **leaves = memory_alloc((size_t)users.count + 1, sizeof *leaves);
    *one = true;
    for (int u = 0; u < users.count; u++) {
        leaves[u] = node_operand(users.nodes[u], operand);
        *one &= leaves[u] == leaves[0];
    }
    return leaves;
}

/* The leaf that several become: one of theirs that nobody else reads, the first for which
 * that holds, so that a group of layers keeps a name of its own; or else a copy of the
 * first, which then stands in `leaves` too. */
static Status choose_target(Node **out, Graph *graph, StorageUsers users, Node **leaves,
                            Diag *diag) {
    *out = NULL;
    for (int u = 0; u < users.count && !*out; u++)
        if (storage_used_by(graph, leaves[u], users)) *out = leaves[u];
    if (!*out) {
        Node *const first = leaves[0];
        *out = first;
        TRY(storage_separate(out, graph, users, diag));
        for (int u = 0; u < users.count; u++)
            if (leaves[u] == first) leaves[u] = *out;
    }
    return STATUS_OK;
}

/* The mean of the leaves' values; a shape alone when one of them has none. */
static Status mean_values(Tensor *out, Node *const *leaves, int count, Diag *diag) {
    const Storage *like = leaves[0]->storage;
    const Tensor *shape = &like->tensor;
    void *data = NULL;
    for (int l = 1; l < count; l++)
        if (!storage_has_data(leaves[l]->storage)) like = leaves[l]->storage;
    TRY(storage_blank(out, &data, like, DTYPE_F32, shape->rank, shape->dim, diag));
    float *mean = data;
    double sum[CHUNK], part[CHUNK];
    const int64_t total = mean ? tensor_count(out) : 0;
    for (int64_t at = 0; at < total; at += CHUNK) {
        const int64_t n = total - at < CHUNK ? total - at : CHUNK;
        memset(sum, 0, sizeof sum);
        for (int l = 0; l < count; l++) {
            tensor_read_f64(&leaves[l]->storage->tensor, at, n, part);
            for (int64_t i = 0; i < n; i++) sum[i] += part[i];
        }
        for (int64_t i = 0; i < n; i++) mean[at + i] = (float)(sum[i] / count);
    }
    return STATUS_OK;
}

/* The target's Gaussian becomes that of the mean. Storages that count more than once are
 * not independent of themselves, so theirs is not an average: it goes. */
static Status average_gaussians(Node *target, Node *const *leaves, int count,
                                Diag *diag) {
    Gaussian **from = memory_alloc((size_t)count + 1, sizeof *from);
    bool repeated = false, done = false;
    int at = 0;
    from[at++] = target->storage->gaussian; /* gaussian_average writes into the first */
    for (int l = 0; l < count; l++) {
        for (int k = 0; k < l; k++) repeated |= leaves[l] == leaves[k];
        if (leaves[l] != target) from[at++] = leaves[l]->storage->gaussian;
    }
    const Status status =
        repeated ? STATUS_OK : gaussian_average(from, count, &done, diag);
    if (status == STATUS_OK && !done) storage_drop_gaussian(target->storage);
    free(from);
    return status;
}

Status storage_merge(Graph *graph, StorageUsers users, const char *operand, Diag *diag) {
    bool one;
    Node **leaves = read_leaves(users, operand, &one), *target = NULL;
    Tensor mean = {0};
    Status status = one ? STATUS_OK : choose_target(&target, graph, users, leaves, diag);
    if (status == STATUS_OK && !one)
        status = mean_values(&mean, leaves, users.count, diag);
    if (status == STATUS_OK && !one)
        status = average_gaussians(target, leaves, users.count, diag);
    if (status == STATUS_OK && !one) {
        set_tensor(target, mean);
        read_one_leaf(users, operand, target);
    } else {
        tensor_release(&mean);
    }
    free(leaves);
    return status;
}

Status storage_merge_into(Graph *graph, StorageUsers users, const char *operand,
                          Tensor values, Diag *diag) {
    bool one;
    Node **leaves = read_leaves(users, operand, &one), *target = NULL;
    const Status status = choose_target(&target, graph, users, leaves, diag);
    free(leaves);
    if (status != STATUS_OK) {
        tensor_release(&values);
        return status;
    }
    read_one_leaf(users, operand, target);
    return storage_replace(graph, target, users, values, -1, diag);
}

/* ---- one becomes two ---- */

Status storage_factor(Node **second, Graph *graph, Node *leaf, StorageUsers users,
                      Tensor left, Tensor right, const char *name, Diag *diag) {
    const Storage *from = leaf->storage;
    Storage *storage = NULL;
    Status status = storage_check_users(graph, leaf, users, diag);
    if (status == STATUS_OK)
        status = graph_add_storage(&storage, graph, graph_fresh_name(graph, name), &right,
                                   diag);
    if (status != STATUS_OK) {
        tensor_release(&left);
        tensor_release(&right);
        return status;
    }
    storage->init = from->init;
    storage->frozen = from->frozen;
    storage->kept[0] = from->kept[1];
    *second = graph_param(graph, storage);
    set_tensor(*second, right);
    init_as_factor(storage);
    return storage_replace(graph, leaf, users, left, 1, diag);
}

Status storage_split(Node **outer, Graph *graph, Node *leaf, StorageUsers users, int axis,
                     Tensor inner, Tensor values, const char *name, Diag *diag) {
    const Storage *from = leaf->storage;
    Storage *storage = NULL;
    Status status = storage_check_users(graph, leaf, users, diag);
    if (status == STATUS_OK)
        status = graph_add_storage(&storage, graph, graph_fresh_name(graph, name),
                                   &values, diag);
    if (status != STATUS_OK) {
        tensor_release(&inner);
        tensor_release(&values);
        return status;
    }
    storage->init = from->init;
    storage->frozen = from->frozen;
    storage->kept[axis] = from->kept[axis];
    *outer = graph_param(graph, storage);
    set_tensor(*outer, values);
    init_as_factor(storage);
    return storage_replace(graph, leaf, users, inner, axis, diag);
}

Status storage_join(Graph *graph, Node *leaf, StorageUsers users, int axis,
                    const Node *outer, Tensor product, Diag *diag) {
    TRY(storage_replace(graph, leaf, users, product, axis, diag));
    leaf->storage->kept[axis] = lineage_copy(graph->arena, &outer->storage->kept[axis]);
    return STATUS_OK;
}

/* ---- other values of the same parameters ---- */

void storage_redraw(Storage *storage) {
    tensor_drop_data(&storage->tensor, DTYPE_F32);
}

void storage_set_values(Storage *storage, Tensor values) {
    tensor_release(&storage->tensor);
    storage->tensor = values;
}

void storage_copy_values(Storage *storage, const Storage *from) {
    storage_set_values(storage, tensor_retain(&from->tensor));
}

Status storage_to_f32(Storage *storage, Diag *diag) {
    Tensor values;
    TRY(tensor_to_f32(&values, &storage->tensor, diag));
    storage_set_values(storage, values);
    return STATUS_OK;
}

void graph_take_weights(Graph *graph, const Graph *from) {
    for (int i = 0; i < graph->storage_count; i++) {
        const Storage *source = graph_storage(from, graph->storages[i]->name);
        if (source) storage_copy_values(graph->storages[i], source);
    }
}

/* ---- what is known of them ---- */

void storage_set_gaussian(Storage *storage, Gaussian *gaussian) {
    if (storage->gaussian == gaussian) return;
    storage->dropped = !gaussian;
    gaussian_release(storage->gaussian);
    storage->gaussian = gaussian;
}

Gaussian *storage_edit_gaussian(Storage *storage) {
    return storage->gaussian;
}

void storage_drop_gaussian(Storage *storage) {
    storage_set_gaussian(storage, NULL);
}

void graph_drop_gaussians(Graph *graph) {
    for (int i = 0; i < graph->storage_count; i++)
        storage_drop_gaussian(graph->storages[i]);
}

Status storage_take_mean(Storage *storage, Diag *diag) {
    Tensor mean = tensor_shape(DTYPE_F32, storage->tensor.rank, storage->tensor.dim);
    if (storage_has_data(storage))
        TRY(tensor_to_f32(&mean, &storage->gaussian->mean, diag));
    storage_set_values(storage, mean);
    return STATUS_OK;
}

void graph_take_gaussians(Graph *graph, const Graph *from) {
    for (int i = 0; i < graph->storage_count; i++) {
        Storage *storage = graph->storages[i];
        const Storage *source = graph_storage(from, storage->name);
        storage_set_gaussian(
            storage, gaussian_copy(graph->arena, source ? source->gaussian : NULL));
    }
}

int graph_take_dropped(Graph *graph, const char **first) {
    int count = 0;
    for (int i = 0; i < graph->storage_count; i++) {
        Storage *storage = graph->storages[i];
        if (storage->dropped && count++ == 0) *first = storage->name;
        storage->dropped = false;
    }
    return count;
}

int graph_gaussian_count(const Graph *graph) {
    int count = 0;
    for (int i = 0; i < graph->storage_count; i++)
        count += graph->storages[i]->gaussian != NULL;
    return count;
}

/* Compares one storage's Gaussian with the first one and the first of form low_rank. */
static Status check_one(const Storage *storage, const Gaussian *first, int64_t samples,
                        Status status, Diag *diag) {
    const Gaussian *g = storage->gaussian;
    if (!gaussian_fits(g, &storage->tensor))
        return diag_fail(diag, status, LOC_NONE, storage->name,
                         "the posterior does not have the shape of the weights");
    if (strcmp(g->origin, first->origin) != 0)
        return diag_fail(diag, status, LOC_NONE, storage->name,
                         "the posterior belongs to another model: expected that of %s, "
                         "found that of %s",
                         first->origin, g->origin);
    if (g->form == GAUSSIAN_LOW_RANK && gaussian_samples(g) != samples)
        return diag_fail(diag, status, LOC_NONE, storage->name,
                         "expected a posterior of %lld samples like the others, found "
                         "%lld",
                         (long long)samples, (long long)gaussian_samples(g));
    return STATUS_OK;
}

Status graph_check_gaussians(const Graph *graph, Status status, Diag *diag) {
    const Gaussian *first = NULL;
    int64_t samples = 0;
    for (int i = 0; i < graph->storage_count; i++) {
        const Gaussian *g = graph->storages[i]->gaussian;
        if (!g) continue;
        if (!first) first = g;
        if (!samples) samples = gaussian_samples(g);
        TRY(check_one(graph->storages[i], first, samples, status, diag));
    }
    return STATUS_OK;
}
