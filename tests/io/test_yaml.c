/* YAML and JSON: what is accepted, as JSON; what is refused, with the exact message. */
#include "io_test.h"

#include "io/files/json.h"
#include "io/files/yaml.h"
#include "ir/text.h"

#include <time.h>

typedef struct Case {
    const char *text, *expected;
} Case;

static const Case YAML_GOOD[] = {
    {"", "null"},
    {"# nothing\n", "null"},
    {"---\n", "null"},
    {"a: 1\nb: -2\nc: +3\n", "{\"a\":1,\"b\":-2,\"c\":3}"},
    {"a: 010\nb: 0x10\nc: 1_000\n", "{\"a\":10,\"b\":\"0x10\",\"c\":\"1_000\"}"},
    {"[1.5, .5, 1., 1e-3, -2E+2, 1.e1]", "[1.5,0.5,1.0,0.001,-200.0,10.0]"},
    {"[true, True, FALSE, yes, no, on, off]",
     "[true,true,false,\"yes\",\"no\",\"on\",\"off\"]"},
    {"[null, ~, Null, '', \"\", '~', \"null\"]",
     "[null,null,null,\"\",\"\",\"~\",\"null\"]"},
    {"['1', \"2.5\", 'true']", "[\"1\",\"2.5\",\"true\"]"},
    {"a: {b: [1, {c: x}], d: }\n", "{\"a\":{\"b\":[1,{\"c\":\"x\"}],\"d\":null}}"},
    {"a:\n  - b: 1\n    c: 2\n  - d\n", "{\"a\":[{\"b\":1,\"c\":2},\"d\"]}"},
    {"'1': x\n\"true\": y\n", "{\"1\":\"x\",\"true\":\"y\"}"},
    {"a: |\n  one\n  two\nb: >\n  one\n  two\n",
     "{\"a\":\"one\\ntwo\\n\",\"b\":\"one two\\n\"}"},
    {"[1e, e1, ., -, +, 1.2.3, 2024-01-01, .e1]",
     "[\"1e\",\"e1\",\".\",\"-\",\"+\",\"1.2.3\",\"2024-01-01\",\".e1\"]"},
    {"\xef\xbb\xbf"
     "a: \xd0\x96\n",
     "{\"a\":\"\xd0\x96\"}"},
    {"a: 9223372036854775807", "{\"a\":9223372036854775807}"},
    {"a: &n 1\nb: *n\nc: [*n, &n x, *n]\n", "{\"a\":1,\"b\":1,\"c\":[1,\"x\",\"x\"]}"},
    {"a: &m {x: [1, {y: 2}]}\nb: *m\n",
     "{\"a\":{\"x\":[1,{\"y\":2}]},\"b\":{\"x\":[1,{\"y\":2}]}}"},
    {"a: &k x\n*k : 1\n", "{\"a\":\"x\",\"x\":1}"},
    {"&k x: 1\ny: *k\n", "{\"x\":1,\"y\":\"x\"}"},
    {"a: &m {x: 1, y: 2}\nb:\n  z: 0\n  <<: *m\n  y: 3\n",
     "{\"a\":{\"x\":1,\"y\":2},\"b\":{\"z\":0,\"x\":1,\"y\":3}}"},
    {"- &m {x: 1, y: 2}\n- &n {y: 3, z: 4}\n- <<: [*m, *n]\n- <<: {w: 5}\n",
     "[{\"x\":1,\"y\":2},{\"y\":3,\"z\":4},{\"x\":1,\"y\":2,\"z\":4},{\"w\":5}]"},
    {"- &m {<<: {x: 1}}\n- {<<: *m}\n- {<<: {}}\n- {<<: []}",
     "[{\"x\":1},{\"x\":1},{},{}]"},
    {"a: ${x} $${y}\n", "{\"a\":\"${x} $${y}\"}"},
    {"a: don't [x\n", "{\"a\":\"don't [x\"}"},
};

static const Case YAML_BAD[] = {
    {"a: 1\nb: 2\na: 3\n",
     "r.yaml:3:1: error: a: duplicate key, first given in line 1\n"},
    {"x: [{k: 1, k: 2}]",
     "r.yaml:1:12: error: x[0].k: duplicate key, first given in line 1\n"},
    {"a: *n\n", "r.yaml:1:4: error: a: expected an anchor &n before this\n"},
    {"a: *n\nb: &n 1\n", "r.yaml:1:4: error: a: expected an anchor &n before this\n"},
    {"a: &m {b: [*m]}\n",
     "r.yaml:1:12: error: a.b: the alias *m stands within its own anchor\n"},
    {"a: &m [1]\n*m : 2\n", "r.yaml:1:4: error: expected a string as key, found list\n"},
    {"a: {<<: x}\n", "r.yaml:1:9: error: a.<<: expected a map, or a list of maps, to "
                     "merge, found string\n"},
    {"a: {<<: [{}, 3]}\n", "r.yaml:1:14: error: a.<<[1]: expected a map, or a list of "
                           "maps, to merge, found integer\n"},
    {"a: {<<: {}, <<: {}}\n",
     "r.yaml:1:13: error: a.<<: duplicate key, first given in line 1\n"},
    {"a: !!int 1\n", "r.yaml:1:4: error: a: tags are not supported\n"},
    {"a: ! 1\n", "r.yaml:1:4: error: a: tags are not supported\n"},
    {"!t {a: 1}", "r.yaml:1:1: error: tags are not supported\n"},
    {"%TAG ! tag:x,2000:\n---\na: 1\n", "r.yaml:1:1: error: tags are not supported\n"},
    {"a: 1\n---\nb: 2\n", "r.yaml:2:1: error: expected one document, found a second\n"},
    {"1: x\n", "r.yaml:1:1: error: expected a string as key, found integer\n"},
    {"true: x\n", "r.yaml:1:1: error: expected a string as key, found boolean\n"},
    {"a: {~: x}\n", "r.yaml:1:5: error: a: expected a string as key, found null\n"},
    {"? [a]\n: x\n", "r.yaml:1:3: error: expected a string as key, found list\n"},
    {"{? {a: 1} : x}", "r.yaml:1:4: error: expected a string as key, found map\n"},
    {"a: .inf\n", "r.yaml:1:4: error: a: number must be finite, found .inf\n"},
    {"a: [-.INF]\n", "r.yaml:1:5: error: a: number must be finite, found -.INF\n"},
    {"a: .nan\n", "r.yaml:1:4: error: a: number must be finite, found .nan\n"},
    {"a: 1e999\n", "r.yaml:1:4: error: a: number must be finite, found 1e999\n"},
    {"a: 9223372036854775808",
     "r.yaml:1:4: error: a: expected an integer of 64 bits, found 9223372036854775808\n"},
    {"a: \"x\\0y\"\n", "r.yaml:1:4: error: a: expected text, found a NUL character\n"},
    {"a: [1, 2\nb: 3\n", "r.yaml:2:2: error: invalid YAML: did not find expected ',' or "
                         "']', while parsing a flow sequence\n"},
    {"a: 1\n b: 2\n",
     "r.yaml:2:3: error: invalid YAML: mapping values are not allowed in "
     "this context\n"},
    {"a: \x01\n",
     "r.yaml:1:4: error: invalid YAML: control characters are not allowed\n"},
    {"a: 1\nb: \xff\n", "r.yaml:2:4: error: invalid YAML: invalid leading UTF-8 octet\n"},
    {"a: \xc0\x80\n", "r.yaml:1:4: error: invalid YAML: invalid length of a UTF-8 "
                      "sequence\n"},
    {"a:\n\t- b\n", "r.yaml:2:1: error: invalid YAML: found character that cannot start "
                    "any token, while scanning for the next token\n"},
    {"a: 'x\n", "r.yaml:2:1: error: invalid YAML: found unexpected end of stream, while "
                "scanning a quoted scalar\n"},
};

static const Case JSON_GOOD[] = {
    {"{\"a\": [1, -2.5, true, null, \"x\"]}", "{\"a\":[1,-2.5,true,null,\"x\"]}"},
    {" 7 \n", "7"},
    {"\"\\u00e9[[[\"", "\"\xc3\xa9[[[\""},
};

static const Case JSON_BAD[] = {
    {"", "invalid JSON"},
    {"{\"a\": 1, \"a\": 2}", "duplicate object key"},
    {"{\"a\": 1} x", "r.json:1:10: error: invalid JSON: end of file expected"},
    {"{\"a\": \"\xff\"}", "unable to decode byte 0xff"},
    {"{\"a\": \"\\u0000\"}", "NUL"},
    {"{\"a\\u0000\": 1}", "NUL"},
    {"{\"a\": \"\\ud800\"}", "invalid Unicode"},
    {"{\"a\": 99999999999999999999}", "too big"},
    {"{\"a\": 1e999}", "overflow"},
    {"{\"a\": NaN}", "invalid token"},
    {"{'a': 1}", "expected"},
    {"{\"a\": \"\n\"}", "unexpected newline"},
    {"[1,", "expected near end of file"},
    {"\"abc", "premature end"},
    {"\"abc\\", "invalid escape"},
};

typedef Status Parser(Tree **out, Arena *arena, const char *file, const char *text,
                      size_t length, Diag *diag);

static void check_good(Parser *parse, const Case *cases, size_t count) {
    for (size_t i = 0; i < count; i++) {
        Arena *arena = arena_create();
        Diag *diag = diag_create();
        Tree *tree = NULL;
        expect_ok(diag,
                  parse(&tree, arena, "r", cases[i].text, strlen(cases[i].text), diag));
        Text text = {0};
        tree_print_json(&text, tree, 0);
        assert_string_equal(text.data, cases[i].expected);
        text_free(&text);
        diag_destroy(diag);
        arena_destroy(arena);
    }
}

static void accepts(void **state) {
    (void)state;
    check_good(yaml_parse, YAML_GOOD, sizeof YAML_GOOD / sizeof *YAML_GOOD);
    check_good(json_parse, JSON_GOOD, sizeof JSON_GOOD / sizeof *JSON_GOOD);
}

/* What is printed reads back equal. */
static void prints_and_reads_back(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof YAML_GOOD / sizeof *YAML_GOOD; i++) {
        const Case *c = &YAML_GOOD[i];
        Arena *arena = arena_create();
        Diag *diag = diag_create();
        Tree *tree = NULL, *again = NULL;
        Text yaml = {0}, json = {0};
        assert_int_equal(
            yaml_parse(&tree, arena, "r.yaml", c->text, strlen(c->text), diag),
            STATUS_OK);
        yaml_print(&yaml, tree);
        assert_int_equal(
            yaml_parse(&again, arena, "p.yaml", yaml.data, yaml.length, diag), STATUS_OK);
        tree_print_json(&json, again, 0);
        assert_string_equal(json.data, c->expected);
        text_free(&yaml);
        text_free(&json);
        diag_destroy(diag);
        arena_destroy(arena);
    }
}

/* As a recipe is written: steps in a line each, what is long in lines below. */
static void prints_recipes(void **state) {
    (void)state;
    static const char PRINTED[] =
        "version: 1\n"
        "model: models/bert.h5\n"
        "data:\n"
        "  train: {path: data/train.tsv, labels: [a, \"no\", \"1\", \"x y\"]}\n"
        "  long:\n"
        "    path: data/a_folder_with_a_long_name/and_a_file_with_another_long_name.tsv\n"
        "    limit: 10\n"
        "passes:\n"
        "  - prune_heads: {keep: 2}\n"
        "  - fold_token_type\n"
        "  - repeat:\n"
        "      times: 3\n"
        "      passes: [{prune_heads: {keep: {from: 3, to: 1}}}, importance, evaluate]\n"
        "      name: a_longer_name_so_that_this_block_cannot_stand_in_one_line\n"
        "  - []\n"
        "output: small.h5\n";
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Tree *tree = NULL;
    Text yaml = {0};
    assert_int_equal(
        yaml_parse(&tree, arena, "r.yaml", PRINTED, sizeof PRINTED - 1, diag), STATUS_OK);
    yaml_print(&yaml, tree);
    assert_string_equal(yaml.data, PRINTED);
    text_free(&yaml);
    diag_destroy(diag);
    arena_destroy(arena);
}

static void yaml_refuses(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof YAML_BAD / sizeof *YAML_BAD; i++) {
        Arena *arena = arena_create();
        Diag *diag = diag_create();
        Tree *tree;
        const char *text = YAML_BAD[i].text;
        Status status = yaml_parse(&tree, arena, "r.yaml", text, strlen(text), diag);
        char *message = diag_text(diag);
        assert_int_equal(status, STATUS_RECIPE);
        assert_string_equal(message, YAML_BAD[i].expected);
        free(message);
        diag_destroy(diag);
        arena_destroy(arena);
    }
}

static void expect_refused(Parser *parse, const char *text, size_t length, Status status,
                           const char *part) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Tree *tree;
    clock_t start = clock();
    Status got = parse(&tree, arena, "r.json", text, length, diag);
    assert_true(clock() - start < CLOCKS_PER_SEC * 5); /* with sanitizers; 1 s without */
    expect_error(diag, got, status, part);
    diag_destroy(diag);
    arena_destroy(arena);
}

static void json_refuses(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof JSON_BAD / sizeof *JSON_BAD; i++)
        expect_refused(json_parse, JSON_BAD[i].text, strlen(JSON_BAD[i].text),
                       STATUS_FORMAT, JSON_BAD[i].expected);
    expect_refused(json_parse, "{}\0", 3, STATUS_FORMAT, "invalid JSON");
}

/* Fills `length` bytes with repetitions of a text. */
static char *repeat(const char *part, size_t length) {
    char *text = malloc(length + 1);
    for (size_t i = 0; i < length; i++) text[i] = part[i % strlen(part)];
    text[length] = 0;
    return text;
}

static void bombs(void **state) {
    (void)state;
    static const Case YAML[] = {{"[", "nested deeper than 32"},
                                {"{a: ", "nested deeper than 32"},
                                {"- ", "nested deeper than 32"},
                                {"[ #]\n", "nested deeper than 32"},
                                {"? ", "expected a string as key"},
                                {"\"", "invalid YAML"},
                                {"- 1\n", "at most 100000 values"},
                                {"!", "tags are not supported"},
                                {"&a *a ", "invalid YAML"},
                                {"&a \n", "invalid YAML"},
                                {"- &a x\n", "at most 100000 values"},
                                {"- &a []\n- *a\n", "100000 values"}};
    for (size_t i = 0; i < sizeof YAML / sizeof *YAML; i++) {
        char *text = repeat(YAML[i].text, 1000000);
        expect_refused(yaml_parse, text, 1000000, STATUS_RECIPE, YAML[i].expected);
        free(text);
    }
    static const Case JSON[] = {{"[", "nested deeper than 64"},
                                {"{\"a\":", "nested deeper than 64"},
                                {"0,", "too many values"},
                                {"{},", "too many values"},
                                {"[],", "too many values"}};
    for (size_t i = 0; i < sizeof JSON / sizeof *JSON; i++) {
        char *text = repeat(JSON[i].text, 20000000);
        if (i >= 2) text[0] = '[';
        expect_refused(json_parse, text, 20000000, STATUS_FORMAT, JSON[i].expected);
        free(text);
    }
}

/* As many values as the tokenizer of a large language model has. */
static void large_vocabulary(void **state) {
    (void)state;
    Text text = {0};
    text_add(&text, "{\"vocab\": {\"a\": 0");
    for (int i = 1; i < 128000; i++) text_add(&text, ",\"token%d\": %d", i, i);
    text_add(&text, "}, \"merges\": [\"a b\"");
    for (int i = 1; i < 280000; i++) text_add(&text, ",\"le %dft\"", i);
    text_add(&text, "]}");
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Tree *tree;
    expect_ok(diag, json_parse(&tree, arena, "t.json", text.data, text.length, diag));
    assert_int_equal(tree_get(tree, "vocab")->count, 128000);
    assert_int_equal(tree_get(tree, "merges")->count, 280000);
    text_free(&text);
    diag_destroy(diag);
    arena_destroy(arena);
}

/* Appends an anchor and `count` lists of `width` aliases, each of the one before. */
static void add_doublings(Text *text, int count, int width, const char *first) {
    text_add(text, "- &a0 %s\n", first);
    for (int i = 1; i <= count; i++) {
        text_add(text, "- &a%d [", i);
        for (int k = 0; k < width; k++) text_add(text, "%s*a%d", k ? "," : "", i - 1);
        text_add(text, "]\n");
    }
}

/* Documents of few bytes that aliases would make huge. */
static void alias_bombs(void **state) {
    (void)state;
    Text text = {0};
    add_doublings(&text, 9, 9, "[lol]");
    expect_refused(yaml_parse, text.data, text.length, STATUS_RECIPE,
                   "expected at most 100000 values, aliases written out");
    text_free(&text);
    add_doublings(&text, 40, 1, "x");
    expect_refused(yaml_parse, text.data, text.length, STATUS_RECIPE,
                   "nested deeper than 32 levels");
    text_free(&text);
    char *long_text = repeat("x", 100000);
    add_doublings(&text, 1, 100, long_text);
    expect_refused(yaml_parse, text.data, text.length, STATUS_RECIPE,
                   "stand for at most 4194304 bytes");
    text_free(&text);
    free(long_text);
    text_add(&text, "- &a {<<: {x: 1}}\n");
    for (int i = 0; i < 60000; i++) text_add(&text, "- <<: *a\n");
    expect_refused(yaml_parse, text.data, text.length, STATUS_RECIPE, "100000 values");
    text_free(&text);
}

/* ---- variables ---- */

/* YamlVariables.find: N is 3, WORD is "a b", LONG is 100,000 letters; no others. */
static Status find_variable(void *self, const char *name, YamlPlace place,
                            const char **value, Diag *diag) {
    *value = strcmp(name, "N") == 0      ? "3"
             : strcmp(name, "WORD") == 0 ? "a b"
             : strcmp(name, "LONG") == 0 ? (const char *)self
                                         : NULL;
    if (*value) return STATUS_OK;
    return diag_fail(diag, STATUS_RECIPE, place.at, place.key, "no variable %s", name);
}

static char variables_folder[256], variables_path[300];

static Status parse_variables(Tree **out, Arena *arena, const char *file,
                              const char *text, size_t length, Diag *diag) {
    (void)file;
    char *value = repeat("x", 100000);
    const YamlVariables variables = {value, find_variable};
    put_file(variables_path, text, length);
    Status status = yaml_read_with(out, arena, variables_path, &variables, diag);
    free(value);
    return status;
}

static void variables(void **state) {
    (void)state;
    static const Case GOOD[] = {
        {"a: ${N}\nb: ${N}0\nc: '${N}'\nd: '${N}0'\n",
         "{\"a\":3,\"b\":30,\"c\":3,\"d\":\"30\"}"},
        {"[\"${WORD}/x${N}\", \"${WORD}\", '$N $$ ${N}$']",
         "[\"a b/x3\",\"a b\",\"$N $$ 3$\"]"},
        {"['$${N}', '$$${N}', '$${', 'x$${N}${N}']",
         "[\"${N}\",\"$${N}\",\"${\",\"x${N}3\"]"},
        {"{'${N}': 1, a: &x '${N}', b: *x}", "{\"${N}\":1,\"a\":3,\"b\":3}"},
    };
    static const Case BAD[] = {
        {"a: [1, '${OTHER}']", "v.yaml:1:8: error: a: no variable OTHER\n"},
        {"a: ${N\n", ":1:4: error: a: expected ${NAME}, found \"${N\"\n    hint: $${ "
                     "stands for ${ itself\n"},
        {"a: x${1N}\n", "expected ${NAME}, found \"${1N}\""},
        {"a: ${}\n", "expected ${NAME}, found \"${}\""},
        {"a: ${N:-x}\n", "expected ${NAME}, found \"${N:-x}\""},
        {"a: 1\nb: {c: ${N}}\n", "in [...] and {...}, \"${NAME}\" stands in quotes"},
    };
    scratch_make(variables_folder);
    snprintf(variables_path, sizeof variables_path, "%s/v.yaml", variables_folder);
    check_good(parse_variables, GOOD, sizeof GOOD / sizeof *GOOD);
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++)
        expect_refused(parse_variables, BAD[i].text, strlen(BAD[i].text), STATUS_RECIPE,
                       BAD[i].expected);
    char *text = repeat("${LONG}", 7 * 1000);
    expect_refused(parse_variables, text, 7 * 1000, STATUS_RECIPE,
                   "at most 4194304 bytes");
    free(text);
    text = repeat("- ${LONG}\n", 10 * 1000);
    expect_refused(parse_variables, text, 10 * 1000, STATUS_RECIPE,
                   "at most 4194304 bytes");
    free(text);
    scratch_remove(variables_folder);
}

static void limits(void **state) {
    (void)state;
    char *text = repeat("# comment\n", ((size_t)1 << 20) + 1);
    expect_refused(yaml_parse, text, ((size_t)1 << 20) + 1, STATUS_RECIPE,
                   "expected at most 1048576 bytes, found 1048577");
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Tree *tree;
    char folder[256], path[300];
    scratch_make(folder);
    snprintf(path, sizeof path, "%s/big.yaml", folder);
    put_file(path, text, ((size_t)1 << 20) + 1);
    expect_error(diag, yaml_read(&tree, arena, path, diag), STATUS_RECIPE,
                 "1048576 bytes");
    put_text(path, "a: 1\n");
    expect_ok(diag, yaml_read(&tree, arena, path, diag));
    assert_int_equal(tree_get(tree, "a")->loc.line, 1);
    assert_int_equal(tree_get(tree, "a")->loc.column, 4);
    assert_string_equal(tree_get(tree, "a")->loc.file, path);
    expect_error(diag, yaml_read(&tree, arena, folder, diag), STATUS_IO,
                 "found a folder");
    unlink(path);
    expect_error(diag, yaml_read(&tree, arena, path, diag), STATUS_IO, "cannot open");
    expect_error(diag, yaml_read(&tree, arena, "/dev/null", diag), STATUS_IO, "a device");
    free(text);
    scratch_remove(folder);
    diag_destroy(diag);
    arena_destroy(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts),          cmocka_unit_test(prints_and_reads_back),
        cmocka_unit_test(prints_recipes),   cmocka_unit_test(yaml_refuses),
        cmocka_unit_test(json_refuses),     cmocka_unit_test(bombs),
        cmocka_unit_test(large_vocabulary), cmocka_unit_test(limits),
        cmocka_unit_test(alias_bombs),      cmocka_unit_test(variables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
