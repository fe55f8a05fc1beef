/* The pipeline's own promises, with passes that break them on purpose. */
#include "passes/pipeline/pipeline.h"

#include "ir/rewrite.h"
#include "tests/support/check.h"
#include "tests/support/passes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- passes that exist for this test --- */

static Status run_nothing(PassContext *ctx, Model *model, const void *options,
                          Diag *diag) {
    (void)ctx, (void)model, (void)options, (void)diag;
    return STATUS_OK;
}

static Status change_weight(Model *model, float by, Diag *diag) {
    void *data = NULL;
    TRY(tensor_writable(&model->graph->storages[0]->tensor, &data, diag));
    ((float *)data)[0] += by;
    return STATUS_OK;
}

static Status run_add_one(PassContext *ctx, Model *model, const void *options,
                          Diag *diag) {
    (void)options;
    tree_put_int(ctx->arena, ctx->record, "added", 1);
    return ctx->plan ? STATUS_OK : change_weight(model, 1, diag);
}

static Status run_false_claim(PassContext *ctx, Model *model, const void *options,
                              Diag *diag) {
    ctx->exact = true;
    return run_add_one(ctx, model, options, diag);
}

/* Multiplies by 1 in front of an output: changes the graph, not what it computes. */
static Status run_exact(PassContext *ctx, Model *model, const void *options, Diag *diag) {
    (void)options;
    Node *logits = graph_output(model->graph, "logits");
    Node *scale =
        graph_insert(model->graph, NULL, op_find(ctx->ops, "scale"), &logits, 1);
    ctx->exact = true;
    TRY(node_set(model->graph, scale, diag, "by=1.0"));
    TRY(node_infer(scale, diag));
    graph_set_output(model->graph, "logits", scale);
    return STATUS_OK;
}

static Status run_timed(PassContext *ctx, Model *model, const void *options, Diag *diag) {
    tree_put_real(ctx->arena, ctx->times, "seconds", 0.25);
    return run_add_one(ctx, model, options, diag);
}

static Status run_nan(PassContext *ctx, Model *model, const void *options, Diag *diag) {
    (void)ctx, (void)options;
    return change_weight(model, NAN, diag);
}

/* Leaves a node in front of its operand. */
static Status run_disorder(PassContext *ctx, Model *model, const void *options,
                           Diag *diag) {
    (void)ctx, (void)options, (void)diag;
    graph_move_before(model->graph, model->graph->last, model->graph->first);
    return STATUS_OK;
}

/* Sees shapes alone. */
static Status run_on_shapes(PassContext *ctx, Model *model, const void *options,
                            Diag *diag) {
    (void)options;
    if (ctx->plan && !model->graph->storages[0]->tensor.buf) return STATUS_OK;
    return diag_fail(diag, STATUS_INTERNAL, LOC_NONE, NULL, "it ran on weights");
}

static Status run_refusal(PassContext *ctx, Model *model, const void *options,
                          Diag *diag) {
    (void)ctx, (void)model, (void)options;
    return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL, "a reason of its own");
}

static Pass make_pass(const char *name, int flags,
                      Status (*run)(PassContext *, Model *, const void *, Diag *)) {
    return (Pass){.name = name, .summary = "", .flags = flags, .run = run};
}

/* --- running one --- */

typedef struct Trace {
    int begun, ended, dumps;
    double timed; /* what the last step put into its times */
    char last_dump[64];
} Trace;

static void on_begin(void *self, const Recipe *recipe, int index) {
    (void)recipe, (void)index;
    ((Trace *)self)->begun++;
}

static void on_end(void *self, const Recipe *recipe, int index,
                   const StepResult *result) {
    Trace *trace = self;
    const Tree *timed = tree_get(result->times, "seconds");
    (void)recipe, (void)index;
    assert_non_null(result->record);
    assert_true(result->measure.parameters > 0 && result->seconds >= 0);
    trace->timed = timed ? timed->real : 0;
    trace->ended++;
}

static Status on_dump(void *self, int index, const char *pass, const char *when,
                      const char *text, size_t length, Diag *diag) {
    Trace *trace = self;
    (void)index, (void)diag;
    assert_true(length > 4 && strncmp(text, "ir 2", 4) == 0);
    snprintf(trace->last_dump, sizeof trace->last_dump, "%s-%s", pass, when);
    trace->dumps++;
    return STATUS_OK;
}

/* Runs one pass on a toy model. The model is freed unless `model` is given. */
static Status run_one(const Pass *pass, bool plan, bool allow, DumpWhen dump,
                      Trace *trace, Model **model, Diag *diag) {
    Model *toy = toy_vit(1);
    Step step = {.pass = pass, .allow_unchanged = allow, .source.key = "passes[0]"};
    Recipe recipe = {.seed = 1, .steps = &step, .step_count = 1};
    PipelineOptions options = {.plan = plan, .dump = dump, .threads = 1};
    *trace = (Trace){0};
    options.hooks = (PipelineHooks){
        .self = trace, .step_begin = on_begin, .step_end = on_end, .dump = on_dump};
    Status status = pipeline_run(toy, &recipe, &options, diag);
    if (model)
        *model = toy;
    else
        model_destroy(toy);
    return status;
}

static void expect(const Pass *pass, bool plan, bool allow, Status status,
                   const char *part) {
    Diag *diag = diag_create();
    Trace trace;
    assert_int_equal(run_one(pass, plan, allow, DUMP_NEVER, &trace, NULL, diag), status);
    char *messages = diag_text(diag);
    if (!strstr(messages, part)) fail_msg("expected \"%s\" in:\n%s", part, messages);
    assert_int_equal(trace.begun, 1);
    assert_int_equal(trace.ended, status == STATUS_OK);
    free(messages);
    diag_destroy(diag);
}

static void test_changes(void **state) {
    (void)state;
    const Pass nothing = make_pass("nothing", 0, run_nothing);
    const Pass measures = make_pass("measures", PASS_MEASURES, run_nothing);
    const Pass trains = make_pass("trains", PASS_TRAINS, run_nothing);
    const Pass adds = make_pass("adds", 0, run_add_one);
    expect(&nothing, false, false, STATUS_RECIPE, "expected nothing to change the model");
    expect(&nothing, true, false, STATUS_RECIPE, "in step 1 of 1, nothing");
    expect(&nothing, false, true, STATUS_OK, "");
    expect(&measures, false, false, STATUS_OK, "");
    expect(&trains, true, false, STATUS_OK, "");
    expect(&trains, false, false, STATUS_RECIPE, "allow_unchanged: true");
    expect(&adds, false, false, STATUS_OK, "");
}

/* What a pass declares is asked of the model before it runs, on shapes alone. */
static void test_declared_needs(void **state) {
    (void)state;
    Pass needs = make_pass("needs", 0, run_on_shapes);
    Pass refuses = make_pass("refuses", 0, run_on_shapes);
    Pass tells = make_pass("tells", 0, run_refusal);
    needs.effects.needs = MODEL_SOFTMAX_ATTENTION | MODEL_TOKEN_TYPES;
    refuses.effects.refuses = MODEL_CLASSIFIER | MODEL_EXITS;
    tells.effects.needs = MODEL_EXITS;
    for (int plan = 0; plan < 2; plan++) {
        expect(&needs, plan, false, STATUS_MODEL,
               "needs needs token types, which the model has not");
        expect(&refuses, plan, false, STATUS_MODEL,
               "refuses does not work on a model with a classifier");
        expect(&tells, plan, false, STATUS_MODEL, "a reason of its own");
    }
    Pass fits = make_pass("fits", 0, run_add_one);
    fits.effects = (PassEffects){.needs = MODEL_CLASSIFIER, .refuses = MODEL_EXITS};
    expect(&fits, false, false, STATUS_OK, "");
}

static void test_exactness(void **state) {
    (void)state;
    const Pass exact = make_pass("exact", 0, run_exact);
    const Pass claim = make_pass("claim", 0, run_false_claim);
    expect(&exact, false, false, STATUS_OK, "");
    expect(&exact, true, false, STATUS_OK, "");
    expect(&claim, false, false, STATUS_INTERNAL,
           "claim claims to preserve the model's outputs");
}

static void test_broken_models(void **state) {
    (void)state;
    const Pass nan = make_pass("nan_maker", 0, run_nan);
    const Pass disorder = make_pass("disorder", 0, run_disorder);
    expect(&nan, false, false, STATUS_MODEL, "in the weights that nan_maker left");
    expect(&disorder, false, false, STATUS_INTERNAL, "in the model that disorder left");
}

static void test_provenance(void **state) {
    (void)state;
    const Pass adds = make_pass("adds", 0, run_add_one);
    Diag *diag = diag_create();
    Trace trace;
    Model *model = NULL;
    assert_ok(run_one(&adds, false, false, DUMP_NEVER, &trace, &model, diag), diag);
    const Tree *steps = tree_get(model->provenance, "steps");
    assert_int_equal(steps->count, 1);
    const Tree *step = steps->first;
    assert_string_equal(tree_get(step, "pass")->string, "adds");
    assert_int_equal(tree_get(step, "parameters")->integer,
                     graph_parameter_count(model->graph));
    assert_int_equal(tree_get(tree_get(step, "record"), "added")->integer, 1);
    assert_int_equal(strlen(tree_get(model->provenance, "input_hash")->string), 32);
    model_destroy(model);
    diag_destroy(diag);
}

/* What a pass timed reaches the caller and not the model. */
static void test_times(void **state) {
    (void)state;
    const Pass timed = make_pass("timed", 0, run_timed);
    const Pass adds = make_pass("adds", 0, run_add_one);
    Diag *diag = diag_create();
    Trace trace;
    Model *model = NULL;
    assert_ok(run_one(&timed, false, false, DUMP_NEVER, &trace, &model, diag), diag);
    assert_true(trace.timed == 0.25);
    const Tree *step = tree_get(model->provenance, "steps")->first;
    assert_null(tree_get(step, "times"));
    assert_int_equal(tree_get(step, "record")->count, 1);
    model_destroy(model);
    assert_ok(run_one(&adds, false, false, DUMP_NEVER, &trace, NULL, diag), diag);
    assert_true(trace.timed == 0);
    diag_destroy(diag);
}

static void expect_dump(const Pass *pass, DumpWhen when, int dumps, const char *last) {
    Diag *diag = diag_create();
    Trace trace;
    run_one(pass, false, true, when, &trace, NULL, diag);
    assert_int_equal(trace.dumps, dumps);
    assert_string_equal(trace.last_dump, last);
    diag_destroy(diag);
}

static void test_dumps(void **state) {
    (void)state;
    const Pass nothing = make_pass("nothing", 0, run_nothing);
    const Pass adds = make_pass("adds", 0, run_add_one);
    const Pass nan = make_pass("nan_maker", 0, run_nan);
    expect_dump(&nothing, DUMP_BEFORE, 1, "nothing-before");
    expect_dump(&nothing, DUMP_AFTER, 1, "nothing-after");
    expect_dump(&nothing, DUMP_CHANGE, 0, "");
    expect_dump(&adds, DUMP_CHANGE, 1, "adds-after");
    expect_dump(&adds, DUMP_FAILURE, 0, "");
    expect_dump(&nan, DUMP_FAILURE, 2, "nan_maker-failure");
}

static bool always(void *self) {
    (void)self;
    return true;
}

static void test_interrupt(void **state) {
    (void)state;
    const Pass adds = make_pass("adds", 0, run_add_one);
    Step step = {.pass = &adds, .source.key = "passes[0]"};
    Recipe recipe = {.steps = &step, .step_count = 1};
    Watch watch = {.cancelled = always};
    PipelineOptions options = {.threads = 1, .watch = &watch};
    Diag *diag = diag_create();
    Model *model = toy_vit(1);
    assert_int_equal(pipeline_run(model, &recipe, &options, diag), STATUS_INTERRUPTED);
    model_destroy(model);
    diag_destroy(diag);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changes),       cmocka_unit_test(test_exactness),
        cmocka_unit_test(test_broken_models), cmocka_unit_test(test_provenance),
        cmocka_unit_test(test_dumps),         cmocka_unit_test(test_interrupt),
        cmocka_unit_test(test_times),         cmocka_unit_test(test_declared_needs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
