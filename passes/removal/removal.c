/* Choosing and conditioning when layers or blocks go: see removal.h. */
#include "passes/removal/removal.h"

#include "ir/random.h"
#include "ir/rewrite.h"
#include "passes/posterior/relevance.h"

#include <string.h>

/* ---- lists of layers ---- */

/* Layers of a 12-layer model that DistilBERT's authors keep. */
typedef struct NamedTable {
    int count;
    int64_t layers[12];
} NamedTable;
enum { NAMED_DEPTH = 12 };
static const NamedTable named_tables[] = {
    {1, {0}},
    {2, {0, 6}},
    {3, {0, 6, 11}},
    {4, {0, 4, 8, 11}},
    {6, {0, 2, 4, 7, 9, 11}},
    {9, {0, 1, 2, 4, 5, 7, 9, 10, 11}},
};

IntList removal_spread(Arena *arena, int count, int depth) {
    IntList list = {ARENA_ARRAY(arena, int64_t, (size_t)count), count};
    const NamedTable *named = NULL;
    for (size_t t = 0; t < sizeof named_tables / sizeof *named_tables; t++)
        if (depth == NAMED_DEPTH && named_tables[t].count == count)
            named = &named_tables[t];
    const int64_t steps = count > 1 ? count - 1 : 1, last = depth - 1;
    for (int64_t i = 0; i < count; i++)
        list.items[i] = named ? named->layers[i] : (2 * i * last + steps) / (2 * steps);
    return list;
}

IntList removal_others(Arena *arena, IntList list, int depth) {
    bool *listed = ARENA_ARRAY(arena, bool, (size_t)depth);
    IntList others = {ARENA_ARRAY(arena, int64_t, (size_t)depth), 0};
    for (int i = 0; i < list.count; i++) listed[list.items[i]] = true;
    for (int layer = 0; layer < depth; layer++)
        if (!listed[layer]) others.items[others.count++] = layer;
    return others;
}

/* ---- what is set ---- */

typedef struct Zeros {
    BlockZero *items;
    int count;
} Zeros;

static Status add_layer(Zeros *zeros, bool *approximate, const Removal *r, int layer,
                        Diag *diag) {
    LayerBlocks blocks;
    TRY(layer_blocks(&blocks, r->ctx, r->graph, r->stack, layer, diag));
    for (int i = 0; i < blocks.count; i++) {
        const Block *block = &blocks.items[i];
        if (!block_is_part(block, r->part)) continue;
        zeros->count += block_zeros(block, zeros->items + zeros->count);
        *approximate = *approximate || block->norm || block->kind == BLOCK_PLAIN;
    }
    return STATUS_OK;
}

Status removal_given(SliceList *given, bool *approximate, const Removal *r,
                     IntList layers, Diag *diag) {
    const size_t most = (size_t)layers.count * LAYER_BLOCKS * BLOCK_ZEROS;
    Zeros zeros = {ARENA_ARRAY(r->ctx->arena, BlockZero, most), 0};
    *approximate = false;
    for (int i = 0; i < layers.count; i++)
        TRY(add_layer(&zeros, approximate, r, (int)layers.items[i], diag));
    for (int i = 0; i < zeros.count; i++) {
        Node *leaf = zeros.items[i].leaf;
        int times = 0, first = zeros.count; /* it is among the zeros */
        for (int k = zeros.count - 1; k >= 0; k--)
            if (zeros.items[k].leaf == leaf) times++, first = k;
        if (times != graph_use_count(r->graph, leaf)) {
            step_fail(r->ctx, diag,
                      "\"%s\" cannot be set to what makes the removed part the "
                      "identity: what stays uses it too",
                      leaf->storage->name);
            diag_hint(diag, "remove all that shares it, or keep the weights with "
                            "`prior: copy`");
            return STATUS_MODEL;
        }
        if (first < i) continue;
        slices_add(r->ctx->arena, given,
                   (ConditionSlice){.storage = leaf->storage,
                                    .axis = -1,
                                    .value = zeros.items[i].value});
    }
    return STATUS_OK;
}

/* ---- choosing ---- */

static void choose_spread(IntList *drop, const Removal *r, IntList layers) {
    const IntList keep =
        removal_spread(r->ctx->arena, layers.count - drop->count, layers.count);
    const IntList gone = removal_others(r->ctx->arena, keep, layers.count);
    for (int i = 0; i < drop->count; i++) drop->items[i] = layers.items[gone.items[i]];
}

/* The candidate of the smallest relevance; candidates that are taken are -1. */
static Status find_least(int *best, double *least, const Removal *r, IntList candidates,
                         RelevanceCache *cache, Diag *diag) {
    *best = -1;
    for (int i = 0; i < candidates.count; i++) {
        SliceList given = {0};
        bool approximate = false;
        double relevance = 0;
        if (candidates.items[i] < 0) continue;
        TRY(removal_given(&given, &approximate, r, (IntList){&candidates.items[i], 1},
                          diag));
        TRY(relevance_of(&relevance, r->ctx, given.items, given.count, cache, diag));
        if (*best >= 0 && !(relevance < *least)) continue;
        *best = i;
        *least = relevance;
    }
    return STATUS_OK;
}

static Status condition_on(const Removal *r, int64_t layer, Diag *diag) {
    SliceList given = {0};
    bool approximate = false;
    ConditionReport report = {0};
    TRY(removal_given(&given, &approximate, r, (IntList){&layer, 1}, diag));
    const Condition condition = {given.items, given.count, NULL, 0};
    return condition_gaussians(r->ctx, r->graph, &condition, &report, diag);
}

/* Takes layers one after another from a graph whose Gaussians may be used up. */
static Status take_least(IntList *drop, const Removal *r, IntList candidates, Tree *list,
                         Diag *diag) {
    RelevanceCache cache = {0};
    Status status = STATUS_OK;
    for (int i = 0; i < drop->count && status == STATUS_OK; i++) {
        int best = -1;
        double least = 0;
        status = find_least(&best, &least, r, candidates, &cache, diag);
        relevance_release(&cache);
        if (status != STATUS_OK) break;
        drop->items[i] = candidates.items[best];
        candidates.items[best] = -1;
        Tree *row = tree_new(r->ctx->arena, TREE_MAP, LOC_NONE);
        tree_put_int(r->ctx->arena, row, "layer", drop->items[i]);
        tree_put_real(r->ctx->arena, row, "relevance", least);
        tree_append(r->ctx->arena, list, NULL, LOC_NONE, row);
        if (i + 1 < drop->count) status = condition_on(r, drop->items[i], diag);
    }
    return status;
}

/* What a plan, which has no numbers, knows of the relevance of layers. */
static Status check_relevance(const Removal *r, IntList layers, Diag *diag) {
    for (int i = 0; i < layers.count; i++) {
        SliceList given = {0};
        bool approximate = false;
        TRY(removal_given(&given, &approximate, r, (IntList){&layers.items[i], 1}, diag));
        TRY(relevance_check(r->ctx, given.items, given.count, diag));
    }
    return STATUS_OK;
}

static Status choose_by_relevance(IntList *drop, const Removal *r, IntList layers,
                                  Diag *diag) {
    TRY(prior_require(r->ctx, r->graph, "order: relevance", diag));
    if (r->ctx->plan) {
        TRY(check_relevance(r, layers, diag));
        choose_spread(drop, r, layers);
        tree_put_bool(r->ctx->arena, r->ctx->record, "approximate", true);
        r->ctx->guessed = true;
        return STATUS_OK;
    }
    Arena *arena = arena_create();
    Removal scratch = *r;
    IntList candidates = {ARENA_ARRAY(r->ctx->arena, int64_t, (size_t)layers.count),
                          layers.count};
    memcpy(candidates.items, layers.items, (size_t)layers.count * sizeof(int64_t));
    Tree *list = tree_new(r->ctx->arena, TREE_LIST, LOC_NONE);
    scratch.graph = graph_copy(arena, r->graph);
    const Status status = take_least(drop, &scratch, candidates, list, diag);
    tree_append(r->ctx->arena, r->ctx->record, "relevance", LOC_NONE, list);
    graph_release(scratch.graph);
    arena_destroy(arena);
    return status;
}

/* Those of the smallest influence, the first of equals. */
static void choose_by_influence(IntList *drop, const Removal *r, IntList layers) {
    bool *taken = ARENA_ARRAY(r->ctx->arena, bool, (size_t)layers.count);
    if (!r->influence) {
        choose_spread(drop, r, layers);
        tree_put_bool(r->ctx->arena, r->ctx->record, "approximate", true);
        r->ctx->guessed = true;
        return;
    }
    for (int i = 0; i < drop->count; i++) {
        int best = -1;
        for (int k = 0; k < layers.count; k++)
            if (!taken[k] && (best < 0 || r->influence[layers.items[k]] <
                                              r->influence[layers.items[best]]))
                best = k;
        taken[best] = true;
        drop->items[i] = layers.items[best];
    }
}

Status removal_choose(IntList *drop, const Removal *r, IntList layers, int64_t count,
                      RemovalOrder order, Diag *diag) {
    *drop = (IntList){ARENA_ARRAY(r->ctx->arena, int64_t, (size_t)count), (int)count};
    if (order == ORDER_RELEVANCE) {
        TRY(choose_by_relevance(drop, r, layers, diag));
    } else if (order == ORDER_INFLUENCE) {
        choose_by_influence(drop, r, layers);
    } else if (order == ORDER_RANDOM) {
        int64_t *drawn = ARENA_ARRAY(r->ctx->arena, int64_t, (size_t)layers.count);
        random_permutation(random_key_name(r->ctx->seed, "removal"), drawn, layers.count);
        for (int i = 0; i < count; i++) drop->items[i] = layers.items[drawn[i]];
    } else {
        choose_spread(drop, r, layers);
    }
    sort_numbers(drop->items, count);
    return STATUS_OK;
}

/* ---- what stays ---- */

static Status condition(const Removal *r, Model *model, Model *before, IntList layers,
                        Diag *diag) {
    SliceList given = {0}, removed = {0};
    bool approximate = false;
    Removal old = *r;
    old.graph = before->graph;
    TRY(removal_given(&given, &approximate, &old, layers, diag));
    for (int i = 0; i < before->graph->storage_count; i++) {
        Storage *storage = before->graph->storages[i];
        if (!graph_storage(model->graph, storage->name))
            slices_add(r->ctx->arena, &removed,
                       (ConditionSlice){.storage = storage, .axis = -1});
        else
            storage_drop_gaussian(graph_storage(model->graph, storage->name));
    }
    TRY(prior_condition(r->ctx, before->graph, &given, &removed, diag));
    tree_put_string(r->ctx->arena, r->ctx->record, "identity",
                    approximate ? "approximate: norms after the sums stay norms"
                                : "exact");
    graph_take_gaussians(model->graph, before->graph);
    return condition_set_weights(model->graph, diag);
}

Status removal_finish(const Removal *r, Model *model, Model *before, IntList layers,
                      PriorKind prior, Diag *diag) {
    if (prior == PRIOR_GAUSSIAN) return condition(r, model, before, layers, diag);
    return prior == PRIOR_RANDOM ? prior_redraw(r->ctx, model, diag) : STATUS_OK;
}
