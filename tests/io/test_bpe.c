/* BPE: bytes as characters, words by regular expressions, merging against a naive loop.
 */
#include "tokenizer_test.h"

#include "io/files/json.h"
#include "io/tokenizers/bpe.h"
#include "io/tokenizers/regex.h"
#include "ir/random.h"

/* --- bytes as characters --- */

static void byte_chars(void **state) {
    (void)state;
    for (int byte = 0; byte < 256; byte++)
        assert_int_equal(char_byte(byte_char((unsigned char)byte)), byte);
    int count = 0;
    for (uint32_t c = 0; c < 0x400; c++) count += char_byte(c) >= 0;
    assert_int_equal(count, 256); /* one character each */
    assert_int_equal(byte_char(' '), 0x120);
    assert_int_equal(byte_char('\n'), 0x10a);
    assert_int_equal(byte_char('~'), '~');
    assert_int_equal(byte_char(0x7f), 0x121);
    assert_int_equal(byte_char(0xad), 0x143);
    assert_int_equal(char_byte(' '), -1);
    assert_int_equal(char_byte(0x144), -1);
}

/* --- words --- */

#define NEWER(digits)                                                                    \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits                 \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* Words between U+001F. */
static void check_words(const Regex *regex, const char *name, const Tree *item) {
    const char *text = tree_get(item, "text")->string;
    Text found = {0}, wanted = {0};
    RegexScratch scratch = {0};
    RegexPlace place = {0};
    regex_start(&scratch, strlen(text));
    for (size_t begin, end, done = 0;
         regex_next(regex, &scratch, span(text), &place, &begin, &end); done = end) {
        assert_int_equal(begin, done);
        text_add(&found, "%.*s\x1f", (int)(end - begin), text + begin);
    }
    regex_scratch_free(&scratch);
    for (const Tree *w = tree_get(item, "words")->first; w; w = w->next)
        text_add(&wanted, "%s\x1f", w->string);
    if (strcmp(found.data, wanted.data) != 0)
        fail_msg("%s: expected '%s', found '%s'", name, wanted.data, found.data);
    text_free(&found);
    text_free(&wanted);
}

static void words(void **state) {
    (void)state;
    static const struct {
        const char *name, *regex;
    } PATTERNS[] = {{"gpt2", "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|"
                             " ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},
                    {"llama3", NEWER("\\p{N}{1,3}")},
                    {"qwen2", NEWER("\\p{N}")}};
    Bench bench = bench_open(NULL);
    Tree *root;
    assert_ok(json_read(&root, bench.arena, TEXT_DATA "words.json", 1 << 20, bench.diag),
              bench.diag);
    for (size_t i = 0; i < sizeof PATTERNS / sizeof *PATTERNS; i++) {
        Regex *regex;
        const Tree *list = tree_get(root, PATTERNS[i].name);
        assert_ok(regex_compile(&regex, bench.arena, PATTERNS[i].regex, LOC_NONE, NULL,
                                bench.diag),
                  bench.diag);
        assert_true(list->count > 60);
        for (const Tree *item = list->first; item; item = item->next)
            check_words(regex, PATTERNS[i].name, item);
        regex_destroy(regex);
    }
    bench_close(&bench);
}

/* --- merging --- */

enum { TOKENS = 80, LETTERS = 3 };

/* What words are spelt with: one of them is what stands for a space. */
static const char *const plain_letters[LETTERS] = {"a", "b", "c"};
static const char *const spaced_letters[LETTERS] = {"a", "b", "\xe2\x96\x81"};

/* The merges that a model has: any; or none that joins two words. */
typedef enum Joins { JOINS_ANY, JOINS_WITHIN_WORDS } Joins;

typedef struct BpeModel {
    Arena *arena;
    Vocabulary vocabulary;
    Bpe bpe;
    struct {
        int32_t left, right, whole;
    } merges[TOKENS];
    int count;
    int32_t known; /* tokens so far */
} BpeModel;

/* Number of a token, which becomes known if need be. */
static int32_t model_token(BpeModel *model, const char *text) {
    int32_t id = vocabulary_find(&model->vocabulary, text, strlen(text));
    if (id >= 0) return id;
    model->vocabulary.tokens[model->known] =
        (Token){arena_strdup(model->arena, text), (uint32_t)strlen(text)};
    return vocabulary_add(&model->vocabulary, model->known++);
}

/* Appends the merge of two tokens. */
static void model_merge(BpeModel *model, int32_t left, int32_t right) {
    Diag *diag = diag_create();
    const Token *a = &model->vocabulary.tokens[left];
    const Token *b = &model->vocabulary.tokens[right];
    int32_t whole =
        model_token(model, arena_printf(model->arena, "%s%s", a->text, b->text));
    assert_ok(bpe_add(&model->bpe, (TextSpan){a->text, a->length},
                      (TextSpan){b->text, b->length}, LOC_NONE, NULL, diag),
              diag);
    model->merges[model->count].left = left;
    model->merges[model->count].right = right;
    model->merges[model->count++].whole = whole;
    diag_destroy(diag);
}

static bool is_new_merge(const BpeModel *model, int32_t left, int32_t right,
                         Joins joins) {
    const Token *tokens = model->vocabulary.tokens;
    if (tokens[left].length + tokens[right].length > 24) return false;
    if (joins == JOINS_WITHIN_WORDS && strpbrk(tokens[left].text, "ab") &&
        !strchr("ab", *tokens[right].text))
        return false;
    for (int i = 0; i < model->count; i++)
        if (model->merges[i].left == left && model->merges[i].right == right)
            return false;
    return true;
}

/* Letters, then random merges of what there is. They live where they are. */
static void model_fill(BpeModel *model, uint64_t key, uint64_t merges,
                       const char *const letters[LETTERS], Joins joins) {
    *model = (BpeModel){.arena = arena_create()};
    vocabulary_create(&model->vocabulary, model->arena, TOKENS);
    for (int i = 0; i < LETTERS; i++) model_token(model, letters[i]);
    bpe_create(&model->bpe, model->arena, &model->vocabulary, TOKENS);
    model->bpe.unknown = -1;
    for (uint64_t i = 0; i < merges; i++) {
        const uint64_t known = (uint64_t)model->known;
        const int32_t left = (int32_t)(random_u64(key, 2 * i) % known);
        const int32_t right = (int32_t)(random_u64(key, 2 * i + 1) % known);
        if (is_new_merge(model, left, right, joins)) model_merge(model, left, right);
    }
}

/* The definition: of the first merge that stands anywhere, the leftmost place. `ids` are
 * the letters of the word and become its tokens. */
static size_t naive(const BpeModel *model, int32_t *ids, size_t length) {
    for (int m = 0; m < model->count; m++)
        for (size_t i = 0; i + 1 < length; i++) {
            if (ids[i] != model->merges[m].left || ids[i + 1] != model->merges[m].right)
                continue;
            ids[i] = model->merges[m].whole;
            memmove(ids + i + 1, ids + i + 2, (length - i - 2) * sizeof *ids);
            length--;
            m = -1; /* from the first merge on */
            break;
        }
    return length;
}

static void check_merging(const char *const letters[LETTERS], Joins joins) {
    BpeScratch scratch = {0};
    IdList ids = {0};
    UnknownChars unknown = {0};
    size_t shorter = 0;
    int joining = 0; /* models that join words */
    for (uint64_t key = 0; key < 60; key++) {
        BpeModel model;
        model_fill(&model, key, 10 + key, letters, joins);
        joining += model.bpe.joins_words;
        for (uint64_t w = 0; w < 40; w++) {
            Text word = {0};
            int32_t wanted[64];
            size_t length = (size_t)(1 + random_u64(key + 1000, w) % 60);
            for (size_t i = 0; i < length; i++) {
                wanted[i] = (int32_t)(random_u64(key * 64 + w, i + 7) % LETTERS);
                text_add(&word, "%s", letters[wanted[i]]);
            }
            size_t count = naive(&model, wanted, length);
            ids.count = 0;
            bpe_split(&model.bpe, &scratch, word.data, word.length, &ids, &unknown);
            assert_int_equal(ids.count, count);
            assert_memory_equal(ids.items, wanted, count * sizeof *wanted);
            shorter += length - count;
            text_free(&word);
        }
        arena_destroy(model.arena);
    }
    assert_true(shorter > 10000); /* there was something to merge */
    assert_int_equal(joining > 50, letters == spaced_letters && joins == JOINS_ANY);
    assert_int_equal(unknown.count, 0);
    free(ids.items);
    bpe_scratch_free(&scratch);
}

static void merging(void **state) {
    (void)state;
    check_merging(plain_letters, JOINS_ANY);
}

/* Words within a text, which merges join, or do not. */
static void merging_words(void **state) {
    (void)state;
    check_merging(spaced_letters, JOINS_ANY);
    check_merging(spaced_letters, JOINS_WITHIN_WORDS);
}

/* A word of a million characters takes no time worth naming. */
static void long_word(void **state) {
    (void)state;
    enum { LENGTH = 1 << 20 };
    BpeModel model;
    char *word = malloc(LENGTH);
    memset(word, 'a', LENGTH);
    model_fill(&model, 0, 0, plain_letters, JOINS_ANY);
    model_merge(&model, 0, 0); /* aa */
    model_merge(&model, LETTERS, LETTERS);
    model_merge(&model, LETTERS + 1, LETTERS + 1);
    BpeScratch scratch = {0};
    IdList ids = {0};
    UnknownChars unknown = {0};
    bpe_split(&model.bpe, &scratch, word, LENGTH, &ids, &unknown);
    assert_int_equal(ids.count, LENGTH / 8);
    for (size_t i = 0; i < ids.count; i++) assert_int_equal(ids.items[i], LETTERS + 2);
    free(ids.items);
    free(word);
    bpe_scratch_free(&scratch);
    arena_destroy(model.arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(byte_chars), cmocka_unit_test(words),
        cmocka_unit_test(merging),    cmocka_unit_test(merging_words),
        cmocka_unit_test(long_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
