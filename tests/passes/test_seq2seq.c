/* Training of encoder-decoder models with the target's tokens given: the loss is the mean
 * over the target's tokens, bytes do not depend on threads, and what attention is for is
 * learnt. */
#include "exec/ops.h"
#include "ir/random.h"
#include "tests/passes/language_fixture.h"

/* A pair: words 2 to 7, and the same backwards, after START and before END. */
enum { PAIRS = 48, SOURCE = 4, TARGET = 5, VOCABULARY = 8, END = 0, START = 1 };

static const char *const MODELS[] = {
    "{model_type: marian, vocab_size: 8, d_model: 24, encoder_layers: 1,\n"
    " decoder_layers: 1, encoder_attention_heads: 2, decoder_attention_heads: 2,\n"
    " encoder_ffn_dim: 32, decoder_ffn_dim: 32, dropout: 0, init_std: 0.2,\n"
    " normalize_before: true}",
    "{model_type: rnn_attention, source_vocab_size: 8, target_vocab_size: 8,\n"
    " embedding_size: 12, encoder_size: 24, decoder_size: 24, initializer_range: 0.3}",
    "{model_type: marian, vocab_size: 8, d_model: 8, encoder_layers: 2,\n"
    " decoder_layers: 1, encoder_attention_heads: 2, decoder_attention_heads: 2,\n"
    " encoder_ffn_dim: 8, decoder_ffn_dim: 8, dropout: 0, init_std: 0.5, norm: branch}",
    "{model_type: rnn_attention, source_vocab_size: 8, target_vocab_size: 8,\n"
    " embedding_size: 6, encoder_size: 7, decoder_size: 5, decoder_input: state,\n"
    " context: mean, initializer_range: 0.5}",
    "{model_type: t5, vocab_size: 8, d_model: 24, d_kv: 8, num_heads: 2, d_ff: 32,\n"
    " num_layers: 1, dropout_rate: 0, feed_forward_proj: gated-gelu,\n"
    " relative_attention_num_buckets: 8, relative_attention_max_distance: 8}",
    "{model_type: bart, vocab_size: 8, d_model: 24, encoder_layers: 1, decoder_layers: 1,\n"
    " encoder_attention_heads: 2, decoder_attention_heads: 2, encoder_ffn_dim: 32,\n"
    " decoder_ffn_dim: 32, max_position_embeddings: 6, dropout: 0, init_std: 0.2}",
};
enum { T5 = 4, BART };

/* ---- data ---- */

enum { IDS, MASK, TARGET_IDS, TARGET_MASK, LABELS, COLUMNS };

static const Column PAIR_COLUMNS[COLUMNS] = {
    {"input_ids", {DTYPE_I32, 1, {SOURCE}}},
    {"attention_mask", {DTYPE_I32, 1, {SOURCE}}},
    {"decoder_input_ids", {DTYPE_I32, 1, {TARGET}}},
    {"decoder_attention_mask", {DTYPE_I32, 1, {TARGET}}},
    {"labels", {DTYPE_I32, 1, {TARGET}}},
};

/* Words of pair i: the first 2 to 4 of its source. */
static int pair_words(int64_t i) {
    return 2 + (int)(i % 3);
}

static int32_t pair_word(int64_t i, int s) {
    return 2 + (int32_t)(random_u64(5, (uint64_t)(i * SOURCE + s)) % 6);
}

/* Token t of the target. */
static int32_t pair_label(int64_t i, int t) {
    const int words = pair_words(i);
    return t < words ? pair_word(i, words - 1 - t) : t == words ? END : INDEX_SKIP;
}

static int32_t pair_value(int column, int64_t i, int k) {
    const int words = pair_words(i);
    switch (column) {
    case IDS: return k < words ? pair_word(i, k) : END;
    case MASK: return k < words;
    case TARGET_IDS: return k == 0 ? START : k <= words ? pair_label(i, k - 1) : END;
    case TARGET_MASK: return k <= words;
    default: return pair_label(i, k);
    }
}

static Status pair_fetch(const Batches *self, const Fetch *what, void *const *dst,
                         Diag *diag) {
    (void)self, (void)diag;
    for (int c = 0; c < COLUMNS; c++) {
        const int each = c < TARGET_IDS ? SOURCE : TARGET;
        for (int64_t k = 0; dst[c] && k < what->n * each; k++)
            ((int32_t *)dst[c])[k] =
                pair_value(c, what->index[k / each], (int)(k % each));
    }
    return STATUS_OK;
}

static Batches pairs(int count) {
    return (Batches){.name = "pairs",
                     .count = count,
                     .columns = PAIR_COLUMNS,
                     .column_count = COLUMNS,
                     .classes = VOCABULARY,
                     .partial = true,
                     .fetch = pair_fetch};
}

/* ---- the loss ---- */

/* A node's value for pairs 0 to count - 1, in double; free it. */
static double *pair_values(Model *model, Node *node, int count) {
    const int64_t sizes[DIM_SYMBOLS] = {[DIM_INDEX(DIM_N)] = count,
                                        [DIM_INDEX(DIM_T)] = TARGET,
                                        [DIM_INDEX(DIM_S)] = SOURCE};
    Runner r;
    Type bound;
    runner_open_sizes(&r, model->graph, sizes, PRECISION_F64, NULL, &node, 1);
    for (int c = 0; c < LABELS; c++) {
        int32_t *input = workspace_input(r.workspace, PAIR_COLUMNS[c].name);
        const int each = c < TARGET_IDS ? SOURCE : TARGET;
        for (int k = 0; input && k < count * each; k++)
            input[k] = pair_value(c, k / each, k % each);
    }
    runner_run(&r);
    assert_true(type_bind(&node->type, sizes, &bound));
    const size_t bytes = (size_t)type_count(&bound) * sizeof(double);
    double *values = malloc(bytes);
    memcpy(values, workspace_value(r.workspace, node), bytes);
    runner_close(&r);
    return values;
}

/* log softmax(z / t)[word]. */
static double log_share(const double *z, int word, double t) {
    double sum = 0;
    for (int v = 0; v < VOCABULARY; v++) sum += exp((z[v] - z[word]) / t);
    return -log(sum);
}

/* Mean of -log p over the labels. */
static double naive_loss(Model *model, int count) {
    double *z = pair_values(model, graph_output(model->graph, "logits"), count);
    double total = 0;
    int rows = 0;
    for (int k = 0; k < count * TARGET; k++) {
        const int32_t label = pair_label(k / TARGET, k % TARGET);
        if (label == INDEX_SKIP) continue;
        total -= log_share(z + (ptrdiff_t)k * VOCABULARY, label, 1);
        rows++;
    }
    free(z);
    return total / rows;
}

/* One step at rate 0, cut in parts of unequal numbers of tokens. */
static void test_loss(void **state) {
    (void)state;
    enum { COUNT = 7 };
    Batches data = pairs(COUNT);
    RecipeInputs inputs = {&data, NULL};
    for (size_t m = 0; m < sizeof MODELS / sizeof *MODELS; m++) {
        Diag *diag = diag_create();
        Model *model = configured_model(MODELS[m], 3);
        const Tree *record;
        const double loss = naive_loss(model, COUNT);
        assert_ok(run_steps(model, &inputs,
                            "  - finetune: {data: some, steps: 1, lr: 0, batch_size: 7,"
                            " shards: 3, micro_batch: 2}\n"
                            "    allow_unchanged: true\n",
                            2, &record, diag),
                  diag);
        expect_loss(model, NULL, number(record, "loss_label"), loss);
        assert_ok(run_steps(model, &inputs, "  - evaluate: {data: some, batch_size: 2}\n",
                            1, &record, diag),
                  diag);
        expect_loss(model, NULL, number(record, "loss"), loss);
        model_destroy(model);
        diag_destroy(diag);
    }
}

/* ---- learning ---- */

static bool same_weights(const Model *a, const Model *b) {
    for (int i = 0; i < a->graph->storage_count; i++) {
        const Tensor *x = &a->graph->storages[i]->tensor;
        const Tensor *y = &b->graph->storages[i]->tensor;
        if (memcmp(tensor_data(x), tensor_data(y), tensor_bytes(x)) != 0) return false;
    }
    return true;
}

/* Guessing gives a quarter at most; the last few per cent depend on the way that training
 * goes, which rounding decides. */
static Model *trained(const char *config, int threads) {
    Diag *diag = diag_create();
    Batches data = pairs(PAIRS);
    RecipeInputs inputs = {&data, NULL};
    Model *model = configured_model(config, 3);
    assert_ok(run_steps(model, &inputs,
                        "  - finetune: {data: some, epochs: 50, batch_size: 8, lr: 0.01,"
                        " weight_decay: 0}\n"
                        "  - evaluate: {data: some, min: 90}\n",
                        threads, NULL, diag),
              diag);
    diag_destroy(diag);
    return model;
}

static void test_learns(void **state) {
    (void)state;
    Model *one = trained(MODELS[0], 1), *two = trained(MODELS[0], 2);
    assert_true(same_weights(one, two));
    model_destroy(one);
    model_destroy(two);
    model_destroy(trained(MODELS[1], 2));
    model_destroy(trained(MODELS[T5], 2));
    model_destroy(trained(MODELS[BART], 2));
}

/* ---- words of its own ---- */

static Model *sampled(double share, int threads) {
    Diag *diag = diag_create();
    Batches data = pairs(24);
    RecipeInputs inputs = {&data, NULL};
    char step[160];
    Model *model = configured_model(MODELS[1], 3);
    snprintf(step, sizeof step,
             "  - finetune: {data: some, epochs: 4, batch_size: 8, lr: 0.01,"
             " teacher_forcing: %g}\n",
             share);
    assert_ok(run_steps(model, &inputs, step, threads, NULL, diag), diag);
    diag_destroy(diag);
    return model;
}

/* The model that comes out is the one that went in, with other weights. */
static void test_teacher_forcing(void **state) {
    (void)state;
    Model *given = sampled(1, 1), *half = sampled(0.5, 1), *again = sampled(0.5, 2);
    Node *recurrence = graph_find(half->graph, "decoder", 0, ROLE_RECURRENCE);
    assert_null(node_operand(recurrence, "head"));
    assert_true(((const AttentionLstmAttrs *)recurrence->attrs)->teacher_forcing == 1);
    assert_true(same_weights(half, again));
    assert_false(same_weights(half, given));
    model_destroy(given);
    model_destroy(half);
    model_destroy(again);
    static const int OTHERS[] = {0, 3};
    Batches data = pairs(7);
    RecipeInputs inputs = {&data, NULL};
    for (int i = 0; i < 2; i++)
        expect_refusal(configured_model(MODELS[OTHERS[i]], 3), &inputs,
                       "  - finetune: {data: some, teacher_forcing: 0.5}\n", STATUS_MODEL,
                       "teacher_forcing: a share below 1 is for recurrent decoders");
}

/* ---- other passes ---- */

/* Layers share the projections of both attentions and of the feed-forward block. */
static void test_multiplex(void **state) {
    (void)state;
    static const char config[] =
        "{model_type: marian, vocab_size: 8, d_model: 8, encoder_layers: 1,\n"
        " decoder_layers: 2, encoder_attention_heads: 2, decoder_attention_heads: 2,\n"
        " encoder_ffn_dim: 8, decoder_ffn_dim: 12, dropout: 0, init_std: 0.5}";
    enum { COUNT = 3, LAYER = 8 * 72 + 2 * 8 * 12 + 12 + 8, MIXING = 4 * 4 };
    Diag *diag = diag_create();
    Model *model = configured_model(config, 3);
    const int64_t before = graph_parameter_count(model->graph);
    const Node *first = graph_find(model->graph, "decoder", 0, ROLE_CROSS_K);
    const Node *second = graph_find(model->graph, "decoder", 1, ROLE_CROSS_K);
    assert_ptr_not_equal(first->in[1], second->in[1]);
    assert_ok(run_steps(model, &(RecipeInputs){NULL, NULL},
                        "  - weight_multiplex: {group: 2, stack: decoder,"
                        " position: none, pooling: keep}\n",
                        1, NULL, diag),
              diag);
    assert_int_equal(graph_parameter_count(model->graph), before - LAYER + MIXING);
    static const Role ROLES[] = {ROLE_Q,       ROLE_CROSS_Q,   ROLE_CROSS_K,
                                 ROLE_CROSS_V, ROLE_CROSS_OUT, ROLE_FFN_OUT};
    for (size_t r = 0; r < sizeof ROLES / sizeof *ROLES; r++) {
        const Node *a = graph_find(model->graph, "decoder", 0, ROLES[r]);
        const Node *b = graph_find(model->graph, "decoder", 1, ROLES[r]);
        assert_ptr_equal(a->in[1], b->in[1]);
        assert_ptr_equal(a->in[2], b->in[2]);
    }
    free(pair_values(model, graph_output(model->graph, "logits"), COUNT));
    model_destroy(model);
    diag_destroy(diag);
}

/* A decoder's window is of its self-attention: as long as the target it changes nothing
 * there, and cross-attention has none. An encoder is refused one. */
static void test_t2r_window(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model = configured_model(MODELS[0], 3);
    RecipeInputs inputs = {NULL, NULL};
    assert_ok(
        run_steps(model, &inputs,
                  "  - attention_to_t2r: {stack: decoder, feature: hedgehog, window: "
                  "2}\n",
                  1, NULL, diag),
        diag);
    const Node *own = graph_find(model->graph, "decoder", 0, ROLE_ATTENTION);
    const Node *cross = graph_find(model->graph, "decoder", 0, ROLE_CROSS_ATTENTION);
    assert_int_equal(node_integer(own, "window"), 2);
    assert_true(node_operand(own, "near_q") == own->in[0]->in[0]);
    assert_string_equal(cross->op->name, "linear_attention");
    assert_int_equal(node_integer(cross, "window"), 0);
    assert_non_null(graph_storage(model->graph, "decoder.0.feature_map.gate"));
    model_destroy(model);
    model = configured_model(MODELS[0], 3);
    assert_int_equal(
        run_steps(model, &inputs, "  - attention_to_t2r: {window: 2}\n", 1, NULL, diag),
        STATUS_MODEL);
    model_destroy(model);
    diag_destroy(diag);
}

/* Linear attention in every attention, and its maps merged: outputs stay. */
static void test_merge_t2r(void **state) {
    (void)state;
    enum { COUNT = 4, LOGITS_COUNT = COUNT * TARGET * VOCABULARY };
    Diag *diag = diag_create();
    Model *model = configured_model(MODELS[0], 3);
    RecipeInputs inputs = {NULL, NULL};
    assert_ok(run_steps(model, &inputs, "  - attention_to_t2r: {feature_size: 6}\n", 1,
                        NULL, diag),
              diag);
    const Node *cross = graph_find(model->graph, "decoder", 0, ROLE_CROSS_ATTENTION);
    assert_string_equal(cross->op->name, "linear_attention");
    double *swapped = pair_values(model, graph_output(model->graph, "logits"), COUNT);
    assert_ok(run_steps(model, &inputs, "  - merge_t2r: {}\n", 1, NULL, diag), diag);
    double *merged = pair_values(model, graph_output(model->graph, "logits"), COUNT);
    const int64_t sizes[DIM_SYMBOLS] = {[DIM_INDEX(DIM_N)] = COUNT,
                                        [DIM_INDEX(DIM_T)] = TARGET,
                                        [DIM_INDEX(DIM_S)] = SOURCE};
    const double terms =
        rounding_terms(model->graph, graph_output(model->graph, "logits"), sizes);
    rounding_compare("logits", merged, swapped, LOGITS_COUNT, PRECISION_F32, terms, 0);
    free(swapped);
    free(merged);
    model_destroy(model);
    diag_destroy(diag);
}

/* ---- distillation ---- */

/* T^2 times the mean over the target's tokens of -sum q log p. */
static double soft_loss(Model *student, Model *teacher, int count, double t) {
    double *z = pair_values(student, graph_output(student->graph, "logits"), count);
    double *y = pair_values(teacher, graph_output(teacher->graph, "logits"), count);
    double total = 0;
    int rows = 0;
    for (int k = 0; k < count * TARGET; k++) {
        if (!pair_value(TARGET_MASK, k / TARGET, k % TARGET)) continue;
        const ptrdiff_t row = (ptrdiff_t)k * VOCABULARY;
        for (int v = 0; v < VOCABULARY; v++)
            total -= exp(log_share(y + row, v, t)) * log_share(z + row, v, t);
        rows++;
    }
    free(z);
    free(y);
    return t * t * total / rows;
}

/* Mean squared difference of the decoder's first layer over the target's tokens. */
static double state_loss(Model *student, Model *teacher, int count) {
    enum { WIDTH = 8 };
    double *x =
        pair_values(student, graph_layer_output(student->graph, "decoder", 0), count);
    double *y =
        pair_values(teacher, graph_layer_output(teacher->graph, "decoder", 0), count);
    double total = 0;
    int rows = 0;
    for (int k = 0; k < count * TARGET; k++) {
        if (!pair_value(TARGET_MASK, k / TARGET, k % TARGET)) continue;
        for (int e = k * WIDTH; e < (k + 1) * WIDTH; e++)
            total += (x[e] - y[e]) * (x[e] - y[e]);
        rows++;
    }
    free(x);
    free(y);
    return total / (rows * WIDTH);
}

/* Predictions and states of the decoder; padding of the target is left out. */
static void test_distill(void **state) {
    (void)state;
    enum { COUNT = 7 };
    Diag *diag = diag_create();
    Batches data = pairs(COUNT);
    Model *student = configured_model(MODELS[2], 3);
    Model *teacher = configured_model(MODELS[2], 4);
    RecipeInputs inputs = {&data, teacher};
    const Tree *record;
    const double prediction = soft_loss(student, teacher, COUNT, 2);
    const double hidden = state_loss(student, teacher, COUNT);
    const double label = naive_loss(student, COUNT);
    assert_ok(run_steps(student, &inputs,
                        "  - distill: {data: some, teacher: x, preset: distilbert,"
                        " hidden: 1, hidden_form: state, embeddings: false, steps: 1,"
                        " lr: 0, batch_size: 7, shards: 3, micro_batch: 2}\n"
                        "    allow_unchanged: true\n",
                        2, &record, diag),
              diag);
    expect_loss(student, teacher, number(record, "loss_prediction"), prediction);
    expect_loss(student, teacher, number(record, "loss_hidden"), hidden);
    expect_loss(student, NULL, number(record, "loss_label"), label);
    model_destroy(student);
    model_destroy(teacher);
    diag_destroy(diag);
}

/* Rows of linear attention in the record of a swap: all heads of every token that its
 * mask leaves, and in data of one length too. */
static void assert_rows(Model *model, Batches *data, int blocks, const int64_t *rows) {
    Diag *diag = diag_create();
    const Tree *record = NULL;
    RecipeInputs inputs = {data, NULL};
    assert_ok(run_steps(model, &inputs,
                        "  - attention_to_t2r: {feature_size: 4, data: some, "
                        "batch_size: 5}\n",
                        2, &record, diag),
              diag);
    const Tree *list = tree_get(record, "clamped");
    assert_int_equal(list->count, blocks);
    for (const Tree *row = list->first; row; row = row->next)
        assert_int_equal(tree_get(row, "rows")->integer, *rows++);
    model_destroy(model);
    diag_destroy(diag);
}

static void test_clamped_rows(void **state) {
    (void)state;
    const int heads = 2;
    const int64_t cross = (int64_t)PAIRS * TARGET * heads; /* no mask of the queries */
    int64_t source = 0, target = 0;
    for (int64_t i = 0; i < PAIRS; i++) {
        source += heads * pair_words(i);
        target += heads * (pair_words(i) + 1);
    }
    Batches data = pairs(PAIRS);
    assert_rows(configured_model(MODELS[0], 1), &data, 3,
                (int64_t[]){source, target, cross});
    Batches words = sequences();
    const int64_t all = (int64_t)SAMPLES * TOKENS * heads;
    assert_rows(toy_gpt2(2, 8, 1), &words, 2, (int64_t[]){all, all});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loss),
        cmocka_unit_test(test_learns),
        cmocka_unit_test(test_teacher_forcing),
        cmocka_unit_test(test_multiplex),
        cmocka_unit_test(test_merge_t2r),
        cmocka_unit_test(test_t2r_window),
        cmocka_unit_test(test_clamped_rows),
        cmocka_unit_test(test_distill),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
