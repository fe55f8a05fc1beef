/* Masking in text data sets: how many, which and what becomes of them, against closed
 * forms and binomial bounds. */
#include "io/datasets/text_mask.h"
#include "tests/io/text_set.h"

#include <math.h>

enum { MOST = 256 };

/* One sample as fetched. */
typedef struct Sample {
    int32_t ids[MOST], mask[MOST], types[MOST], positions[MOST], labels[MOST], label;
} Sample;

#define MASK(share, rest)                                                                \
    "\"path\": \"a.txt\", \"table\": \"lines\", \"mask_share\": " share rest

static Sample sample_fetch(const Set *set, int64_t index, int64_t tokens, uint64_t key) {
    Sample out;
    memset(&out, 0x55, sizeof out);
    void *const dst[] = {out.ids,       out.mask,   out.types,
                         out.positions, out.labels, &out.label};
    const Fetch what = {.index = &index, .n = 1, .tokens = tokens, .mask_key = key};
    assert_ok(set->data->fetch(set->data, &what, dst, set->bench.diag), set->bench.diag);
    return out;
}

/* Ids of a sample before masking, [CLS] first; returns their number. */
static int64_t original_ids(const Set *set, const char *tokens, int32_t *ids) {
    char *list = arena_strdup(set->bench.arena, tokens), *left = NULL;
    int64_t length = 0;
    for (char *token = strtok_r(list, " ", &left); token;
         token = strtok_r(NULL, " ", &left))
        ids[length++] = tokenizer_find(set->bench.tokenizer, token);
    return length;
}

static bool is_special(const Set *set, int32_t id) {
    static const char *const NAMES[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    for (int i = 0; i < 5; i++)
        if (id == tokenizer_find(set->bench.tokenizer, NAMES[i])) return true;
    return false;
}

/* Writes a line of so many "the", and one more. */
static void put_words(int words) {
    Text text = {0};
    for (int i = 0; i < words; i++) text_add(&text, "the ");
    text_add(&text, "\nthe cat\n");
    put("a.txt", text.data);
    text_free(&text);
}

/* --- columns and counts --- */

static void test_columns(void **state) {
    (void)state;
    static const char *const NAMES[] = {"input_ids",      "attention_mask",
                                        "token_type_ids", "masked_positions",
                                        "masked_labels",  "labels"};
    put("a.tsv", "sentence\tlabel\nthe cat\t1\nmat\t0\n");
    Set set = set_open("\"path\": \"a.tsv\", \"mask_share\": 0.15");
    assert_int_equal(set.data->column_count, 6);
    for (int i = 0; i < 6; i++) assert_int_equal(batches_column(set.data, NAMES[i]), i);
    for (int i = 3; i < 5; i++) {
        const Type *type = &set.data->columns[i].type;
        assert_true(type->dtype == DTYPE_I32 && type->rank == 1 && type->dim[0] == DIM_M);
    }
    assert_int_equal(sample_fetch(&set, 0, 8, 1).label, 1);
    assert_int_equal(sample_fetch(&set, 1, 8, 1).label, 0);
    set_close(&set);
    set = set_open("\"path\": \"a.tsv\", \"mask_share\": 0.15, \"label\": \"\"");
    assert_int_equal(set.data->column_count, 5);
    assert_int_equal(batches_column(set.data, "masked_labels"), 4);
    assert_int_equal(sample_fetch(&set, 0, 8, 1).label, 0x55555555);
    set_close(&set);
    set = set_open("\"path\": \"a.tsv\"");
    assert_int_equal(set.data->column_count, 4);
    assert_int_equal(batches_column(set.data, "masked_positions"), -1);
    assert_null(set.data->masked);
    set_close(&set);
}

static void test_counts(void **state) {
    (void)state;
    static const struct {
        double share;
        int64_t candidates, count;
    } COUNTS[] = {{0.15, 0, 0},  {0.15, 1, 1},    {0.15, 9, 1},    {0.15, 10, 2},
                  {0.15, 16, 2}, {0.15, 17, 3},   {0.15, 126, 19}, {0.15, 510, 77},
                  {0.5, 1, 1},   {0.5, 3, 2},     {0.5, 4, 2},     {1, 7, 7},
                  {1e-9, 5, 1},  {0.001, 499, 1}, {0.001, 1500, 2}};
    for (size_t i = 0; i < sizeof COUNTS / sizeof *COUNTS; i++) {
        const TextMask mask = {.share = COUNTS[i].share, .reserved = 2};
        const int64_t candidates = COUNTS[i].candidates, count = COUNTS[i].count;
        assert_int_equal(text_mask_count(&mask, candidates), count);
        assert_int_equal(text_mask_most(&mask, candidates + 2), count ? count : 1);
        for (int64_t tokens = 0, before = 1, now; tokens < 700; tokens++, before = now) {
            now = text_mask_most(&mask, tokens);
            assert_true(now >= before && now <= (tokens > 3 ? tokens - 2 : 1));
        }
    }
}

/* --- which --- */

/* What must hold of sample `index`, whose tokens are `tokens` before masking. */
static void check_masked(const Set *set, int64_t index, const char *tokens, double share,
                         int64_t padded, uint64_t key) {
    int32_t was[MOST];
    const int64_t length = original_ids(set, tokens, was);
    const int64_t most = set->data->masked(set->data, padded);
    const Sample got = sample_fetch(set, index, padded, key);
    int64_t candidates = 0, wanted, n = 0;
    for (int64_t i = 0; i < length; i++) candidates += !is_special(set, was[i]);
    wanted = candidates ? (int64_t)fmax(1, floor(share * (double)candidates + 0.5)) : 0;
    assert_int_equal(set->data->length(set->data, index), length);
    assert_true(wanted <= most && most < MOST);
    for (; n < wanted; n++) {
        const int32_t at = got.positions[n];
        assert_in_range(at, n ? got.positions[n - 1] + 1 : 1, length - 1);
        assert_false(is_special(set, was[at]));
        assert_int_equal(got.labels[n], was[at]);
        assert_in_range(got.ids[at], 0, tokenizer_size(set->bench.tokenizer) - 1);
        was[at] = got.ids[at]; /* all others are as they were */
    }
    for (; n < most; n++)
        assert_true(got.positions[n] == 0 && got.labels[n] == INDEX_SKIP);
    assert_true(got.positions[n] == 0x55555555 && got.labels[n] == 0x55555555);
    for (int64_t i = 0; i < padded; i++) {
        assert_int_equal(got.ids[i], i < length ? was[i] : 0);
        assert_int_equal(got.mask[i], i < length);
    }
}

static const char *const TOKENS[] = {
    "[CLS] the cat sat on the mat [SEP]", "[CLS] cat [SEP]",
    "[CLS] [SEP] [MASK] [UNK] cat [CLS] [SEP]", "[CLS] [UNK] [SEP]",
    "[CLS] the cat sat on the mat the cat sat on un ##happy mat , the cat [SEP]"};

static void test_samples(void **state) {
    (void)state;
    put("a.txt", "the cat sat on the mat\ncat\n[SEP] [MASK] \xe2\x98\x83 cat [CLS]\n"
                 "\xe2\x98\x83\nthe cat sat on the mat the cat sat on unhappy mat, "
                 "the cat\n");
    static const char *const SHARES[] = {"0.15", "0.5", "1", "1e-6"};
    for (int s = 0; s < 4; s++) {
        char rest[128];
        snprintf(rest, sizeof rest, MASK("%s", ""), SHARES[s]);
        Set set = set_open(rest);
        for (int i = 0; i < 5; i++)
            for (uint64_t key = 0; key < 200; key++)
                check_masked(&set, i, TOKENS[i], atof(SHARES[s]), key % 2 ? 18 : 24, key);
        set_close(&set);
    }
}

static void test_pairs(void **state) {
    (void)state;
    put("p.tsv", "a\tb\nthe cat\tsat\nthe\tthe cat sat on mat\n");
    Set set = set_open("\"path\": \"p.tsv\", \"sentence\": \"a\", \"sentence2\": \"b\","
                       " \"label\": \"\", \"mask_share\": 0.5, \"max_length\": 8");
    assert_int_equal(set.data->masked(set.data, 8), 3); /* 0.5 of 8 - 3, rounded */
    for (uint64_t key = 0; key < 200; key++) {
        check_masked(&set, 0, "[CLS] the cat [SEP] sat [SEP]", 0.5, 8, key);
        check_masked(&set, 1, "[CLS] the [SEP] the cat sat on [SEP]", 0.5, 8, key);
        assert_int_equal(sample_fetch(&set, 0, 8, key).types[4], 1);
    }
    set_close(&set);
}

/* The first token stays, whatever it is: 0 stands for a filler. */
static void test_first(void **state) {
    (void)state;
    const TextMask mask = {.share = 1,
                           .replace = 1,
                           .specials = {0, 1, 2, 3, 4},
                           .vocabulary = 20,
                           .reserved = 1};
    int32_t ids[4] = {10, 11, 12, 13}, positions[4], labels[4];
    text_mask_apply(&mask, 1, ids, 1, positions, labels, 1);
    assert_true(ids[0] == 10 && positions[0] == 0 && labels[0] == INDEX_SKIP);
    text_mask_apply(&mask, 1, ids, 4, positions, labels, 4);
    assert_int_equal(ids[0], 10);
    for (int i = 1; i < 4; i++) {
        assert_int_equal(ids[i], 4);
        assert_int_equal(positions[i - 1], i);
        assert_int_equal(labels[i - 1], 10 + i);
    }
    assert_true(positions[3] == 0 && labels[3] == INDEX_SKIP);
}

/* Whether a count out of n draws of probability p is within 4 standard deviations. */
static void check_share(int64_t count, int64_t n, double p) {
    const double mean = (double)n * p, sigma = sqrt(mean * (1 - p));
    if (fabs((double)count - mean) > 4 * sigma)
        fail_msg("expected %g +- %g, found %lld", mean, sigma, (long long)count);
}

/* Two of five: each of the ten pairs is as likely. */
static void test_uniform(void **state) {
    (void)state;
    enum { DRAWS = 20000 };
    int64_t pairs[6][6] = {{0}};
    put("a.txt", "the cat sat on mat\n");
    Set set = set_open(MASK("0.4", ""));
    for (uint64_t key = 1; key <= DRAWS; key++) {
        const Sample got = sample_fetch(&set, 0, 7, key);
        pairs[got.positions[0]][got.positions[1]]++;
    }
    for (int a = 1; a < 6; a++)
        for (int b = a + 1; b < 6; b++) check_share(pairs[a][b], DRAWS, 0.1);
    set_close(&set);
}

/* --- what becomes of them --- */

/* Counts what 100 x `keys` chosen "the" become: token[id]. */
static void count_tokens(const char *rest, uint64_t keys, int64_t *token) {
    put_words(200);
    char all[256];
    snprintf(all, sizeof all, MASK("0.5", ", \"max_length\": 250%s"), rest);
    Set set = set_open(all);
    for (uint64_t key = 1; key <= keys; key++) {
        const Sample got = sample_fetch(&set, 0, 202, key);
        for (int i = 0; i < 100; i++) token[got.ids[got.positions[i]]]++;
    }
    set_close(&set);
}

static void test_shares(void **state) {
    (void)state;
    enum { KEYS = 400, DRAWS = 100 * KEYS };
    static const struct {
        const char *options;
        double replace, random;
    } CASES[] = {{"", 0.8, 0.1},
                 {", \"mask_replace\": 0.3, \"mask_random\": 0.7", 0.3, 0.7},
                 {", \"mask_replace\": 0, \"mask_random\": 0.5", 0, 0.5},
                 {", \"mask_replace\": 1, \"mask_random\": 0", 1, 0},
                 {", \"mask_replace\": 0, \"mask_random\": 0", 0, 0}};
    Bench bench = bench_open(TEXT_DATA "vocab.txt");
    const int32_t size = tokenizer_size(bench.tokenizer);
    const int32_t the = tokenizer_find(bench.tokenizer, "the");
    const int32_t mask = tokenizer_specials(bench.tokenizer)->mask;
    for (size_t c = 0; c < sizeof CASES / sizeof *CASES; c++) {
        const double replace = CASES[c].replace, random = CASES[c].random;
        int64_t token[MOST] = {0}, others = 0;
        assert_true(size < MOST);
        count_tokens(CASES[c].options, KEYS, token);
        check_share(token[mask], DRAWS, replace + random / size);
        check_share(token[the], DRAWS, 1 - replace - random + random / size);
        for (int32_t id = 0; id < size; id++)
            if (id != mask && id != the) others += token[id];
        check_share(others, DRAWS, random * (size - 2) / size);
        const double mean = (double)others / (size - 2); /* each other one as likely */
        double chi = 0;
        for (int32_t id = 0; id < size && others; id++)
            if (id != mask && id != the)
                chi += ((double)token[id] - mean) * ((double)token[id] - mean) / mean;
        assert_true(chi < size + 4 * sqrt(2.0 * size));
    }
    bench_close(&bench);
}

/* --- keys --- */

static bool same_masks(const Sample *a, const Sample *b, int64_t masked) {
    const size_t bytes = (size_t)masked * sizeof *a->positions;
    return memcmp(a->positions, b->positions, bytes) == 0 &&
           memcmp(a->labels, b->labels, bytes) == 0;
}

/* Another key or sample gives other masks, the same ones the same, 0 among them. */
static void test_keys(void **state) {
    (void)state;
    put_words(100);
    Set set = set_open(MASK("0.2", ", \"max_length\": 128"));
    Sample first[20];
    for (uint64_t key = 0; key < 20; key++) {
        first[key] = sample_fetch(&set, 0, 102, key);
        const Sample again = sample_fetch(&set, 0, 102, key);
        assert_memory_equal(&again, &first[key], sizeof again);
        const Sample wider = sample_fetch(&set, 0, 120, key);
        assert_true(same_masks(&wider, &first[key], 20));
        assert_memory_equal(wider.ids, first[key].ids, 102 * sizeof *wider.ids);
        for (uint64_t other = 0; other < key; other++)
            assert_false(same_masks(&first[other], &first[key], 20));
    }
    set_close(&set);
    set = set_open(MASK("0.2", ", \"max_length\": 128"));
    for (uint64_t key = 0; key < 20; key++) { /* another opening, the same masks */
        const Sample again = sample_fetch(&set, 0, 102, key);
        assert_memory_equal(&again, &first[key], sizeof again);
    }
    set_close(&set);
}

/* A batch holds what its samples are alone; the key of augmentation does not matter. */
static void test_batch(void **state) {
    (void)state;
    enum { N = 3, TOKENS_N = 8 };
    put("a.txt", "the cat sat on\nthe cat sat on\nmat\n");
    Set set = set_open(MASK("0.6", ""));
    const int64_t most = set.data->masked(set.data, TOKENS_N), index[N] = {2, 1, 0};
    assert_int_equal(most, 4);
    bool differ = false;
    for (uint64_t key = 0; key < 50; key++) {
        int32_t ids[N * TOKENS_N], mask[N * TOKENS_N], types[N * TOKENS_N];
        int32_t positions[N * 4], labels[N * 4];
        void *const dst[] = {ids, mask, types, positions, labels};
        const Fetch what = {index, N, TOKENS_N, .key = 7, .mask_key = key};
        assert_ok(set.data->fetch(set.data, &what, dst, set.bench.diag), set.bench.diag);
        for (int i = 0; i < N; i++) {
            const Sample alone = sample_fetch(&set, index[i], TOKENS_N, key);
            assert_memory_equal(ids + i * TOKENS_N, alone.ids, TOKENS_N * sizeof *ids);
            assert_memory_equal(positions + i * 4, alone.positions, 4 * sizeof *ids);
            assert_memory_equal(labels + i * 4, alone.labels, 4 * sizeof *ids);
        }
        differ |= memcmp(positions + 4, positions + 8, 4 * sizeof *positions) != 0;
    }
    assert_true(differ); /* samples of the same text */
    set_close(&set);
}

/* --- what is refused --- */

static void test_bad(void **state) {
    (void)state;
    put("a.txt", "the cat\n");
    refuse(MASK("1.5", ""), STATUS_RECIPE, "mask_share|between 0 and 1");
    refuse(MASK("-0.1", ""), STATUS_RECIPE, "mask_share|between 0 and 1");
    refuse(MASK("0.15", ", \"mask_replace\": 0.8, \"mask_random\": 0.3"), STATUS_RECIPE,
           "mask_random: expected at most 1|0.8 + 0.3");
    refuse(MASK("0.15", ", \"mask_random\": 2"), STATUS_RECIPE, "mask_random");
    put("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\ncat\n");
    char file[300];
    snprintf(file, sizeof file, "%s/vocab.txt", folder);
    set_tokenizer = file;
    refuse(MASK("0.15", ""), STATUS_RECIPE,
           "mask_share: expected a tokenizer with [MASK]|vocab.txt|mask_token");
    Set set = {.bench = bench_open(NULL)};
    assert_ok(set_load(&set, MASK("0", "")), set.bench.diag);
    set_close(&set);
    set_tokenizer = TEXT_DATA "vocab.txt";
}

/* [MASK] among the added tokens of a tokenizer that is not WordPiece. */
static void test_added(void **state) {
    (void)state;
    static const char *const NAMES[] = {"[MASK]", "<mask>"};
    char file[300], json[512];
    put("a.txt", "abab\n");
    snprintf(file, sizeof file, "%s/chars.json", folder);
    set_tokenizer = file;
    for (int i = 0; i < 2; i++) {
        snprintf(
            json, sizeof json,
            "{\"added_tokens\": [{\"id\": 2, \"content\": \"%s\", \"special\": true}],"
            " \"model\": {\"type\": \"Characters\", \"vocab\": [\"a\", \"b\"]}}",
            NAMES[i]);
        put("chars.json", json);
        Set set = set_open(MASK("1", ", \"mask_replace\": 1, \"mask_random\": 0"));
        const Sample sample = sample_fetch(&set, 0, 4, 0);
        assert_int_equal(tokenizer_specials(set.bench.tokenizer)->mask, 2);
        assert_true(sample.ids[0] == 0 && sample.ids[1] == 2 && sample.ids[3] == 2);
        set_close(&set);
    }
    set_tokenizer = TEXT_DATA "vocab.txt";
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_columns), cmocka_unit_test(test_counts),
        cmocka_unit_test(test_samples), cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_first),   cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_shares),  cmocka_unit_test(test_keys),
        cmocka_unit_test(test_batch),   cmocka_unit_test(test_bad),
        cmocka_unit_test(test_added)};
    return cmocka_run_group_tests(tests, enter, leave);
}
