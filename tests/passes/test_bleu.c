/* BLEU: tokens by 13a's rules, counts by hand, scores of an independent implementation.
 */
#include "passes/evaluate/bleu.h"

#include "tests/support/check.h"
#include "tests/support/rounding.h"

#include <math.h>
#include <string.h>

/* Scores are up to 100, of four logarithms and a few quotients. */
static void check_near(double got, double wanted) {
    assert_within(got, wanted,
                  rounding_tolerance(PRECISION_F64, 6 * FUNCTION_TERMS, 100));
}

/* --- tokens --- */

/* Expectations: the four substitutions of mteval-v13a, in Python's regular expressions.
 */
static void test_13a(void **state) {
    (void)state;
    static const struct {
        const char *text, *wanted;
    } CASES[] = {
        {"Hello, world!", "Hello , world !"},
        {"I'm tired... of 3.5 or 10,000.", "I'm tired . . . of 3.5 or 10,000 ."},
        {"a 20-year-old, e.g. this; (that) [x] {y} ~ `q`",
         "a 20 - year-old , e . g . this ; ( that ) [ x ] { y } ~ ` q `"},
        {"..,,..a,b.c 1.,2 3..4 5-,6 7--8",
         ". . , , . . a , b . c 1 . , 2 3 . . 4 5 - , 6 7 - -8"},
        {"&quot;Tom &amp; Jerry&quot; &lt;b&gt; &amp;lt;", "\" Tom & Jerry \" < b > <"},
        {"\u00ab\u0414\u0430\u00bb, \u2014 \u043e\u043d.\u00a0\u041d\u0443,\u0434\u0430 "
         ".5 5. 1.a a.1",
         "\u00ab\u0414\u0430\u00bb , \u2014 \u043e\u043d . \u041d\u0443 , \u0434\u0430 "
         ". 5 5 . 1 . a a . 1"},
        {"x<skipped>y $5 50% #1 @me a/b \\ ^ _ | = + * ?",
         "xy $ 5 50 % # 1 @ me a / b \\ ^ _ | = + * ?"},
        {"", ""},
        {"   ", ""},
        {"- -1 1- 1 -1", "- -1 1 - 1 -1"},
        {"a\u2003b\u3000c\u1680d\u200be\x1c"
         "f",
         "a b c d\u200be f"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        Text text = {0};
        bleu_tokens(&text, BLEU_13A, CASES[i].text);
        assert_string_equal(text.data ? text.data : "", CASES[i].wanted);
        text_free(&text);
    }
}

static void test_spaces(void **state) {
    (void)state;
    Text text = {0};
    bleu_tokens(&text, BLEU_SPACES, " a,b.  c\t&amp;\n");
    assert_string_equal(text.data, "a,b. c &amp;");
    text_free(&text);
}

/* --- counts --- */

static Bleu one(const char *translation, const char *reference) {
    Bleu bleu = {0};
    bleu_add(&bleu, BLEU_SPACES, translation, reference);
    return bleu;
}

/* Papineni et al.: "the" counts as often as the reference has it. */
static void test_clipping(void **state) {
    (void)state;
    const Bleu bleu = one("the the the the the the the", "the cat is on the mat");
    assert_true(bleu.correct[0] == 2 && bleu.total[0] == 7);
    assert_true(bleu.correct[1] == 0 && bleu.total[1] == 6 && bleu.total[3] == 4);
    assert_true(bleu.length == 7 && bleu.reference == 6 && bleu.sentences == 1);
}

/* Equal sentences score 100; half as long ones are punished by e^-1. */
static void test_by_hand(void **state) {
    (void)state;
    Bleu bleu = one("a b c d e", "a b c d e");
    BleuScore score = bleu_score(&bleu, BLEU_NONE);
    check_near(score.score, 100);
    check_near(score.penalty, 1);
    bleu = one("a b c d", "a b c d e f g h");
    score = bleu_score(&bleu, BLEU_NONE);
    check_near(score.penalty, exp(-1));
    check_near(score.score, 100 * exp(-1));
    bleu = one("a b c d x", "a b c d");
    score = bleu_score(&bleu, BLEU_NONE);
    check_near(score.penalty, 1);
    check_near(score.score, 100 * pow(4.0 / 5 * 3 / 4 * 2 / 3 * 1 / 2, 0.25));
}

/* Orders without a match, and sentences too short for an order. */
static void test_smoothing(void **state) {
    (void)state;
    const Bleu bleu = one("a b x y z", "a q b w e r"); /* 2/5 0/4 0/3 0/2 */
    const double penalty = exp(1 - 6.0 / 5);
    BleuScore score = bleu_score(&bleu, BLEU_EXP);
    check_near(score.precision[0], 40);
    check_near(score.precision[1], 100 / 8.0);
    check_near(score.precision[2], 100 / 12.0);
    check_near(score.precision[3], 100 / 16.0);
    check_near(score.score, penalty * 100 * pow(2.0 / 5 / 8 / 12 / 16, 0.25));
    score = bleu_score(&bleu, BLEU_FLOOR);
    check_near(score.score,
               penalty * 100 * pow(2.0 / 5 * 0.1 / 4 * 0.1 / 3 * 0.1 / 2, 0.25));
    assert_true(bleu_score(&bleu, BLEU_NONE).score == 0);
    const Bleu none = one("x y z w v", "a b c d e"), empty = one("", "a b"),
               shorter = one("a b c", "a b c");
    assert_true(bleu_score(&none, BLEU_EXP).score == 0);
    assert_true(bleu_score(&empty, BLEU_EXP).score == 0);
    assert_true(bleu_score(&empty, BLEU_EXP).penalty == 0);
    assert_true(bleu_score(&shorter, BLEU_EXP).score == 0);
    assert_true(bleu_score(&(Bleu){0}, BLEU_EXP).score == 0);
}

/* --- an independent implementation --- */

/* corpus_bleu of NLTK 3.8 on the same tokens; its smoothing methods 0, 1 (epsilon 0.1)
 * and 3 are none, floor and exp. */
static void test_nltk(void **state) {
    (void)state;
    static const char *const PAIRS[][2] = {
        {"the cat is on the mat", "the cat sat on the mat"},
        {"there is a dog in the garden", "there is a dog in the garden"},
        {"he opened the the the cages", "he opened the cages of birds"},
        {"i am tired of", "i am tired of listening to them"},
        {"when do you plan to do that now", "when do you plan to do that"}};
    Bleu bleu = {0};
    for (size_t i = 0; i < sizeof PAIRS / sizeof *PAIRS; i++)
        bleu_add(&bleu, BLEU_SPACES, PAIRS[i][0], PAIRS[i][1]);
    check_near(bleu_score(&bleu, BLEU_NONE).score, 67.1894092060422);
    bleu = one(PAIRS[0][0], PAIRS[0][1]);
    check_near(bleu_score(&bleu, BLEU_EXP).score, 37.99178428257963);
    check_near(bleu_score(&bleu, BLEU_FLOOR).score, 25.406637407730738);
}

static uint32_t random_state;

static uint32_t draw(uint32_t limit) {
    random_state = (random_state * 1103515245u + 12345u) % 2147483648u;
    return (random_state >> 16) % limit;
}

/* 200 random sentences of eight words, the translations with a third of them changed. */
static void test_nltk_random(void **state) {
    (void)state;
    Bleu bleu = {0};
    random_state = 12345;
    for (int i = 0; i < 200; i++) {
        char reference[64] = "", translation[64] = "";
        const uint32_t count = 6 + draw(20);
        for (uint32_t k = 0; k < count; k++)
            reference[2 * k] = (char)('a' + draw(8)), reference[2 * k + 1] = ' ';
        for (uint32_t k = 0; k < count; k++) {
            const bool keep = draw(10) < 7;
            translation[2 * k] = keep ? reference[2 * k] : (char)('a' + draw(8));
            translation[2 * k + 1] = ' ';
        }
        translation[2 * (count - draw(3))] = 0;
        bleu_add(&bleu, BLEU_SPACES, translation, reference);
    }
    assert_int_equal(bleu.sentences, 200);
    check_near(bleu_score(&bleu, BLEU_EXP).score, 45.947328752121344);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_13a),         cmocka_unit_test(test_spaces),
        cmocka_unit_test(test_clipping),    cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_smoothing),   cmocka_unit_test(test_nltk),
        cmocka_unit_test(test_nltk_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
