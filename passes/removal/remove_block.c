/* remove_block: takes single blocks out of layers: self-attention, cross-attention or the
 * feed-forward block. See passes/block.h and passes/removal/removal.h. */
#include "passes/removal/bridge.h"
#include "passes/removal/removal.h"

#include "ir/rewrite.h"

typedef struct BlockOptions {
    int block; /* BlockKind */
    IntList drop;
    int64_t drop_count;
    int order; /* RemovalOrder */
    int prior; /* PriorKind */
    const char *stack;
    bool bridge;
    CalibrationOptions calibration;
} BlockOptions;

#define B BlockOptions
static const Field fields[] = {
    {.name = "block",
     .kind = FIELD_CHOICE,
     .offset = FIELD_AT(B, block, int),
     .choices = BLOCK_NAMES,
     .required = true,
     .help = "which block of the layers goes"},
    F_INTS(B, drop, 0, 999999, "layers, from 0, that lose the block"),
    F_INT(B, drop_count, 0, 999999,
          "how many layers lose it, instead of `drop`, chosen by `order`; 0 = not given"),
    F_CHOICE(B, order, REMOVAL_ORDERS, REMOVAL_ORDER_HELP),
    F_PRIOR(B),
    F_STRING(B, stack,
             "stack of layers: encoder, decoder, ...; main: the decoder if there is one, "
             "else the encoder",
             .expect = "the name of a stack"),
    F_BOOL(B, bridge,
           "blocks that go leave the linear map that comes nearest to what they did on "
           "data"),
    F_CALIBRATION(B, calibration),
    F_END,
};

static const B defaults = {.stack = "main", .calibration = CALIBRATION_DEFAULTS};

static Status block_check(const void *opaque, const StepSource *source, Diag *diag) {
    const B *options = opaque;
    if ((options->drop.count > 0) == (options->drop_count > 0))
        return option_fail(
            source, "drop|drop_count", STATUS_RECIPE, diag,
            "expected one of drop and drop_count, with at least one layer; "
            "found %s",
            options->drop_count ? "both" : "none");
    if (options->order != ORDER_SPREAD && !options->drop_count)
        return option_fail(source, "order", STATUS_RECIPE, diag,
                           "expected drop_count with it, found a list of layers");
    if (options->bridge && options->prior != PRIOR_COPY)
        return option_fail(source, "bridge", STATUS_RECIPE, diag,
                           "expected prior: copy with it");
    TRY(removal_check_data(&options->calibration,
                           options->order == ORDER_INFLUENCE || options->bridge, source,
                           diag));
    const IntList drop = options->drop;
    for (int i = 0; i < drop.count; i++)
        for (int j = 0; j < i; j++)
            if (drop.items[i] == drop.items[j])
                return option_fail(source, "drop", STATUS_RECIPE, diag,
                                   "expected every layer once, found %lld twice",
                                   (long long)drop.items[i]);
    return STATUS_OK;
}

/* ---- which layers ---- */

/* What is known of the layers before the step. */
typedef struct Layers {
    LayerBlocks *items; /* by layer */
    int depth;
    IntList with; /* those that have the block, ascending */
} Layers;

static Status find_layers(Layers *out, const Removal *r, Diag *diag) {
    const int depth = graph_layer_count(r->graph, r->stack);
    Arena *arena = r->ctx->arena;
    *out = (Layers){ARENA_ARRAY(arena, LayerBlocks, (size_t)depth),
                    depth,
                    {ARENA_ARRAY(arena, int64_t, (size_t)depth), 0}};
    TRY(stack_check(r->ctx, r->graph, r->stack, diag));
    for (int l = 0; l < depth; l++) {
        TRY(layer_blocks(&out->items[l], r->ctx, r->graph, r->stack, l, diag));
        if (layer_count_part(&out->items[l], r->part))
            out->with.items[out->with.count++] = l;
    }
    return STATUS_OK;
}

/* The listed layers, ascending; each must have the block. */
static Status listed(IntList *out, const Removal *r, const Layers *layers, IntList drop,
                     Diag *diag) {
    *out = (IntList){ARENA_ARRAY(r->ctx->arena, int64_t, (size_t)drop.count), drop.count};
    TRY(layers_check(r->ctx, r->graph, r->stack, "drop", drop, diag));
    for (int i = 0; i < drop.count; i++) {
        const int64_t layer = out->items[i] = drop.items[i];
        if (!layer_count_part(&layers->items[layer], r->part))
            return step_fail_option(r->ctx, "drop", diag, "%s.%lld has no block %s",
                                    r->stack, (long long)layer,
                                    block_name((BlockKind)r->part));
    }
    sort_numbers(out->items, out->count);
    return STATUS_OK;
}

static Status resolve(IntList *drop, const Removal *r, const Layers *layers,
                      const B *options, Diag *diag) {
    if (options->drop.count) return listed(drop, r, layers, options->drop, diag);
    if (options->drop_count > layers->with.count)
        return step_fail_option(r->ctx, "drop_count", diag,
                                "expected at most the %d layers of stack \"%s\" that "
                                "have a block %s, found %lld",
                                layers->with.count, r->stack,
                                block_name((BlockKind)r->part),
                                (long long)options->drop_count);
    return removal_choose(drop, r, layers->with, options->drop_count,
                          (RemovalOrder)options->order, diag);
}

/* ---- taking out ---- */

/* Layers with a block left, ascending. Fails when there is none. */
static Status find_kept(IntList *keep, const Removal *r, const Layers *layers,
                        IntList drop, Diag *diag) {
    *keep = (IntList){ARENA_ARRAY(r->ctx->arena, int64_t, (size_t)layers->depth), 0};
    for (int l = 0, d = 0; l < layers->depth; l++) {
        const LayerBlocks *blocks = &layers->items[l];
        const bool loses = d < drop.count && drop.items[d] == l;
        d += loses;
        if (!loses || blocks->count > layer_count_part(blocks, r->part))
            keep->items[keep->count++] = l;
    }
    if (keep->count) return STATUS_OK;
    return step_fail_option(
        r->ctx, "drop|drop_count", diag,
        "expected at least one block to remain in stack \"%s\", found none", r->stack);
}

/* Takes the blocks out, the last first: what feeds one may leave with another; and layers
 * that have nothing left. */
static Status take_out(const Removal *r, Model *model, const Layers *layers, IntList drop,
                       IntList keep, Diag *diag) {
    for (int i = drop.count - 1; i >= 0; i--) {
        const LayerBlocks *blocks = &layers->items[drop.items[i]];
        if (blocks->count == layer_count_part(blocks, r->part)) continue;
        for (int b = blocks->count - 1; b >= 0; b--)
            if (block_is_part(&blocks->items[b], r->part))
                block_bypass(r->graph, &blocks->items[b]);
    }
    graph_remove_dead(r->graph);
    TRY(graph_infer(r->graph, diag));
    return keep.count < layers->depth ? layers_keep(r->ctx, model, r->stack, keep, diag)
                                      : STATUS_OK;
}

/* ---- bridges ---- */

/* The next blocks from `*first` on that go of a layer; false when there are none. They
 * end before `*end`. */
static bool next_run(const LayerBlocks *blocks, int part, int *first, int *end) {
    while (*first < blocks->count && !block_is_part(&blocks->items[*first], part))
        ++*first;
    for (*end = *first; *end < blocks->count && block_is_part(&blocks->items[*end], part);
         ++*end) {
    }
    return *first < blocks->count;
}

/* Adds bridges for the blocks that go of a layer, `number` before the step: outside of it
 * where it begins or ends with them, so that what stays is a chain of blocks. Blocks are
 * taken out, unless that is the whole layer. */
static Status bridge_layer(const Removal *r, const LayerBlocks *blocks, bool whole,
                           int layer, int64_t number, Calibration *calibration,
                           double damp, Diag *diag) {
    Tree *list = tree_get(r->ctx->record, "bridges");
    for (int first = 0, end; next_run(blocks, r->part, &first, &end); first = end) {
        const bool inside = first > 0 && end < blocks->count;
        BridgeSpan span = {.x = blocks->items[first].input,
                           .y = blocks->items[end - 1].output,
                           .stack = r->stack,
                           .layer = inside ? layer : -1,
                           .first = number,
                           .error = -1};
        TRY(bridge_add(r->ctx, r->graph, calibration, damp, &span, diag));
        if (!whole) graph_replace_uses(r->graph, span.y, span.x);
        Tree *row = tree_add_map(r->ctx->arena, list);
        tree_put_int(r->ctx->arena, row, "layer", number);
        if (calibration) tree_put_real(r->ctx->arena, row, "relative_error", span.error);
    }
    return STATUS_OK;
}

/* As take_out, the first layer first: a later bridge sees what the earlier ones give. */
static Status bridge_all(const Removal *r, Model *model, const Layers *layers,
                         IntList drop, Calibration *calibration, double damp,
                         Diag *diag) {
    Arena *arena = r->ctx->arena;
    int64_t gone = 0;
    tree_put_list(arena, r->ctx->record, "bridges");
    for (int i = 0; i < drop.count; i++) {
        int64_t layer = drop.items[i] - gone;
        LayerBlocks blocks;
        TRY(layer_blocks(&blocks, r->ctx, r->graph, r->stack, (int)layer, diag));
        const bool whole = blocks.count == layer_count_part(&blocks, r->part);
        TRY(bridge_layer(r, &blocks, whole, (int)layer, drop.items[i], calibration, damp,
                         diag));
        const int depth = layers->depth - (int)gone;
        if (whole)
            TRY(layers_keep(r->ctx, model, r->stack,
                            removal_others(arena, (IntList){&layer, 1}, depth), diag));
        gone += whole;
        graph_remove_dead(r->graph);
        TRY(graph_infer(r->graph, diag));
        if (calibration) calibration_restart(calibration);
    }
    return STATUS_OK;
}

/* ---- the pass ---- */

static void record(const Removal *r, IntList drop, int left) {
    Tree *map = r->ctx->record;
    tree_put_string(r->ctx->arena, map, "stack", r->stack);
    tree_append(r->ctx->arena, map, "layers", LOC_NONE, layers_tree(r->ctx->arena, drop));
    tree_put_int(r->ctx->arena, map, "depth", left);
}

/* Decides what goes, and takes it out. */
static Status remove_blocks(Removal *r, Model *model, const Layers *layers,
                            const B *options, Calibration *calibration, Diag *diag) {
    IntList drop, keep;
    if (options->order == ORDER_INFLUENCE)
        TRY(removal_influence(r, layers->with, calibration, diag));
    TRY(resolve(&drop, r, layers, options, diag));
    TRY(find_kept(&keep, r, layers, drop, diag));
    const PriorKind prior = (PriorKind)options->prior;
    Model *before = prior == PRIOR_GAUSSIAN ? model_copy(model) : NULL;
    Status status = options->bridge ? bridge_all(r, model, layers, drop, calibration,
                                                 options->calibration.damp, diag)
                                    : take_out(r, model, layers, drop, keep, diag);
    record(r, drop, keep.count);
    if (status == STATUS_OK) status = removal_finish(r, model, before, drop, prior, diag);
    model_destroy(before);
    return status;
}

static Status block_run(PassContext *ctx, Model *model, const void *opaque, Diag *diag) {
    const B *options = opaque;
    Removal removal = {ctx, model->graph, stack_named(model->graph, options->stack),
                       options->block, NULL};
    Calibration *calibration = NULL;
    Layers layers;
    ctx->stays = options->prior == PRIOR_COPY && !options->bridge;
    TRY(find_layers(&layers, &removal, diag));
    TRY(removal_calibrate(&calibration, &removal, layers.with, &options->calibration,
                          options->bridge, diag));
    const Status status =
        remove_blocks(&removal, model, &layers, options, calibration, diag);
    calibration_close(calibration);
    return status;
}

const Pass pass_remove_block = {
    .name = "remove_block",
    .summary = "take attention or feed-forward blocks out of layers",
    .paper = "Bayesian distillation of transformer models (2023), section 3.2",
    .fields = fields,
    .options_size = sizeof(B),
    .defaults = &defaults,
    .data_options = "data",
    .flags = PASS_STREAMS,
    .exactness = PASS_LOSSY,
    .effects = {.gives = MODEL_WHOLE_LAYERS | MODEL_EQUAL_WIDTHS,
                .takes = MODEL_WHOLE_LAYERS | MODEL_EQUAL_WIDTHS | MODEL_EXIT_RULE},
    .check = block_check,
    .run = block_run,
};
