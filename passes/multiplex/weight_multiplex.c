/* weight_multiplex: groups of layers share their weights, each layer keeps small
 * transformations of its own. See passes/multiplex/multiplex.h. */
#include "passes/multiplex/multiplex.h"

#include "ir/rewrite.h"
#include "passes/layers.h"

#include <string.h>

#define M MultiplexOptions
static const Field fields[] = {
    F_INT(M, group, 1, 100000,
          "layers in a group; must divide the number of layers, of every stage where "
          "widths change"),
    F_INTS(M, groups, 1, 100000,
           "sizes of the groups, first to last, instead of `group`; must add up to the "
           "number of layers"),
    F_INTS(M, layers_left, 1, 100000,
           "layers of weights left in each stage, first to last, instead of `group`; "
           "must divide the stage's layers"),
    F_CHOICE(
        M, init, "first|mean|lsq",
        "shared weights: the first layer's, the mean of the layers, or least squares "
        "with per-layer column scales folded into the norms"),
    F_CHOICE(M, mixing, "none|both|before|after",
             "H x H mixing of heads before and after the softmax"),
    F_CHOICE(M, mixing_init, "identity|trunc_normal", "first values of the mixing"),
    F_BOOL(M, mixing_bias, "mixing with a bias for each head, zero at the start"),
    F_REAL(M, mixing_std, 1e-9, 10, "standard deviation of trunc_normal"),
    F_CHOICE(M, position, "none|contextual",
             "table of contextual relative positions on keys, zero at the start"),
    F_CHOICE(
        M, mlp_transform, "none|conv|norm_conv",
        "depth-wise convolution over the patch grid: of the MLP's input (zero at the "
        "start), or with a norm of its own on the residual stream"),
    F_INT(M, kernel, 1, 31, "size of that convolution, odd"),
    F_CHOICE(M, pooling, "keep|mean",
             "keep the class token, or drop it (and the distillation token) for the mean "
             "over patches"),
    F_STRING(M, stack,
             "stack of layers to group; main: the decoder if there is one, else the "
             "encoder",
             .expect = "the name of a stack"),
    F_END,
};

static const M defaults = {.group = 2,
                           .init = SHARE_MEAN,
                           .mixing = MIXING_BOTH,
                           .position = POSITION_CONTEXTUAL,
                           .mixing_std = 0.02,
                           .kernel = 3,
                           .stack = "main"};

static Status share_groups(Multiplex *m, Diag *diag) {
    Arena *arena = m->ctx->arena;
    Tree *list = tree_new(arena, TREE_LIST, LOC_NONE);
    IntList groups;
    TRY(multiplex_groups(&groups, m, diag));
    for (int first = 0, g = 0; g < groups.count; g++) {
        const int count = (int)groups.items[g];
        TRY(multiplex_share(m, first, count, diag));
        if (!m->ctx->plan) {
            Tree *row = tree_new(arena, TREE_MAP, LOC_NONE);
            tree_put_int(arena, row, "first_layer", first);
            tree_put_int(arena, row, "layers", count);
            tree_put_real(arena, row, "deviation", m->deviation);
            tree_append(arena, list, NULL, LOC_NONE, row);
        }
        if (m->deviation > m->largest) m->largest = m->deviation;
        first += count;
    }
    tree_append(arena, m->ctx->record, "groups", LOC_NONE, list);
    return STATUS_OK;
}

/* Whether this application leaves the function as it was: only where nothing was merged
 * that differed, and every transformation starts as the identity. */
static bool is_exact(const Multiplex *m) {
    const M *options = m->options;
    const bool mixing =
        options->mixing == MIXING_NONE || options->mixing_init == MIXING_IDENTITY;
    return m->largest == 0 && mixing && options->pooling == POOLING_KEEP &&
           options->mlp_transform != MLP_NORM_CONV;
}

static Status multiplex_run(PassContext *ctx, Model *model, const void *opaque,
                            Diag *diag) {
    M options = *(const M *)opaque;
    Multiplex m = {
        .ctx = ctx, .model = model, .graph = model->graph, .options = &options};
    options.stack = stack_named(m.graph, options.stack);
    m.layers = graph_layer_count(m.graph, options.stack);
    TRY(share_groups(&m, diag));
    if (options.pooling == POOLING_MEAN) TRY(multiplex_pool_mean(&m, diag));
    for (int layer = 0; layer < m.layers; layer++)
        TRY(multiplex_transform(&m, layer, diag));
    graph_remove_dead(m.graph);
    TRY(graph_infer(m.graph, diag));
    ctx->exact = is_exact(&m);
    return ctx->plan ? STATUS_OK : model_init_weights(model, ctx->seed, diag);
}

static Status multiplex_check(const void *opaque, const StepSource *source, Diag *diag) {
    const M *options = opaque;
    if (options->groups.count && options->layers_left.count)
        return option_fail(source, "groups|layers_left", STATUS_RECIPE, diag,
                           "expected groups or layers_left, found both");
    if (options->mixing_bias && options->mixing == MIXING_NONE)
        return option_fail(source, "mixing_bias", STATUS_RECIPE, diag,
                           "expected mixing beside mixing_bias, found none");
    if (options->kernel % 2 == 0)
        return option_fail(source, "kernel", STATUS_RECIPE, diag,
                           "expected an odd number, found %lld",
                           (long long)options->kernel);
    return STATUS_OK;
}

/* Layers outside of given groups or in other stacks may be of any kind; layers may be
 * shared again where they are not mixed again. */
static void multiplex_effects(const void *opaque, PassEffects *effects) {
    const M *options = opaque;
    if (options->groups.count || strcmp(options->stack, defaults.stack) != 0)
        effects->needs = effects->refuses = 0;
    if (options->mixing != MIXING_NONE) return;
    effects->refuses &= ~(unsigned)MODEL_MIXED_HEADS;
    effects->gives &= ~(unsigned)MODEL_MIXED_HEADS;
}

const Pass pass_weight_multiplex = {
    .name = "weight_multiplex",
    .summary = "share weights between the layers of a group, with small transformations "
               "of each layer's own",
    .paper = "MiniViT: Compressing Vision Transformers with Weight Multiplexing "
             "(CVPR 2022), section 3.2",
    .fields = fields,
    .options_size = sizeof(M),
    .defaults = &defaults,
    .exactness = PASS_LOSSY,
    .effects = {.needs = MODEL_SOFTMAX_ATTENTION | MODEL_WHOLE_LAYERS,
                .refuses = MODEL_MIXED_HEADS | MODEL_FACTORED_LINEARS,
                .gives = MODEL_SHARED_LAYERS | MODEL_MIXED_HEADS},
    .effects_of = multiplex_effects,
    .check = multiplex_check,
    .run = multiplex_run,
};
