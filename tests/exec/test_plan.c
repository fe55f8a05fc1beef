/* Plans: memory is never shared by what is alive at the same time, and a planned run
 * gives what a naive run of the same kernels with memory of its own for everything does.
 */
#include "tests/exec/plan_fixture.h"
#include "tests/support/rounding.h"

/* ---- memory ---- */

static bool times_meet(const PlanBuffer *a, const PlanBuffer *b) {
    return a->first <= b->last && b->first <= a->last;
}

static void check_disjoint(const Plan *plan) {
    for (int i = 0; i < plan->buffer_count; i++) {
        const PlanBuffer *a = &plan->buffers[i];
        assert_true(a->offset % PLAN_ALIGNMENT == 0);
        assert_true(a->offset + a->bytes <= plan_workspace_bytes(plan));
        for (int j = 0; j < i; j++) {
            const PlanBuffer *b = &plan->buffers[j];
            if (!times_meet(a, b)) continue;
            assert_true(a->offset + a->bytes <= b->offset ||
                        b->offset + b->bytes <= a->offset);
        }
    }
}

static void alive(const Plan *plan, int buffer, int time) {
    if (buffer < 0) return;
    assert_true(plan->buffers[buffer].first <= time);
    assert_true(plan->buffers[buffer].last >= time);
}

/* Everything a call touches is alive while it runs. */
static void check_alive(const Plan *plan) {
    for (int i = 0; i < plan->node_count; i++) {
        const PlanNode *node = &plan->nodes[i];
        if (node->forward < 0) continue;
        alive(plan, node->value, node->forward);
        alive(plan, node->aux, node->forward);
        alive(plan, node->forward_scratch, node->forward);
        for (int j = 0; j < node->in_count; j++)
            if (node->in[j].node >= 0)
                alive(plan, plan->nodes[node->in[j].node].value, node->forward);
        if (node->backward < 0) continue;
        alive(plan, node->aux, node->backward);
        alive(plan, node->backward_scratch, node->backward);
        alive(plan, node->gradient, node->backward);
        for (int j = 0; j < node->in_count; j++) {
            if (node->in[j].node < 0) continue;
            const PlanNode *in = &plan->nodes[node->in[j].node];
            if (node->in[j].write != GRADIENT_NONE)
                alive(plan, in->gradient, node->backward);
            if ((node->op->reads >> (j < 31 ? j : 30)) & 1)
                alive(plan, in->value, node->backward);
        }
        if (node->op->reads & READS_OUT) alive(plan, node->value, node->backward);
    }
}

static size_t sum_of_bytes(const Plan *plan) {
    size_t sum = 0;
    for (int i = 0; i < plan->buffer_count; i++) sum += plan->buffers[i].bytes;
    return sum;
}

static void test_memory(void **state) {
    (void)state;
    Fixture f;
    fixture_open(&f);
    for (int mode = 0; mode < 4; mode++) {
        PlanOptions options = options_of(PRECISION_F32, mode & 1 ? f.loss : NULL,
                                         (Node *[]){f.hidden, f.logits}, 2);
        options.input_gradients = mode == 3;
        Plan *plan = NULL;
        assert_ok(plan_build(&plan, f.graph, &options, mode >= 2, f.diag), f.diag);
        check_disjoint(plan);
        check_alive(plan);
        assert_true(plan_workspace_bytes(plan) < sum_of_bytes(plan));
        assert_int_equal(plan_samples(plan), N);
        assert_true(plan_flops(plan) > 0);
        Text text = {0};
        plan_print(&text, plan);
        assert_non_null(strstr(text.data, "attention"));
        text_free(&text);
        plan_destroy(plan);
    }
    fixture_close(&f);
}

/* A long chain needs two values at a time, however long it is. */
static void test_chain(void **state) {
    (void)state;
    Fixture f = {.arena = arena_create(), .diag = diag_create()};
    f.graph = graph_create(f.arena, ops_table());
    const Type type = {.dtype = DTYPE_F32, .rank = 2, .dim = {DIM_N, 64}};
    Node *x = graph_input(f.graph, "x", &type), *w = weight(&f, "w", 2, 64, 64);
    Node *end = x;
    for (int i = 0; i < 30; i++) end = linear(&f, end, w, NULL);
    PlanOptions options = options_of(PRECISION_F32, NULL, &end, 1);
    Plan *plan = NULL;
    assert_ok(plan_create(&plan, f.graph, &options, f.diag), f.diag);
    assert_int_equal(plan_workspace_bytes(plan), 3 * N * 64 * sizeof(float));
    assert_true(plan_flops(plan) == 30.0 * 2 * N * 64 * 64);
    plan_destroy(plan);
    fixture_close(&f);
}

/* ---- planned runs against it ---- */

static void fill(void *x, void *labels, size_t real) {
    for (int i = 0; i < N * T * D; i++) {
        const float value = (float)random_normal(11, (uint64_t)i);
        if (real == sizeof(double))
            ((double *)x)[i] = value;
        else
            ((float *)x)[i] = value;
    }
    for (int i = 0; i < N; i++) ((int32_t *)labels)[i] = i % CLASSES;
}

/* Terms of the longest chain to the loss and back. */
static double fixture_terms(const Fixture *f) {
    const int64_t sizes[DIM_SYMBOLS] = {N};
    return rounding_gradient_terms(f->graph, f->loss, NULL, sizes);
}

static void check_near(const Fixture *f, const double *want, const double *got,
                       int64_t count) {
    rounding_compare("planned", got, want, count, PRECISION_F64, fixture_terms(f), 0);
}

typedef struct Planned {
    Plan *plan;
    Params *params;
    Workspace *workspace;
    void *gradients;
} Planned;

static void planned_open(Planned *p, Fixture *f, const PlanOptions *options, bool share) {
    *p = (Planned){0};
    assert_ok(plan_build(&p->plan, f->graph, options, share, f->diag), f->diag);
    assert_ok(params_create(&p->params, f->graph, options->precision, false, f->diag),
              f->diag);
    assert_ok(workspace_create(&p->workspace, f->diag), f->diag);
    assert_ok(workspace_bind(p->workspace, p->plan, p->params, f->diag), f->diag);
    p->gradients = memory_alloc((size_t)params_gradient_count(p->params), 8);
}

static void planned_run(Planned *p, double seed) {
    fill(workspace_input(p->workspace, "x"), workspace_input(p->workspace, "labels"),
         plan_real_bytes(p->plan));
    run_forward(p->workspace, (RunMode){0});
    run_backward(p->workspace, (RunMode){0}, seed, p->gradients);
}

static void planned_close(Planned *p) {
    workspace_destroy(p->workspace);
    params_destroy(p->params);
    plan_destroy(p->plan);
    free(p->gradients);
}

static const double *weight_gradient(const Planned *p, const Storage *storage) {
    return (const double *)p->gradients + params_offset(p->params, storage);
}

static void check_against(const Naive *n, const Planned *p, const Fixture *f) {
    for (const Node *node = f->graph->first; node; node = node->next)
        if (node->storage && params_offset(p->params, node->storage) >= 0)
            check_near(f, n->gradient[node->id], weight_gradient(p, node->storage),
                       type_count(&n->type[node->id]));
    const Node *kept[] = {f->hidden, f->logits, f->loss};
    for (int i = 0; i < 3; i++)
        check_near(f, n->value[kept[i]->id], workspace_value(p->workspace, kept[i]),
                   type_count(&n->type[kept[i]->id]));
    Node *x = graph_find_input(f->graph, "x");
    check_near(f, n->gradient[x->id], workspace_input_gradient(p->workspace, x),
               type_count(&n->type[x->id]));
    check_near(f, n->value[x->id], workspace_value(p->workspace, x), N * T * D);
}

static void test_naive(void **state) {
    (void)state;
    Fixture f;
    fixture_open(&f);
    Naive naive;
    naive_open(&naive, &f);
    fill(naive.value[graph_find_input(f.graph, "x")->id],
         naive.value[graph_find_input(f.graph, "labels")->id], sizeof(double));
    naive_run(&naive, f.loss);
    PlanOptions options =
        options_of(PRECISION_F64, f.loss, (Node *[]){f.hidden, f.logits, f.loss}, 3);
    options.input_gradients = true;
    for (int share = 0; share < 2; share++) {
        Planned p;
        planned_open(&p, &f, &options, share);
        planned_run(&p, 1);
        check_against(&naive, &p, &f);
        planned_close(&p);
    }
    naive_close(&naive);
    fixture_close(&f);
}

/* Sharing changes no bit, saves memory, and gradients add up over runs. */
static void test_sharing(void **state) {
    (void)state;
    Fixture f;
    fixture_open(&f);
    PlanOptions options = options_of(PRECISION_F32, f.loss, NULL, 0);
    Planned with, without;
    planned_open(&with, &f, &options, true);
    planned_open(&without, &f, &options, false);
    planned_run(&with, 0.5);
    planned_run(&without, 0.5);
    const size_t bytes = (size_t)params_gradient_count(with.params) * sizeof(float);
    assert_memory_equal(with.gradients, without.gradients, bytes);
    int shared = 0;
    for (int i = 0; i < with.plan->node_count; i++)
        for (int j = 0; j < with.plan->nodes[i].in_count; j++)
            shared += with.plan->nodes[i].in[j].write == GRADIENT_SHARE;
    assert_int_equal(shared, 4);
    float *once = memory_alloc(bytes, 1);
    memcpy(once, with.gradients, bytes);
    planned_run(&with, 0.5);
    const float *twice = with.gradients;
    const size_t count = bytes / sizeof(float);
    float largest = 0;
    for (size_t i = 0; i < count; i++) largest = fmaxf(largest, fabsf(once[i]));
    const double tolerance =
        rounding_tolerance(PRECISION_F32, fixture_terms(&f), (double)largest);
    for (size_t i = 0; i < count; i++) assert_within(twice[i], 2 * once[i], tolerance);
    free(once);
    planned_close(&with);
    planned_close(&without);
    fixture_close(&f);
}

/* Without gradients an inference plan keeps its results, whatever else it reuses. */
static void test_results(void **state) {
    (void)state;
    Fixture f;
    fixture_open(&f);
    Naive naive;
    naive_open(&naive, &f);
    fill(naive.value[graph_find_input(f.graph, "x")->id],
         naive.value[graph_find_input(f.graph, "labels")->id], sizeof(double));
    naive_run(&naive, f.loss);
    Node *results[64];
    int count = 0;
    for (Node *node = f.graph->first; node; node = node->next)
        if (count < 64 && node->type.rank == 3) results[count++] = node;
    for (int i = 0; i < count; i++) {
        const PlanOptions options =
            options_of(PRECISION_F64, NULL, (Node *[]){results[i], f.loss}, 2);
        Planned p;
        planned_open(&p, &f, &options, true);
        planned_run(&p, 1);
        check_near(&f, naive.value[results[i]->id],
                   workspace_value(p.workspace, results[i]),
                   type_count(&naive.type[results[i]->id]));
        check_near(&f, naive.value[f.loss->id], workspace_value(p.workspace, f.loss), 1);
        planned_close(&p);
    }
    naive_close(&naive);
    fixture_close(&f);
}

/* One workspace serves plans of several sizes, in any order and after they are gone. */
static void test_rebinding(void **state) {
    (void)state;
    Fixture f;
    fixture_open(&f);
    Params *params = NULL;
    Workspace *workspace = NULL;
    assert_ok(params_create(&params, f.graph, PRECISION_F32, false, f.diag), f.diag);
    assert_ok(workspace_create(&workspace, f.diag), f.diag);
    float first = 0;
    for (int round = 0; round < 24; round++) {
        PlanOptions options = options_of(PRECISION_F32, f.loss, NULL, 0);
        options.sizes[0] = 1 + round % 12;
        Plan *plan = NULL;
        assert_ok(plan_create(&plan, f.graph, &options, f.diag), f.diag);
        assert_ok(workspace_bind(workspace, plan, params, f.diag), f.diag);
        plan_destroy(plan); /* the workspace holds a reference */
        float *x = workspace_input(workspace, "x");
        int32_t *labels = workspace_input(workspace, "labels");
        for (int64_t i = 0; i < options.sizes[0] * T * D; i++)
            x[i] = (float)random_normal(3, (uint64_t)(i % (T * D)));
        memset(labels, 0, (size_t)options.sizes[0] * sizeof *labels);
        run_forward(workspace, (RunMode){0});
        const float loss = *(const float *)workspace_value(workspace, f.loss);
        if (round == 0) first = loss;
        assert_within(loss, first,
                      rounding_tolerance(PRECISION_F32,
                                         rounding_terms(f.graph, f.loss, options.sizes),
                                         (double)first));
        assert_null(workspace_input(workspace, "absent"));
    }
    params_destroy(params);
    workspace_destroy(workspace);
    fixture_close(&f);
}

/* ---- weights ---- */

static void test_params(void **state) {
    (void)state;
    Fixture f;
    fixture_open(&f);
    const Storage *head = graph_storage(f.graph, "head");
    const Storage *frozen = graph_storage(f.graph, "frozen");
    float before[CLASSES * D];
    memcpy(before, tensor_data(&head->tensor), sizeof before);
    const void *frozen_data = tensor_data(&frozen->tensor);
    Params *params = NULL;
    assert_ok(params_create(&params, f.graph, PRECISION_F32, true, f.diag), f.diag);
    assert_int_equal(params_offset(params, frozen), -1);
    assert_ptr_equal(params_data(params, frozen), frozen_data);
    float *flat = params_flat(params);
    assert_int_equal(params_flat_count(params), params_gradient_count(params));
    assert_memory_equal(flat + params_offset(params, head), before, sizeof before);
    flat[params_offset(params, head)] = 42;
    params_destroy(params);
    assert_true(((const float *)tensor_data(&head->tensor))[0] == 42);
    fixture_close(&f);
}

/* ---- errors ---- */

static const Kernel NO_KERNEL = {0};
static const Op BLOCKED = {.name = "activation", .kernel = &NO_KERNEL};

static Status plan_fails(Fixture *f, const PlanOptions *options, const char *expected) {
    Plan *plan = NULL;
    Status status = plan_create(&plan, f->graph, options, f->diag);
    assert_null(plan);
    char *text = diag_text(f->diag);
    if (!strstr(text, expected)) fail_msg("no \"%s\" in: %s", expected, text);
    free(text);
    diag_clear(f->diag);
    return status;
}

static void test_errors(void **state) {
    (void)state;
    Fixture f;
    fixture_open(&f);
    PlanOptions options = options_of(PRECISION_F32, f.logits, NULL, 0);
    assert_int_equal(plan_fails(&f, &options, "scalar"), STATUS_MODEL);
    options = (PlanOptions){.loss = f.loss};
    assert_int_equal(plan_fails(&f, &options, "size for every symbol"), STATUS_MODEL);
    options = options_of(PRECISION_F32, f.loss, NULL, 0);
    options.sizes[0] = INT64_MAX / 2;
    assert_int_equal(plan_fails(&f, &options, "too large"), STATUS_MODEL);
    Node *node = f.graph->last;
    while (strcmp(node->op->name, "activation") != 0) node = node->prev;
    Kernel kernel = *kernel_of(kernels_for(PRECISION_F32), node->op);
    kernel.backward = NULL;
    Op op = *node->op;
    op.kernel = &kernel;
    node->op = &op;
    options.sizes[0] = N;
    assert_int_equal(plan_fails(&f, &options, "activation"), STATUS_MODEL);
    node->op = &BLOCKED;
    assert_int_equal(plan_fails(&f, &options, "no kernel"), STATUS_INTERNAL);
    fixture_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),  cmocka_unit_test(test_chain),
        cmocka_unit_test(test_naive),   cmocka_unit_test(test_sharing),
        cmocka_unit_test(test_results), cmocka_unit_test(test_rebinding),
        cmocka_unit_test(test_params),  cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
