/* Checks before and after a step: needs, structure, finite weights, and the promise of
 * exactness. */
#include "passes/pipeline/pipeline_check.h"

#include "exec/ops.h"
#include "exec/run/run.h"
#include "ir/random.h"
#include "ir/verify.h"
#include "passes/fault.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EXACT_SAMPLES   2
#define EXACT_TOKENS    16
#define EXACT_TOLERANCE 1e-5

/* A linear layer that rounds what it reads, and its attributes without that. */
typedef struct Rounder {
    Node *node;
    LinearAttrs *was, real;
} Rounder;

/* One execution of a model in double precision. */
typedef struct Trial {
    Graph *graph;
    Rounder *rounders;
    int rounder_count;
    const int64_t *sizes;
    Plan *plan;
    Params *params;
    Workspace *workspace;
    Node **results;
} Trial;

static void trial_close(Trial *trial) {
    for (int i = 0; i < trial->rounder_count; i++)
        trial->rounders[i].node->attrs = trial->rounders[i].was;
    free(trial->rounders);
    workspace_destroy(trial->workspace);
    params_destroy(trial->params);
    plan_destroy(trial->plan);
    free(trial->results);
}

/* Fills an input from its name alone, so that both models get the same. Integers are 0 or
 * 1, and 1 at the start of each row, unless the input is an index of which there is only
 * 0: valid as tokens, labels and masks. */
static void fill_input(const Trial *trial, const Node *input, uint64_t seed) {
    Type type;
    void *data = workspace_input(trial->workspace, input->name);
    if (!data || !type_bind(&input->type, trial->sizes, &type)) return;
    const int32_t one = plan_index_limit(trial->plan, input) != 1;
    uint64_t key = random_key_name(seed, input->name);
    int64_t count = type_count(&type);
    int64_t row = type.rank > 0 ? type.dim[type.rank - 1] : 1;
    for (int64_t i = 0; i < count; i++) {
        if (type.dtype == DTYPE_I32)
            ((int32_t *)data)[i] =
                i % row == 0 || random_uniform(key, (uint64_t)i) < 0.5 ? one : 0;
        else
            ((double *)data)[i] = random_normal(key, (uint64_t)i);
    }
}

static bool rounds_input(const Node *node) {
    return node_is(node, &op_linear) &&
           ((const LinearAttrs *)node->attrs)->act != LINEAR_ACT_FLOAT;
}

/* Until the trial is closed the graph computes with real activations: rounding to 8 bits
 * makes a step of a last bit, and would hide what a pass did to the function. */
static void unround(Trial *trial) {
    int count = 0;
    for (const Node *node = trial->graph->first; node; node = node->next)
        count += rounds_input(node);
    trial->rounders = memory_alloc((size_t)count + 1, sizeof *trial->rounders);
    for (Node *node = trial->graph->first; node; node = node->next) {
        if (!rounds_input(node)) continue;
        Rounder *rounder = &trial->rounders[trial->rounder_count++];
        *rounder = (Rounder){node, node->attrs, *(LinearAttrs *)node->attrs};
        rounder->real.act = LINEAR_ACT_FLOAT;
        node->attrs = &rounder->real;
    }
}

/* A trial of all outputs; lowers `sizes` to what the graph takes. */
static Trial trial_open(Graph *graph, int64_t sizes[DIM_SYMBOLS]) {
    Trial trial = {.graph = graph, .sizes = sizes};
    trial.results = memory_alloc((size_t)graph->output_count + 1, sizeof(Node *));
    for (int i = 0; i < graph->output_count; i++)
        trial.results[i] = graph->outputs[i].node;
    unround(&trial);
    plan_fit_sizes(graph, trial.results, graph->output_count, sizes);
    return trial;
}

static Status trial_run(Trial *trial, uint64_t seed, Diag *diag) {
    Graph *graph = trial->graph;
    PlanOptions options = {.precision = PRECISION_F64,
                           .results = trial->results,
                           .result_count = graph->output_count};
    memcpy(options.sizes, trial->sizes, sizeof options.sizes);
    TRY(plan_create(&trial->plan, graph, &options, diag));
    TRY(params_create(&trial->params, graph, PRECISION_F64, false, diag));
    TRY(workspace_create(&trial->workspace, diag));
    TRY(workspace_bind(trial->workspace, trial->plan, trial->params, diag));
    for (Node *node = graph->first; node; node = node->next)
        if (node->name) fill_input(trial, node, seed);
    run_forward(trial->workspace, (RunMode){0});
    return STATUS_OK;
}

/* Compares one output of both models. */
static Status compare_output(const char *name, const double *a, const double *b,
                             int64_t count, const char *pass, Diag *diag) {
    double largest = 0, difference = 0;
    int64_t at = 0;
    for (int64_t i = 0; i < count; i++) {
        double d = fabs(a[i] - b[i]);
        if (fabs(a[i]) > largest) largest = fabs(a[i]);
        if (d > difference || isnan(d)) {
            difference = d;
            at = i;
            if (isnan(d)) break;
        }
    }
    if (difference <= EXACT_TOLERANCE * largest) return STATUS_OK;
    return diag_fail(diag, STATUS_INTERNAL, LOC_NONE, NULL,
                     "%s claims to preserve the model's outputs, but on a seeded input "
                     "output \"%s\" differs by %.3g at element %lld (%.9g before, %.9g "
                     "after), largest value %.3g, allowed %.3g",
                     pass, name, difference, (long long)at, a[at], b[at], largest,
                     EXACT_TOLERANCE * largest);
}

static Status compare_outputs(const Trial *before, const Trial *after, const char *pass,
                              Diag *diag) {
    int compared = 0;
    for (int i = 0; i < before->graph->output_count; i++) {
        const Output *output = &before->graph->outputs[i];
        const Node *other = graph_output(after->graph, output->name);
        Type type;
        if (!other || output->node->type.dtype != DTYPE_F32 ||
            !type_bind(&output->node->type, before->sizes, &type))
            continue;
        if (!type_equal(&output->node->type, &other->type))
            return diag_fail(diag, STATUS_INTERNAL, LOC_NONE, NULL,
                             "%s claims to preserve the model's outputs, but output "
                             "\"%s\" changed its shape",
                             pass, output->name);
        TRY(compare_output(output->name, workspace_value(before->workspace, output->node),
                           workspace_value(after->workspace, other), type_count(&type),
                           pass, diag));
        compared++;
    }
    if (compared > 0) return STATUS_OK;
    return diag_fail(diag, STATUS_INTERNAL, LOC_NONE, NULL,
                     "%s claims to preserve the model's outputs, but none is left", pass);
}

Status check_exactness(Model *before, Model *after, const char *pass, uint64_t seed,
                       Diag *diag) {
    int64_t sizes[DIM_SYMBOLS] = {[DIM_INDEX(DIM_N)] = EXACT_SAMPLES,
                                  [DIM_INDEX(DIM_T)] = EXACT_TOKENS,
                                  [DIM_INDEX(DIM_S)] = EXACT_TOKENS,
                                  [DIM_INDEX(DIM_M)] = 2};
    Trial old = trial_open(before->graph, sizes);
    Trial new = trial_open(after->graph, sizes);
    Status status = trial_run(&old, seed, diag);
    if (status == STATUS_OK) status = trial_run(&new, seed, diag);
    if (status == STATUS_OK) status = compare_outputs(&old, &new, pass, diag);
    trial_close(&old);
    trial_close(&new);
    return status;
}

Status check_model(Model *model, const char *pass, bool weights, Diag *diag) {
    Status status = graph_verify(model->graph, STATUS_INTERNAL, diag);
    if (status != STATUS_OK) {
        diag_note(diag, "in the model that %s left", pass);
        return status;
    }
    if (!weights) return STATUS_OK;
    status = graph_verify_weights(model->graph, diag);
    if (status != STATUS_OK) diag_note(diag, "in the weights that %s left", pass);
    return status;
}

Status check_fits(const PassContext *ctx, Model *model, const void *options, Diag *diag) {
    const Pass *pass = ctx->pass;
    const PassEffects effects = pass_effects(pass, options);
    if (!effects.needs && !effects.refuses) return STATUS_OK;
    const unsigned found = model_properties(model);
    const unsigned lacks = effects.needs & ~found, hinders = effects.refuses & found;
    if (!lacks && !hinders) return STATUS_OK;
    Model *shapes = model_copy(model);
    model_strip(shapes);
    PassContext trial = *ctx;
    trial.plan = true;
    trial.model = shapes;
    trial.record = tree_new(ctx->arena, TREE_MAP, LOC_NONE);
    Status status = pass->run(&trial, shapes, options, diag);
    model_destroy(shapes);
    TRY(status);
    Text names = {0};
    properties_print(&names, lacks ? lacks : hinders);
    status = step_fail(&trial, diag,
                       lacks ? "%s needs %s, which the model has not"
                             : "%s does not work on a model with %s",
                       pass->name, names.data);
    if (!lacks && hinders == MODEL_QUANTISED)
        diag_hint(diag, "quantize comes last; `cast: {dtype: f32}` makes its weights "
                        "real numbers again");
    text_free(&names);
    return status;
}
