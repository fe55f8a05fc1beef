/* Tiles: parts of a call give the bytes of each other in any order, what the whole call
 * gives but for rounding; and training gives the same bytes at any number of threads, in
 * shards and inside them. */
#include "exec/ops/tiles.h"

#include "exec/run/lanes.h"
#include "exec/train/train.h"
#include "ir/sanitized.h"
#include "tests/exec/grad_harness.h"
#include "tests/support/configured.h"
#include "tests/support/reference.h"

/* ---- calls ---- */

/* Large enough to be cut, forward and backward unless `parts` says otherwise. */
typedef enum Parts { BOTH, FORWARD, BACKWARD } Parts;

typedef struct CutCase {
    Case call;
    Parts parts;
} CutCase;

static const CutCase CASES[] = {
    {{"linear", "", "4x128x192 400x192 400"}, BOTH},
    {{"linear", "", "530x270 390x270 -"}, BOTH},
    {{"linear", "transposed=true", "530x270 270x390 390"}, BOTH},
    {{"linear", "", "!530x390 530x390 530"}, BOTH},
    {{"linear", "", "530x390 !530x390 530"}, BOTH},
    {{"add", "", "5x131x257 5x131x257"}, BOTH},
    {{"add", "", "5x131x257 =0"}, BOTH},
    {{"multiply", "", "5x131x257 5x131x257"}, BOTH},
    {{"multiply", "", "5x131x257 =0"}, BOTH},
    {{"activation", "fn=gelu", "5x131x257"}, BOTH},
    {{"scale", "by=0.3", "5x131x257"}, BOTH},
    {{"scale_gradient", "by=0.3", "5x131x257"}, BOTH},
    {{"dropout", "rate=0.3", "5x131x257"}, BOTH},
    {{"softmax", "temperature=2.0", "5x131x257"}, BOTH},
    {{"layer_norm", "", "5x131x257 257 257"}, BOTH},
    {{"layer_norm", "", "5x131x257 257 -"}, BOTH},
    {{"rms_norm", "", "5x131x257 257"}, BOTH},
    {{"layer_norm", "", "70000 =0 =0"}, BOTH},
    {{"rms_norm", "", "70000 =0"}, BOTH},
    {{"rotary", "heads=4", "5x67x256"}, BOTH},
    {{"embedding", "", "i5x131<37 37x257"}, BACKWARD},
    {{"cross_entropy", "", "701x257 l701<257"}, BACKWARD},
    {{"attention", "heads=4", "5x67x64 5x67x64 5x67x64 m5x67"}, BOTH},
    {{"attention", "heads=4 causal=true", "5x67x64 5x67x64 5x67x64"}, BOTH},
    {{"attention", "heads=4 kv_heads=2", "5x67x64 5x67x32 5x67x32"}, BOTH},
    {{"attention", "heads=4", "5x67x64 5x67x64 5x67x64 - 4x67x67"}, BOTH},
    {{"attention", "heads=4 grid_h=8 grid_w=8 window=4 shift=2",
      "9x64x128 9x64x128 9x64x128 - - - - - 49x4"},
     BOTH},
    {{"attention", "heads=4 grid_h=8 grid_w=8",
      "9x64x64 9x64x64 9x64x64 - 4x64x64 - - - 225x4"},
     BOTH},
    {{"attention", "heads=4 buckets=8 distance=12 bidirectional=true",
      "9x67x64 9x67x64 9x67x64 m9x67 - - - - 8x4"},
     BOTH},
    {{"attention", "heads=4", "9x67x64 9x67x64 9x67x64 - - - 4x4 4x4"}, FORWARD},
};

static bool same(const double *a, const double *b, int64_t count) {
    return memcmp(a, b, (size_t)count * sizeof *a) == 0;
}

/* Results of parts in one order, of parts in the other, and of the whole call. */
static void compare(const Problem *p, const Mode *mode, const Result got[3]) {
    if (!same(got[0].out, got[1].out, type_count(&p->out)))
        fail_msg("%s: values of parts", p->node->op->name);
    compare_value(p, p->node->op->name, mode->single, got[0].out, got[2].out, 1);
    for (int i = 0; i < p->count; i++) {
        if (!got[2].d_in[i]) continue;
        if (!same(got[0].d_in[i], got[1].d_in[i], type_count(&p->type[i])))
            fail_msg("%s: gradients of parts, operand %d", p->node->op->name, i);
        compare_gradient(p, p->node->op->name, i, mode->single, got[0].d_in[i],
                         got[2].d_in[i], 1);
    }
}

static void check_cut(const CutCase *c, Mode mode) {
    Problem p;
    Result got[3];
    assert_ok(problem_create(&p, &c->call), p.diag);
    const double *old[OPERANDS_MAX] = {0};
    for (int i = 0; i < p.count; i++) old[i] = p.value[i];
    if (mode.old) mode.old = old;
    for (int i = 0; i < 3; i++) {
        int64_t parts[2] = {0};
        mode.cut = (CutOrder[]){CUT_UP, CUT_DOWN, CUT_NOT}[i];
        mode.parts = parts;
        got[i] = execute(&p, mode);
        if (mode.cut == CUT_NOT) continue;
        if (c->parts != BACKWARD && parts[0] < 2) fail_msg("%s: whole", c->call.op);
        /* gradients that are cleared first may need a whole call */
        if (c->parts != FORWARD && mode.old && !strchr(c->call.operands, '=') &&
            parts[1] < 2)
            fail_msg("%s: whole backward", c->call.op);
    }
    compare(&p, &mode, got);
    for (int i = 0; i < 3; i++) result_free(&got[i]);
    problem_destroy(&p);
}

static void test_calls(void **state) {
    static const double *const OLD[OPERANDS_MAX] = {0};
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        for (int k = 0; k < 4; k++)
            check_cut(&CASES[i], (Mode){.single = k & 1,
                                        .old = k & 2 ? OLD : NULL,
                                        .training = true,
                                        .backward = true});
}

/* Every unit is in one part, none in two, and parts are in order. */
static void test_ranges(void **state) {
    (void)state;
    for (int64_t count = 1; count < 200; count += 7)
        for (int64_t unit = 1; unit <= 16; unit *= 4)
            for (int64_t parts = 1; parts <= 64; parts *= 2) {
                int64_t end = 0;
                for (int64_t i = 0; i < parts; i++) {
                    const Range r = range_part(count, unit, i, parts);
                    assert_int_equal(r.first, end);
                    assert_true(r.end >= r.first &&
                                (r.first % unit == 0 || r.first == count));
                    end = r.end;
                }
                assert_int_equal(end, count);
            }
}

static void test_threads_shared(void **state) {
    (void)state;
    assert_int_equal(lanes_used(1, 2), 1);
    assert_int_equal(lanes_used(3, 2), 2);
    assert_int_equal(lanes_used(4, 2), 4);
    assert_int_equal(lanes_used(5, 2), 4);
    assert_int_equal(lanes_used(16, 1), 16);
    assert_int_equal(lanes_used(4096, 1), 64);
}

/* ---- training ---- */

enum { INPUTS_MAX = 8, LENGTH = 64, WORDS = 50, BATCH = 12, STEPS = 1 };

/* Samples made up for the inputs of a graph. */
typedef struct Samples {
    Batches batches;
    Column columns[INPUTS_MAX];
} Samples;

static void fill_column(const Column *column, int64_t sample, int64_t count, void *data) {
    const uint64_t key = random_key(random_key_name(1, column->name), (uint64_t)sample);
    for (int64_t i = 0; i < count; i++) {
        const double u = random_uniform(key, (uint64_t)i);
        if (column->type.dtype == DTYPE_F32)
            ((float *)data)[i] = (float)(2 * u - 1);
        else if (strcmp(column->name, "attention_mask") == 0)
            ((int32_t *)data)[i] = i < count - 9 || sample % 2 == 0;
        else if (strcmp(column->name, "token_type_ids") == 0)
            ((int32_t *)data)[i] = i > count / 2;
        else
            ((int32_t *)data)[i] =
                (int32_t)(u * (strcmp(column->name, "labels") == 0 ? 3 : WORDS));
    }
}

static Status samples_fetch(const Batches *self, const Fetch *what, void *const *dst,
                            Diag *diag) {
    (void)diag;
    for (int c = 0; c < self->column_count; c++) {
        const int64_t sizes[DIM_SYMBOLS] = {1, what->tokens};
        Type bound;
        assert_true(type_bind(&self->columns[c].type, sizes, &bound));
        const int64_t count = type_count(&bound);
        for (int64_t i = 0; i < what->n; i++)
            fill_column(&self->columns[c], what->index[i], count,
                        (char *)dst[c] + (size_t)(i * count) * 4);
    }
    return STATUS_OK;
}

static int64_t samples_length(const Batches *self, int64_t sample) {
    (void)self, (void)sample;
    return LENGTH;
}

static void samples_destroy(Batches *self) {
    (void)self;
}

static void samples_open(Samples *data, const Graph *graph) {
    *data = (Samples){0};
    int count = 0;
    bool tokens = false;
    for (const Node *node = graph->first; node; node = node->next) {
        if (!node_is_input(node)) continue;
        Column *column = &data->columns[count++];
        column->name = node->name;
        column->type = (Type){.dtype = node->type.dtype, .rank = node->type.rank - 1};
        for (int d = 0; d < column->type.rank; d++)
            column->type.dim[d] = node->type.dim[d + 1];
        tokens |= column->type.rank > 0 && column->type.dim[0] == DIM_T;
    }
    data->batches = (Batches){.name = "made up",
                              .count = BATCH,
                              .columns = data->columns,
                              .column_count = count,
                              .classes = 3,
                              .length = tokens ? samples_length : NULL,
                              .max_tokens = tokens ? LENGTH : 0,
                              .fetch = samples_fetch,
                              .destroy = samples_destroy};
}

/* All weights after a few steps, to be freed; their number. */
static int64_t train_model(const char *config, int64_t shards, int threads, bool bf16,
                           float **out) {
    Model *model = configured_model(config, 1);
    Graph *graph = model->graph;
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Samples data;
    TrainReport report;
    Node *loss = reference_loss(graph);
    TrainOptions options = train_defaults;
    options.steps = STEPS;
    options.batch_size = BATCH;
    options.shards = shards;
    options.lr = 0.01;
    if (bf16) options.precision = TRAIN_BF16;
    samples_open(&data, graph);
    assert_ok(train(graph, loss, NULL, 0, &data.batches, &options, 1, threads, NULL,
                    arena, &report, diag),
              diag);
    int64_t count = 0;
    *out = NULL;
    for (int i = 0; i < graph->storage_count; i++) {
        const Tensor *tensor = &graph->storages[i]->tensor;
        const int64_t more = tensor_count(tensor);
        *out = realloc(*out, (size_t)(count + more) * sizeof **out);
        memcpy(*out + count, tensor_data(tensor), tensor_bytes(tensor));
        count += more;
    }
    diag_destroy(diag);
    arena_destroy(arena);
    model_destroy(model);
    return count;
}

static const char *const CONFIGS[] = {
    "{model_type: bert, architectures: [BertForSequenceClassification],\n"
    " hidden_size: 192, num_hidden_layers: 1, num_attention_heads: 4, num_labels: 3,\n"
    " intermediate_size: 384, vocab_size: 50, max_position_embeddings: 64,\n"
    " type_vocab_size: 2, initializer_range: 0.2, hidden_dropout_prob: 0.1}\n",
    "{model_type: vit, architectures: [ViTForImageClassification], num_labels: 3,\n"
    " hidden_size: 192, num_hidden_layers: 1, num_attention_heads: 4,\n"
    " intermediate_size: 384, image_size: 32, patch_size: 4, num_channels: 3,\n"
    " initializer_range: 0.2, hidden_dropout_prob: 0.1}\n",
    "{model_type: swin, architectures: [SwinForImageClassification], num_labels: 3,\n"
    " embed_dim: 96, depths: [2, 1], num_heads: [3, 6], window_size: 4, mlp_ratio: 4,\n"
    " image_size: 32, patch_size: 2, num_channels: 3, initializer_range: 0.2}\n",
    "{model_type: llama, architectures: [LlamaForCausalLM], vocab_size: 50,\n"
    " hidden_size: 192, num_hidden_layers: 1, num_attention_heads: 4,\n"
    " num_key_value_heads: 2, intermediate_size: 384, max_position_embeddings: 64,\n"
    " initializer_range: 0.2}\n",
};

static void check_threads(const char *config, int64_t shards, bool bf16) {
    float *one, *other;
    const int64_t count = train_model(config, shards, 1, bf16, &one);
    for (int threads = 2; threads <= 8; threads += SANITIZED ? 5 : 1) {
        assert_int_equal(train_model(config, shards, threads, bf16, &other), count);
        if (memcmp(one, other, (size_t)count * sizeof *one) != 0)
            fail_msg("%.20s: %d threads, %d shards", config, threads, (int)shards);
        free(other);
    }
    free(one);
}

static void test_training(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof CONFIGS / sizeof *CONFIGS; i++)
        for (int64_t shards = 1; shards <= 3; shards += SANITIZED ? 2 : 1)
            check_threads(CONFIGS[i], shards, false);
}

static void test_training_bf16(void **state) {
    (void)state;
    for (int64_t shards = 1; shards <= 2; shards++)
        check_threads(CONFIGS[0], shards, true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls),          cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_threads_shared), cmocka_unit_test(test_training),
        cmocka_unit_test(test_training_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
