/* Plans: memory is never shared by what is alive at the same time, and a planned run
 * gives what a naive run of the same kernels with memory of its own for everything does.
 */
#include "exec/plan_internal.h"
#include "exec/run.h"
#include "ir/random.h"
#include "tests/support/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 3, T = 5, D = 8, CLASSES = 4 };

typedef struct Fixture {
    Arena *arena;
    Diag *diag;
    Graph *graph;
    Node *loss, *hidden, *logits;
    Storage *shared;
} Fixture;

static Node *make(Fixture *f, const char *op, Node *const *in, int count,
                  const char *attrs) {
    Node *node = graph_insert(f->graph, NULL, op_find(f->graph->ops, op), in, count);
    if (attrs) assert_ok(node_set(f->graph, node, f->diag, "%s", attrs), f->diag);
    assert_ok(node_infer(node, f->diag), f->diag);
    return node;
}

static Node *weight(Fixture *f, const char *name, int rank, int64_t a, int64_t b) {
    const int64_t dim[] = {a, b};
    const Tensor shape = tensor_shape(DTYPE_F32, rank, dim);
    Storage *storage = NULL;
    assert_ok(graph_add_storage(&storage, f->graph, name, &shape, f->diag), f->diag);
    assert_ok(tensor_create(&storage->tensor, DTYPE_F32, rank, dim, f->diag), f->diag);
    void *data = NULL;
    assert_ok(tensor_writable(&storage->tensor, &data, f->diag), f->diag);
    const uint64_t key = random_key_name(7, name);
    for (int64_t i = 0; i < tensor_count(&shape); i++)
        ((float *)data)[i] = (float)(0.3 * random_normal(key, (uint64_t)i));
    return graph_param(f->graph, storage);
}

static Node *linear(Fixture *f, Node *x, Node *w, Node *b) {
    return make(f, "linear", (Node *[]){x, w, b}, 3, NULL);
}

/* One layer with attention and an MLP; both layers share the MLP's weights. */
static Node *layer(Fixture *f, Node *x, int index, Node *const mlp[2]) {
    char name[4][32];
    for (int i = 0; i < 4; i++) snprintf(name[i], sizeof name[i], "layer%d.%d", index, i);
    Node *norm = make(
        f, "layer_norm",
        (Node *[]){x, weight(f, name[0], 1, D, 0), weight(f, name[1], 1, D, 0)}, 3, NULL);
    Node *q = linear(f, norm, weight(f, name[2], 2, D, D), NULL);
    Node *attention = make(f, "attention", (Node *[]){q, norm, norm}, 3, "heads=2");
    Node *out = linear(f, attention, weight(f, name[3], 2, D, D), NULL);
    Node *first = make(f, "add", (Node *[]){x, out}, 2, NULL);
    Node *wide =
        make(f, "activation", (Node *[]){linear(f, first, mlp[0], NULL)}, 1, NULL);
    Node *dropped =
        make(f, "dropout", (Node *[]){linear(f, wide, mlp[1], NULL)}, 1, NULL);
    return make(f, "add", (Node *[]){first, dropped}, 2, NULL);
}

/* Two layers, a doubled value, a head, and two losses of which one compares the hidden
 * values with those of a frozen branch. */
static void fixture_open(Fixture *f) {
    *f = (Fixture){.arena = arena_create(), .diag = diag_create()};
    f->graph = graph_create(f->arena, ops_table());
    const Type pixels = {.dtype = DTYPE_F32, .rank = 3, .dim = {DIM_N, T, D}};
    const Type classes = {.dtype = DTYPE_I32, .rank = 1, .dim = {DIM_N}};
    Node *x = graph_input(f->graph, "x", &pixels);
    Node *labels = graph_input(f->graph, "labels", &classes);
    Node *mlp[2] = {weight(f, "mlp.in", 2, 2 * D, D), weight(f, "mlp.out", 2, D, 2 * D)};
    f->shared = mlp[0]->storage;
    Node *frozen = weight(f, "frozen", 2, D, D);
    frozen->storage->frozen = true;
    Node *teacher = linear(f, x, frozen, NULL);
    Node *start = linear(f, x, weight(f, "start", 2, D, D), NULL);
    f->hidden = layer(f, layer(f, start, 0, mlp), 1, mlp);
    Node *twice = make(f, "add", (Node *[]){f->hidden, f->hidden}, 2, NULL);
    Node *mean = make(f, "mean_tokens", (Node *[]){twice}, 1, NULL);
    f->logits = linear(f, mean, weight(f, "head", 2, CLASSES, D),
                       weight(f, "head.bias", 1, CLASSES, 0));
    Node *label = make(f, "cross_entropy", (Node *[]){f->logits, labels}, 2, NULL);
    Node *relation = make(f, "relation_cross_entropy",
                          (Node *[]){f->hidden, f->hidden, teacher, teacher}, 4, NULL);
    f->loss = make(f, "weighted_sum", (Node *[]){label, relation}, 2, "weights=[1, 0.5]");
}

static void fixture_close(Fixture *f) {
    graph_release(f->graph);
    arena_destroy(f->arena);
    diag_destroy(f->diag);
}

static PlanOptions options_of(Precision precision, Node *loss, Node *const *results,
                              int count) {
    return (PlanOptions){.sizes = {N},
                         .precision = precision,
                         .loss = loss,
                         .results = results,
                         .result_count = count};
}

/* ---- memory ---- */

static bool times_meet(const Buffer *a, const Buffer *b) {
    return a->first <= b->last && b->first <= a->last;
}

static void check_disjoint(const Plan *plan) {
    for (int i = 0; i < plan->buffer_count; i++) {
        const Buffer *a = &plan->buffers[i];
        assert_true(a->offset % PLAN_ALIGNMENT == 0);
        assert_true(a->offset + a->bytes <= plan_workspace_bytes(plan));
        for (int j = 0; j < i; j++) {
            const Buffer *b = &plan->buffers[j];
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

/* ---- a naive run ---- */

typedef struct Naive {
    Graph *graph;
    Type *type;
    void **value, **gradient, **aux; /* by Node.id; gradients of doubles */
    Params *params;
} Naive;

static void naive_view(const Naive *n, View *view, const Node *node, void *const *data) {
    *view = (View){0};
    if (!node) return;
    const Type *type = &n->type[node->id];
    *view = (View){.data = data[node->id],
                   .rank = type->rank,
                   .count = type_count(type),
                   .accumulate = true};
    memcpy(view->dim, type->dim, sizeof view->dim);
}

static void naive_call(const Naive *n, const Node *node, bool backward) {
    View in[8], d_in[8];
    Call call = {.node = node,
                 .attrs = node->attrs,
                 .in_count = node->in_count,
                 .in = in,
                 .d_in = d_in,
                 .aux = n->aux[node->id]};
    const Op *op = op_find(ops_table_f64(), node->op->name);
    memset(in, 0, sizeof in);
    memset(d_in, 0, sizeof d_in);
    for (int i = 0; i < node->in_count; i++) {
        naive_view(n, &in[i], node->in[i], n->value);
        naive_view(n, &d_in[i], node->in[i], n->gradient);
    }
    naive_view(n, &call.out, node, n->value);
    naive_view(n, &call.d_out, node, n->gradient);
    size_t scratch = op->scratch_bytes ? op->scratch_bytes(&call) : 0;
    if (op->aux_bytes && !call.aux)
        call.aux = n->aux[node->id] = memory_alloc(op->aux_bytes(&call), 1);
    call.scratch = aligned_alloc(64, (scratch + 127) / 64 * 64);
    if (backward)
        op->backward(&call);
    else
        op->forward(&call);
    free(call.scratch);
}

/* Whether a node may have a gradient: real, and not a frozen weight. */
static bool wants_gradient(const Node *node) {
    if (node->storage && node->storage->frozen) return false;
    return dtype_is_real(node->type.dtype);
}

static void naive_open(Naive *n, Fixture *f) {
    size_t count = (size_t)graph_number(f->graph);
    const int64_t sizes[DIM_SYMBOLS] = {N};
    *n = (Naive){.graph = f->graph};
    n->type = memory_alloc(count, sizeof *n->type);
    n->value = memory_alloc(count, sizeof(void *));
    n->gradient = memory_alloc(count, sizeof(void *));
    n->aux = memory_alloc(count, sizeof(void *));
    assert_ok(params_create(&n->params, f->graph, PRECISION_F64, false, f->diag),
              f->diag);
    for (Node *node = f->graph->first; node; node = node->next) {
        Type *type = &n->type[node->id];
        assert_true(type_bind(&node->type, sizes, type));
        size_t bytes = (size_t)type_count(type) * sizeof(double);
        n->value[node->id] = memory_alloc(bytes, 1);
        if (wants_gradient(node)) n->gradient[node->id] = memory_alloc(bytes, 1);
        if (node->storage)
            memcpy(n->value[node->id], params_data(n->params, node->storage), bytes);
    }
}

static void naive_run(const Naive *n, const Node *loss) {
    for (const Node *node = n->graph->first; node; node = node->next)
        if (!(node->op->flags & OP_LEAF)) naive_call(n, node, false);
    *(double *)n->gradient[loss->id] = 1;
    for (const Node *node = n->graph->last; node; node = node->prev)
        if (!(node->op->flags & OP_LEAF)) naive_call(n, node, true);
}

static void naive_close(Naive *n) {
    for (int i = 0; i < n->graph->node_count; i++) {
        free(n->value[i]);
        free(n->gradient[i]);
        free(n->aux[i]);
    }
    free(n->type);
    free(n->value);
    free(n->gradient);
    free(n->aux);
    params_destroy(n->params);
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

static void check_near(const double *want, const double *got, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (!(fabs(want[i] - got[i]) <= 1e-12 * (1 + fabs(want[i]))))
            fail_msg("element %lld: expected %.17g, got %.17g", (long long)i, want[i],
                     got[i]);
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
            check_near(n->gradient[node->id], weight_gradient(p, node->storage),
                       type_count(&n->type[node->id]));
    const Node *kept[] = {f->hidden, f->logits, f->loss};
    for (int i = 0; i < 3; i++)
        check_near(n->value[kept[i]->id], workspace_value(p->workspace, kept[i]),
                   type_count(&n->type[kept[i]->id]));
    Node *x = graph_find_input(f->graph, "x");
    check_near(n->gradient[x->id], workspace_input_gradient(p->workspace, x),
               type_count(&n->type[x->id]));
    check_near(n->value[x->id], workspace_value(p->workspace, x), N * T * D);
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
    for (size_t i = 0; i < bytes / sizeof(float); i++)
        assert_true(fabsf(twice[i] - 2 * once[i]) <= 1e-5f * (fabsf(once[i]) + 0.01f));
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
        check_near(naive.value[results[i]->id], workspace_value(p.workspace, results[i]),
                   type_count(&naive.type[results[i]->id]));
        check_near(naive.value[f.loss->id], workspace_value(p.workspace, f.loss), 1);
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
        assert_true(fabsf(loss - first) < 1e-5f);
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

static const Op op_blocked = {.name = "activation", .infer = NULL, .forward = NULL};

static Status plan_fails(Fixture *f, const PlanOptions *options, const char *expected) {
    Plan *plan = NULL;
    Status status = plan_create(&plan, f->graph, options, f->diag);
    assert_null(plan);
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    diag_print(f->diag, out);
    fclose(out);
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
    Op op = *node->op;
    op.backward = NULL;
    node->op = &op;
    options.sizes[0] = N;
    assert_int_equal(plan_fails(&f, &options, "activation"), STATUS_MODEL);
    node->op = &op_blocked;
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
