/* Text windows: which tokens of a text are predicted, and from what, against the rule
 * said token by token. */
#include "io/datasets/text_windows.h"
#include "tests/support/check.h"

enum { TOKENS_MOST = 24, LENGTH_MOST = 9 };

/* The window that predicts token k, -1 = none: the first one that has it and a token
 * before it. */
static int64_t predicting(int64_t k, int64_t length, int64_t stride) {
    for (int64_t begin = 0; begin < k; begin += stride)
        if (k < begin + length) return begin / stride;
    return -1;
}

/* Counts how often a window predicts each token, and checks what it is predicted from. */
static void count_window(const Batches *data, int64_t window, int64_t stride,
                         int *predicted, int64_t *by) {
    int32_t ids[16], mask[16], labels[16];
    void *row[] = {ids, mask, labels};
    Diag *diag = diag_create();
    const int64_t length = data->length(data, window);
    const Fetch what = {.index = &window, .n = 1, .tokens = length + 2};
    assert_ok(data->fetch(data, &what, row, diag), diag);
    for (int64_t t = 0; t < what.tokens; t++) {
        assert_int_equal(mask[t], t < length);
        assert_int_equal(ids[t], t < length ? 100 + window * stride + t : 0);
        if (labels[t] == INDEX_SKIP) continue;
        assert_true(t < length);
        assert_int_equal(labels[t], ids[t] + 1);
        predicted[labels[t] - 100]++;
        by[labels[t] - 100] = window;
    }
    diag_destroy(diag);
}

static void check_windows(const int32_t *tokens, int64_t count, int64_t length,
                          int64_t stride) {
    int predicted[TOKENS_MOST] = {0};
    int64_t by[TOKENS_MOST] = {0};
    Batches *data = text_windows_create("text", tokens, count, length, stride);
    assert_true(data->max_tokens < length);
    for (int64_t w = 0; w < data->count; w++) {
        assert_in_range(data->length(data, w), 1, data->max_tokens);
        count_window(data, w, stride, predicted, by);
    }
    for (int64_t k = 0; k < count; k++) {
        const int64_t window = predicting(k, length, stride);
        assert_int_equal(predicted[k], window >= 0);
        if (window >= 0) assert_int_equal(by[k], window);
        if (window > 0 && stride < length) /* from at least so many tokens */
            assert_true(k - window * stride >= length - stride);
    }
    batches_destroy(data);
}

static void test_rule(void **state) {
    (void)state;
    int32_t tokens[TOKENS_MOST];
    for (int k = 0; k < TOKENS_MOST; k++) tokens[k] = 100 + k;
    for (int64_t count = 2; count <= TOKENS_MOST; count++)
        for (int64_t length = 2; length <= LENGTH_MOST; length++)
            for (int64_t stride = 1; stride <= length; stride++)
                check_windows(tokens, count, length, stride);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rule)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
