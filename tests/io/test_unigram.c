/* Unigram: against the `tokenizers` library, against the definition, the map of its
 * normalizer, long words, and files that are damaged. */
#include "tokenizer_cases.h"

#include "io/tokenizers/charsmap.h"
#include "io/tokenizers/unigram.h"
#include "ir/random.h"

#define UNIGRAM TEXT_DATA "unigram/"
#define LATTICE TEXT_DATA "unigram_bytes/"

static void recorded(void **state) {
    (void)state;
    check_cases(UNIGRAM, UNIGRAM "cases.json", NULL, 63);
    check_cases(LATTICE, LATTICE "cases.json", NULL, 63);
}

/* --- the best cut, by trying all --- */

typedef struct Drawn {
    Arena *arena;
    Vocabulary vocabulary;
    Unigram unigram;
} Drawn;

/* Pieces of one to four letters a, b, c; some letters may lack a piece. */
static Drawn *draw_pieces(uint64_t key, bool single) {
    enum { PIECES = 14 };
    Arena *arena = arena_create();
    Drawn *drawn = ARENA_NEW(arena, Drawn);
    drawn->arena = arena;
    Diag *diag = diag_create();
    vocabulary_create(&drawn->vocabulary, drawn->arena, PIECES);
    Unigram *unigram = &drawn->unigram;
    double *scores = ARENA_ARRAY(drawn->arena, double, PIECES), least = 0;
    int32_t count = 0;
    for (uint64_t draw = 0; count < PIECES; draw++) {
        char text[5] = "";
        const uint64_t r = random_u64(key, draw);
        for (uint64_t i = 0; i < 1 + r % 4; i++)
            text[i] = (char)('a' + (r >> (8 + 4 * i)) % 3);
        drawn->vocabulary.tokens[count] =
            (Token){arena_strdup(drawn->arena, text), (uint32_t)strlen(text)};
        if (vocabulary_add(&drawn->vocabulary, count) != count) continue;
        scores[count] = single ? (double)(float)(-0.01 * (double)(r >> 32 & 1023))
                               : -0.01 * (double)(r >> 32 & 1023);
        least = scores[count] < least ? scores[count] : least;
        count++;
    }
    *unigram = (Unigram){.vocabulary = &drawn->vocabulary,
                         .texts = drawn->vocabulary.tokens,
                         .scores = scores,
                         .pieces = PIECES,
                         .unknown = -1,
                         .unknown_score = least - UNIGRAM_PENALTY,
                         .single = single};
    assert_ok(unigram_build(unigram, drawn->arena, NULL, LOC_NONE, "pieces", diag), diag);
    diag_destroy(diag);
    return drawn;
}

static double rounded(const Unigram *unigram, double sum) {
    return unigram->single ? (double)(float)sum : sum;
}

/* Greatest sum over all cuts of what follows, summed from the left. */
static double best_sum(const Drawn *drawn, const char *word, size_t at, double sum) {
    const Unigram *unigram = &drawn->unigram;
    const size_t length = strlen(word);
    double best = -1e300;
    if (at == length) return sum;
    for (size_t n = 1; at + n <= length; n++) {
        const int32_t id = vocabulary_find(&drawn->vocabulary, word + at, n);
        if (id < 0 && n > 1) continue;
        const double score = id < 0 ? unigram->unknown_score : unigram->scores[id];
        const double found = best_sum(drawn, word, at + n, rounded(unigram, sum + score));
        best = found > best ? found : best;
    }
    return best;
}

/* The tokens that come, with unknown letters left out, have the greatest sum. */
static void by_definition(void **state) {
    (void)state;
    UnigramScratch scratch = {0};
    IdList ids = {0};
    for (uint64_t i = 0; i < 600; i++) {
        const Drawn *drawn = draw_pieces(random_key_name(i, "pieces"), i % 2);
        char word[11] = "";
        const uint64_t r = random_u64(random_key_name(i, "word"), 0);
        for (uint64_t j = 0; j < 1 + r % 10; j++)
            word[j] = (char)('a' + (r >> (8 + 4 * j)) % 3);
        UnknownChars unknown = {0};
        ids.count = 0;
        unigram_split(&drawn->unigram, &scratch, word, strlen(word), &ids, &unknown);
        size_t letters = unknown.count;
        double sum = 0;
        const char *at = word;
        for (size_t j = 0; j < ids.count; j++) {
            const Token *token = &drawn->vocabulary.tokens[ids.items[j]];
            while (strncmp(at, token->text, token->length) != 0) {
                sum = rounded(&drawn->unigram, sum + drawn->unigram.unknown_score);
                at++; /* an unknown letter */
            }
            sum = rounded(&drawn->unigram, sum + drawn->unigram.scores[ids.items[j]]);
            at += token->length;
            letters += token->length;
        }
        for (; *at; at++)
            sum = rounded(&drawn->unigram, sum + drawn->unigram.unknown_score);
        assert_int_equal(letters, strlen(word));
        const double best = best_sum(drawn, word, 0, 0);
        if (sum != best) fail_msg("'%s': %.17g, the best is %.17g", word, sum, best);
        arena_destroy(drawn->arena);
    }
    free(ids.items);
    unigram_scratch_free(&scratch);
}

/* What grows with the square of a word's length would not end. */
static void long_words(void **state) {
    (void)state;
    static const char *const PARTS[] = {"a", "the", "漢", "e\xcc\x81", "\xcc\x81", "😀"};
    enum { BYTES = 1 << 20 };
    char *text = malloc(BYTES + 1);
    Bench bench = bench_open(UNIGRAM);
    for (size_t i = 0; i < sizeof PARTS / sizeof *PARTS; i++) {
        const size_t length = strlen(PARTS[i]), count = BYTES / length;
        for (size_t j = 0; j < count; j++) memcpy(text + j * length, PARTS[i], length);
        assert_ok(tokenizer_encode(bench.tokenizer, &bench.encoding,
                                   (TextSpan){text, count * length}, NULL, 0, LOC_NONE,
                                   bench.diag),
                  bench.diag);
        assert_in_range(bench.encoding.length, 2, BYTES + 1); /* and an end */
    }
    bench_close(&bench);
    free(text);
}

/* --- the map of the normalizer --- */

/* A trie that leads from "ab" to the second replacement, and from "a" to the first. */
static void charsmap(void **state) {
    (void)state;
    enum { A = 'a', B = 'b', UNITS = 1024, NODE_A = 512 ^ 'a', NODE_B = 768 ^ 'b' };
    uint32_t units[UNITS + 1] = {UNITS * 4};
    static const char TEXTS[] = "x\0yy\0é"; /* and its own zero */
    char bytes[sizeof units + sizeof TEXTS];
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Charsmap map;
    size_t matched;
    units[1] = 512 << 10;
    units[1 + NODE_A] = A | 1 << 8 | (uint32_t)(NODE_A ^ 768) << 10;
    units[1 + 768] = UINT32_C(1) << 31 | 0;
    units[1 + NODE_B] = B | 1 << 8 | (uint32_t)(NODE_B ^ 1000) << 10;
    units[1 + 1000] = UINT32_C(1) << 31 | 2;
    memcpy(bytes, units, sizeof units);
    memcpy(bytes + sizeof units, TEXTS, sizeof TEXTS);
    assert_ok(charsmap_parse(&map, arena, bytes, sizeof bytes, LOC_NONE, "map", diag),
              diag);
    assert_string_equal(charsmap_find(&map, "abc", 3, true, &matched), "yy");
    assert_int_equal(matched, 2);
    assert_string_equal(charsmap_find(&map, "abc", 3, false, &matched), "x");
    assert_int_equal(matched, 1);
    assert_null(charsmap_find(&map, "ba", 2, true, &matched));
    for (uint32_t offset = 5; offset < 12; offset++) { /* é, within it, behind the end */
        units[1 + 1000] = UINT32_C(1) << 31 | offset;
        memcpy(bytes, units, sizeof units);
        assert_ok(charsmap_parse(&map, arena, bytes, sizeof bytes, LOC_NONE, "map", diag),
                  diag);
        assert_string_equal(charsmap_find(&map, "ab", 2, true, &matched),
                            offset == 5   ? "é"
                            : offset == 7 ? ""
                                          : "x");
    }
    static const size_t LENGTHS[] = {0, 3, 4, 100, sizeof units, sizeof bytes - 1};
    for (size_t i = 0; i < sizeof LENGTHS / sizeof *LENGTHS; i++)
        expect_error(
            diag, charsmap_parse(&map, arena, bytes, LENGTHS[i], LOC_NONE, "map", diag),
            STATUS_FORMAT, "map: expected ");
    diag_destroy(diag);
    arena_destroy(arena);
}

/* Units of any bits: whatever is found is text. */
static void hostile_maps(void **state) {
    (void)state;
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Text out = {0};
    static const char TEXT[] = "abc é\xcc\x81 漢字 \r\n😀 the";
    for (uint64_t i = 0; i < 3000; i++) {
        uint32_t words[65] = {256};
        char bytes[sizeof words + 8];
        const uint64_t key = random_key_name(i, "map");
        for (size_t j = 1; j < 65; j++) {
            const uint64_t r = random_u64(key, j);
            words[j] = (uint32_t)(r & 0x1ff) | (uint32_t)(r >> 16 & 63) << 10;
            if (r >> 60 == 0) words[j] = (uint32_t)(r >> 8);
            if (r >> 60 < 6)
                words[j] = (words[j] & ~UINT32_C(0xff)) | (uint8_t)TEXT[r >> 9 & 7];
        }
        memcpy(bytes, words, sizeof words);
        memcpy(bytes + sizeof words, "é\0x\0yz", 8);
        Charsmap map;
        assert_ok(charsmap_parse(&map, arena, bytes, sizeof bytes, LOC_NONE, "map", diag),
                  diag);
        out.length = 0;
        if (!charsmap_replace_clusters(&map, &out, 100, span(TEXT))) continue;
        assert_int_equal(utf8_check(out.data ? out.data : "", out.length), out.length);
    }
    text_free(&out);
    diag_destroy(diag);
    arena_destroy(arena);
}

/* --- files --- */

#define MODEL(members) "{\"model\": {\"type\": \"Unigram\", " members "}}"
#define VOCAB          "\"vocab\": [[\"<unk>\", 0], [\"a\", -1.5], [\"▁\", -2]]"

static void put_model(const char *text) {
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    put_text(path, text);
}

static void bad_files(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } BAD[] = {
        {MODEL("\"unk_id\": 0"), "model.vocab: missing"},
        {MODEL("\"vocab\": {\"a\": 0}"), "model.vocab: expected list, found map"},
        {MODEL("\"vocab\": []"), "model.vocab: expected 1 to"},
        {MODEL("\"vocab\": [[\"a\"]]"), "model.vocab[0]: expected a piece and its score"},
        {MODEL("\"vocab\": [[\"a\", -1], [\"b\", \"x\"]]"),
         "model.vocab[1]: expected a p"},
        {MODEL("\"vocab\": [[\"a\", -1], [-1, \"b\"]]"), "model.vocab[1]: expected a p"},
        {MODEL("\"vocab\": [[\"a\", 1], [\"a\", 2]]"),
         "model.vocab[1]: expected pieces that differ, found 'a' of number 0 again"},
        {MODEL(VOCAB ", \"unk_id\": 3"),
         "model.unk_id: expected a piece below 3, found 3"},
        {MODEL(VOCAB ", \"unk_id\": -1"),
         "model.unk_id: expected a piece below 3, found -"},
        {MODEL(VOCAB ", \"byte_fallback\": 1"), "model.byte_fallback: expected boolean"},
        {"{\"pre_tokenizer\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": "
         "\"Unigram\", " VOCAB "}}",
         "pre_tokenizer: ByteLevel is not supported with the model Unigram"},
        {"{\"normalizer\": {\"type\": \"Precompiled\"}, \"model\": {\"type\": "
         "\"Unigram\", " VOCAB "}}",
         "normalizer: expected a trie of 4 bytes or more"},
        {"{\"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": "
         "\"AAA\"}, \"model\": {\"type\": \"Unigram\", " VOCAB "}}",
         "normalizer: expected base64"},
        {"{\"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": "
         "\"AA=A\"}, \"model\": {\"type\": \"Unigram\", " VOCAB "}}",
         "normalizer: expected base64"},
        {"{\"normalizer\": {\"type\": \"Strip\", \"strip_left\": 1}, \"model\": {\"type\": "
         "\"Unigram\", " VOCAB "}}",
         "normalizer.strip_left: expected boolean"},
    };
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        put_model(BAD[i].text);
        expect_unreadable(folder, STATUS_FORMAT, BAD[i].message);
    }
}

/* Without an unknown token a character that has none is named. */
static void unknown(void **state) {
    (void)state;
    put_model(MODEL(VOCAB));
    Bench bench = bench_open(folder);
    expect_error(bench.diag,
                 tokenizer_encode_plain(bench.tokenizer, &bench.encoding, span("a\naЖЖa"),
                                        LOC_NONE, bench.diag),
                 STATUS_FORMAT, "no token stands for the character '' (U+000A), line 1");
    bench.encoding.skip_unknown = true;
    check_plain(&bench, "a\naЖЖa", "a a a");
    assert_int_equal(bench.encoding.skipped, 3);
    bench_close(&bench);
    put_model(MODEL(VOCAB ", \"unk_id\": 0"));
    bench = bench_open(folder);
    check_plain(&bench, "ЖaЖЖ", "<unk> a <unk>");
    assert_int_equal(tokenizer_specials(bench.tokenizer)->unk, 0);
    bench_close(&bench);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded),
        cmocka_unit_test(by_definition),
        cmocka_unit_test(long_words),
        cmocka_unit_test(charsmap),
        cmocka_unit_test(hostile_maps),
        cmocka_unit_test_setup_teardown(bad_files, enter, leave),
        cmocka_unit_test_setup_teardown(unknown, enter, leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
