/* attention_to_t2r: softmax attention becomes linear attention over learned features.
 *
 * Kasai et al., Finetuning Pretrained Transformers into RNNs, EMNLP 2021: similarity
 * exp(q . k / sqrt(d)) becomes phi(q) . phi(k) with phi(x) = relu(W x + b), W [k, d] and
 * b [k] of each head, the same for queries and keys.
 *
 * Zhang et al., The Hedgehog & the Porcupine, ICLR 2024: phi(x) = [softmax(W x),
 * softmax(-W x)] is as spiky as softmax attention.
 *
 * Zhang et al., LoLCATs, 2024: the last keys keep softmax, beside the linear part, which
 * has all older ones. */
#include "passes/t2r/t2r.h"

#include "ir/random.h"
#include "ir/rewrite.h"
#include "passes/layers.h"

#include <math.h>
#include <string.h>

typedef struct SwapOptions {
    const char *stack;
    IntList layers, keep_softmax;
    int64_t keep_every;
    int feature; /* FeatureFn */
    int64_t feature_size;
    bool bias, share_qk, share_layers;
    int scale_query; /* ScaleQuery */
    int init;        /* MapInit */
    int rotary;      /* RotaryChoice */
    int64_t window;
    int gate; /* GateForm */
    double eps;
    int64_t chunk;
    const char *data;
    int64_t limit, batch_size;
} SwapOptions;

typedef enum ScaleQuery { SCALE_BY_FEATURE, SCALE_TRUE, SCALE_FALSE } ScaleQuery;
typedef enum MapInit { MAP_BY_FEATURE, MAP_NORMAL, MAP_IDENTITY } MapInit;
typedef enum RotaryChoice { ROTARY_KEEP, ROTARY_DROP } RotaryChoice;
typedef enum GateForm { GATE_CONSTANT, GATE_SCORE } GateForm;

#define S SwapOptions
static const Field fields[] = {
    F_STRING(S, stack, "only this stack of layers; not given: all", .nullable = true),
    F_INTS(S, layers, 0, 100000, "layers to change; empty: all"),
    F_INTS(S, keep_softmax, 0, 100000, "layers that keep softmax attention"),
    F_INT(S, keep_every, 0, 100000,
          "every so many layers, counted from the last, one keeps softmax attention; 0 = "
          "none"),
    F_CHOICE(S, feature, FEATURE_FN_NAMES,
             "feature map: relu(W x + b); elu(x) + 1 without weights; positive random "
             "features, which are not trained; hedgehog [softmax(W x), softmax(-W x)]; "
             "exp(W x - its largest)"),
    F_INT(S, feature_size, 0, 65536,
          "features of a head, of hedgehog both halves together; 0 = 32, for hedgehog "
          "two head widths, for exp one; elu1 has the head's width"),
    F_BOOL(S, bias, "relu: a bias in the feature map"),
    F_CHOICE(S, scale_query, "auto|true|false",
             "apply the scale of softmax attention to what phi reads; auto: not for "
             "hedgehog and exp"),
    F_BOOL(S, share_qk, "one feature map for queries and keys"),
    F_BOOL(S, share_layers,
           "layers that share their query and key projections share the feature map"),
    F_CHOICE(
        S, init, "auto|normal|identity",
        "first weights: normal with variance 1 / head width, or rows of the identity, "
        "then of its negative, in turn; auto: normal for relu, identity for hedgehog "
        "and exp; positive has its own"),
    F_CHOICE(S, rotary, "keep|drop",
             "rotary positions: turn what the feature map reads, or leave them out"),
    F_INT(
        S, window, 0, 1000000,
        "causal attention: the last keys, the token's own among them, that keep softmax "
        "beside the linear part; 0 = none"),
    F_CHOICE(S, gate, "constant|score",
             "window: near weights count sigmoid(gate), one number for each head, or "
             "e^(gate + slope m), m being the query's largest near score"),
    F_REAL(S, eps, 1e-12, 1e6, "smallest denominator"),
    F_INT(S, chunk, 0, 1000000, "tokens computed at once; 0 = by the widths"),
    F_STRING(S, data, "data set to measure the share of clamped denominators on",
             .nullable = true),
    F_INT(S, limit, 0, 1000000000000, "data: first samples only; 0 = all"),
    F_INT(S, batch_size, 1, 1000000, "data: samples per run"),
    F_END,
};

static const S defaults = {
    .bias = true, .share_qk = true, .eps = 1e-2, .limit = 100, .batch_size = 16};

/* One attention to change. */
typedef struct SwapSite {
    Node *attention;
    const char *place;
    Node *in[2];         /* what the feature maps of queries and keys read */
    Node *projection[2]; /* the weights of their projections; NULL = another value */
    Node *weight[2], *bias[2];
    int64_t window; /* 0 = none */
    int64_t heads, groups, width, features;
    int64_t rows;       /* of a head's map: features, of hedgehog half of them */
    int64_t parameters; /* added */
    bool turned;        /* rotary positions were left out */
} SwapSite;

typedef struct Swap {
    PassContext *ctx;
    Graph *graph;
    const S *options;
    SwapSite *sites;
    int site_count;
} Swap;

enum { QUERY, KEY, SIDES };

/* Features of a head unless the recipe or the feature says otherwise. */
enum { FEATURES = 32 };

/* ---- which layers ---- */

static bool is_listed(IntList list, int64_t layer) {
    for (int i = 0; i < list.count; i++)
        if (list.items[i] == layer) return true;
    return false;
}

static bool is_chosen(const Swap *swap, const Node *node) {
    const S *options = swap->options;
    if (!node->stack || node->layer < 0) return false;
    if (!node_is_in(node, options->stack, -1)) return false;
    if (options->layers.count) return is_listed(options->layers, node->layer);
    if (is_listed(options->keep_softmax, node->layer)) return false;
    const int from_last = graph_layer_count(swap->graph, node->stack) - 1 - node->layer;
    return !options->keep_every || from_last % options->keep_every != 0;
}

/* ---- whether they can be changed ---- */

/* Keys come from other tokens than queries. */
static bool is_cross(const SwapSite *site) {
    const Node *attention = site->attention;
    return attention->in[QUERY]->type.dim[1] != attention->in[KEY]->type.dim[1];
}

static Status fail_operand(const Swap *swap, const SwapSite *site, const char *operand,
                           Diag *diag) {
    const bool mixes = strncmp(operand, "mix_", 4) == 0;
    Status status = step_fail(
        swap->ctx, diag, "%s: expected attention without %s, found %s", site->place,
        mixes ? "mixing of heads" : "terms added to its scores", operand);
    diag_hint(diag, mixes ? "mixing needs every score of every head, which linear "
                            "attention never computes: swap before weight_multiplex, or "
                            "give it mixing: none"
                          : "linear attention has no scores that anything could be "
                            "added to; keep_softmax leaves a layer as it is");
    return status;
}

static Status check_operands(const Swap *swap, const SwapSite *site, Diag *diag) {
    static const char *const NAMES[] = {"mix_before", "mix_after", "bias", "rel_key",
                                        "rel_bias"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (node_operand(site->attention, NAMES[i]))
            return fail_operand(swap, site, NAMES[i], diag);
    const AttentionAttrs *attrs = site->attention->attrs;
    if (attrs->window || attrs->reach)
        return step_fail(swap->ctx, diag,
                         "%s: expected attention over all tokens, found %s", site->place,
                         attrs->window ? "windows" : "a window that slides along them");
    if (attrs->cap == 0) return STATUS_OK;
    Status status =
        step_fail(swap->ctx, diag, "%s: expected attention without a cap, found cap=%g",
                  site->place, attrs->cap);
    diag_hint(diag, "linear attention has no scores that a cap could bound");
    return status;
}

/* Cross-attention has no keys that are nearer than others: it stays without a window. */
static Status find_window(const Swap *swap, SwapSite *site, Diag *diag) {
    const AttentionAttrs *attrs = site->attention->attrs;
    site->window = is_cross(site) ? 0 : swap->options->window;
    if (!site->window || attrs->causal) return STATUS_OK;
    Status status = step_fail_option(
        swap->ctx, "window", diag,
        "%s: expected causal attention, found attention to later tokens", site->place);
    diag_hint(diag,
              "a window is of the tokens before: stack or layers chooses a decoder's, "
              "window: 0 has none");
    return status;
}

/* What a feature map is to read in place of an operand of attention. */
static void find_input(const Swap *swap, SwapSite *site, int side) {
    Node *value = site->attention->in[side];
    if (swap->options->rotary == ROTARY_DROP && node_is(value, &op_rotary)) {
        value = value->in[0];
        site->turned = true;
    }
    site->in[side] = value;
    const Node *source = node_is(value, &op_rotary) ? value->in[0] : value;
    if (node_is(source, &op_linear))
        site->projection[side] = node_operand(source, "weight");
}

/* Features of a head, and rows of its map. */
static void size_map(const S *options, SwapSite *site) {
    const FeatureFn fn = (FeatureFn)options->feature;
    const int64_t halves = feature_halves(fn);
    const bool plain = fn == FEATURE_RELU || fn == FEATURE_POSITIVE;
    const int64_t chosen = fn == FEATURE_ELU1 ? 0 : options->feature_size;
    site->features = chosen ? chosen : plain ? FEATURES : halves * site->width;
    site->rows = site->features / halves;
}

static Status add_site(Swap *swap, Node *attention, Diag *diag) {
    const AttentionAttrs *attrs = attention->attrs;
    SwapSite *site = &swap->sites[swap->site_count++];
    *site = (SwapSite){.attention = attention, .place = t2r_place(swap->ctx, attention)};
    TRY(check_operands(swap, site, diag));
    TRY(find_window(swap, site, diag));
    for (int side = 0; side < SIDES; side++) find_input(swap, site, side);
    const Type *q = &site->in[QUERY]->type;
    site->heads = attrs->heads;
    site->groups = heads_of_keys(attrs->heads, attrs->kv_heads);
    site->width = q->dim[q->rank - 1] / attrs->heads;
    size_map(swap->options, site);
    return STATUS_OK;
}

static Status find_sites(Swap *swap, Diag *diag) {
    const S *options = swap->options;
    if (options->stack) TRY(stack_check(swap->ctx, swap->graph, options->stack, diag));
    TRY(layers_check(swap->ctx, swap->graph, options->stack, "layers", options->layers,
                     diag));
    TRY(layers_check(swap->ctx, swap->graph, options->stack, "keep_softmax",
                     options->keep_softmax, diag));
    size_t count = 0;
    for (const Node *node = swap->graph->first; node; node = node->next)
        count += node_is(node, &op_attention);
    swap->sites = ARENA_ARRAY(swap->ctx->arena, SwapSite, count);
    for (Node *node = swap->graph->first; node; node = node->next) {
        if (!is_chosen(swap, node)) continue;
        if (node_is(node, &op_linear_attention)) {
            Status status = step_fail(swap->ctx, diag, "%s has linear attention already",
                                      t2r_place(swap->ctx, node));
            diag_hint(diag, "layers or keep_softmax chooses the other layers");
            return status;
        }
        if (node_is(node, &op_attention)) TRY(add_site(swap, node, diag));
    }
    if (swap->site_count) return STATUS_OK;
    return step_fail(swap->ctx, diag, "the chosen layers%s%s have no attention to swap",
                     options->stack ? " of stack " : "",
                     options->stack ? options->stack : "");
}

/* ---- feature maps ---- */

static const char *map_name(const Swap *swap, const SwapSite *site, int side,
                            const char *part) {
    const char *which = swap->options->share_qk ? "" : side == QUERY ? "_q" : "_k";
    return arena_printf(swap->graph->arena, "%s.%sfeature_map%s.%s", site->place,
                        is_cross(site) ? "cross_" : "", which, part);
}

/* The site before this one that has the same projections; NULL when there is none. */
static const SwapSite *find_twin(const Swap *swap, const SwapSite *site) {
    if (!swap->options->share_layers) return NULL;
    for (const SwapSite *other = swap->sites; other < site; other++)
        if (site->projection[QUERY] && site->projection[KEY] &&
            other->projection[QUERY] == site->projection[QUERY] &&
            other->projection[KEY] == site->projection[KEY] &&
            other->heads == site->heads && other->groups == site->groups)
            return other;
    return NULL;
}

/* Maps that are spiky as softmax is, which start from the identity and read queries as
 * they are: the scale would flatten them. */
static bool is_spiky(const S *options) {
    return options->feature == FEATURE_HEDGEHOG || options->feature == FEATURE_EXP;
}

static bool starts_identical(const S *options) {
    if (options->init != MAP_BY_FEATURE) return options->init == MAP_IDENTITY;
    return is_spiky(options);
}

static bool scales_queries(const S *options) {
    if (options->scale_query != SCALE_BY_FEATURE)
        return options->scale_query == SCALE_TRUE;
    return !is_spiky(options);
}

/* First weights; the normal ones are drawn with all others that have none. */
static Status draw_map(const Swap *swap, Storage *storage, Diag *diag) {
    if (swap->ctx->plan) return STATUS_OK;
    Tensor first = *storage_tensor(storage); /* no values yet */
    if (swap->options->feature == FEATURE_POSITIVE)
        TRY(t2r_draw_orthogonal(&first, random_key_name(swap->ctx->seed, storage->name),
                                diag));
    else if (starts_identical(swap->options))
        TRY(t2r_draw_identity(&first, diag));
    storage_set_values(storage, first);
    return STATUS_OK;
}

static Status create_map(Swap *swap, SwapSite *site, int side, Diag *diag) {
    const S *options = swap->options;
    const bool positive = options->feature == FEATURE_POSITIVE;
    const int64_t shape[3] = {site->groups, site->rows, site->width};
    const Init init = {INIT_NORMAL, positive ? 1 : 1 / sqrt((double)site->width)};
    TRY(storage_create(&site->weight[side], swap->graph,
                       map_name(swap, site, side, "weight"), init, 3, shape, diag));
    site->weight[side]->storage->frozen = positive;
    site->parameters += site->groups * site->rows * site->width;
    TRY(draw_map(swap, site->weight[side]->storage, diag));
    if (options->feature != FEATURE_RELU || !options->bias) return STATUS_OK;
    site->parameters += site->groups * site->rows;
    return storage_create(&site->bias[side], swap->graph,
                          map_name(swap, site, side, "bias"), (Init){INIT_ZEROS, 0}, 2,
                          shape, diag);
}

/* Weight and bias of both feature maps, new or another's. */
static Status add_maps(Swap *swap, SwapSite *site, Diag *diag) {
    const SwapSite *twin = find_twin(swap, site);
    if (swap->options->feature == FEATURE_ELU1) return STATUS_OK;
    for (int side = 0; side < SIDES; side++) {
        const SwapSite *like = twin                                     ? twin
                               : side == KEY && swap->options->share_qk ? site
                                                                        : NULL;
        if (!like) {
            TRY(create_map(swap, site, side, diag));
            continue;
        }
        const int from = twin ? side : QUERY;
        site->weight[side] = like->weight[from];
        site->bias[side] = like->bias[from];
    }
    return STATUS_OK;
}

/* ---- changing them ---- */

/* The scale that a side's feature map applies. Positive features estimate exp(x . y), so
 * both sides take its root; else the queries take all of it. */
static double map_scale(const Swap *swap, const SwapSite *site, int side) {
    const AttentionAttrs *attrs = site->attention->attrs;
    const double scale = attrs->scale != 0 ? attrs->scale : 1 / sqrt((double)site->width);
    if (!scales_queries(swap->options)) return 1;
    if (swap->options->feature == FEATURE_POSITIVE) return sqrt(scale);
    return side == QUERY ? scale : 1;
}

static Status map_side(Node **out, Swap *swap, const SwapSite *site, int side,
                       Diag *diag) {
    static const char *const NAMES[] = {"relu", "elu1", "positive", "hedgehog", "exp"};
    static const Role ROLES[SIDES] = {ROLE_FEATURE_Q, ROLE_FEATURE_K};
    Node *const in[3] = {site->in[side], site->weight[side], site->bias[side]};
    const Node *attention = site->attention;
    TRY(node_add(out, swap->graph, site->attention, &op_feature_map, in, 3, diag,
                 "heads=%lld scale=%.17g fn=%s",
                 (long long)(side == QUERY ? site->heads : site->groups),
                 map_scale(swap, site, side), NAMES[swap->options->feature]));
    node_place(swap->graph, *out, attention->stack, attention->layer, ROLES[side]);
    return STATUS_OK;
}

/* Queries and keys of the window, those of softmax attention, and its gate. The slope
 * starts at 1: near weights are then those of softmax attention. */
static Status add_window(Swap *swap, SwapSite *site, Node **in, Diag *diag) {
    static const char *const NAMES[] = {"gate", "gate_slope"};
    const int count = swap->options->gate == GATE_SCORE ? 2 : 1;
    if (!site->window) return STATUS_OK;
    in[0] = site->attention->in[QUERY];
    in[1] = site->attention->in[KEY];
    for (int i = 0; i < count; i++) {
        site->parameters += site->heads;
        TRY(storage_create(
            &in[2 + i], swap->graph,
            arena_printf(swap->graph->arena, "%s.feature_map.%s", site->place, NAMES[i]),
            (Init){i ? INIT_ONES : INIT_ZEROS, 0}, 1, &site->heads, diag));
    }
    return STATUS_OK;
}

static Status swap_site(Swap *swap, SwapSite *site, Diag *diag) {
    Node *attention = site->attention, *linear = NULL;
    const AttentionAttrs *attrs = attention->attrs;
    Node *in[8] = {NULL, NULL, node_operand(attention, "v"),
                   node_operand(attention, "mask")};
    TRY(add_maps(swap, site, diag));
    for (int side = 0; side < SIDES; side++)
        TRY(map_side(&in[side], swap, site, side, diag));
    TRY(add_window(swap, site, in + 4, diag));
    TRY(node_add(&linear, swap->graph, attention, &op_linear_attention, in,
                 in[7]          ? 8
                 : site->window ? 7
                 : in[3]        ? 4
                                : 3,
                 diag,
                 "heads=%lld kv_heads=%lld causal=%s eps=%.17g chunk=%lld window=%lld "
                 "scale=%.17g",
                 (long long)attrs->heads, (long long)attrs->kv_heads,
                 attrs->causal ? "true" : "false", swap->options->eps,
                 (long long)swap->options->chunk, (long long)site->window,
                 site->window ? attrs->scale : 0));
    node_place(swap->graph, linear, attention->stack, attention->layer, attention->role);
    graph_replace_uses(swap->graph, attention, linear);
    graph_erase(swap->graph, attention);
    return STATUS_OK;
}

/* ---- record ---- */

static void record_site(const Swap *swap, const SwapSite *site, Tree *list) {
    Arena *arena = swap->ctx->arena;
    Tree *row = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_put_string(arena, row, "block", site->place);
    tree_put_int(arena, row, "heads", site->heads);
    tree_put_int(arena, row, "kv_heads", site->groups);
    tree_put_int(arena, row, "features", site->features);
    tree_put_int(arena, row, "parameters_added", site->parameters);
    if (site->window) tree_put_int(arena, row, "window", site->window);
    if (site->turned) tree_put_bool(arena, row, "rotary_dropped", true);
    tree_append(arena, list, NULL, LOC_NONE, row);
}

static void record(const Swap *swap) {
    Arena *arena = swap->ctx->arena;
    Tree *list = tree_new(arena, TREE_LIST, LOC_NONE);
    int64_t added = 0, softmax = 0;
    for (int i = 0; i < swap->site_count; i++) {
        record_site(swap, &swap->sites[i], list);
        added += swap->sites[i].parameters;
    }
    for (const Node *node = swap->graph->first; node; node = node->next)
        softmax += node_is(node, &op_attention);
    tree_append(arena, swap->ctx->record, "blocks", LOC_NONE, list);
    tree_put_int(arena, swap->ctx->record, "parameters_added", added);
    tree_put_int(arena, swap->ctx->record, "softmax_left", softmax);
}

static Status swap_run(PassContext *ctx, Model *model, const void *opaque, Diag *diag) {
    Swap swap = {.ctx = ctx, .graph = model->graph, .options = opaque};
    TRY(find_sites(&swap, diag));
    for (int i = 0; i < swap.site_count; i++) TRY(swap_site(&swap, &swap.sites[i], diag));
    graph_remove_dead(model->graph);
    TRY(graph_infer(model->graph, diag));
    record(&swap);
    if (!ctx->plan) TRY(model_init_weights(model, ctx->seed, diag));
    const S *options = swap.options;
    if (!options->data) return STATUS_OK;
    const T2rData on = {options->data, options->limit, options->batch_size};
    return t2r_record_clamped(ctx, model->graph, &on, diag);
}

static Status swap_check(const void *opaque, const StepSource *source, Diag *diag) {
    const S *options = opaque;
    const int ways = (options->layers.count > 0) + (options->keep_softmax.count > 0) +
                     (options->keep_every > 0);
    if (ways > 1)
        return option_fail(source, "layers|keep_softmax|keep_every", STATUS_RECIPE, diag,
                           "expected at most one of layers, keep_softmax and keep_every, "
                           "found %d",
                           ways);
    if (options->feature == FEATURE_POSITIVE && !options->share_qk)
        return option_fail(source, "feature", STATUS_RECIPE, diag,
                           "positive needs share_qk: true: phi(q) . phi(k) "
                           "estimates exp(q . k) only with the same random weights");
    if (options->feature == FEATURE_HEDGEHOG && options->feature_size % 2)
        return option_fail(source, "feature_size", STATUS_RECIPE, diag,
                           "expected an even number of hedgehog's features, half of them "
                           "of W x and half of -W x, found %lld",
                           (long long)options->feature_size);
    if (options->gate == GATE_SCORE && !options->window)
        return option_fail(source, "gate", STATUS_RECIPE, diag,
                           "expected a window above 0 beside score");
    if (options->keep_every == 1)
        return option_fail(source, "keep_every", STATUS_RECIPE, diag,
                           "expected 0 or at least 2: 1 keeps every layer");
    return STATUS_OK;
}

/* What stands in other places than the chosen ones does not matter. */
static void swap_effects(const void *opaque, PassEffects *effects) {
    const S *options = opaque;
    if (options->stack || options->layers.count || options->keep_softmax.count ||
        options->keep_every)
        effects->refuses = 0;
}

const Pass pass_attention_to_t2r = {
    .name = "attention_to_t2r",
    .summary = "replace softmax attention by linear attention over learned features, "
               "which generates with a state of constant size",
    .paper = "Finetuning Pretrained Transformers into RNNs (EMNLP 2021), section 2.2",
    .fields = fields,
    .options_size = sizeof(S),
    .defaults = &defaults,
    .data_options = "data",
    .exactness = PASS_LOSSY,
    .effects = {.needs = MODEL_SOFTMAX_ATTENTION,
                .refuses = MODEL_MIXED_HEADS | MODEL_LINEAR_ATTENTION,
                .gives = MODEL_LINEAR_ATTENTION | MODEL_FEATURE_MAPS,
                .takes = MODEL_SOFTMAX_ATTENTION},
    .effects_of = swap_effects,
    .check = swap_check,
    .run = swap_run,
};
