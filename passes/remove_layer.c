/* remove_layer: takes layers out of a stack; what fed a removed layer feeds whoever used
 * it. See passes/layers.h. */
#include "passes/layers.h"

#include <stdlib.h>

typedef struct RemoveOptions {
    IntList keep, drop;
    int64_t count;
    const char *stack;
} RemoveOptions;

#define R RemoveOptions
static const Field fields[] = {
    F_INTS(R, keep, 0, 999999, "layers to keep, from 0, in ascending order"),
    F_INTS(R, drop, 0, 999999, "layers to remove, from 0, instead of `keep`"),
    F_INT(R, count, 0, 999999,
          "how many layers to keep, instead of `keep`: spread over the depth; 0 = not "
          "given"),
    F_STRING(R, stack,
             "stack of layers: encoder, decoder, ...; main: the decoder if there is one, "
             "else the encoder"),
    F_END,
};

static const R defaults = {.stack = "main"};

/* ---- which layers ---- */

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

/* `count` of `depth` layers: a named table, else evenly with both ends, rounded. */
static IntList choose_layers(Arena *arena, int count, int depth) {
    IntList list = {ARENA_ARRAY(arena, int64_t, count), count};
    const NamedTable *named = NULL;
    for (size_t t = 0; t < sizeof named_tables / sizeof *named_tables; t++)
        if (depth == NAMED_DEPTH && named_tables[t].count == count)
            named = &named_tables[t];
    const int64_t steps = count > 1 ? count - 1 : 1, last = depth - 1;
    for (int64_t i = 0; i < count; i++)
        list.items[i] = named ? named->layers[i] : (2 * i * last + steps) / (2 * steps);
    return list;
}

/* The layers below `depth` that are not in `list`. */
static IntList other_layers(Arena *arena, IntList list, int depth) {
    bool *listed = ARENA_ARRAY(arena, bool, depth);
    IntList others = {ARENA_ARRAY(arena, int64_t, depth), 0};
    for (int i = 0; i < list.count; i++) listed[list.items[i]] = true;
    for (int layer = 0; layer < depth; layer++)
        if (!listed[layer]) others.items[others.count++] = layer;
    return others;
}

/* ---- checks ---- */

static Status check_range(PassContext *ctx, const char *name, IntList list,
                          const char *stack, int depth, Diag *diag) {
    for (int i = 0; i < list.count; i++)
        if (list.items[i] >= depth)
            return edit_fail(ctx, diag,
                             "%s: expected layers from 0 to %d (stack \"%s\" has %d), "
                             "found %lld",
                             name, depth - 1, stack, depth, (long long)list.items[i]);
    return STATUS_OK;
}

/* The layers to keep, ascending. */
static Status resolve(IntList *keep, PassContext *ctx, const R *options, int depth,
                      Diag *diag) {
    TRY(check_range(ctx, "keep", options->keep, options->stack, depth, diag));
    TRY(check_range(ctx, "drop", options->drop, options->stack, depth, diag));
    if (options->count > depth)
        return edit_fail(ctx, diag,
                         "count: expected at most the %d layers of stack \"%s\", found "
                         "%lld",
                         depth, options->stack, (long long)options->count);
    if (options->drop.count == depth)
        return edit_fail(ctx, diag,
                         "drop: expected at least one layer to remain, found all %d "
                         "layers of stack \"%s\"",
                         depth, options->stack);
    if (options->keep.count)
        *keep = options->keep;
    else if (options->drop.count)
        *keep = other_layers(ctx->arena, options->drop, depth);
    else
        *keep = choose_layers(ctx->arena, (int)options->count, depth);
    return STATUS_OK;
}

static int compare_numbers(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static Status check_duplicates(const char *name, IntList list, Loc at, const char *key,
                               Diag *diag) {
    if (list.count == 0) return STATUS_OK;
    int64_t *sorted = memory_alloc((size_t)list.count, sizeof *sorted);
    for (int i = 0; i < list.count; i++) sorted[i] = list.items[i];
    qsort(sorted, (size_t)list.count, sizeof *sorted, compare_numbers);
    int64_t twice = -1;
    for (int i = 1; i < list.count && twice < 0; i++)
        if (sorted[i] == sorted[i - 1]) twice = sorted[i];
    free(sorted);
    if (twice < 0) return STATUS_OK;
    return diag_fail(diag, STATUS_RECIPE, at, key,
                     "%s: expected every layer once, found %lld twice", name,
                     (long long)twice);
}

static Status check_ascending(IntList keep, Loc at, const char *key, Diag *diag) {
    for (int i = 1; i < keep.count; i++) {
        if (keep.items[i] > keep.items[i - 1]) continue;
        Status status =
            diag_fail(diag, STATUS_RECIPE, at, key,
                      "keep: expected layers in ascending order, found %lld after %lld",
                      (long long)keep.items[i], (long long)keep.items[i - 1]);
        diag_hint(diag, "layers stay in the order that they have in the model");
        return status;
    }
    return STATUS_OK;
}

static Status remove_check(const void *opaque, Loc at, const char *key, Diag *diag) {
    const R *options = opaque;
    const int given =
        (options->keep.count > 0) + (options->drop.count > 0) + (options->count > 0);
    if (!options->stack)
        return diag_fail(diag, STATUS_RECIPE, at, key,
                         "stack: expected the name of a stack, found null");
    if (given == 0)
        return diag_fail(diag, STATUS_RECIPE, at, key,
                         "expected one of keep, drop and count, with at least one layer; "
                         "found none");
    if (given > 1)
        return diag_fail(diag, STATUS_RECIPE, at, key,
                         "expected one of keep, drop and count, found %d of them", given);
    TRY(check_duplicates("keep", options->keep, at, key, diag));
    TRY(check_duplicates("drop", options->drop, at, key, diag));
    return check_ascending(options->keep, at, key, diag);
}

/* ---- the pass ---- */

static Status record_layers(PassContext *ctx, const Model *model, const R *options,
                            IntList keep, int depth, Diag *diag) {
    IntList lineage;
    const IntList removed = other_layers(ctx->arena, keep, depth);
    TRY(layers_lineage(&lineage, ctx->arena, ctx, model, options->stack, keep.count,
                       diag));
    tree_put_int(ctx->arena, ctx->record, "depth", keep.count);
    tree_append(ctx->arena, ctx->record, "removed", LOC_NONE,
                layers_tree(ctx->arena, removed));
    tree_append(ctx->arena, ctx->record, "original_layers", LOC_NONE,
                layers_tree(ctx->arena, lineage));
    return STATUS_OK;
}

static Status remove_run(PassContext *ctx, Model *model, const void *opaque, Diag *diag) {
    R options = *(const R *)opaque;
    options.stack = edit_stack(model->graph, options.stack);
    const int depth = graph_layer_count(model->graph, options.stack);
    if (depth == 0)
        return edit_fail(ctx, diag, "the model has no layers in stack \"%s\"",
                         options.stack);
    IntList keep;
    TRY(resolve(&keep, ctx, &options, depth, diag));
    TRY(layers_keep(ctx, model, options.stack, keep, diag));
    return record_layers(ctx, model, &options, keep, depth, diag);
}

const Pass pass_remove_layer = {
    .name = "remove_layer",
    .summary = "take layers out of a stack; the others keep their weights",
    .paper = "DistilBERT, a distilled version of BERT (2019), section 3",
    .fields = fields,
    .options_size = sizeof(R),
    .defaults = &defaults,
    .exactness = PASS_LOSSY,
    .check = remove_check,
    .run = remove_run,
};
