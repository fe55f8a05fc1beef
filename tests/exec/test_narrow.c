/* Plans that compute no tokens that nobody reads: values and gradients are those of plans
 * that compute all, in double precision to the last digits. */
#include "passes/training/label_loss.h"
#include "tests/exec/planned_run.h"
#include "tests/support/configured.h"

#include <math.h>

enum { SAMPLES = 3, TOKENS = 12, LAST = 1 /* layer */ };

/* A model of two layers, and how many tokens of its last layer are read; 0 = all. */
typedef struct Narrowed {
    const char *config;
    int64_t tokens;
} Narrowed;

#define SIZES                                                                            \
    "hidden_size: 16, num_hidden_layers: 2, num_attention_heads: 2,\n"                   \
    " intermediate_size: 32, initializer_range: 0.3, num_labels: 3"
#define TEXTS "vocab_size: 24, max_position_embeddings: 16"
#define IMAGES                                                                           \
    "image_size: 12, patch_size: 4, num_channels: 1, id2label: {'0': a, '1': b, '2': c}"

static const Narrowed MODELS[] = {
    {"{model_type: bert, architectures: [BertForSequenceClassification], " SIZES
     ", " TEXTS "}",
     1},
    {"{model_type: vit, architectures: [ViTForImageClassification], " SIZES ", " IMAGES
     "}",
     1},
    {"{model_type: deit, architectures: [DeiTForImageClassificationWithTeacher],\n"
     " " SIZES ", " IMAGES "}",
     2},
    /* in its last layer queries see near keys alone */
    {"{model_type: modernbert, architectures: [ModernBertForSequenceClassification],\n"
     " " SIZES ", " TEXTS ", local_attention: 4, global_attn_every_n_layers: 2}",
     1},
    /* all tokens are read: averaged, labelled, or of them the last */
    {"{model_type: modernbert, architectures: [ModernBertForSequenceClassification],\n"
     " " SIZES ", " TEXTS ", classifier_pooling: mean}",
     0},
    {"{model_type: bert, architectures: [BertForTokenClassification], " SIZES ", " TEXTS
     "}",
     0},
    {"{model_type: gpt2, architectures: [GPT2LMHeadModel], n_embd: 16, n_layer: 2,\n"
     " n_head: 2, vocab_size: 24, n_positions: 16}",
     0},
};
enum { MODEL_COUNT = sizeof MODELS / sizeof *MODELS };

/* ---- runs ---- */

static PlanOptions options_of(Node *loss, Node *const *results, int count) {
    PlanOptions options = {.precision = PRECISION_F64,
                           .loss = loss,
                           .results = results,
                           .result_count = count,
                           .sizes = {SAMPLES}};
    options.sizes[DIM_INDEX(DIM_T)] = TOKENS;
    return options;
}

static Run run_plan(Graph *graph, const PlanOptions *options, Diag *diag) {
    Run run = run_open(graph, options, false, diag);
    run_fill(&run);
    run_forward(run.workspace, (RunMode){0}); /* without dropout */
    if (options->loss) run_backward(run.workspace, (RunMode){0}, 1, run.gradients);
    return run;
}

static void check_near(const double *want, const double *got, int64_t count) {
    double largest = 0, apart = 0;
    for (int64_t i = 0; i < count; i++) {
        largest = fmax(largest, fabs(want[i]));
        apart = fmax(apart, fabs(want[i] - got[i]));
    }
    assert_true(largest > 0);
    assert_true(apart <= 1e-12 * largest);
}

/* Narrow and whole: the same results, loss and gradients. Returns the plan's narrow one.
 */
static Run check_same(Graph *graph, PlanOptions options, Diag *diag) {
    Run narrow = run_plan(graph, &options, diag);
    options.whole = true;
    Run whole = run_plan(graph, &options, diag);
    if (options.loss) check_near(whole.gradients, narrow.gradients, whole.count);
    for (int i = 0; i < options.result_count; i++) {
        const Node *node = options.results[i];
        const PlanNode *planned = &whole.plan->nodes[plan_find(whole.plan, node)];
        assert_int_equal(workspace_value_bytes(narrow.workspace, node),
                         workspace_value_bytes(whole.workspace, node));
        check_near(workspace_value(whole.workspace, node),
                   workspace_value(narrow.workspace, node), planned->count);
    }
    assert_true(plan_flops(narrow.plan) == plan_flops(whole.plan));
    run_close(&whole);
    return narrow;
}

static Node *add_loss(Graph *graph, Diag *diag) {
    Node *loss = NULL;
    assert_ok(label_loss_add(&loss, graph, graph_output(graph, "logits"),
                             &(LabelLossOptions){0}, diag),
              diag);
    graph_number(graph);
    return loss;
}

/* Tokens that a plan computes of the node in a place; -1 where there is no such node. */
static int64_t tokens_of(const Plan *plan, Graph *graph, int layer, Role role) {
    const Node *node = graph_find(graph, NULL, layer, role);
    return node ? plan->nodes[plan_find(plan, node)].type.dim[1] : -1;
}

/* ---- tests ---- */

/* Queries, and what follows them in the last layer, are of the tokens that are read;
 * keys, values and the layer before of all. */
static void check_tokens(const Plan *plan, Graph *graph, int64_t expected) {
    const int64_t all = tokens_of(plan, graph, LAST, ROLE_K);
    static const Role NARROW[] = {ROLE_Q, ROLE_ATTENTION, ROLE_FFN_OUT};
    assert_true(all > 2);
    if (expected == 0) expected = all;
    for (size_t i = 0; i < sizeof NARROW / sizeof *NARROW; i++) {
        assert_int_equal(tokens_of(plan, graph, LAST, NARROW[i]), expected);
        assert_int_equal(tokens_of(plan, graph, LAST - 1, NARROW[i]), all);
    }
    assert_int_equal(tokens_of(plan, graph, LAST, ROLE_V), all);
}

static void test_models(void **state) {
    (void)state;
    for (int m = 0; m < MODEL_COUNT; m++) {
        Diag *diag = diag_create();
        Model *model = configured_model(MODELS[m].config, 3);
        Node *loss = add_loss(model->graph, diag);
        Node *results[] = {graph_output(model->graph, "logits"), loss};
        Run run = check_same(model->graph, options_of(loss, results, 2), diag);
        check_tokens(run.plan, model->graph, MODELS[m].tokens);
        run_close(&run);
        run = check_same(model->graph, options_of(NULL, results, 1), diag);
        check_tokens(run.plan, model->graph, MODELS[m].tokens);
        run_close(&run);
        model_destroy(model);
        diag_destroy(diag);
    }
}

/* Who asks for a value in the midst of the last layer gets all of it, and what it is
 * computed from is whole; what comes behind it is not. */
static void test_results(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model = configured_model(MODELS[0].config, 3);
    Graph *graph = model->graph;
    Node *loss = add_loss(graph, diag);
    Node *results[] = {graph_find(graph, NULL, LAST, ROLE_NORM1)};
    Run run = check_same(graph, options_of(loss, results, 1), diag);
    assert_int_equal(tokens_of(run.plan, graph, LAST, ROLE_Q), TOKENS);
    assert_int_equal(tokens_of(run.plan, graph, LAST, ROLE_NORM1), TOKENS);
    assert_int_equal(tokens_of(run.plan, graph, LAST, ROLE_FFN_IN), 1);
    assert_int_equal(tokens_of(run.plan, graph, LAST, ROLE_NORM2), 1);
    run_close(&run);
    model_destroy(model);
    diag_destroy(diag);
}

/* Layers that are computed again are so of the tokens that are read. */
static void test_recompute(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model = configured_model(MODELS[0].config, 3);
    Node *loss = add_loss(model->graph, diag);
    PlanOptions options = options_of(loss, NULL, 0);
    options.recompute = true;
    Run run = check_same(model->graph, options, diag);
    check_tokens(run.plan, model->graph, 1);
    run_close(&run);
    model_destroy(model);
    diag_destroy(diag);
}

/* A step of training takes less memory. */
static void test_memory(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model = configured_model(MODELS[0].config, 3);
    PlanOptions options = options_of(add_loss(model->graph, diag), NULL, 0);
    Plan *narrow = NULL, *whole = NULL;
    assert_ok(plan_create(&narrow, model->graph, &options, diag), diag);
    options.whole = true;
    assert_ok(plan_create(&whole, model->graph, &options, diag), diag);
    assert_true(plan_workspace_bytes(narrow) < plan_workspace_bytes(whole));
    plan_destroy(narrow);
    plan_destroy(whole);
    model_destroy(model);
    diag_destroy(diag);
}

/* Two tokens that are selected: as many are computed as the later one takes; the first of
 * three values of one token each is found by all that read it. */
static void test_places(void **state) {
    (void)state;
    static const char *const IR =
        "ir 2\n"
        "input x : f32[N, 6, 4]\n"
        "param @w : f32[4, 4] init trunc_normal(0.5)\n"
        "%a = linear($x, @w) : f32[N, 6, 4]\n"
        "%b = attention(%a, %a, %a) {causal=true heads=2} : f32[N, 6, 4]\n"
        "%c = add(%b, %a) : f32[N, 6, 4]\n"
        "%d = multiply(%c, %a) : f32[N, 6, 4]\n"
        "%e = select_token(%d) {index=3} : f32[N, 4]\n"
        "%f = select_token(%c) {index=1} : f32[N, 4]\n"
        "%g = add(%e, %f) : f32[N, 4]\n"
        "output y = %g\n";
    Diag *diag = diag_create();
    Model *model = parsed_model(IR, 3);
    Node *results[] = {graph_output(model->graph, "y")};
    Run run = check_same(model->graph, options_of(NULL, results, 1), diag);
    int narrow = 0, slices = 0;
    for (int i = 0; i < run.plan->node_count; i++) {
        const PlanNode *node = &run.plan->nodes[i];
        if (node->type.rank == 3 && node->type.dim[1] != 6) {
            assert_int_equal(node->type.dim[1], 4);
            narrow++;
        }
        slices += strcmp(node->op->name, "slice") == 0;
    }
    assert_int_equal(slices, 1); /* of a, for b, c and d */
    assert_int_equal(narrow, 4); /* b, c, d and that one */
    run_close(&run);
    model_destroy(model);
    diag_destroy(diag);
}

/* ---- random graphs ---- */

enum { GRAPHS = 300, STEPS = 12, PLACES = 6 };

/* One of `count`. */
static int drawn(uint64_t key, uint64_t *at, int count) {
    return (int)(random_uniform(key, (*at)++) * count);
}

/* How a value of all tokens comes of those before. */
typedef struct Form {
    const char *op;
    int values; /* operands */
    const char *weight, *attrs;
} Form;

static const Form FORMS[] = {
    {"linear", 1, ", @w", ""},
    {"layer_norm", 1, ", @n", ""},
    {"activation", 1, "", " {fn=gelu}"},
    {"scale", 1, "", " {by=0.5}"},
    {"softmax", 1, "", ""},
    {"slice_tokens", 1, "", ""},
    {"add", 2, "", ""},
    {"add", 2, "", ""},
    {"attention", 3, "", " {heads=2}"},
    {"attention", 3, "", " {causal=true heads=2}"},
    {"attention", 3, "", " {heads=2 reach=2}"},
};

static void print_value(Text *ir, uint64_t key, uint64_t *at, int i) {
    const Form *form = &FORMS[drawn(key, at, sizeof FORMS / sizeof *FORMS)];
    text_add(ir, "%%v%d = %s(", i, form->op);
    for (int j = 0; j < form->values; j++) /* one of the last four */
        text_add(ir, "%s%%v%d", j > 0 ? ", " : "", i - 1 - drawn(key, at, i < 4 ? i : 4));
    text_add(ir, "%s)%s : f32[N, 6, 4]\n", form->weight, form->attrs);
}

/* Values of tokens, of which up to three selected ones and seldom a mean are compared
 * with a token of the input. */
static void print_graph(Text *ir, uint64_t key) {
    uint64_t at = 0;
    text_add(ir, "ir 2\ninput x : f32[N, 6, 4]\n"
                 "param @w : f32[4, 4] init trunc_normal(0.5)\n"
                 "param @n : f32[4] init ones\n"
                 "%%v0 = linear($x, @w) : f32[N, 6, 4]\n");
    for (int i = 1; i <= STEPS; i++) print_value(ir, key, &at, i);
    text_add(ir, "%%s0 = select_token(%%v%d) {index=%d} : f32[N, 4]\n", STEPS,
             drawn(key, &at, PLACES));
    for (int k = 1; k <= 2; k++) {
        const int of = STEPS - drawn(key, &at, STEPS);
        if (drawn(key, &at, 8) == 0)
            text_add(ir, "%%t%d = mean_tokens(%%v%d) : f32[N, 4]\n", k, of);
        else
            text_add(ir, "%%t%d = select_token(%%v%d) {index=%d} : f32[N, 4]\n", k, of,
                     drawn(key, &at, PLACES));
        text_add(ir, "%%s%d = add(%%s%d, %%t%d) : f32[N, 4]\n", k, k - 1, k);
    }
    text_add(ir, "%%g = select_token($x) {index=2} : f32[N, 4]\n"
                 "%%loss = mean_squared_error(%%s2, %%g) : f32[]\n"
                 "output y = %%s2\noutput loss = %%loss\n");
}

/* Whether some of its values are narrow. */
static bool check_random(uint64_t key) {
    Text ir = {0};
    print_graph(&ir, key);
    Diag *diag = diag_create();
    Model *model = parsed_model(ir.data, key);
    Node *loss = graph_output(model->graph, "loss");
    Node *results[] = {graph_output(model->graph, "y")};
    Run run = check_same(model->graph, options_of(loss, results, 1), diag);
    bool narrow = false;
    for (int i = 0; i < run.plan->node_count; i++)
        narrow |=
            run.plan->nodes[i].type.rank == 3 && run.plan->nodes[i].type.dim[1] < PLACES;
    run_close(&run);
    model_destroy(model);
    diag_destroy(diag);
    text_free(&ir);
    return narrow;
}

static void test_random(void **state) {
    (void)state;
    int narrow = 0;
    for (uint64_t key = 0; key < GRAPHS; key++)
        narrow += check_random(random_key(7, key));
    assert_in_range(narrow, GRAPHS / 4, GRAPHS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models),    cmocka_unit_test(test_results),
        cmocka_unit_test(test_recompute), cmocka_unit_test(test_memory),
        cmocka_unit_test(test_places),    cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests_name("narrow", tests, NULL, NULL);
}
