/* What ops refuse, and how they say it. */
#include "tests/exec/grad_harness.h"

/* Calls that infer refuses, and a part of what it says. */
static const struct {
    Case call;
    const char *says;
} REFUSED[] = {
    {{"patches", "size=4", "2x3x8"}, "patches: operand 'x': expected rank 4"},
    {{"patches", "size=5", "2x3x8x8"}, "multiple of the patch size 5"},
    {{"patches", "", "2x3xTx16"},
     "a number above 0 as dimension 2, found f32[2, 3, T, 16]"},
    {{"linear", "", "3x5 7x4 7"}, "operand 'weight': expected 5"},
    {{"linear", "", "3x5 7x5 6"}, "operand 'bias': expected f32[7], found f32[6]"},
    {{"linear", "", "3xT 7x5 7"}, "operand 'x'"},
    {{"linear", "", "3x5 7xT 7"}, "operand 'weight'"},
    {{"linear", "", "3x5 5 -"}, "operand 'weight': expected a rank of 2 to 6"},
    {{"linear", "", "scalar 5x1 -"}, "operand 'x'"},
    {{"linear", "", "i3x5 7x5 7"}, "'x' must be f32"},
    {{"linear", "", "3x5"}, "'weight' is missing"},
    {{"linear", "transposed=true", "3x5 7x5 5"}, "operand 'weight': expected 5"},
    {{"linear", "transposed=true", "3x5 5x7 5"},
     "operand 'bias': expected f32[7], found f32[5]"},
    {{"linear", "transposed=true", "3x4 4x5x1 5"}, "operand 'weight': expected rank 2"},
    {{"linear", "transposed=true", "3x5 5xT -"}, "operand 'weight'"},
    {{"linear", "transposed=true", "3xT Tx5 -"}, "operand 'x'"},
    {{"scale_gradient", "by=nan", "3x5"}, "by"},
    {{"softmax", "temperature=0.0", "3x5"}, "temperature"},
    {{"softmax", "", "scalar"}, "operand 'x'"},
    {{"add", "", "3x5 5"}, "operand 'b': expected rank 2, found f32[5]"},
    {{"add", "", "3x5 3x4"}, "expected 5 (as in a) or 1 as dimension 1"},
    {{"add", "", "NxTx5 NxSx5"}, "expected T (as in a) or 1 as dimension 1"},
    {{"add", "", "1x5 3x5"}, "expected 1 (as in a)"},
    {{"layer_norm", "", "3x5 4 5"}, "operand 'weight': expected f32[5], found f32[4]"},
    {{"layer_norm", "", "3x5 5 1x5"}, "operand 'bias'"},
    {{"layer_norm", "", "3xT T T"}, "operand 'x'"},
    {{"layer_norm", "eps=0.0", "3x5 5 5"}, "eps"},
    {{"activation", "fn=swish", "3x5"}, "fn"},
    {{"dropout", "rate=1.0", "3x5"}, "rate"},
    {{"dropout", "rate=-0.1", "3x5"}, "rate"},
    {{"depthwise_conv", "grid_h=2 grid_w=3", "2x7x4 4x1x3x3 4"}, "expected 6"},
    {{"depthwise_conv", "grid_h=2 grid_w=3", "2x6x4 4x1x2x2 4"}, "odd kernel"},
    {{"depthwise_conv", "grid_h=2 grid_w=3", "2x6x4 5x1x3x3 4"}, "operand 'weight'"},
    {{"depthwise_conv", "grid_h=2 grid_w=3", "2x6x4 4x1x3x3 5"}, "operand 'bias'"},
    {{"depthwise_conv", "grid_h=2 grid_w=3", "2xTx4 4x1x3x3 4"}, "operand 'x'"},
    {{"prepend_token", "", "2x3x4 1x1x5"}, "operand 'token'"},
    {{"prepend_token", "", "NxTx4 1x1x4"}, "operand 'x': expected a number"},
    {{"slice_tokens", "from=3", "2x3x4"}, "more than 3 tokens"},
    {{"slice_tokens", "from=1", "NxTx4"}, "more than 1 tokens"},
    {{"slice_tokens", "from=-1", "2x3x4"}, "from"},
    {{"select_token", "index=3", "2x3x4"}, "more than 3 tokens"},
    {{"select_token", "", "2x3"}, "rank 3"},
    {{"gather_tokens", "", "2x3 i2x3<3"}, "operand 'x': expected rank 3"},
    {{"gather_tokens", "", "2x3x4 i2<3"}, "operand 'positions': expected rank 2"},
    {{"gather_tokens", "", "2x3x4 i3x2<3"}, "operand 'positions': expected 2"},
    {{"gather_tokens", "", "2x3x4 2x2"}, "operand 'positions' must be i32"},
    {{"mean_tokens", "", "2x3"}, "rank 3"},
    {{"attention", "heads=3", "2x5x8 2x5x8 2x5x8"}, "heads"},
    {{"attention", "", "2x5x8 2x5x9 2x5x8"}, "operand 'k'"},
    {{"attention", "", "2x5x8 2x5x8 2x6x8"}, "operand 'v'"},
    {{"attention", "", "2x5x8 2x5x8 2x5x8 m2x4"}, "operand 'mask'"},
    {{"attention", "", "2x5x8 2x5x8 2x5x8 - 2x5x5"}, "operand 'bias'"},
    {{"attention", "heads=2 grid_h=2 grid_w=3", "2x6x8 2x6x8 2x6x8 - - - - - 15x3"},
     "operand 'rel_bias'"},
    {{"attention", "heads=2 grid_h=2 grid_w=3", "2x7x8 2x7x8 2x7x8 - - - - - 15x2"},
     "grid_h, grid_w, skip"},
    {{"attention", "grid_h=3 grid_w=3 window=2", "2x9x8 2x9x8 2x9x8"},
     "a grid of 3 x 3 in windows of 2 to have as many tokens as queries and keys, found 9 "
     "and 9"},
    {{"attention", "grid_h=2 grid_w=2 window=2 shift=2", "2x4x8 2x4x8 2x4x8"}, "shift"},
    {{"attention", "grid_h=2 grid_w=2 shift=1", "2x4x8 2x4x8 2x4x8"}, "shift"},
    {{"attention", "grid_h=2 grid_w=2 window=2 causal=true", "2x4x8 2x4x8 2x4x8"},
     "causal=false"},
    {{"attention", "grid_h=2 grid_w=2 window=2 skip=1", "2x4x8 2x4x8 2x4x8"}, "skip=0"},
    {{"attention", "grid_h=4 grid_w=2 window=2", "2x8x8 2x8x8 2x8x8 - 1x8x8"},
     "operand 'bias'"},
    {{"attention", "grid_h=4 grid_w=2 window=2", "2x8x8 2x8x8 2x8x8 - - - - - 21x1"},
     "operand 'rel_bias'"},
    {{"window_partition", "grid_h=3 grid_w=3 window=2", "2x8x8"}, "operand 'x'"},
    {{"window_partition", "grid_h=3 grid_w=3 window=2 shift=2", "2x9x8"}, "shift"},
    {{"window_partition", "grid_h=3 grid_w=3 window=2", "2x9"}, "operand 'x'"},
    {{"window_reverse", "grid_h=3 grid_w=3 window=2", "2x9x8"}, "operand 'x'"},
    {{"patch_merging", "grid_h=3 grid_w=3", "2x8x8"}, "operand 'x'"},
    {{"attention", "heads=4 kv_heads=3", "2x5x8 2x5x6 2x5x6"},
     "kv_heads: expected a number that divides heads=4, or 0 for as many, found 3"},
    {{"attention", "heads=4 kv_heads=2", "2x5x8 2x5x8 2x5x4"},
     "operand 'k': expected 4 (kv_heads heads as wide as q's) as dimension 2"},
    {{"attention", "heads=4 kv_heads=2", "2x5x8 2x5x4 2x5x5"},
     "operand 'v': expected a last dimension that kv_heads=2 divides"},
    {{"attention", "heads=4 kv_heads=2", "2x5x8 2x5x4 2x5x4 - - - 4x4"},
     "operand 'mix_before': expected no mixing of heads that share keys and values "
     "(kv_heads=2, heads=4)"},
    {{"attention", "heads=2 kv_heads=1", "2x5x8 2x5x4 2x5x4 - - - - 2x2"},
     "operand 'mix_after': expected no mixing"},
    {{"attention", "heads=2", "2x5x8 2x5x8 2x5x8 - - - 2x2 - - - 2"},
     "operand 'mix_after_bias': expected mix_after beside it"},
    {{"attention", "heads=2", "2x5x8 2x5x8 2x5x8 - - - 2x2 - - 3 -"},
     "operand 'mix_before_bias': expected f32[2], found f32[3]"},
    {{"feature_map", "heads=3", "2x5x8"},
     "operand 'x': expected a last dimension that heads=3 divides"},
    {{"feature_map", "heads=2", "2x5x8 2x3x5"},
     "operand 'weight': expected 4 (the width of a head of x) as dimension 2"},
    {{"feature_map", "heads=3", "2x5x6 2x4x2"}, "a first dimension that divides heads=3"},
    {{"feature_map", "heads=2", "2x5x8 2x3x4 3x2"},
     "operand 'bias': expected f32[2, 3], found f32[3, 2]"},
    {{"feature_map", "heads=2", "2x5x8 - 2x4"}, "operand 'bias': expected a weight"},
    {{"feature_map", "fn=exp", "2x5x8"}, "fn"},
    {{"linear_attention", "heads=2", "2x5x8 2x7x6 2x7x4"}, "operand 'k': expected 8"},
    {{"linear_attention", "heads=2", "2x5x8 2x7x8 2x6x4"},
     "operand 'v': expected 7 (the tokens of k) as dimension 1"},
    {{"linear_attention", "heads=4 kv_heads=2", "2x5x8 2x7x4 2x7x5"}, "kv_heads=2"},
    {{"linear_attention", "", "2x5x8 2x7x8 2x7x4 m2x5"}, "operand 'mask'"},
    {{"linear_attention", "eps=0.0", "2x5x8 2x7x8 2x7x4"}, "eps"},
    {{"linear_attention", "chunk=5000", "2x5x8 2x7x8 2x7x4"}, "chunk"},
    {{"attention_match", "heads=2", "2x5x8 2x7x8 2x5x6 2x6x6"},
     "operand 'teacher_k': expected 7 (the tokens of k) as dimension 1"},
    {{"attention_match", "heads=2", "2x5x8 2x7x8 2x5x5 2x7x5"},
     "operand 'teacher_q': expected a last dimension that heads=2 divides"},
    {{"attention_match", "eps=0.0", "2x5x8 2x7x8 2x5x6 2x7x6"}, "eps"},
    {{"cross_entropy", "", "5x7 i4<7"}, "operand 'labels'"},
    {{"cross_entropy", "", "5x7 5"}, "operand 'labels' must be i32"},
    {{"soft_cross_entropy", "", "5x7 5x8"}, "operand 'teacher'"},
    {{"gram_mse", "", "2x5x8 2x4x8"}, "operand 'teacher'"},
    {{"relation_cross_entropy", "", "2x5x8 2x5x8 2x5x6 2x5x7"}, "operand 'teacher_y'"},
    {{"weighted_sum", "weights=[1.0]", "scalar scalar"}, "weights"},
    {{"weighted_sum", "weights=[1.0]", "3"}, "operand 'x"},
};

static void test_infer_refuses(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof REFUSED / sizeof REFUSED[0]; i++) {
        const Case *c = &REFUSED[i].call;
        Problem p;
        const Status status = problem_create(&p, c);
        char *text = diag_text(p.diag);
        if (status != STATUS_MODEL || !strstr(text, REFUSED[i].says))
            fail_msg("%s [%s] (%s): status %d, said \"%s\", expected \"%s\"", c->op,
                     c->attrs, c->operands, status, text, REFUSED[i].says);
        free(text);
        problem_destroy(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_infer_refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
