/* Losses over rows in plans: the halves of a mini-batch that are told how many rows the
 * whole of it has add up to the whole. */
#include "tests/exec/plan_fixture.h"
#include "tests/support/rounding.h"

enum { SAMPLES = 4, WEIGHTS_MAX = 2048 };

/* Cosine distance of x W to a frozen branch, and cross-entropy of a head, both over
 * tokens of which some do not count. */
typedef struct Model {
    Fixture f;
    Node *cosine, *label;
} Model;

static Node *input(Model *m, const char *name, DType dtype, int rank) {
    const Type type = {.dtype = dtype, .rank = rank, .dim = {DIM_N, T, D}};
    return graph_input(m->f.graph, name, &type);
}

static void model_open(Model *m) {
    Fixture *f = &m->f;
    *m = (Model){.f = {.arena = arena_create(), .diag = diag_create()}};
    f->graph = graph_create(f->arena, ops_table());
    Node *x = input(m, "x", DTYPE_F32, 3), *mask = input(m, "mask", DTYPE_I32, 2);
    Node *labels = input(m, "labels", DTYPE_I32, 2);
    Node *frozen = weight(f, "frozen", 2, D, D);
    frozen->storage->frozen = true;
    Node *teacher = linear(f, x, frozen, NULL);
    Node *hidden = linear(f, x, weight(f, "hidden", 2, D, D), NULL);
    Node *logits = linear(f, hidden, weight(f, "head", 2, CLASSES, D), NULL);
    m->cosine = make(f, "cosine_distance", (Node *[]){hidden, teacher, mask}, 3, NULL);
    m->label = make(f, "cross_entropy", (Node *[]){logits, labels}, 2, NULL);
    f->loss =
        make(f, "weighted_sum", (Node *[]){m->cosine, m->label}, 2, "weights=[1, 0.5]");
}

/* What came of some samples. */
typedef struct Outcome {
    double loss, rows[2];
    double gradient[WEIGHTS_MAX];
} Outcome;

/* Samples first .. first + count - 1; the mask keeps more tokens of later samples. */
static void fill_inputs(Workspace *workspace, int first, int count) {
    double *x = workspace_input(workspace, "x");
    int32_t *mask = workspace_input(workspace, "mask");
    int32_t *labels = workspace_input(workspace, "labels");
    for (int i = 0; i < count * T * D; i++)
        x[i] = random_normal(3, (uint64_t)(first * T * D + i));
    for (int i = 0; i < count * T; i++) {
        const int sample = first + i / T, token = i % T;
        mask[i] = token <= sample;
        labels[i] = token % 2 == sample % 2 ? INDEX_SKIP : token % CLASSES;
    }
}

/* Runs samples first .. first + count - 1; `rows` as in RunMode. */
static Outcome run(Model *m, Params *params, int first, int count, const double *rows) {
    Plan *plan = NULL;
    Workspace *workspace = NULL;
    Outcome out = {0};
    PlanOptions options = options_of(PRECISION_F64, m->f.loss, NULL, 0);
    options.sizes[DIM_INDEX(DIM_N)] = count;
    assert_ok(plan_create(&plan, m->f.graph, &options, m->f.diag), m->f.diag);
    assert_ok(workspace_create(&workspace, m->f.diag), m->f.diag);
    assert_ok(workspace_bind(workspace, plan, params, m->f.diag), m->f.diag);
    fill_inputs(workspace, first, count);
    const RunMode mode = {.training = true, .first = first, .rows = rows};
    out.rows[0] = workspace_count_rows(workspace, m->cosine);
    run_forward(workspace, mode);
    run_backward(workspace, mode, 1, out.gradient);
    out.rows[1] = workspace_count_rows(workspace, m->label);
    out.loss = *(const double *)workspace_value(workspace, m->f.loss);
    workspace_destroy(workspace);
    plan_destroy(plan);
    return out;
}

static void test_halves_add_up(void **state) {
    (void)state;
    Model m;
    Params *params = NULL;
    model_open(&m);
    assert_ok(params_create(&params, m.f.graph, PRECISION_F64, false, m.f.diag),
              m.f.diag);
    const int64_t count = params_gradient_count(params);
    assert_true(count > 0 && count <= WEIGHTS_MAX);
    const Outcome whole = run(&m, params, 0, SAMPLES, NULL);
    assert_true(whole.rows[0] == 1 + 2 + 3 + 4 && whole.rows[1] == 2 + 3 + 2 + 3);
    double *rows = ARENA_ARRAY(m.f.arena, double, (size_t)graph_number(m.f.graph));
    rows[m.cosine->id] = whole.rows[0];
    rows[m.label->id] = whole.rows[1];
    const Outcome low = run(&m, params, 0, SAMPLES / 2, rows);
    const Outcome high = run(&m, params, SAMPLES / 2, SAMPLES / 2, rows);
    assert_true(low.rows[0] == 3 && high.rows[0] == 7);
    const int64_t sizes[DIM_SYMBOLS] = {SAMPLES};
    const double terms = rounding_gradient_terms(m.f.graph, m.f.loss, NULL, sizes);
    assert_within(low.loss + high.loss, whole.loss,
                  rounding_tolerance(PRECISION_F64, terms, whole.loss));
    Outcome sum = low;
    for (int64_t i = 0; i < count; i++) sum.gradient[i] += high.gradient[i];
    rounding_compare("gradient", sum.gradient, whole.gradient, count, PRECISION_F64,
                     terms, 0);
    const Outcome own = run(&m, params, 0, SAMPLES / 2, NULL);
    assert_true(fabs(own.loss - low.loss) > 0.1);
    params_destroy(params);
    fixture_close(&m.f);
}

/* Positions index the tokens of x. */
static void test_gather_limit(void **state) {
    (void)state;
    Fixture f = {.arena = arena_create(), .diag = diag_create()};
    f.graph = graph_create(f.arena, ops_table());
    const Type tokens = {.dtype = DTYPE_F32, .rank = 3, .dim = {DIM_N, DIM_T, D}};
    const Type places = {.dtype = DTYPE_I32, .rank = 2, .dim = {DIM_N, DIM_M}};
    Node *x = graph_input(f.graph, "x", &tokens);
    Node *positions = graph_input(f.graph, "positions", &places);
    Node *y = make(&f, "gather_tokens", (Node *[]){x, positions}, 2, NULL);
    PlanOptions options = options_of(PRECISION_F32, NULL, &y, 1);
    options.sizes[DIM_INDEX(DIM_T)] = 7;
    options.sizes[DIM_INDEX(DIM_M)] = 2;
    Plan *plan = NULL;
    assert_ok(plan_create(&plan, f.graph, &options, f.diag), f.diag);
    assert_int_equal(plan_index_limit(plan, positions), 7);
    plan_destroy(plan);
    fixture_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_halves_add_up),
        cmocka_unit_test(test_gather_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
