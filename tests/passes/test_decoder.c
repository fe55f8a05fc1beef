/* Passes on decoders: weights stored as [in, out], gated feed-forward blocks. */
#include "exec/ops.h"
#include "io/files/json.h"
#include "io/formats/hf.h"
#include "ir/verify.h"
#include "tests/support/check.h"
#include "tests/support/passes.h"
#include "tests/support/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 2, TOKENS = 9, VOCABULARY = 53 };

static Model *read_model(const char *folder) {
    Diag *diag = diag_create();
    Model *model = NULL;
    assert_ok(hf_read(&model, folder, ops_table(), diag), diag);
    diag_destroy(diag);
    return model;
}

/* A small Llama without shared heads, its weights drawn. */
static Model *draw_llama(void) {
    static const char CONFIG[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 53, \"hidden_size\": 16, "
        "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"intermediate_size\": 24}";
    Diag *diag = diag_create();
    Arena *arena = arena_create();
    Tree *config = NULL;
    Model *model = NULL;
    assert_ok(json_parse(&config, arena, "config", CONFIG, strlen(CONFIG), diag), diag);
    assert_ok(hf_build(&model, config, ops_table(), diag), diag);
    assert_ok(model_init_weights(model, 3, diag), diag);
    arena_destroy(arena);
    diag_destroy(diag);
    return model;
}

/* Stores a weight [in, out] as [out, in]. */
static void turn_over(Node *linear, Diag *diag) {
    Tensor *old = &linear->in[1]->storage->tensor, new;
    const int64_t rows = old->dim[0], columns = old->dim[1];
    void *data = NULL;
    assert_ok(tensor_create(&new, DTYPE_F32, 2, (int64_t[]){columns, rows}, diag), diag);
    assert_ok(tensor_writable(&new, &data, diag), diag);
    for (int64_t e = 0; e < rows * columns; e++)
        tensor_read_f32(old, e, 1, (float *)data + e % columns * rows + e / columns);
    tensor_release(old);
    *old = new;
    memcpy(linear->in[1]->type.dim, new.dim, 2 * sizeof *new.dim);
    ((LinearAttrs *)linear->attrs)->transposed = false;
    assert_ok(node_infer(linear, diag), diag);
}

/* The same function with every weight as [out, in]. */
static Model *read_turned(const char *folder) {
    Diag *diag = diag_create();
    Model *model = read_model(folder);
    for (Node *n = model->graph->first; n; n = n->next)
        if (strcmp(n->op->name, "linear") == 0 &&
            ((const LinearAttrs *)n->attrs)->transposed)
            turn_over(n, diag);
    assert_ok(graph_verify(model->graph, STATUS_INTERNAL, diag), diag);
    diag_destroy(diag);
    return model;
}

static void run_model(const Model *model, double *logits) {
    const int64_t sizes[DIM_SYMBOLS] = {SAMPLES, TOKENS};
    Node *out = graph_output(model->graph, "logits");
    Runner r;
    runner_open_sizes(&r, model->graph, sizes, PRECISION_F64, NULL, &out, 1);
    int32_t *ids = workspace_input(r.workspace, "input_ids");
    for (int i = 0; i < SAMPLES * TOKENS; i++) ids[i] = (7 * i + 3) % VOCABULARY;
    runner_run(&r);
    memcpy(logits, workspace_value(r.workspace, out),
           SAMPLES * TOKENS * VOCABULARY * sizeof *logits);
    runner_close(&r);
}

static void expect_equal(const Model *a, const Model *b) {
    static double x[SAMPLES * TOKENS * VOCABULARY], y[SAMPLES * TOKENS * VOCABULARY];
    run_model(a, x);
    run_model(b, y);
    const int64_t sizes[DIM_SYMBOLS] = {SAMPLES, TOKENS};
    rounding_compare("logits", x, y, sizeof x / sizeof *x, PRECISION_F64,
                     rounding_terms(a->graph, graph_output(a->graph, "logits"), sizes),
                     0);
}

/* Runs a pass that must fail with STATUS_MODEL and say `part`. */
static void expect_failure(Model *model, const char *pass, const char *options,
                           const char *part) {
    expect_pass_fails(model, pass, options, STATUS_MODEL, part);
}

/* Whatever a weight's orientation, the same heads and units leave. */
static void test_prune_transposed(void **state) {
    (void)state;
    Model *a = read_model("tests/data/reference/gpt2");
    Model *b = read_turned("tests/data/reference/gpt2");
    expect_equal(a, b);
    const int64_t before = graph_parameter_count(a->graph);
    run_pass(a, "prune_heads", "{keep: 3, score: magnitude}");
    run_pass(b, "prune_heads", "{keep: 3, score: magnitude}");
    expect_equal(a, b);
    run_pass(a, "prune_ffn", "{keep: 40, score: magnitude}");
    run_pass(b, "prune_ffn", "{keep: 40, score: magnitude}");
    expect_equal(a, b);
    /* 8 columns of q, k, v and 8 rows of c_proj; 88 columns of c_fc and rows of c_proj */
    assert_int_equal(before - graph_parameter_count(a->graph),
                     3 * (4 * 8 * 32 + 3 * 8 + 88 * (2 * 32 + 1)));
    model_destroy(a);
    model_destroy(b);
}

/* Heads and units that nothing reads leave without a trace. */
static void test_prune_exact(void **state) {
    (void)state;
    static const char *const NAMES[] = {"attn.c_proj", "mlp.c_proj"};
    Diag *diag = diag_create();
    Model *whole = read_model("tests/data/reference/gpt2");
    Model *cut = read_model("tests/data/reference/gpt2");
    for (int l = 0; l < 3; l++)
        for (int i = 0; i < 2; i++)
            for (int m = 0; m < 2; m++) {
                char name[128];
                void *data = NULL;
                snprintf(name, sizeof name, "transformer.h.%d.%s.weight", l, NAMES[i]);
                Tensor *w = &graph_storage((m ? cut : whole)->graph, name)->tensor;
                assert_ok(tensor_writable(w, &data, diag), diag);
                memset((float *)data + 8 * 32, 0, 8 * 32 * sizeof(float));
            }
    run_pass(cut, "prune_heads", "{keep: 3, score: magnitude}");
    expect_equal(whole, cut);
    model_destroy(whole);
    model_destroy(cut);
    diag_destroy(diag);
}

static void test_share(void **state) {
    (void)state;
    Model *gpt2 = read_model("tests/data/reference/gpt2");
    expect_failure(gpt2, "weight_multiplex",
                   "{stack: decoder, group: 3, init: lsq, mixing: none, position: none}",
                   "found it transposed");
    model_destroy(gpt2);
    Model *llama = draw_llama();
    const int64_t before = graph_parameter_count(llama->graph);
    run_pass(llama, "weight_multiplex",
             "{stack: decoder, group: 2, init: mean, mixing: none, position: none}");
    assert_int_equal(before - graph_parameter_count(llama->graph),
                     4 * 16 * 16 + 3 * 16 * 24);
    model_destroy(llama);
}

static void test_remove_layer(void **state) {
    (void)state;
    Model *model = draw_llama();
    const int64_t before = graph_parameter_count(model->graph);
    run_pass(model, "remove_layer", "{stack: decoder, drop: [0]}");
    assert_int_equal(graph_layer_count(model->graph, "decoder"), 1);
    assert_int_equal(before - graph_parameter_count(model->graph),
                     4 * 16 * 16 + 3 * 16 * 24 + 2 * 16);
    model_destroy(model);
}

/* Sets columns [first, last) of a weight to 0. */
static void clear_columns(Model *model, const char *name, int first, int last) {
    Diag *diag = diag_create();
    void *data = NULL;
    Tensor *w = &graph_storage(model->graph, name)->tensor;
    assert_ok(tensor_writable(w, &data, diag), diag);
    for (int64_t row = 0; row < w->dim[0]; row++)
        for (int c = first; c < last; c++) ((float *)data)[row * w->dim[1] + c] = 0;
    diag_destroy(diag);
}

/* Heads that are turned by rotary positions and units with a gate: those that nothing
 * reads leave without a trace. */
static void test_prune_llama(void **state) {
    (void)state;
    Model *whole = draw_llama(), *cut = draw_llama();
    for (int i = 0; i < 4; i++) {
        Model *model = i < 2 ? whole : cut;
        const bool second = i % 2;
        clear_columns(model,
                      second ? "model.layers.1.self_attn.o_proj.weight"
                             : "model.layers.0.self_attn.o_proj.weight",
                      second ? 8 : 0, second ? 16 : 8);
        clear_columns(model,
                      second ? "model.layers.1.mlp.down_proj.weight"
                             : "model.layers.0.mlp.down_proj.weight",
                      second ? 0 : 9, second ? 15 : 24);
    }
    const int64_t before = graph_parameter_count(cut->graph);
    run_pass(cut, "prune_heads", "{keep: 1, score: magnitude}");
    expect_equal(whole, cut);
    run_pass(cut, "prune_ffn", "{keep: 9, score: magnitude}");
    expect_equal(whole, cut);
    assert_int_equal(before - graph_parameter_count(cut->graph),
                     2 * (4 * 8 * 16 + 3 * 15 * 16));
    model_destroy(whole);
    model_destroy(cut);
}

/* Heads of queries that share keys and values do not go one by one. */
static void test_refused(void **state) {
    (void)state;
    Model *model = read_model("tests/data/reference/llama");
    expect_failure(model, "prune_heads", "{keep: 1, score: magnitude}",
                   "a multiple of 2 heads, which share keys and values, found 1");
    model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prune_transposed),
        cmocka_unit_test(test_prune_exact),
        cmocka_unit_test(test_share),
        cmocka_unit_test(test_remove_layer),
        cmocka_unit_test(test_prune_llama),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("passes on decoders", tests, NULL, NULL);
}
