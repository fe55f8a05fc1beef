/* remove_layer: takes layers out of a stack; what fed a removed layer feeds whoever used
 * it. See passes/layers.h, and passes/removal/removal.h for the weights that stay. */
#include "passes/budget.h"
#include "passes/removal/bridge.h"
#include "passes/removal/removal.h"

#include <stdlib.h>

typedef struct RemoveOptions {
    IntList keep, drop;
    int64_t count, drop_count;
    BudgetOptions budget;
    int order; /* RemovalOrder */
    int prior; /* PriorKind */
    const char *stack;
    bool bridge;
    CalibrationOptions calibration;
} RemoveOptions;

#define R RemoveOptions
static const Field fields[] = {
    F_INTS(R, keep, 0, 999999, "layers to keep, from 0, in ascending order"),
    F_INTS(R, drop, 0, 999999, "layers to remove, from 0, instead of `keep`"),
    F_INT(R, count, 0, 999999,
          "how many layers to keep, instead of `keep`, chosen by `order`; 0 = not given"),
    F_INT(R, drop_count, 0, 999999,
          "how many layers to remove, instead of `keep`, chosen by `order`; 0 = not "
          "given"),
    F_BUDGET(R, budget, "as many layers as a budget has room for, chosen by `order`"),
    F_CHOICE(R, order, REMOVAL_ORDERS, REMOVAL_ORDER_HELP),
    F_PRIOR(R),
    F_STRING(R, stack,
             "stack of layers: encoder, decoder, ...; main: the decoder if there is one, "
             "else the encoder",
             .expect = "the name of a stack"),
    F_BOOL(R, bridge,
           "layers that go leave the linear map that comes nearest to what they did on "
           "data, one for all that stood together"),
    F_CALIBRATION(R, calibration),
    F_END,
};

static const R defaults = {.stack = "main", .calibration = CALIBRATION_DEFAULTS};

/* Options that say which layers go. */
#define REMOVE_WAYS "keep|drop|count|drop_count|" BUDGET_NAMES

/* ---- checks ---- */

static Status check_numbers(PassContext *ctx, const Graph *graph, const R *options,
                            int depth, Diag *diag) {
    TRY(layers_check(ctx, graph, options->stack, "keep", options->keep, diag));
    TRY(layers_check(ctx, graph, options->stack, "drop", options->drop, diag));
    if (options->count > depth)
        return step_fail_option(ctx, "count", diag,
                                "expected at most the %d layers of stack \"%s\", found "
                                "%lld",
                                depth, options->stack, (long long)options->count);
    if (options->drop.count == depth)
        return step_fail_option(ctx, "drop", diag,
                                "expected at least one layer to remain, found all %d "
                                "layers of stack \"%s\"",
                                depth, options->stack);
    if (options->drop_count >= depth)
        return step_fail_option(ctx, "drop_count", diag,
                                "expected at least one of the %d layers of stack "
                                "\"%s\" to remain, found %lld",
                                depth, options->stack, (long long)options->drop_count);
    return STATUS_OK;
}

/* ---- taking out ---- */

/* Takes layers [first, last] out, with a bridge in their place; `number` stands in its
 * name. */
static Status bridge_run(const Removal *r, Model *model, int first, int last,
                         BridgeSpan *span, Calibration *calibration, double damp,
                         Diag *diag) {
    LayerEnds in, out;
    const int depth = graph_layer_count(model->graph, r->stack);
    IntList gone = {ARENA_ARRAY(r->ctx->arena, int64_t, (size_t)(last - first + 1)), 0};
    for (int l = first; l <= last; l++) gone.items[gone.count++] = l;
    TRY(layer_ends(&in, r->ctx, model->graph, r->stack, first, diag));
    TRY(layer_ends(&out, r->ctx, model->graph, r->stack, last, diag));
    span->x = in.input;
    span->y = out.output;
    TRY(bridge_add(r->ctx, model->graph, calibration, damp, span, diag));
    TRY(layers_keep(r->ctx, model, r->stack, removal_others(r->ctx->arena, gone, depth),
                    diag));
    if (calibration) calibration_restart(calibration);
    return STATUS_OK;
}

/* Takes layers `gone` out of a stack of `depth`, those that stand together at a time
 * where they are bridged: a later bridge sees what the earlier ones give. */
static Status take_out(const Removal *r, Model *model, const R *options, IntList gone,
                       int depth, Calibration *calibration, Diag *diag) {
    Arena *arena = r->ctx->arena;
    if (!options->bridge)
        return layers_keep(r->ctx, model, r->stack, removal_others(arena, gone, depth),
                           diag);
    Tree *list = tree_put_list(arena, r->ctx->record, "bridges");
    for (int i = 0, end; i < gone.count; i = end) {
        end = i + 1;
        while (end < gone.count && gone.items[end] == gone.items[end - 1] + 1) end++;
        const int first = (int)gone.items[i] - i; /* i of them are gone already */
        BridgeSpan span = {
            .stack = r->stack, .layer = -1, .first = gone.items[i], .error = -1};
        TRY(bridge_run(r, model, first, first + end - i - 1, &span, calibration,
                       options->calibration.damp, diag));
        Tree *row = tree_add_map(arena, list);
        tree_append(arena, row, "layers", LOC_NONE,
                    layers_tree(arena, (IntList){gone.items + i, end - i}));
        if (calibration) tree_put_real(arena, row, "relative_error", span.error);
    }
    return STATUS_OK;
}

/* ---- budgets ---- */

/* What the model costs without `count` layers, those that would go. */
static Status measure_without(double *cost, const Removal *removal, const Model *model,
                              const R *options, int depth, int count, MeasureKind kind,
                              Diag *diag) {
    PassContext ctx = *removal->ctx;
    Removal scratch = *removal;
    IntList drop = {NULL, 0};
    Measure measure = {0};
    Model *copy = model_copy(model);
    ctx.arena = arena_create();
    ctx.record = tree_new(ctx.arena, TREE_MAP, LOC_NONE);
    scratch.ctx = &ctx;
    model_strip(copy);
    Status status = STATUS_OK;
    if (count > 0)
        status = removal_choose(&drop, &scratch,
                                removal_others(ctx.arena, (IntList){NULL, 0}, depth),
                                count, (RemovalOrder)options->order, diag);
    if (status == STATUS_OK && count > 0)
        status = take_out(&scratch, copy, options, drop, depth, NULL, diag);
    if (status == STATUS_OK) status = model_measure(&measure, copy, diag);
    *cost = measure_get(&measure, kind);
    model_destroy(copy);
    arena_destroy(ctx.arena);
    return status;
}

/* The fewest layers to remove with which the budget holds. */
static Status count_by_budget(int64_t *count, const Removal *removal, const Model *model,
                              const R *options, int depth, Diag *diag) {
    Budget budget;
    double cost = 0;
    TRY(budget_open(&budget, removal->ctx, model, &options->budget, diag));
    for (int drop = 0; drop < depth; drop++) {
        TRY(measure_without(&cost, removal, model, options, depth, drop, budget.kind,
                            diag));
        if (cost > budget.bound) continue;
        *count = drop;
        budget_record(&budget, removal->ctx, cost);
        return STATUS_OK;
    }
    return budget_fail(&budget, removal->ctx, cost, "one layer", diag);
}

/* The layers to keep, ascending. */
static Status resolve(IntList *keep, const Removal *removal, const Model *model,
                      const R *options, int depth, Diag *diag) {
    Arena *arena = removal->ctx->arena;
    IntList drop = options->drop;
    TRY(check_numbers(removal->ctx, removal->graph, options, depth, diag));
    *keep = options->keep;
    if (keep->count) return STATUS_OK;
    int64_t count = options->count ? depth - options->count : options->drop_count;
    if (budget_count(&options->budget) > 0)
        TRY(count_by_budget(&count, removal, model, options, depth, diag));
    if (!drop.count && count > 0)
        TRY(removal_choose(&drop, removal,
                           removal_others(arena, (IntList){NULL, 0}, depth), count,
                           (RemovalOrder)options->order, diag));
    *keep = removal_others(arena, drop, depth);
    return STATUS_OK;
}

static Status check_duplicates(const char *name, IntList list, const StepSource *source,
                               Diag *diag) {
    if (list.count == 0) return STATUS_OK;
    int64_t *sorted = memory_alloc((size_t)list.count, sizeof *sorted);
    for (int i = 0; i < list.count; i++) sorted[i] = list.items[i];
    sort_numbers(sorted, list.count);
    int64_t twice = -1;
    for (int i = 1; i < list.count && twice < 0; i++)
        if (sorted[i] == sorted[i - 1]) twice = sorted[i];
    free(sorted);
    if (twice < 0) return STATUS_OK;
    return option_fail(source, name, STATUS_RECIPE, diag,
                       "expected every layer once, found %lld twice", (long long)twice);
}

static Status check_ascending(IntList keep, const StepSource *source, Diag *diag) {
    for (int i = 1; i < keep.count; i++) {
        if (keep.items[i] > keep.items[i - 1]) continue;
        Status status =
            option_fail(source, "keep", STATUS_RECIPE, diag,
                        "expected layers in ascending order, found %lld after %lld",
                        (long long)keep.items[i], (long long)keep.items[i - 1]);
        diag_hint(diag, "layers stay in the order that they have in the model");
        return status;
    }
    return STATUS_OK;
}

static Status remove_check(const void *opaque, const StepSource *source, Diag *diag) {
    const R *options = opaque;
    const int budgets = budget_count(&options->budget);
    const int ways = (options->keep.count > 0) + (options->drop.count > 0) +
                     (options->count > 0) + (options->drop_count > 0) + budgets;
    if (ways == 0)
        return option_fail(source, REMOVE_WAYS, STATUS_RECIPE, diag,
                           "expected one of keep, drop, count, drop_count, flops, "
                           "parameters and bytes, with at least one layer; found none");
    if (ways > 1)
        return option_fail(source, REMOVE_WAYS, STATUS_RECIPE, diag,
                           "expected one of keep, drop, count, drop_count, flops, "
                           "parameters and bytes, found %d of them",
                           ways);
    if (options->order != ORDER_SPREAD && !options->count && !options->drop_count &&
        !budgets)
        return option_fail(source, "order", STATUS_RECIPE, diag,
                           "expected count, drop_count or a budget with it, found a list "
                           "of layers");
    if (options->bridge && options->prior != PRIOR_COPY)
        return option_fail(source, "bridge", STATUS_RECIPE, diag,
                           "expected prior: copy with it");
    TRY(removal_check_data(&options->calibration,
                           options->order == ORDER_INFLUENCE || options->bridge, source,
                           diag));
    TRY(budget_check(&options->budget, source, diag));
    TRY(check_duplicates("keep", options->keep, source, diag));
    TRY(check_duplicates("drop", options->drop, source, diag));
    return check_ascending(options->keep, source, diag);
}

/* ---- the pass ---- */

/* Takes the other layers out and gives those that stay their weights. */
static Status keep_layers(const Removal *removal, Model *model, const R *options,
                          IntList keep, int depth, Calibration *calibration, Diag *diag) {
    PassContext *ctx = removal->ctx;
    const IntList gone = removal_others(ctx->arena, keep, depth);
    Model *before = options->prior == PRIOR_GAUSSIAN ? model_copy(model) : NULL;
    IntList lineage;
    Status status = take_out(removal, model, options, gone, depth, calibration, diag);
    if (status == STATUS_OK)
        status = layers_lineage(&lineage, ctx->arena, ctx, model, removal->stack,
                                keep.count, diag);
    if (status == STATUS_OK) {
        tree_put_int(ctx->arena, ctx->record, "depth", keep.count);
        tree_append(ctx->arena, ctx->record, "removed", LOC_NONE,
                    layers_tree(ctx->arena, gone));
        tree_append(ctx->arena, ctx->record, "original_layers", LOC_NONE,
                    layers_tree(ctx->arena, lineage));
    }
    if (status == STATUS_OK && gone.count)
        status =
            removal_finish(removal, model, before, gone, (PriorKind)options->prior, diag);
    model_destroy(before);
    return status;
}

static Status remove_run(PassContext *ctx, Model *model, const void *opaque, Diag *diag) {
    R options = *(const R *)opaque;
    options.stack = stack_named(model->graph, options.stack);
    const int depth = graph_layer_count(model->graph, options.stack);
    TRY(stack_check(ctx, model->graph, options.stack, diag));
    ctx->stays = options.prior == PRIOR_COPY && !options.bridge;
    Removal removal = {ctx, model->graph, options.stack, BLOCK_ALL, NULL};
    const IntList all = removal_others(ctx->arena, (IntList){NULL, 0}, depth);
    Calibration *calibration = NULL;
    IntList keep = {NULL, 0};
    TRY(removal_calibrate(&calibration, &removal, all, &options.calibration,
                          options.bridge, diag));
    Status status = STATUS_OK;
    if (options.order == ORDER_INFLUENCE)
        status = removal_influence(&removal, all, calibration, diag);
    if (status == STATUS_OK)
        status = resolve(&keep, &removal, model, &options, depth, diag);
    if (status == STATUS_OK)
        status = keep_layers(&removal, model, &options, keep, depth, calibration, diag);
    calibration_close(calibration);
    return status;
}

const Pass pass_remove_layer = {
    .name = "remove_layer",
    .summary = "take layers out of a stack; the others keep their weights, or start from "
               "what a posterior says about them",
    .paper = "DistilBERT, a distilled version of BERT (2019), section 3; Bayesian "
             "distillation of transformer models (2023), theorem 5; ShortGPT (2024)",
    .fields = fields,
    .options_size = sizeof(R),
    .defaults = &defaults,
    .data_options = "data",
    .flags = PASS_STREAMS,
    .exactness = PASS_LOSSY,
    .effects = {.gives = MODEL_WHOLE_LAYERS | MODEL_EQUAL_WIDTHS,
                .takes = MODEL_EXIT_RULE | MODEL_SHARED_LAYERS},
    .check = remove_check,
    .run = remove_run,
};
