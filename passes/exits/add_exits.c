/* add_exits: classifiers behind the layers of a trunk, so that inference may leave early
 * (Xin et al., DeeBERT, ACL 2020; COST-EFF, EMNLP 2022). passes/exits/exits.h says how
 * they stand in the graph. */
#include "passes/exits/exits.h"
#include "passes/layers.h"

#include "ir/rewrite.h"
#include "passes/patches.h"

#include <string.h>

enum { HEAD_TANH, HEAD_LINEAR, HEAD_POOLER };
enum { FINAL_KEEP, FINAL_REPLACE };
enum { EXIT_INIT_RANDOM, EXIT_INIT_COPY };
enum { TOKEN_MODEL, TOKEN_FIRST, TOKEN_MEAN };

typedef struct AddExitsOptions {
    IntList layers;
    int head, final, init, token;
    double dropout;
} AddExitsOptions;

#define A AddExitsOptions
static const Field fields[] = {
    F_INTS(A, layers, 1, 100000,
           "layers to leave after, from 1; empty: all but the last"),
    F_CHOICE(A, head, "tanh|linear|pooler",
             "what comes before the classifier: tanh of the token, nothing, or a "
             "projection of its own and tanh"),
    F_REAL(A, dropout, 0, 0.99,
           "dropout before the classifier; not given: as before the model's own"),
    F_CHOICE(A, final, "keep|replace",
             "the model's own classifier: as it is, or of the same form as the exits"),
    F_CHOICE(A, init, "random|copy",
             "first weights: drawn, or those of the model's own classifier (and pooler)"),
    F_CHOICE(A, token, "model|first|mean",
             "what an exit sees: as the model's own classifier, the first token, or the "
             "mean over tokens, padding left out"),
    F_END,
};

static const A defaults = {.dropout = -1};

/* What all exits have in common. */
typedef struct AddExits {
    PassContext *ctx;
    const A *options;
    Model *model;
    Graph *graph;
    const char *trunk; /* stack of the model's layers */
    int depth;
    bool mean;  /* over tokens, else token `index` */
    Node *mask; /* of the tokens that count in the mean; NULL = all */
    int64_t index;
    double dropout, std;
    Node *norm;       /* final norm; NULL without */
    Node *classifier; /* the model's own; NULL when it is not one linear */
    Node *pooler;     /* its projection before tanh; NULL without */
    int64_t classes;
} AddExits;

/* Where a head goes. */
typedef struct HeadPlace {
    Node *anchor; /* before this node; NULL = at the end */
    const char *stack, *name;
    int layer;
    bool norm; /* with a norm of its own */
} HeadPlace;

/* ---- weights ---- */

/* New parameter with the weights of `source` when that has its shape, else drawn later.
 */
static Status add_weight(Node **out, AddExits *a, const HeadPlace *at, const char *part,
                         Init init, int rank, const int64_t *dim, const Node *source,
                         Diag *diag) {
    const char *name = arena_printf(a->graph->arena, "%s.%s", at->name, part);
    TRY(storage_create(out, a->graph, name, init, rank, dim, diag));
    Storage *storage = (*out)->storage;
    const Storage *from = source ? source->storage : NULL;
    if (from && tensor_same_shape(storage_tensor(from), storage_tensor(storage)))
        storage_copy_values(storage, from);
    return STATUS_OK;
}

/* Node of a head, at its place. */
static Status add_node(Node **out, AddExits *a, const HeadPlace *at, Role role,
                       const Op *op, Node *const *in, int count, const char *attrs,
                       Diag *diag) {
    TRY(node_add(out, a->graph, at->anchor, op, in, count, diag, attrs ? "%s" : NULL,
                 attrs));
    node_place(a->graph, *out, at->stack, at->layer, role);
    return STATUS_OK;
}

/* x W^T + b, from the weights of `source` with init: copy. */
static Status add_linear(Node **x, AddExits *a, const HeadPlace *at, Role role,
                         const char *part, int64_t outputs, const Node *source,
                         Diag *diag) {
    const int64_t dim[2] = {outputs, (*x)->type.dim[(*x)->type.rank - 1]};
    const bool copy = source && a->options->init == EXIT_INIT_COPY &&
                      !((const LinearAttrs *)source->attrs)->transposed;
    const Node *bias = copy ? node_operand(source, "bias") : NULL;
    const char *weight_name = arena_printf(a->graph->arena, "%s.weight", part);
    const char *bias_name = arena_printf(a->graph->arena, "%s.bias", part);
    Node *in[3] = {*x};
    TRY(add_weight(&in[1], a, at, weight_name, (Init){INIT_TRUNC_NORMAL, a->std}, 2, dim,
                   copy ? source->in[1] : NULL, diag));
    TRY(add_weight(&in[2], a, at, bias_name, (Init){INIT_ZEROS, 0}, 1, dim, bias, diag));
    return add_node(x, a, at, role, &op_linear, in, 3, NULL, diag);
}

/* ---- one head ---- */

/* A norm of its own that starts as the final norm, where that is as wide. */
static Status add_norm(Node **x, AddExits *a, const HeadPlace *at, Diag *diag) {
    if (!at->norm) return STATUS_OK;
    const LayerNormAttrs *attrs = a->norm->attrs;
    const int64_t *width = &(*x)->type.dim[(*x)->type.rank - 1];
    Node *in[3] = {*x};
    TRY(add_weight(&in[1], a, at, "norm.weight", (Init){INIT_ONES, 0}, 1, width,
                   a->norm->in[1], diag));
    const bool bias = node_has(a->norm, 2);
    if (bias)
        TRY(add_weight(&in[2], a, at, "norm.bias", (Init){INIT_ZEROS, 0}, 1, width,
                       a->norm->in[2], diag));
    return add_node(x, a, at, ROLE_NORM1, &op_layer_norm, in, bias ? 3 : 2,
                    arena_printf(a->ctx->arena, "eps=%.17g", attrs->eps), diag);
}

static Status add_head(Node **out, AddExits *a, Node *x, const HeadPlace *at,
                       Diag *diag) {
    const int64_t width = x->type.dim[2];
    /* One vector from the tokens. A norm works on each token alone: it comes behind the
     * choice of one, where it is cheaper, and before the mean. */
    if (a->mean) TRY(add_norm(&x, a, at, diag));
    Node *const in[] = {x, a->mask};
    TRY(add_node(&x, a, at, ROLE_POOL, a->mean ? &op_mean_tokens : &op_select_token, in,
                 a->mean && a->mask ? 2 : 1,
                 a->mean ? NULL
                         : arena_printf(a->ctx->arena, "index=%lld", (long long)a->index),
                 diag));
    if (!a->mean) TRY(add_norm(&x, a, at, diag));
    if (a->options->head == HEAD_POOLER)
        TRY(add_linear(&x, a, at, ROLE_NONE, "pooler", width, a->pooler, diag));
    if (a->options->head != HEAD_LINEAR)
        TRY(add_node(&x, a, at, ROLE_NONE, &op_activation, &x, 1, "fn=tanh", diag));
    if (a->dropout > 0)
        TRY(add_node(&x, a, at, ROLE_NONE, &op_dropout, &x, 1,
                     arena_printf(a->ctx->arena, "rate=%.17g", a->dropout), diag));
    TRY(add_linear(&x, a, at, ROLE_HEAD, "classifier", a->classes, a->classifier, diag));
    *out = x;
    return STATUS_OK;
}

/* Exit behind layer `layer`, from 1. */
static Status add_exit(AddExits *a, int layer, Diag *diag) {
    Node *x = graph_layer_output(a->graph, a->trunk, layer - 1), *logits = NULL;
    if (!x || x->type.rank != 3 || x->type.dim[2] < 1)
        return step_fail(a->ctx, diag, "layer %d has no output [N, T, D] to leave from",
                         layer);
    const HeadPlace at = {.anchor = x->next,
                          .stack = STACK_EXITS,
                          .name = arena_printf(a->ctx->arena, "exits.%d", layer),
                          .layer = layer - 1,
                          .norm = a->norm != NULL};
    TRY(add_head(&logits, a, x, &at, diag));
    graph_set_output(a->graph, arena_printf(a->ctx->arena, "exit.%d", layer), logits);
    return STATUS_OK;
}

/* ---- the model's own classifier ---- */

/* Puts a head like the exits' in place of the model's own, with what belongs to that. */
static Status replace_final(AddExits *a, Diag *diag) {
    Node *last = graph_layer_output(a->graph, a->trunk, a->depth - 1), *logits = NULL;
    Node *x = a->norm ? a->norm : last;
    if (!x || x->type.rank != 3)
        return step_fail(a->ctx, diag, "the last layer has no output [N, T, D]");
    const HeadPlace at = {.stack = STACK_HEAD, .name = "head", .layer = -1};
    for (int i = a->graph->output_count - 1; i >= 0; i--) {
        const Output *output = &a->graph->outputs[i];
        if (strcmp(output->name, OUTPUT_LOGITS) != 0 &&
            node_is_in(output->node, STACK_HEAD, -1))
            graph_remove_output(a->graph, output->name);
    }
    TRY(add_head(&logits, a, x, &at, diag));
    graph_set_output(a->graph, OUTPUT_LOGITS, logits);
    return STATUS_OK;
}

/* ---- what the model has ---- */

static Status fail_classifier(PassContext *ctx, const char *found, Diag *diag) {
    Status status = step_fail(ctx, diag, "exits need a classifier: %s", found);
    diag_hint(diag, "load a model with a classification head");
    return status;
}

static Status check_model(const AddExits *a, Diag *diag) {
    const Node *logits = graph_output(a->graph, OUTPUT_LOGITS);
    if (!logits)
        return fail_classifier(a->ctx, "the model has no output \"logits\"", diag);
    if (logits->type.rank == 3)
        return fail_classifier(a->ctx, "the model predicts tokens, logits [N, T, V]",
                               diag);
    if (logits->type.rank != 2 || logits->type.dim[1] < 1)
        return fail_classifier(a->ctx, "expected logits [N, classes]", diag);
    for (int i = 0; i < a->graph->output_count; i++)
        if (strncmp(a->graph->outputs[i].name, "exit.", 5) == 0)
            return step_fail(a->ctx, diag, "the model has exits already: output \"%s\"",
                             a->graph->outputs[i].name);
    if (a->depth > 1) return STATUS_OK;
    return step_fail(a->ctx, diag,
                     "exits need at least 2 layers in stack \"%s\", found %d", a->trunk,
                     a->depth);
}

/* The projection before tanh that the model's own classifier has. */
static Node *find_pooler(const Graph *graph) {
    for (Node *node = graph->first; node; node = node->next) {
        if (!node_is_in(node, STACK_HEAD, -1) || !node_is(node, &op_activation)) continue;
        const ActivationAttrs *attrs = node->attrs;
        if (attrs->fn == ACTIVATION_TANH && node_is(node->in[0], &op_linear))
            return node->in[0];
    }
    return NULL;
}

/* The mean over a sentence must not count its padding. */
static Status find_mask(AddExits *a, Diag *diag) {
    const Node *x = graph_layer_output(a->graph, a->trunk, 0);
    if (!a->mean || !x || x->type.rank != 3 || x->type.dim[1] >= 0) return STATUS_OK;
    a->mask = node_tokens_mask(a->graph, x);
    if (a->mask) return STATUS_OK;
    return step_fail_option(a->ctx, "token", diag,
                            "mean: expected an input attention_mask that says which of "
                            "the tokens are padding");
}

/* What an exit reads. */
static Status choose_token(AddExits *a, Diag *diag) {
    const Node *pool = graph_find(a->graph, STACK_HEAD, -1, ROLE_POOL);
    const bool means = node_is(pool, &op_mean_tokens);
    const bool selects = node_is(pool, &op_select_token);
    const int token = a->options->token;
    a->mean = token == TOKEN_MEAN || (token == TOKEN_MODEL && means);
    a->index = selects ? ((const SelectTokenAttrs *)pool->attrs)->index : 0;
    TRY(find_mask(a, diag));
    if (!a->mean && means && patches_extra_tokens(a->graph) == 0)
        return step_fail_option(a->ctx, "token", diag,
                                "first: the model has no class token");
    return STATUS_OK;
}

static Status begin(AddExits *a, Diag *diag) {
    a->graph = a->model->graph;
    a->trunk = graph_main_stack(a->graph);
    a->depth = graph_layer_count(a->graph, a->trunk);
    TRY(check_model(a, diag));
    TRY(choose_token(a, diag));
    a->classes = graph_output(a->graph, OUTPUT_LOGITS)->type.dim[1];
    const Tree *range = tree_get(a->model->config, "initializer_range");
    a->std = range && range->kind == TREE_FLOAT ? range->real : 0.02;
    if (!(a->std > 0 && a->std < 100)) a->std = 0.02;
    a->dropout = a->options->dropout;
    for (const Node *node = a->graph->first; node && a->dropout < 0; node = node->next)
        if (node_is_in(node, STACK_HEAD, -1) && node_is(node, &op_dropout))
            a->dropout = ((const DropoutAttrs *)node->attrs)->rate;
    if (a->dropout < 0) a->dropout = 0;
    a->norm = node_find(a->graph, a->trunk, -1, ROLE_FINAL_NORM, &op_layer_norm);
    a->classifier = node_find(a->graph, STACK_HEAD, -1, ROLE_HEAD, &op_linear);
    a->pooler = find_pooler(a->graph);
    return STATUS_OK;
}

/* ---- the pass ---- */

static Status check_layers(const AddExits *a, Diag *diag) {
    for (int i = 0; i < a->options->layers.count; i++) {
        const int64_t layer = a->options->layers.items[i];
        if (layer < a->depth) continue;
        Status status = step_fail_option(a->ctx, "layers", diag,
                                         "expected layers from 1 to %d, found %lld",
                                         a->depth - 1, (long long)layer);
        if (layer == a->depth)
            diag_hint(diag, "the model's own classifier is the exit of its last layer");
        return status;
    }
    return STATUS_OK;
}

static Status add_run(PassContext *ctx, Model *model, const void *opaque, Diag *diag) {
    const A *options = opaque;
    AddExits a = {.ctx = ctx, .options = options, .model = model};
    TRY(begin(&a, diag));
    TRY(check_layers(&a, diag));
    const int64_t before = graph_parameter_count(a.graph);
    IntList layers = options->layers;
    if (!layers.count) layers.items = ARENA_ARRAY(ctx->arena, int64_t, (size_t)a.depth);
    while (!options->layers.count && layers.count < a.depth - 1) {
        layers.items[layers.count] = layers.count + 1;
        layers.count++;
    }
    for (int i = 0; i < layers.count; i++) TRY(add_exit(&a, (int)layers.items[i], diag));
    if (options->final == FINAL_REPLACE) TRY(replace_final(&a, diag));
    graph_remove_dead(a.graph);
    tree_append(ctx->arena, ctx->record, "exits", LOC_NONE,
                layers_tree(ctx->arena, layers));
    tree_put_int(ctx->arena, ctx->record, "parameters_added",
                 graph_parameter_count(a.graph) - before);
    ctx->exact = options->final == FINAL_KEEP;
    TRY(graph_infer(a.graph, diag));
    return ctx->plan ? STATUS_OK : model_init_weights(model, ctx->seed, diag);
}

static Status add_check(const void *opaque, const StepSource *source, Diag *diag) {
    const IntList layers = ((const A *)opaque)->layers;
    for (int i = 1; i < layers.count; i++)
        if (layers.items[i] <= layers.items[i - 1])
            return option_fail(source, "layers", STATUS_RECIPE, diag,
                               "expected layers in ascending order, found %lld "
                               "after %lld",
                               (long long)layers.items[i],
                               (long long)layers.items[i - 1]);
    return STATUS_OK;
}

const Pass pass_add_exits = {
    .name = "add_exits",
    .summary = "add classifiers behind the layers, so that inference may leave early",
    .paper = "DeeBERT: Dynamic Early Exiting for Accelerating BERT Inference (ACL 2020); "
             "COST-EFF (EMNLP 2022), section 3.1",
    .fields = fields,
    .options_size = sizeof(A),
    .defaults = &defaults,
    .exactness = PASS_LOSSY,
    .effects = {.needs = MODEL_CLASSIFIER, .refuses = MODEL_EXITS, .gives = MODEL_EXITS},
    .check = add_check,
    .run = add_run,
};
