/* Factoring the word embedding by how often words occur: counts by plain loops, the error
 * against what is left of the singular values of the weighted table, and rows that are
 * the nearest ones in the directions that were found. */
#include "exec/linalg/blas.h"
#include "tests/passes/factor_fixture.h"
#include "tests/support/exits.h"

#define CONFIG                                                                           \
    "{model_type: bert, architectures: [BertForSequenceClassification],\n"               \
    " hidden_size: 8, num_hidden_layers: 1, num_attention_heads: 2,\n"                   \
    " intermediate_size: 16, vocab_size: 14, max_position_embeddings: 16,\n"             \
    " num_labels: 3, initializer_range: 0.3}\n"
enum { FEW = 14, RANK = 3 };

/* Runs the pass on sentences of 12 words. */
static void factor_sentences(Model *model, const char *options) {
    Diag *diag = diag_create();
    char recipe[256];
    RecipeInputs inputs = {.data = sentence_batches(), .model = model};
    snprintf(recipe, sizeof recipe,
             "version: 1\nseed: 1\ndata: {d: {format: toy}}\npasses:\n"
             "  - factor_embedding: %s\n",
             options);
    assert_ok(run_with_inputs(&inputs, model, recipe, false, 2, diag), diag);
    batches_destroy(inputs.data);
    diag_destroy(diag);
}

/* How often each word is in the sentences, and how many there are. */
static double count_words(double counts[FEW]) {
    Batches *data = sentence_batches();
    Diag *diag = diag_create();
    double all = 0;
    for (int64_t s = 0; s < data->count; s++) {
        int32_t ids[64], mask[64], types[64], label;
        const Fetch what = {.index = &s, .n = 1, .tokens = data->length(data, s)};
        assert_ok(data->fetch(data, &what, (void *[]){ids, mask, types, &label}, diag),
                  diag);
        for (int64_t t = 0; t < what.tokens; t++, all++) counts[ids[t]]++;
    }
    diag_destroy(diag);
    batches_destroy(data);
    return all;
}

/* What is left of the squared singular values behind a rank, over all. */
static double tail_share(const double *table, const double *weights, int64_t rank) {
    double scaled[FEW * WIDTH], sigma[WIDTH], all = 0, rest = 0;
    for (int i = 0; i < FEW * WIDTH; i++) scaled[i] = table[i] * sqrt(weights[i / WIDTH]);
    assert_int_equal(singular_values_f64(FEW, WIDTH, scaled, sigma), 0);
    for (int64_t i = WIDTH - 1; i >= 0; i--) {
        all += sigma[i] * sigma[i];
        if (i >= rank) rest += sigma[i] * sigma[i];
    }
    return rest / all;
}

static void check_alpha(double alpha, const char *options) {
    Model *model = configured_model(CONFIG, 3);
    double counts[FEW] = {0}, weights[FEW], error = 0, norm = 0;
    double *table = elements(model, TABLE);
    const double all = count_words(counts);
    for (int v = 0; v < FEW; v++) weights[v] = pow(1 + counts[v], alpha);
    factor_sentences(model, options);
    assert_true(recorded(model, "words_counted") == all);
    assert_true(recorded(model, "rows_seen") == 12);
    const double least = sqrt(tail_share(table, weights, RANK));
    double *left = elements(model, TABLE), *right = elements(model, PROJECTION);
    for (int64_t v = 0; v < FEW; v++) {
        double rest[WIDTH];
        for (int64_t h = 0; h < WIDTH; h++) {
            rest[h] = table[v * WIDTH + h];
            for (int64_t r = 0; r < RANK; r++)
                rest[h] -= left[v * RANK + r] * right[h * RANK + r];
            error += weights[v] * rest[h] * rest[h];
            norm += weights[v] * table[v * WIDTH + h] * table[v * WIDTH + h];
        }
        for (int64_t r = 0; r < RANK; r++) { /* at right angles to the directions */
            double along = 0;
            for (int64_t h = 0; h < WIDTH; h++) along += rest[h] * right[h * RANK + r];
            assert_within(along, 0, 1e-6);
        }
    }
    assert_within(sqrt(error / norm), least, 1e-5);
    assert_within(recorded(model, "weighted_error"), least, 1e-5);
    free(table), free(left), free(right);
    model_destroy(model);
}

static void test_weighted(void **state) {
    (void)state;
    check_alpha(0.5, "{rank: 3, weight: frequency, data: d}");
    check_alpha(1, "{rank: 3, weight: frequency, data: d, alpha: 1}");
    check_alpha(3, "{rank: 3, weight: frequency, data: d, alpha: 3}");
}

/* Weights that are all 1 give what no weights give. */
static void test_equal(void **state) {
    (void)state;
    Model *model = configured_model(CONFIG, 3), *plain = configured_model(CONFIG, 3);
    factor_sentences(model, "{rank: 3, weight: frequency, data: d, alpha: 0}");
    factor_sentences(plain, "{rank: 3}");
    assert_true(recorded(model, "error") == recorded(plain, "error"));
    assert_true(recorded(model, "weighted_error") == recorded(model, "relative_error"));
    model_destroy(model);
    model_destroy(plain);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_weighted),
                                       cmocka_unit_test(test_equal)};
    return cmocka_run_group_tests_name("factoring by frequency", tests, NULL, NULL);
}
