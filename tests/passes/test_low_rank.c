/* Updates of low rank: what is merged computes what was trained, steps are those of the
 * gradients of A and B, training goes on from its states. */
#include "passes/training/low_rank.h"

#include "exec/ops.h"
#include "ir/random.h"
#include "ir/storage.h"
#include "ir/verify.h"
#include "passes/nodes.h"
#include "tests/support/check.h"
#include "tests/support/configured.h"
#include "tests/support/passes.h"
#include "tests/support/starved.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

/* ---- merged and not ---- */

enum { MOST = 4096 };

/* Any numbers for B, which is 0 when it is made. */
static void fill_up(const LowRankSite *site, Diag *diag) {
    Tensor values = tensor_retain(storage_tensor(site->up->storage));
    void *to = NULL;
    assert_ok(tensor_writable(&values, &to, diag), diag);
    for (int64_t i = 0; i < tensor_count(&values); i++)
        ((float *)to)[i] = (float)(0.3 * random_normal(7, (uint64_t)i));
    storage_set_values(site->up->storage, values);
}

static double largest_difference(const double *a, const double *b, int64_t count) {
    double largest = 0;
    for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(a[i] - b[i]));
    return largest;
}

/* A copy of the model with updates beside its matrices, and the model with them merged:
 * in double they differ by what rounding the sums to float makes of W alone. */
static void check_merged(Model *model, const TrainOptions *options, int matrices) {
    static double was[MOST], beside[MOST], merged[MOST];
    Diag *diag = diag_create();
    Model *copy = model_copy(model);
    PassContext ctx = {.ops = ops_table(),
                       .arena = model->arena,
                       .record = tree_new(model->arena, TREE_MAP, LOC_NONE)};
    LowRank low_rank;
    const int64_t count = configured_run(model, "logits", 0, was, MOST);
    assert_ok(low_rank_add(&low_rank, &ctx, copy->graph, model->graph, options, diag),
              diag);
    assert_int_equal(low_rank.count, matrices);
    assert_ok(graph_verify(copy->graph, STATUS_INTERNAL, diag), diag);
    configured_run(copy, "logits", 0, beside, MOST);
    assert_true(largest_difference(was, beside, count) == 0); /* B is 0 */
    for (int i = 0; i < low_rank.count; i++) fill_up(&low_rank.sites[i], diag);
    configured_run(copy, "logits", 0, beside, MOST);
    assert_ok(low_rank_merge(&low_rank, model->graph, diag), diag);
    configured_run(model, "logits", 0, merged, MOST);
    double largest = 0;
    for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(merged[i]));
    assert_true(largest_difference(was, merged, count) > 1e-3);
    const double bound =
        configured_terms(model, "logits") * 0.5 * FLT_EPSILON * fmax(1, largest);
    if (!(largest_difference(beside, merged, count) <= bound))
        fail_msg("merged: %g, bound %g", largest_difference(beside, merged, count),
                 bound);
    model_destroy(copy);
    model_destroy(model);
    diag_destroy(diag);
}

/* ---- no memory ---- */

typedef struct Merging {
    LowRank low_rank;
    Model *model;
} Merging;

static Status merge(void *self, Diag *diag) {
    Merging *merging = self;
    return low_rank_merge(&merging->low_rank, merging->model->graph, diag);
}

/* A merged matrix has 4 MiB, and its two factors have 8 MiB each in double. */
static void test_starved(void **state) {
    (void)state;
    if (!can_starve()) skip();
    enum { WIDTH = 1024 };
    const TrainOptions options = {.low_rank = WIDTH};
    Diag *diag = diag_create();
    Merging merging = {.model = configured_model(
                           "{model_type: gpt2, architectures: [GPT2LMHeadModel], n_embd: "
                           "1024, n_layer: 1, n_inner: 4, n_head: 2, vocab_size: 12, "
                           "n_positions: 16}",
                           1)};
    PassContext ctx = {.ops = ops_table(),
                       .arena = merging.model->arena,
                       .record = tree_new(merging.model->arena, TREE_MAP, LOC_NONE)};
    Model *copy = model_copy(merging.model);
    assert_ok(low_rank_add(&merging.low_rank, &ctx, copy->graph, merging.model->graph,
                           &options, diag),
              diag);
    const size_t mib = 1 << 20;
    assert_starves(6 * mib, merge, &merging);  /* not for the first factor, */
    assert_starves(13 * mib, merge, &merging); /* nor for the second one */
    model_destroy(copy);
    model_destroy(merging.model);
    diag_destroy(diag);
}

#define GPT2                                                                             \
    "{model_type: gpt2, architectures: [GPT2LMHeadModel], n_embd: 8, n_layer: 2,\n"      \
    " n_head: 2, vocab_size: 12, n_positions: 16, initializer_range: 0.3}\n"
#define ALBERT                                                                           \
    "{model_type: albert, architectures: [AlbertForSequenceClassification],\n"           \
    " embedding_size: 4, hidden_size: 8, num_hidden_layers: 3,\n"                        \
    " num_attention_heads: 2, intermediate_size: 16, vocab_size: 12,\n"                  \
    " max_position_embeddings: 16, initializer_range: 0.3}\n"

/* Matrices stored [outputs, inputs] and [inputs, outputs], wide and high, and one that
 * three layers share. */
static void test_merged(void **state) {
    (void)state;
    TrainOptions options = train_defaults;
    options.low_rank = 3;
    check_merged(configured_bert(2, 1), &options, 8);
    options.low_rank_alpha = 12;
    check_merged(configured_model(GPT2, 2), &options, 8);
    check_merged(configured_model(ALBERT, 3), &options, 4);
    options.only = (StringList){(const char *[]){"*intermediate*", "*output.dense*"}, 2};
    check_merged(configured_bert(2, 4), &options, 6);
    options.only = (StringList){(const char *[]){"*c_fc*", "*c_proj*"}, 2};
    check_merged(configured_model(GPT2, 5), &options, 6);
}

/* ---- two steps ---- */

#define MATRIX "vit.encoder.layer.0.attention.attention.query.weight"
#define STEP                                                                             \
    "data: toy, batch_size: 60, optimizer: sgd, momentum: 0, weight_decay: 0, clip: 0, " \
    "schedule: constant, warmup: 0, dropout: 0, only: [" MATRIX "], "

enum { SIDE = 16, RANK = 2, NUMBERS = SIDE * SIDE };

static void read_matrix(const Model *model, double *out) {
    tensor_read_f64(storage_tensor(graph_storage(model->graph, MATRIX)), 0, NUMBERS, out);
}

static void finetune(Model *model, const char *options) {
    char yaml[1024];
    Diag *diag = diag_create();
    snprintf(yaml, sizeof yaml,
             "version: 1\nseed: 1\ndata: {toy: {format: toy}}\npasses:\n"
             "  - finetune: {" STEP "%s}\n",
             options);
    assert_ok(test_run_recipe(model, "test", yaml, false, 2, diag), diag);
    diag_destroy(diag);
}

/* The gradient of the loss by the matrix: W less what a step at a rate of 1000 leaves. */
static void gradient(const Model *model, double *g) {
    double w[NUMBERS];
    Model *copy = model_copy((Model *)(uintptr_t)model);
    read_matrix(copy, w);
    finetune(copy, "steps: 1, lr: 1000");
    read_matrix(copy, g);
    for (int i = 0; i < NUMBERS; i++) g[i] = (w[i] - g[i]) / 1000;
    model_destroy(copy);
}

/* a += by * g[SIDE, SIDE]^T-or-not times the other factor: see test_steps. */
static void step_factors(double up[SIDE][RANK], double down[RANK][SIDE], const double *g,
                         double by) {
    double d_up[SIDE][RANK] = {{0}}, d_down[RANK][SIDE] = {{0}};
    for (int m = 0; m < SIDE; m++)
        for (int k = 0; k < SIDE; k++)
            for (int r = 0; r < RANK; r++) {
                d_up[m][r] += g[m * SIDE + k] * down[r][k];
                d_down[r][k] += up[m][r] * g[m * SIDE + k];
            }
    for (int m = 0; m < SIDE; m++)
        for (int r = 0; r < RANK; r++) up[m][r] -= by * d_up[m][r];
    for (int r = 0; r < RANK; r++)
        for (int k = 0; k < SIDE; k++) down[r][k] -= by * d_down[r][k];
}

/* The largest difference of the model's matrix from w + s up down; *change: of the latter
 * from w. */
static double off(const Model *model, const double *w, double s, double up[SIDE][RANK],
                  double down[RANK][SIDE], double *change) {
    double found[NUMBERS], largest = 0;
    read_matrix(model, found);
    *change = 0;
    for (int i = 0; i < NUMBERS; i++) {
        double more = 0;
        for (int r = 0; r < RANK; r++) more += s * up[i / SIDE][r] * down[r][i % SIDE];
        *change = fmax(*change, fabs(more));
        largest = fmax(largest, fabs(found[i] - w[i] - more));
    }
    return largest;
}

/* By the chain rule dB = s G A^T and dA = s B^T G with G the gradient by the matrix
 * itself, taken where it stands: at W first, at what one step merged to then. */
static void test_steps(void **state) {
    (void)state;
    const double s = 8.0 / RANK, lr = 0.2;
    double w[NUMBERS], g[NUMBERS], up[SIDE][RANK] = {{0}}, down[RANK][SIDE], change;
    Model *start = toy_vit(1), *one = toy_vit(1), *two = toy_vit(1);
    const char *name = "vit.encoder.layer.0.attention.attention.query_down.weight";
    const uint64_t key = random_key_name(random_key(1, 0), name);
    for (int i = 0; i < RANK * SIDE; i++)
        down[i / SIDE][i % SIDE] = (float)(random_normal(key, (uint64_t)i) / sqrt(SIDE));
    finetune(one, "steps: 1, lr: 0.2, low_rank: 2, low_rank_alpha: 8");
    finetune(two, "steps: 2, lr: 0.2, low_rank: 2, low_rank_alpha: 8");
    read_matrix(start, w);
    gradient(start, g);
    step_factors(up, down, g, lr * s);
    /* Gradients are sums in float of up to some 10^4 terms. */
    double difference = off(one, w, s, up, down, &change);
    if (!(difference < 1e-3 * change)) fail_msg("step 1: %g of %g", difference, change);
    gradient(one, g);
    step_factors(up, down, g, lr * s);
    difference = off(two, w, s, up, down, &change);
    if (!(difference < 1e-3 * change)) fail_msg("step 2: %g of %g", difference, change);
    model_destroy(start);
    model_destroy(one);
    model_destroy(two);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merged),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_starved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
