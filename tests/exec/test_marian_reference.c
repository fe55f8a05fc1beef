/* Marian against PyTorch's outputs and gradients (tests/data/reference/README.md says how
 * they were computed), what its masks leave out, and where its norms may stand. */
#include "io/formats/hf.h"
#include "tests/exec/seq2seq_fixture.h"
#include "tests/support/configured.h"

#include <math.h>
#include <stdlib.h>

typedef struct Case {
    Model *model;
    Checkpoint *reference;
    Diag *diag;
    int64_t sizes[DIM_SYMBOLS];
} Case;

static void case_open(Case *c) {
    *c = (Case){.diag = diag_create()};
    assert_ok(hf_read(&c->model, ROOT "marian", ops_table(), c->diag), c->diag);
    assert_ok(
        safetensors_read(&c->reference, ROOT "marian/reference.safetensors", c->diag),
        c->diag);
    seq2seq_sizes(c->sizes, c->reference);
}

static void case_close(Case *c) {
    checkpoint_destroy(c->reference);
    model_destroy(c->model);
    diag_destroy(c->diag);
}

/* What enters the first layer of a stack: dropout stands in front of it. */
static Node *find_value(const Graph *graph, const char *name) {
    const char *at = strstr(name, "_hidden_states.");
    if (!at) return graph_output(graph, name);
    const char *stack = name[0] == 'e' ? "encoder" : "decoder";
    const int layer = atoi(at + strlen("_hidden_states."));
    return layer == 0 ? graph_find(graph, stack, 0, ROLE_Q)->in[0]
                      : graph_layer_output(graph, stack, layer - 1);
}

static void test_forward(void **state) {
    (void)state;
    Case c;
    case_open(&c);
    Node *results[RESULTS_MAX];
    const char *names[RESULTS_MAX];
    int count = 0;
    for (int i = 0; i < c.reference->count; i++) {
        names[count] = c.reference->tensors[i].name;
        results[count] = find_value(c.model->graph, names[count]);
        if (results[count]) count++;
    }
    assert_int_equal(count, 8);
    Runner r;
    runner_open_sizes(&r, c.model->graph, c.sizes, PRECISION_F32, NULL, results, count);
    seq2seq_feed(&r, c.reference, c.sizes);
    runner_run(&r);
    for (int i = 0; i < count; i++) runner_compare(&r, c.reference, names[i], results[i]);
    runner_close(&r);
    case_close(&c);
}

static void test_gradients(void **state) {
    (void)state;
    Case c;
    Checkpoint *gradients = NULL;
    case_open(&c);
    assert_ok(safetensors_read(&gradients, ROOT "marian/gradients.safetensors", c.diag),
              c.diag);
    assert_int_equal(gradients->count, c.model->graph->storage_count);
    Node *loss = reference_loss(c.model->graph);
    Runner r;
    runner_open_sizes(&r, c.model->graph, c.sizes, PRECISION_F32, loss, NULL, 0);
    seq2seq_feed(&r, c.reference, c.sizes);
    runner_run(&r);
    runner_compare(&r, c.reference, "loss", loss);
    runner_compare_gradients(&r, gradients, "grad.");
    runner_close(&r);
    checkpoint_destroy(gradients);
    case_close(&c);
}

/* Logits of one row per token, copied. */
static float *run_logits(Runner *r, const Node *logits, const int64_t *sizes) {
    const int64_t rows = sizes[DIM_INDEX(DIM_N)] * sizes[DIM_INDEX(DIM_T)];
    const size_t bytes = (size_t)(rows * logits->type.dim[2]) * sizeof(float);
    float *copy = memory_alloc(bytes, 1);
    runner_run(r);
    memcpy(copy, workspace_value(r->workspace, logits), bytes);
    return copy;
}

static bool same_row(const float *a, const float *b, const Node *logits, int64_t row) {
    const int64_t width = logits->type.dim[2];
    return memcmp(a + row * width, b + row * width, (size_t)width * sizeof *a) == 0;
}

/* A masked token of the source changes nothing, one that is not does; a token of the
 * target does not change what stands before it; a masked one does not change what stands
 * behind it. */
static void test_masks(void **state) {
    (void)state;
    Case c;
    case_open(&c);
    Node *logits = graph_output(c.model->graph, "logits");
    const int64_t S = c.sizes[DIM_INDEX(DIM_S)], T = c.sizes[DIM_INDEX(DIM_T)];
    Runner r;
    runner_open_sizes(&r, c.model->graph, c.sizes, PRECISION_F32, NULL, &logits, 1);
    seq2seq_feed(&r, c.reference, c.sizes);
    int32_t *source = workspace_input(r.workspace, "input_ids");
    int32_t *target = workspace_input(r.workspace, "decoder_input_ids");
    int32_t *mask = workspace_input(r.workspace, "decoder_attention_mask");
    float *before = run_logits(&r, logits, c.sizes);
    source[2 * S - 1] = 3; /* sample 1 has 5 tokens of 8 */
    source[0] = (source[0] + 1) % 47;
    float *after = run_logits(&r, logits, c.sizes);
    for (int64_t t = 0; t < T; t++) {
        assert_false(same_row(before, after, logits, t));
        assert_true(same_row(before, after, logits, T + t));
    }
    free(before);
    target[3] = (target[3] + 1) % 47;
    before = run_logits(&r, logits, c.sizes);
    for (int64_t t = 0; t < T; t++)
        assert_int_equal(same_row(before, after, logits, t), t < 3);
    free(before);
    mask[3] = 0;
    before = run_logits(&r, logits, c.sizes);
    target[3] = (target[3] + 1) % 47;
    free(after);
    after = run_logits(&r, logits, c.sizes);
    for (int64_t t = 0; t < T; t++)
        assert_int_equal(same_row(before, after, logits, t), t != 3);
    free(before);
    free(after);
    runner_close(&r);
    case_close(&c);
}

/* ---- where norms stand ---- */

#define CONFIG                                                                           \
    "{model_type: marian, vocab_size: 12, d_model: 8, encoder_layers: 2, "               \
    "decoder_layers: 1, encoder_attention_heads: 2, decoder_attention_heads: 2, "        \
    "encoder_ffn_dim: 12, decoder_ffn_dim: 12, dropout: 0, init_std: 0.5"

/* A residual sum, its norm and its projection stand as `norm` says. */
static void check_block(const Graph *graph, const char *stack, char place, Role out,
                        Role norm, Role residual) {
    const Node *branch = graph_find(graph, stack, 0, out);
    const Node *normed = graph_find(graph, stack, 0, norm);
    const Node *sum = graph_find(graph, stack, 0, residual);
    assert_true(node_is(branch, &op_linear) && node_is(normed, &op_layer_norm) &&
                node_is(sum, &op_add));
    if (place == 'b') assert_ptr_equal(normed->in[0], branch);
    if (place == 'o') assert_ptr_equal(normed->in[0], sum);
    if (place == 'r') assert_ptr_equal(normed->in[0], sum->in[0]);
    assert_ptr_equal(sum->in[1], place == 'b' ? normed : branch);
}

static void check_places(const char *keys, char place, bool final) {
    char yaml[512];
    snprintf(yaml, sizeof yaml, CONFIG "%s}", keys);
    Model *model = configured_model(yaml, 3);
    const Graph *graph = model->graph;
    static const char *const STACKS[] = {"encoder", "decoder"};
    for (int s = 0; s < 2; s++) {
        check_block(graph, STACKS[s], place, ROLE_OUT, ROLE_NORM1, ROLE_RESIDUAL1);
        check_block(graph, STACKS[s], place, ROLE_FFN_OUT, ROLE_NORM2, ROLE_RESIDUAL2);
        assert_int_equal(graph_find(graph, STACKS[s], -1, ROLE_FINAL_NORM) != NULL,
                         final);
    }
    check_block(graph, "decoder", place, ROLE_CROSS_OUT, ROLE_NORM_CROSS,
                ROLE_RESIDUAL_CROSS);
    double logits[2 * 5 * 12];
    assert_int_equal(configured_run(model, "logits", 0, logits, 2 * 5 * 12), 2 * 5 * 12);
    for (int i = 0; i < 2 * 5 * 12; i++) assert_true(isfinite(logits[i]));
    model_destroy(model);
}

static void test_norms(void **state) {
    (void)state;
    check_places("", 'o', false);
    check_places(", normalize_before: true", 'r', true);
    check_places(", norm: pre, add_final_layer_norm: false", 'r', false);
    check_places(", norm: branch, activation_function: relu", 'b', true);
    check_places(", normalize_before: true, norm: post, add_final_layer_norm: true", 'o',
                 true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_norms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
