/* Regular expressions of tokenizers: how a text is split by every behavior, what is
 * written otherwise for PCRE2, what is refused, and what a hostile expression can do. */
#include "tokenizer_test.h"

#include "io/tokenizers/regex.h"

/* --- splits, by the library's documentation and its rules followed by hand --- */

/* A tokenizer whose tokens are single characters and the words of the cases, so that the
 * tokens show where the text was cut: every word is spelled by its longest merges. */
static void put_split(const char *pattern, const char *behavior, bool invert) {
    char file[300];
    Text text = {0};
    snprintf(file, sizeof file, "%s/tokenizer.json", folder);
    text_add(&text,
             "{\"model\": {\"type\": \"BPE\", \"ignore_merges\": true, \"merges\": [],"
             " \"vocab\": {\"t\": 0, \"h\": 1, \"e\": 2, \"-\": 3, \"f\": 4, \"the\": 5,"
             " \"the-\": 6, \"-the\": 7, \"--\": 8, \"-f\": 9, \"e-\": 10, \"-the-\": 11,"
             " \"f-\": 12, \"--f\": 13, \"-t\": 14, \"he\": 15, \"T\": 16, \"The\": 17}},"
             " \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": %s,"
             " \"behavior\": \"%s\", \"invert\": %s}, \"decoder\": {\"type\": \"Fuse\"}}",
             pattern, behavior, invert ? "true" : "false");
    put_text(file, text.data);
    text_free(&text);
}

static void check_split(const char *pattern, const char *behavior, bool invert,
                        const char *text, const char *tokens) {
    put_split(pattern, behavior, invert);
    Bench bench = bench_open(folder);
    check_plain(&bench, text, tokens);
    bench_close(&bench);
}

#define DASH "{\"String\": \"-\"}"
#define EXPR "{\"Regex\": \"-\"}"

static void behaviors(void **state) {
    (void)state;
    static const struct {
        const char *behavior;
        bool invert;
        const char *text, *tokens;
    } CASES[] = {
        /* "the-final--countdown" of the documentation, with shorter words */
        {"Removed", false, "the-f--the", "the f the"},
        {"Isolated", false, "the-f--the", "the - f - - the"},
        {"MergedWithPrevious", false, "the-f--the", "the- f- - the"},
        {"MergedWithNext", false, "the-f--the", "the -f - -the"},
        {"Contiguous", false, "the-f--the", "the - f -- the"},
        /* at the ends */
        {"Removed", false, "-the-", "the"},
        {"MergedWithPrevious", false, "-the-", "- the-"},
        {"MergedWithNext", false, "-the-", "-the -"},
        {"Contiguous", false, "--the", "-- the"},
        {"MergedWithNext", false, "--the", "- -the"},
        {"Removed", false, "--", ""},
        {"Contiguous", false, "--", "--"},
        /* inverted: what is between the dashes is what counts */
        {"Removed", true, "the-f--the", "- - -"},
        {"Isolated", true, "the-f--the", "the - f - - the"},
        {"Contiguous", true, "the-f--the", "the - f -- the"},
        {"MergedWithPrevious", true, "-the-f", "-the -f"},
        {"MergedWithNext", true, "the-f-", "the- f-"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        check_split(DASH, CASES[i].behavior, CASES[i].invert, CASES[i].text,
                    CASES[i].tokens);
        check_split(EXPR, CASES[i].behavior, CASES[i].invert, CASES[i].text,
                    CASES[i].tokens);
    }
    check_split("{\"Regex\": \"(?=[A-Z])\"}", "Isolated", false, "theThe", "the The");
}

/* A Regex in a Replace, as normalizer and as decoder: its content is no pattern. */
static void replaced(void **state) {
    (void)state;
    char file[300];
    snprintf(file, sizeof file, "%s/tokenizer.json", folder);
    put_text(
        file,
        "{\"model\": {\"type\": \"BPE\", \"merges\": [], \"vocab\":"
        " {\"a\": 0, \"-\": 1, \"\\\\\": 2, \"1\": 3}},"
        " \"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"Regex\": \"[xy]+\"},"
        " \"content\": \"\\\\1\"},"
        " \"decoder\": {\"type\": \"Replace\", \"pattern\": {\"Regex\": \"[a1]\"},"
        " \"content\": \"zz\"}}");
    Bench bench = bench_open(folder);
    Text text = {0};
    check_plain(&bench, "axyya-x", "a \\ 1 a - \\ 1");
    assert_ok(tokenizer_decode(bench.tokenizer, &text, bench.encoding.ids,
                               bench.encoding.length, true, LOC_NONE, bench.diag),
              bench.diag);
    assert_string_equal(text.data, "zz\\zzzz-\\zz");
    text_free(&text);
    bench_close(&bench);
}

/* --- the syntax --- */

/* Matches between '|'. */
static const char *matches(Bench *bench, const char *pattern, const char *text) {
    Regex *regex;
    RegexScratch scratch = {0};
    RegexPlace place = {0};
    Text found = {0};
    size_t begin, end;
    assert_ok(
        regex_compile(&regex, bench->arena, pattern, LOC_NONE, "regex", bench->diag),
        bench->diag);
    regex_start(&scratch, strlen(text));
    while (regex_next(regex, &scratch, span(text), &place, &begin, &end))
        text_add(&found, "%.*s|", (int)(end - begin), text + begin);
    assert_false(scratch.gave_up);
    regex_scratch_free(&scratch);
    regex_destroy(regex);
    const char *copy = arena_strdup(bench->arena, found.data ? found.data : "");
    text_free(&found);
    return copy;
}

static void syntax(void **state) {
    (void)state;
    static const struct {
        const char *pattern, *text, *found;
    } CASES[] = {
        {"\\s", "a\u00a0\u180e\u2003b", "\u00a0|\u2003|"}, /* U+180E is none any more */
        {"[^\\s\\p{L}]+", "ab, \u180e", ",|\u180e|"},
        {"\\S+", "a b", "a|b|"},
        {"\\w+", "e\u0301_1-\u203f", "e\u0301_1|\u203f|"},
        {"[\\w-]+", "a-b c", "a-b|c|"},
        {"\\h+", "beef xyz", "beef|"},
        {"\\d+", "12\u0663 x", "12\u0663|"},
        {"^.", "ab\ncd", "a|c|"},
        {"(?m:a.b)", "a\nb", "a\nb|"},
        {"a.b", "a\nb", ""},
        {"(?i:'S|'RE)", "'s 're 'Re '\u017f", "'s|'re|'Re|'\u017f|"},
        {"\\p{Han}+", "\u4e00\u3001a", "\u4e00|"}, /* U+3001 is used with Han */
        {"\\p{^L}+", "a1b", "1|"},
        {"\\P{Letter}+", "a1b", "1|"},
        {"\\u0041+", "AA", "AA|"},
        {"\\x{41}+", "AA", "AA|"},
        {"\\bab\\b", "ab abc \u0301ab ab", "ab|ab|"},
        {"[[:digit:]]+", "a12", "12|"},
        {"[]a]+", "]a", "]a|"},
        {"x*", "axb", "|x||"}, /* none behind a match, as Oniguruma's iterator */
        {"(?<=a)b", "ab b", "b|"},
        {"[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}", "a b1234", "a| b|123|4|"},
    };
    Bench bench = bench_open(NULL);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const char *found = matches(&bench, CASES[i].pattern, CASES[i].text);
        if (strcmp(found, CASES[i].found) != 0)
            fail_msg("%s in '%s': expected '%s', found '%s'", CASES[i].pattern,
                     CASES[i].text, CASES[i].found, found);
    }
    bench_close(&bench);
}

static void refused(void **state) {
    (void)state;
    static const char *const CASES[][2] = {
        {"", "it is empty"},
        {"a(b", "missing closing parenthesis"},
        {"[a[bc]]", "sets within [...]"},
        {"[a-z&&[^b]]", "&& within"},
        {"\\p{N}{1,3}+", "a + behind {...}"},
        {"(*NO_JIT)a", "(*...) is not supported"},
        {"[\\W]", "within [...] are not"},
        {"\\p{Nonsense}", "unknown property"},
    };
    Bench bench = bench_open(NULL);
    Regex *regex;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        expect_error(
            bench.diag,
            regex_compile(&regex, bench.arena, CASES[i][0], LOC_NONE, "here", bench.diag),
            STATUS_FORMAT, CASES[i][1]);
    Text deep = {0};
    for (int i = 0; i < 100; i++) text_add(&deep, "(");
    expect_error(
        bench.diag,
        regex_compile(&regex, bench.arena, deep.data, LOC_NONE, "here", bench.diag),
        STATUS_FORMAT, "parentheses are too deeply nested");
    for (int i = 0; i < 20000; i++) text_add(&deep, "a");
    expect_error(
        bench.diag,
        regex_compile(&regex, bench.arena, deep.data, LOC_NONE, "here", bench.diag),
        STATUS_FORMAT, "it is too long");
    text_free(&deep);
    bench_close(&bench);
}

/* --- limits --- */

/* Exponential and deeply nested attempts end with a message, also without the compiler to
 * machine code; long runs of white space, which take a step for each, do not. */
static void hostile(void **state) {
    (void)state;
    static const char *const PATTERNS[] = {
        "{\"Regex\": \"(t|t)*[xy]\"}", "{\"Regex\": \"(?:t+)+[xy]\"}",
        "{\"Regex\": \"((t)(?1)*)+[xy]\"}",
        "{\"Regex\": \"(?:(t)|\\\\1t)*+x|(?:(t*)*)*x\"}"};
    enum { LENGTH = 3000 };
    char text[LENGTH + 1];
    memset(text, 't', LENGTH);
    text[LENGTH] = 0;
    for (size_t i = 0; i < sizeof PATTERNS / sizeof *PATTERNS; i++) {
        put_split(PATTERNS[i], "Isolated", false);
        Bench bench = bench_open(folder);
        const Status status = tokenizer_encode_plain(bench.tokenizer, &bench.encoding,
                                                     span(text), LOC_NONE, bench.diag);
        if (status != STATUS_OK)
            expect_error(bench.diag, status, STATUS_FORMAT,
                         "takes more steps on this text than it may");
        if (i < 2) assert_int_equal(status, STATUS_FORMAT);
        bench_close(&bench);
    }
    Bench bench = bench_open(NULL);
    enum { SPACES = 300000 };
    char *spaces = malloc(SPACES + 1);
    memset(spaces, ' ', SPACES);
    spaces[SPACES] = 0;
    assert_int_equal(strlen(matches(&bench, "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", spaces)),
                     SPACES + 1);
    free(spaces);
    bench_close(&bench);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(behaviors, enter, leave),
        cmocka_unit_test_setup_teardown(replaced, enter, leave),
        cmocka_unit_test_setup_teardown(syntax, enter, leave),
        cmocka_unit_test_setup_teardown(refused, enter, leave),
        cmocka_unit_test_setup_teardown(hostile, enter, leave)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
