/* Graphs that matchers do not know all of: what each ONNX operator becomes, blocks that
 * no family has in the middle of an encoder, and ops on tensors written and lifted again.
 */
#include "node_tests.h"
#include "onnx_file.h"
#include "onnx_scratch.h"

#include "io/onnx/lift/lift_match.h"
#include "io/onnx/lift/lift_plain.h"
#include "ir/random.h"
#include "ir/rewrite.h"
#include "tests/support/configured.h"
#include "tests/support/onnx_notes.h"
#include "tests/support/reference.h"
#include "tests/support/rounding.h"

#include <dirent.h>
#include <math.h>

static const int64_t ONE[DIM_SYMBOLS] = {1, 1, 1, 1};

/* ---- node by node ---- */

static Node *match_nothing(Lift *lift, NetValue *value) {
    (void)lift, (void)value;
    return NULL;
}

/* A node test on the way through the IR. */
typedef struct NodeTest {
    const char *name;
    Net *net;
    ArrayPool pool;
    Model *model;
    Array *given[16]; /* numbers of the inputs */
} NodeTest;

/* Makes inputs leaves of the graph; with `sizes_known` integers behind the first operand
 * are what a file would have as constants. */
static bool open_inputs(NodeTest *t, bool sizes_known) {
    Graph *graph = t->model->graph;
    for (int i = 0; i < t->net->input_count; i++) {
        NetValue *value = t->net->inputs[i];
        Array *array =
            i < 16 ? node_test_array(&t->pool, t->net, t->name, "input", i) : NULL;
        if (!array || !array->data || array->rank > RANK_MAX) return false;
        t->given[i] = array;
        const bool integer = array_is_integer(array);
        if (array->count == 0 && !(sizes_known && i > 0)) return false;
        Array *shape =
            array_create(&t->pool, array->type, array->rank, array->dim, false);
        const bool known = sizes_known && i > 0 && (integer || array->count == 1);
        value->probe[0] = value->probe[1] = known ? array : shape;
        if (known) continue;
        Type type = {.dtype = integer ? DTYPE_I32 : DTYPE_F32, .rank = array->rank};
        memcpy(type.dim, array->dim, sizeof *type.dim * (size_t)array->rank);
        value->lifted = graph_input(graph, value->name, &type);
    }
    return true;
}

static bool probe_nodes(NodeTest *t) {
    Diag *diag = diag_create();
    const bool good = node_test_evaluate(t->net, &t->pool, diag);
    for (int i = 0; i < t->net->value_count; i++) {
        NetValue *value = t->net->values[i];
        value->probe[1] = value->probe[0];
        value->plain = NULL;
        if (value->producer) value->lifted = NULL, value->failed = false;
    }
    diag_destroy(diag);
    return good;
}

/* Lifts the outputs without matchers. */
static bool lift_test(NodeTest *t, bool sizes_known) {
    model_destroy(t->model);
    t->model = model_create(ops_table());
    if (!open_inputs(t, sizes_known) || !probe_nodes(t)) return false;
    Lift lift = {.net = t->net,
                 .match = match_nothing,
                 .plain = lift_plain,
                 .pool = &t->pool,
                 .graph = t->model->graph,
                 .arena = t->model->arena};
    bool good = true;
    for (int i = 0; i < t->net->output_count && good; i++) {
        NetValue *value = t->net->outputs[i];
        Node *node = value->probe[0] && value->probe[0]->count > 0
                         ? plain_value(&lift, value)
                         : NULL;
        good = node != NULL;
        if (good) graph_set_output(t->model->graph, value->name, node);
    }
    free(lift.leaves);
    free(lift.plains);
    return good;
}

static void fill_inputs(const NodeTest *t, Runner *r) {
    for (int i = 0; i < t->net->input_count; i++) {
        const char *name = t->net->inputs[i]->name;
        void *data = workspace_input(r->workspace, name);
        const bool integer = array_is_integer(t->given[i]);
        for (int64_t k = 0; data && k < t->given[i]->count; k++)
            if (integer)
                ((int32_t *)data)[k] = (int32_t)t->given[i]->data[k];
            else
                ((float *)data)[k] = (float)t->given[i]->data[k];
    }
}

/* Whether an output has the shape and numbers that the test stores. */
static bool output_agrees(NodeTest *t, const Runner *r, int i) {
    const Node *node = graph_output(t->model->graph, t->net->outputs[i]->name);
    const Array *want = node_test_array(&t->pool, t->net, t->name, "output", i);
    if (!want || !want->data || want->rank != node->type.rank) return false;
    for (int d = 0; d < want->rank; d++)
        if (want->dim[d] != node->type.dim[d]) return false;
    const float *got = workspace_value(r->workspace, node);
    double size = 1;
    for (int64_t k = 0; k < want->count; k++)
        if (isfinite(want->data[k])) size = fmax(size, fabs(want->data[k]));
    for (int n = 0; n < t->net->input_count; n++)
        if (!array_is_integer(t->given[n]))
            size = fmax(size, largest_value(t->given[n]->data, t->given[n]->count));
    const double terms = runner_terms(r, node) + FUNCTION_TERMS;
    for (int64_t k = 0; k < want->count; k++) {
        const double a = (double)got[k], b = want->data[k];
        if (a == b || (isnan(a) && isnan(b))) continue;
        if (!(fabs(a - b) <= rounding_tolerance(PRECISION_F32, terms, size)))
            return false;
    }
    return true;
}

/* Tests of what is not real numbers: sequences, strings, training; types that wrap around
 * or round to 16 bits, infinities. */
static bool is_beyond(const char *test) {
    static const char *const PARTS[] = {
        "sequence", "STRING", "optional", "training", "BFLOAT16",       "FLOAT16",
        "float16",  "FLOAT8", "float8",   "_opt",     "uint8",          "isinf",
        "wrap",     "string", "int8",     "bitwise",  "FLOAT_to_DOUBLE"};
    for (size_t i = 0; i < sizeof PARTS / sizeof *PARTS; i++)
        if (strstr(test, PARTS[i])) return true;
    return false;
}

static bool has_rules(const Net *net) {
    for (int i = 0; i < net->node_count; i++)
        if (!plain_row(net->nodes[i])) return false;
    return net->node_count > 0;
}

typedef struct Counts {
    int passed, failed, other, left;
    const char *ops[200]; /* that a test passed of */
    int op_count;
} Counts;

static void count_ops_of(Counts *counts, const Net *net) {
    for (int i = 0; i < net->node_count; i++) {
        bool known = false;
        const char *op = plain_row(net->nodes[i])->op;
        for (int k = 0; k < counts->op_count; k++) known |= counts->ops[k] == op;
        if (!known) counts->ops[counts->op_count++] = op;
    }
}

static void run_node_test(const char *name, Counts *counts) {
    char file[600];
    NodeTest t = {.name = name, .pool = {arena_create(), ARRAY_POOL_MAX}};
    Diag *diag = diag_create();
    snprintf(file, sizeof file, "%s/%s/model.onnx", NODE_TESTS, name);
    if (is_beyond(name) || net_read(&t.net, file, NULL, diag) != STATUS_OK ||
        !has_rules(t.net)) {
        counts->left++;
    } else if (!lift_test(&t, false) && !lift_test(&t, true)) {
        print_message("not in this form: %s\n", name);
        counts->other++;
    } else {
        Runner r;
        Node *results[16];
        const int count = t.net->output_count;
        for (int i = 0; i < count; i++)
            results[i] = graph_output(t.model->graph, t.net->outputs[i]->name);
        graph_remove_dead(t.model->graph);
        runner_open_sizes(&r, t.model->graph, ONE, PRECISION_F32, NULL, results, count);
        fill_inputs(&t, &r);
        runner_run(&r);
        bool good = true;
        for (int i = 0; i < count && good; i++) good = output_agrees(&t, &r, i);
        runner_close(&r);
        if (!good) print_message("differs: %s\n", name);
        *(good ? &counts->passed : &counts->failed) += 1;
        if (good) count_ops_of(counts, t.net);
    }
    net_destroy(t.net);
    model_destroy(t.model);
    diag_destroy(diag);
    arena_destroy(t.pool.arena);
}

/* Node tests of ONNX (Debian's libonnx-testdata) of every operator that has a rule, run
 * by our kernels. */
static void test_operators(void **state) {
    (void)state;
    Counts counts = {0};
    DIR *tests = opendir(NODE_TESTS);
    if (!tests) {
        print_message("libonnx-testdata is not installed: nothing was tested\n");
        skip();
    }
    for (struct dirent *entry; (entry = readdir(tests));)
        if (strncmp(entry->d_name, "test_", 5) == 0)
            run_node_test(entry->d_name, &counts);
    closedir(tests);
    print_message("node tests through the IR: %d passed of %d operators, %d in another "
                  "form, %d of other operators left out\n",
                  counts.passed, counts.op_count, counts.other, counts.left);
    assert_int_equal(counts.failed, 0);
    assert_true(counts.passed > 330 && counts.op_count > 65);
}

/* ---- blocks that no family has ---- */

static void compare_unusual(Graph *graph) {
    Checkpoint *reference;
    Diag *diag = diag_create();
    Runner r;
    Node *logits = graph_output(graph, OUTPUT_LOGITS);
    expect_ok(diag,
              safetensors_read(&reference, "tests/data/onnx/unusual.safetensors", diag));
    runner_open_sizes(&r, graph, (int64_t[DIM_SYMBOLS]){3, 9, 1, 1}, PRECISION_F32, NULL,
                      &logits, 1);
    reference_feed(r.workspace, reference, INPUT_IDS, INPUT_IDS);
    reference_feed(r.workspace, reference, INPUT_MASK, INPUT_MASK);
    runner_run(&r);
    runner_compare(&r, reference, OUTPUT_LOGITS, logits);
    runner_close(&r);
    checkpoint_destroy(reference);
    diag_destroy(diag);
}

/* Heads that talk to each other, gates, a feed-forward block scaled by its mean:
 * PyTorch's numbers, with the layers around it lifted, and a message for each part. */
static void test_unusual(void **state) {
    static const char *const SAYS[] = {
        "'/layer.1/attention/Softmax' (Softmax): nothing that is known ends in it",
        "'/layer.1/attention/Mul_1' (Mul)",
        "'/layer.1/Mul_3' (Mul): its shapes do not fit the op multiply",
        "plain ops, which passes leave as they are"};
    (void)state;
    Diag *diag = diag_create();
    Model *model;
    expect_ok(diag, model_load(&model, "tests/data/onnx/unusual.onnx", ops_table(), true,
                               diag));
    char *said = diag_text(diag);
    for (size_t i = 0; i < sizeof SAYS / sizeof *SAYS; i++)
        if (!strstr(said, SAYS[i])) fail_msg("expected '%s' in: %s", SAYS[i], said);
    free(said);
    assert_int_equal(graph_layer_count(model->graph, STACK_ENCODER), 2);
    for (int layer = 0; layer < 2; layer++)
        for (int role = ROLE_Q; role <= ROLE_V; role++)
            assert_non_null(graph_find(model->graph, STACK_ENCODER, layer, (Role)role));
    int plain = 0, products = 0;
    for (const Node *node = model->graph->first; node; node = node->next) {
        if (!node_has_trait(node, OP_TENSOR)) continue;
        plain++;
        products += strcmp(node->op->name, "matmul") == 0;
        assert_string_equal(node->stack, STACK_ENCODER);
        assert_int_equal(node->layer, 1);
        assert_int_equal(node->role, ROLE_NONE);
    }
    assert_true(plain > 20);
    assert_int_equal(products, 2);
    compare_unusual(model->graph);
    for (int noted = 1; noted >= 0; noted--) {
        Written written = {0};
        expect_ok(diag, onnx_file_write(model, ONNX_WHOLE, path, false, false,
                                        &ONNX_DEFAULTS, &written, diag));
        if (!noted) forget_notes(path);
        Model *again = load_model(path);
        compare_unusual(again->graph);
        model_destroy(again);
    }
    model_destroy(model);
    diag_destroy(diag);
}

/* ---- training through them ---- */

static void open_loss(Runner *r, Graph *graph, Node *loss, bool backward) {
    static const int32_t IDS[3][4] = {{1, 5, 0, 9}, {2, 2, 7, 10}, {3, 8, 4, 6}};
    runner_open_sizes(r, graph, (int64_t[DIM_SYMBOLS]){3, 4, 1, 1}, PRECISION_F64,
                      backward ? loss : NULL, &loss, 1);
    int32_t *ids = workspace_input(r->workspace, INPUT_IDS),
            *mask = workspace_input(r->workspace, INPUT_MASK),
            *labels = workspace_input(r->workspace, "labels");
    for (int i = 0; i < 12; i++) ids[i] = IDS[i / 4][i % 4], mask[i] = i % 4 < 4 - i / 4;
    for (int i = 0; i < 3; i++) labels[i] = i;
    runner_run(r);
}

/* The loss with a storage moved by so much along a direction of ones and minus ones. */
static double loss_at(Graph *graph, Node *loss, Storage *storage, double by) {
    const Tensor kept = storage->tensor;
    const int64_t count = tensor_count(&kept);
    double *values = malloc((size_t)count * sizeof *values), found;
    Diag *diag = diag_create();
    Runner r;
    tensor_read_f64(&kept, 0, count, values);
    for (int64_t i = 0; i < count; i++) values[i] += i % 3 ? by : -by;
    expect_ok(diag,
              tensor_create(&storage->tensor, DTYPE_F64, kept.rank, kept.dim, diag));
    expect_ok(diag, tensor_write_f64(&storage->tensor, 0, count, values, diag));
    open_loss(&r, graph, loss, false);
    found = *(const double *)workspace_value(r.workspace, loss);
    runner_close(&r);
    tensor_release(&storage->tensor);
    storage->tensor = kept;
    diag_destroy(diag);
    free(values);
    return found;
}

/* Gradients of weights inside of plain blocks and in front of them, along a direction,
 * against differences. */
static void test_gradients(void **state) {
    static const double STEP = 1e-4;
    (void)state;
    Diag *diag = diag_create();
    Model *model = load_model("tests/data/onnx/unusual.onnx");
    Graph *graph = model->graph;
    const Type labels = {.dtype = DTYPE_I32, .rank = 1, .dim = {DIM_N}};
    Node *in[2] = {graph_output(graph, OUTPUT_LOGITS),
                   graph_input(graph, "labels", &labels)};
    Node *loss = graph_insert(graph, NULL, op_find(graph->ops, "cross_entropy"), in, 2);
    expect_ok(diag, node_infer(loss, diag));
    Runner r;
    int checked = 0;
    open_loss(&r, graph, loss, true);
    for (int s = 0; s < graph->storage_count; s++) {
        Storage *storage = graph->storages[s];
        const int64_t at = params_offset(r.params, storage);
        if (at < 0 ||
            !(strstr(storage->name, "layer.1.") || strstr(storage->name, "words")))
            continue;
        double along = 0, size = 0, numeric[2];
        for (int64_t i = 0; i < tensor_count(&storage->tensor); i++) {
            const double g = ((const double *)r.gradients)[at + i];
            along += i % 3 ? g : -g;
            size += fabs(g);
        }
        for (int wide = 0; wide < 2; wide++) {
            const double h = (1 + wide) * STEP;
            numeric[wide] =
                (loss_at(graph, loss, storage, h) - loss_at(graph, loss, storage, -h)) /
                (2 * h);
        }
        const double bound =
            difference_tolerance(PRECISION_F64, STEP, numeric[0], numeric[1],
                                 rounding_terms(graph, loss, r.sizes), 10);
        if (!(fabs(along - numeric[0]) <= bound) || size == 0)
            fail_msg("%s: gradient %.12g, by differences %.12g (bound %.3g)",
                     storage->name, along, numeric[0], bound);
        checked++;
    }
    assert_true(checked > 15);
    runner_close(&r);
    model_destroy(model);
    diag_destroy(diag);
}

/* ---- ops that were written ---- */

enum { OUTPUTS = 6 };

/* Runs a model on drawn numbers; the outputs in order, for the caller to free. */
static void run_tensors(Model *model, double terms[OUTPUTS], float *out[OUTPUTS],
                        int64_t count[OUTPUTS]) {
    static const char *const NAMES[OUTPUTS] = {"a", "b", "c", "d", "e", "f"};
    Node *results[OUTPUTS];
    Runner r;
    for (int i = 0; i < OUTPUTS; i++) results[i] = graph_output(model->graph, NAMES[i]);
    runner_open_sizes(&r, model->graph, (int64_t[DIM_SYMBOLS]){3, 7, 1, 1}, PRECISION_F32,
                      NULL, results, OUTPUTS);
    int32_t *mask = workspace_input(r.workspace, INPUT_MASK);
    float *x = workspace_input(r.workspace, "x");
    for (int i = 0; i < 3 * 7; i++) mask[i] = i % 7 < 4 + i / 7;
    for (int i = 0; i < 3 * 7 * 6; i++) x[i] = (float)random_normal(5, (uint64_t)i);
    runner_run(&r);
    for (int i = 0; i < OUTPUTS; i++) {
        Type bound;
        assert_true(type_bind(&results[i]->type, r.sizes, &bound));
        count[i] = type_count(&bound);
        terms[i] = runner_terms(&r, results[i]);
        out[i] = malloc((size_t)count[i] * sizeof(float));
        memcpy(out[i], workspace_value(r.workspace, results[i]),
               (size_t)count[i] * sizeof(float));
    }
    runner_close(&r);
}

static void test_written(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Written written = {0};
    float *want[OUTPUTS], *got[OUTPUTS];
    double terms[OUTPUTS];
    int64_t count[OUTPUTS], again_count[OUTPUTS];
    Model *model = parsed_model(TENSORS_TEXT, 1);
    expect_ok(diag, onnx_file_write(model, ONNX_WHOLE, path, false, false, &ONNX_DEFAULTS,
                                    &written, diag));
    forget_notes(path);
    Model *again = load_model(path);
    run_tensors(model, terms, want, count);
    run_tensors(again, terms, got, again_count);
    for (int i = 0; i < OUTPUTS; i++) {
        assert_int_equal(count[i], again_count[i]);
        for (int64_t k = 0; k < count[i]; k++)
            assert_within(got[i][k], want[i][k],
                          rounding_tolerance(PRECISION_F32, terms[i],
                                             fmax(1, fabs((double)want[i][k]))));
        free(want[i]), free(got[i]);
    }
    model_destroy(again);
    model_destroy(model);
    diag_destroy(diag);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_operators, enter, leave),
        cmocka_unit_test_setup_teardown(test_unusual, enter, leave),
        cmocka_unit_test_setup_teardown(test_gradients, enter, leave),
        cmocka_unit_test_setup_teardown(test_written, enter, leave),
    };
    return cmocka_run_group_tests_name("plain", tests, NULL, NULL);
}
