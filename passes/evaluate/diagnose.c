/* diagnose: per-layer gradient norms and similarity to another model, as in MiniViT's
 * analysis (section 4.4), and linear attention's clamped rows: L2 norm of the gradient of
 * the label loss, summed over exits, over each layer's weights, and linear CKA (Kornblith
 * et al., ICML 2019) between the layers' outputs, averaged over tokens, of this model and
 * of the other one; singular values of matrices. */
#include "passes/evaluate/spectra.h"
#include "passes/t2r/t2r.h"
#include "passes/training/objective.h"

#include "exec/linalg/cka.h"
#include "exec/run/gradients.h"
#include "ir/memory_array.h"
#include "ir/rewrite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct DiagnoseOptions {
    const char *data, *teacher;
    int64_t limit, batch_size;
    bool cka, gradient_norms, clamped, spectra;
} DiagnoseOptions;

#define D DiagnoseOptions
static const Field fields[] = {
    {.name = "data",
     .kind = FIELD_STRING,
     .offset = FIELD_AT(D, data, const char *),
     .required = true,
     .help = "data set with labels"},
    F_STRING(D, teacher, "model to compare with; not given: the recipe's input model",
             .nullable = true),
    F_INT(D, limit, 2, 1000000, "first samples only"),
    F_INT(D, batch_size, 1, 1000000, "samples per run"),
    F_BOOL(D, cka, "compare layers by linear CKA"),
    F_BOOL(D, gradient_norms, "gradient norm of every layer"),
    F_BOOL(D, clamped, "share of linear attention's rows with a denominator below eps"),
    F_BOOL(D, spectra, "singular values of every matrix"),
    F_END,
};

static const D defaults = {
    .limit = 1000, .batch_size = 50, .cka = true, .gradient_norms = true};

/* ---- similarity ---- */

/* Mean-token outputs of all layers of one model: layer[l] is [samples, width]. */
typedef struct Features {
    PassContext *ctx;
    int layers;
    int64_t samples, *width;
    float **layer; /* malloc */
} Features;

static void features_free(Features *f) {
    for (int l = 0; f->layer && l < f->layers; l++) free(f->layer[l]);
}

static Status keep_features(void *self, const Fetch *what, const float *const *values,
                            const void *const *columns, Diag *diag) {
    (void)columns;
    Features *f = self;
    for (int l = 0; l < f->layers; l++)
        for (int64_t i = 0; i < what->n; i++) {
            const float *from = values[l] + i * f->width[l];
            for (int64_t k = 0; k < f->width[l]; k++)
                if (!isfinite(from[k]))
                    return step_fail(f->ctx, diag,
                                     "a value of layer %d is not finite, for sample %lld",
                                     l, (long long)what->index[i]);
            memcpy(f->layer[l] + what->index[i] * f->width[l], from,
                   (size_t)f->width[l] * sizeof(float));
        }
    return STATUS_OK;
}

/* Checks the data set against values of a graph that are computed from it. */
static Status check_fit(PassContext *ctx, Graph *graph, Node *const *roots, int count,
                        const D *options, Diag *diag) {
    Batches *data = NULL;
    const DataUse use = {.graph = graph,
                         .roots = roots,
                         .root_count = count,
                         .batch = options->batch_size};
    return step_data(ctx, options->data, &use, &data, diag);
}

/* The same for the outputs of all layers, which check_layers has found. */
static Status check_layer_inputs(PassContext *ctx, Graph *graph, const D *options,
                                 Diag *diag) {
    const char *stack = graph_main_stack(graph);
    const int layers = graph_layer_count(graph, stack);
    Node **outputs = ARENA_ARRAY(ctx->arena, Node *, (size_t)layers);
    for (int l = 0; l < layers; l++) outputs[l] = graph_layer_output(graph, stack, l);
    return check_fit(ctx, graph, outputs, layers, options, diag);
}

/* Every layer must have an output over tokens. */
static Status check_layers(PassContext *ctx, const Graph *graph, Diag *diag) {
    const char *stack = graph_main_stack(graph);
    const int layers = graph_layer_count(graph, stack);
    for (int l = 0; l < layers; l++) {
        const Node *out = graph_layer_output(graph, stack, l);
        if (!out || out->type.rank != 3)
            return step_fail(ctx, diag, "layer %d has no output [N, T, D] to compare", l);
    }
    return STATUS_OK;
}

static Status collect(Features *f, PassContext *ctx, Model *model, const Batches *data,
                      const D *options, Arena *arena, Diag *diag) {
    f->ctx = ctx;
    f->layers = graph_layer_count(model->graph, graph_main_stack(model->graph));
    f->samples = options->limit < data->count ? options->limit : data->count;
    f->width = ARENA_ARRAY(arena, int64_t, (size_t)f->layers);
    f->layer = ARENA_ARRAY(arena, float *, (size_t)f->layers);
    Node **means = ARENA_ARRAY(arena, Node *, (size_t)f->layers);
    Graph *graph = graph_copy(arena, model->graph);
    Status status = STATUS_OK;
    for (int l = 0; l < f->layers && status == STATUS_OK; l++) {
        Node *out = graph_layer_output(graph, graph_main_stack(graph), l);
        Node *in[] = {out, node_tokens_mask(graph, out)};
        status = node_add(&means[l], graph, NULL, &op_mean_tokens, in, in[1] ? 2 : 1,
                          diag, NULL);
        if (status != STATUS_OK) break;
        f->width[l] = means[l]->type.dim[1];
        status = memory_array(&f->layer[l], (size_t)f->samples,
                              (size_t)f->width[l] * sizeof(float), "features", diag);
    }
    if (status == STATUS_OK)
        status = forward_batches(graph, means, f->layers, data, f->samples,
                                 options->batch_size, ctx->threads, ctx->watch,
                                 keep_features, f, diag);
    graph_release(graph);
    return status;
}

static Status record_cka(PassContext *ctx, const Features *ours, const Features *theirs,
                         Diag *diag) {
    Tree *list = tree_new(ctx->arena, TREE_LIST, LOC_NONE);
    for (int l = 0; l < ours->layers && theirs->layers > 0; l++) {
        const int t = (l + 1) * theirs->layers / ours->layers - 1;
        const int at = t < 0 ? 0 : t;
        double cka;
        TRY(linear_cka(&cka, ours->layer[l], ours->width[l], theirs->layer[at],
                       theirs->width[at], ours->samples, diag));
        tree_add_real(ctx->arena, list, cka);
    }
    tree_append(ctx->arena, ctx->record, "cka", LOC_NONE, list);
    return STATUS_OK;
}

static Status compare_layers(PassContext *ctx, Model *model, Model *teacher,
                             const Batches *data, const D *options, Diag *diag) {
    Arena *arena = arena_create();
    Features ours = {0}, theirs = {0};
    Status status = collect(&ours, ctx, model, data, options, arena, diag);
    if (status == STATUS_OK)
        status = collect(&theirs, ctx, teacher, data, options, arena, diag);
    if (status == STATUS_OK) status = record_cka(ctx, &ours, &theirs, diag);
    features_free(&ours);
    features_free(&theirs);
    arena_destroy(arena);
    return status;
}

/* ---- gradient norms ---- */

static double storage_square(const Params *params, const Storage *storage,
                             const float *gradient) {
    const int64_t offset = params_offset(params, storage);
    const int64_t count = offset < 0 ? 0 : tensor_count(storage_tensor(storage));
    double sum = 0;
    for (int64_t k = 0; k < count; k++)
        sum += (double)gradient[offset + k] * gradient[offset + k];
    return sum;
}

/* Sum of squares of the gradient over the weights that a layer uses. */
static double layer_square(const Graph *graph, int layer, const Params *params,
                           const float *gradient) {
    double sum = 0;
    const char *stack = graph_main_stack(graph);
    for (const Node *node = graph->first; node; node = node->next)
        for (int i = 0; i < node->in_count && node_is_in(node, stack, layer); i++)
            if (node->in[i] && node->in[i]->storage)
                sum += storage_square(params, node->in[i]->storage, gradient);
    return sum;
}

/* Label loss of all exits, of words that are predicted at the masked positions. */
static Status add_loss(Node **loss, PassContext *ctx, Graph *graph, Diag *diag) {
    Exits exits;
    TRY(objective_mask_graph(ctx, graph, diag));
    TRY(exits_find(&exits, graph->arena, ctx, graph, diag));
    TRY(exits_label_loss(loss, graph, &exits, &(LabelLossOptions){0}, diag));
    /* Every layer gets leaves of its own: its gradient is then what comes through its own
     * uses, also where layers share weights. */
    for (Node *node = graph->first; node; node = node->next)
        for (int i = 0; i < node->in_count && node->layer >= 0; i++)
            if (node->in[i] && node->in[i]->storage)
                TRY(storage_separate(&node->in[i], graph, STORAGE_USER(node), diag));
    return STATUS_OK;
}

static Status run_norms(PassContext *ctx, Graph *graph, Node *loss, const Batches *data,
                        const D *options, Diag *diag) {
    Params *params = NULL;
    float *gradient;
    TRY(params_create(&params, graph, PRECISION_F32, false, diag));
    Status status = MEMORY_ARRAY(&gradient, (size_t)params_gradient_count(params),
                                 "the gradient of all weights", diag);
    const GradientRun run = {.graph = graph,
                             .loss = loss,
                             .params = params,
                             .data = data,
                             .limit = options->limit,
                             .batch_size = options->batch_size,
                             .threads = ctx->threads,
                             .watch = ctx->watch};
    if (status == STATUS_OK) status = mean_gradient(&run, gradient, diag);
    Tree *list = tree_new(ctx->arena, TREE_LIST, LOC_NONE);
    const int layers = graph_layer_count(graph, graph_main_stack(graph));
    for (int l = 0; l < layers && status == STATUS_OK; l++) {
        const double norm = sqrt(layer_square(graph, l, params, gradient));
        if (!isfinite(norm))
            status = step_fail(ctx, diag, "the gradient of layer %d is not finite", l);
        tree_add_real(ctx->arena, list, norm);
    }
    if (status == STATUS_OK)
        tree_append(ctx->arena, ctx->record, "gradient_norms", LOC_NONE, list);
    free(gradient);
    params_destroy(params);
    return status;
}

/* Builds the graph, and checks the data set against it; when planning that is all. */
static Status measure_norms(PassContext *ctx, Model *model, const Batches *data,
                            const D *options, Diag *diag) {
    Arena *arena = arena_create();
    Graph *graph = graph_copy(arena, model->graph);
    Node *loss = NULL;
    Status status = add_loss(&loss, ctx, graph, diag);
    if (status == STATUS_OK) status = check_fit(ctx, graph, &loss, 1, options, diag);
    if (status == STATUS_OK && !ctx->plan)
        status = run_norms(ctx, graph, loss, data, options, diag);
    graph_release(graph);
    arena_destroy(arena);
    return status;
}

static Status diagnose_run(PassContext *ctx, Model *model, const void *opaque,
                           Diag *diag) {
    const D *options = opaque;
    const char *stack = graph_main_stack(model->graph);
    if (graph_layer_count(model->graph, stack) == 0)
        return step_fail(ctx, diag, "the model has no layers in stack \"%s\"", stack);
    if (options->gradient_norms && !graph_output(model->graph, OUTPUT_LOGITS))
        return step_fail(ctx, diag, "the model has no output \"logits\"");
    Model *teacher = NULL;
    if (options->cka) {
        TRY(step_teacher(ctx, options->teacher, &teacher, diag));
        TRY(check_layers(ctx, model->graph, diag));
        TRY(check_layers(ctx, teacher->graph, diag));
        TRY(step_check_teacher(ctx, options->teacher, teacher, options->data, false,
                               diag));
    }
    Batches *data = NULL;
    TRY(step_data(ctx, options->data, NULL, &data, diag));
    if (data && data->count == 0)
        return step_fail(ctx, diag, "data set \"%s\" has no samples", options->data);
    if (options->gradient_norms) TRY(measure_norms(ctx, model, data, options, diag));
    if (options->cka && data) {
        TRY(check_layer_inputs(ctx, model->graph, options, diag));
        TRY(check_layer_inputs(ctx, teacher->graph, options, diag));
    }
    const T2rData on = {options->data, options->limit, options->batch_size};
    if (options->clamped) TRY(t2r_record_clamped(ctx, model->graph, &on, diag));
    if (options->spectra && !ctx->plan) TRY(spectra_record(ctx, model->graph, diag));
    return options->cka && !ctx->plan
               ? compare_layers(ctx, model, teacher, data, options, diag)
               : STATUS_OK;
}

const Pass pass_diagnose = {
    .name = "diagnose",
    .summary =
        "gradient norms and singular values, and similarity of layers to another model",
    .paper = "MiniViT (CVPR 2022), section 4.4; Similarity of Neural Network "
             "Representations Revisited (ICML 2019)",
    .fields = fields,
    .options_size = sizeof(D),
    .defaults = &defaults,
    .data_options = "data",
    .flags = PASS_MEASURES,
    .exactness = PASS_EXACT,
    .run = diagnose_run,
};
