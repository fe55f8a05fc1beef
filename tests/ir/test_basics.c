/* Status, text, tree and random numbers. */
#include "ir/random.h"
#include "ir/tree.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Adds one line for an entry: what it is and all that it has. */
static void describe(void *self, const DiagEntry *entry) {
    const Loc at = entry->at;
    text_add(self, "%d %s:%d:%d %s %s\n", (int)entry->kind, at.file ? at.file : "-",
             at.line, at.column, entry->key ? entry->key : "-", entry->message);
}

/* What diag_print writes; the caller frees it. */
static char *print_diag(const Diag *diag) {
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    assert_non_null(out);
    diag_print(diag, out);
    fclose(out);
    return text;
}

static void assert_printed(const Diag *diag, const char *expected) {
    char *text = print_diag(diag);
    assert_string_equal(text, expected);
    free(text);
}

static void test_status(void **state) {
    (void)state;
    assert_int_equal(status_exit_code(STATUS_OK), 0);
    assert_int_equal(status_exit_code(STATUS_RECIPE), 3);
    assert_int_equal(status_exit_code(STATUS_INTERRUPTED), 130);
    assert_string_equal(status_help(STATUS_MEMORY), "out of memory");
}

static void test_diag(void **state) {
    (void)state;
    Diag *diag = diag_create();
    assert_int_equal(diag_status(diag), STATUS_OK);
    Loc at = {"a.yaml", 12, 11};
    assert_int_equal(diag_fail(diag, STATUS_RECIPE, at, "passes[2].rank", "bad %d", 7),
                     STATUS_RECIPE);
    diag_warn(diag, LOC_FILE("b.h5"), NULL, "odd");
    diag_note(diag, "in step %d", 2);
    diag_hint(diag, "try 8");
    diag_fail(diag, STATUS_IO, LOC_NONE, NULL, "gone");
    assert_int_equal(diag_status(diag), STATUS_RECIPE);
    assert_int_equal(diag_errors(diag), 2);
    assert_printed(diag, "a.yaml:12:11: error: passes[2].rank: bad 7\n"
                         "    note: in step 2\n"
                         "    hint: try 8\n"
                         "b.h5: warning: odd\n"
                         "error: gone\n");
    Text seen = {0};
    diag_visit(diag, describe, &seen);
    assert_string_equal(seen.data, "0 a.yaml:12:11 passes[2].rank bad 7\n"
                                   "2 -:0:0 - in step 2\n"
                                   "3 -:0:0 - try 8\n"
                                   "1 b.h5:0:0 - odd\n"
                                   "0 -:0:0 - gone\n");
    text_free(&seen);
    diag_clear(diag);
    assert_int_equal(diag_status(diag), STATUS_OK);
    assert_printed(diag, "");
    diag_fail(diag, STATUS_FORMAT, LOC_NONE, "a\nb", "x\x1b[31m\nerror: forged");
    assert_printed(diag, "error: a\\x0ab: x\\x1b[31m\n        error: forged\n");
    diag_clear(diag);
    diag_fail(diag, STATUS_IO, LOC_FILE("\xff/\xc3\xa9"), NULL, "\xe2\x82 \xed\xa0\x80");
    assert_printed(diag, "\\xff/\xc3\xa9: error: \\xe2\\x82 \\xed\\xa0\\x80\n");
    diag_clear(diag);
    diag_place(diag, at, "passes[2]");
    diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL, "first");
    diag_place(diag, at, "passes[2]");
    diag_place(diag, LOC_FILE("other.yaml"), "other");
    diag_fail(diag, STATUS_MODEL, LOC_NONE, "labels", "second");
    diag_note(diag, "noted");
    diag_warn(diag, LOC_NONE, NULL, "odd");
    diag_place(diag, at, "passes[2]");
    assert_printed(diag, "a.yaml:12:11: error: passes[2]: first\n"
                         "a.yaml:12:11: error: labels: second\n"
                         "    note: noted\n"
                         "warning: odd\n");
    diag_destroy(diag);
}

/* A plan and the run behind it warn of the same; what differs in anything stays. */
/* What was recorded aside comes after what is there, and is gone from there. */
static void test_diag_take(void **state) {
    (void)state;
    Diag *diag = diag_create(), *aside = diag_create();
    assert_int_equal(diag_take(diag, aside), STATUS_OK);
    diag_warn(aside, LOC_NONE, NULL, "odd");
    diag_fail(aside, STATUS_MODEL, (Loc){"a.yaml", 3, 1}, "k", "bad");
    diag_hint(aside, "try 8");
    diag_fail(aside, STATUS_IO, LOC_NONE, NULL, "gone");
    assert_int_equal(diag_take(diag, aside), STATUS_MODEL);
    assert_int_equal(diag_status(diag), STATUS_MODEL);
    assert_int_equal(diag_errors(diag), 2);
    assert_int_equal(diag_errors(aside), 0);
    assert_printed(aside, "");
    diag_note(diag, "late");
    diag_fail(aside, STATUS_FORMAT, LOC_NONE, NULL, "second");
    assert_int_equal(diag_take(diag, aside), STATUS_FORMAT);
    assert_int_equal(diag_status(diag), STATUS_MODEL);
    assert_printed(diag, "warning: odd\n"
                         "a.yaml:3:1: error: k: bad\n"
                         "    hint: try 8\n"
                         "error: gone\n"
                         "    note: late\n"
                         "error: second\n");
    diag_destroy(aside);
    diag_destroy(diag);
}

/* Of many warnings 100 are kept, the rest are counted, also where they come from another
 * list. */
static void test_many_warnings(void **state) {
    (void)state;
    Diag *diag = diag_create(), *aside = diag_create();
    for (int i = 0; i < 150; i++) {
        diag_warn(diag, LOC_NONE, NULL, "odd %d", i);
        diag_warn(aside, LOC_NONE, NULL, "strange %d", i);
    }
    assert_int_equal(diag_warning_count(diag), 100);
    diag_take(diag, aside);
    assert_int_equal(diag_warning_count(diag), 100);
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    diag_print(diag, out);
    fclose(out);
    assert_string_equal(text + length -
                            strlen("warning: odd 99\nand 200 more warnings\n"),
                        "warning: odd 99\nand 200 more warnings\n");
    free(text);
    diag_destroy(aside);
    diag_destroy(diag);
}

static void test_repeated_warnings(void **state) {
    (void)state;
    Diag *diag = diag_create();
    const Loc at = {"a.yaml", 12, 11}, other = {"a.yaml", 13, 11};
    for (int i = 0; i < 2; i++) {
        diag_warn(diag, at, "passes[2]", "odd");
        diag_warn(diag, at, "passes[3]", "odd");
        diag_warn(diag, at, NULL, "odd");
        diag_warn(diag, at, "passes[2]", "odd %d", i);
        diag_warn(diag, other, "passes[2]", "odd");
        diag_warn(diag, LOC_FILE("b.h5"), NULL, "odd");
    }
    assert_printed(diag, "a.yaml:12:11: warning: passes[2]: odd\n"
                         "a.yaml:12:11: warning: passes[3]: odd\n"
                         "a.yaml:12:11: warning: odd\n"
                         "a.yaml:12:11: warning: passes[2]: odd 0\n"
                         "a.yaml:13:11: warning: passes[2]: odd\n"
                         "b.h5: warning: odd\n"
                         "a.yaml:12:11: warning: passes[2]: odd 1\n"
                         "b.h5: warning: odd\n");
    diag_destroy(diag);
}

static void test_arena(void **state) {
    (void)state;
    Arena *arena = arena_create();
    for (size_t bytes = 0; bytes < 20000; bytes += 37) {
        unsigned char *memory = arena_alloc(arena, bytes);
        assert_int_equal((uintptr_t)memory % 16, 0);
        for (size_t i = 0; i < bytes; i++) assert_int_equal(memory[i], 0);
        if (bytes > 0) memset(memory, 0xff, bytes);
    }
    assert_null(arena_strdup(arena, NULL));
    assert_string_equal(arena_strndup(arena, "abcdef", 3), "abc");
    assert_string_equal(arena_printf(arena, "%s-%d", "x", 42), "x-42");
    arena_destroy(arena);
    arena_destroy(NULL);
}

static void test_text_quoted(void **state) {
    (void)state;
    Text text = {0};
    text_quoted(&text,
                "a\"b\\c\n\t\x01 \xc3\xa9 \xf0\x9f\x98\x80 \xff \xc0\x80 \xe2\x82");
    assert_string_equal(text.data, "\"a\\\"b\\\\c\\n\\t\\u0001 \xc3\xa9 \xf0\x9f\x98\x80 "
                                   "\\ufffd \\ufffd\\ufffd \\ufffd\\ufffd\"");
    text_free(&text);
    assert_null(text.data);
}

static void assert_real(double value, const char *expected) {
    Text text = {0};
    text_real(&text, value);
    assert_string_equal(text.data, expected);
    text_free(&text);
}

static void test_text_real(void **state) {
    (void)state;
    assert_real(0.0, "0.0");
    assert_real(-0.0, "-0.0");
    assert_real(3.0, "3.0");
    assert_real(0.1, "0.1");
    assert_real(1e-6, "1e-06");
    assert_real(1e300, "1e+300");
    assert_real(5e-324, "5e-324");
    assert_real(0.1 + 0.2, "0.30000000000000004");
    assert_real(INFINITY, "inf");
    assert_real(-INFINITY, "-inf");
    assert_real(-NAN, "nan");
}

static void test_text_real_round_trip(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 100000; i++) {
        uint64_t bits = random_u64(7, i);
        double value;
        memcpy(&value, &bits, sizeof value);
        if (isnan(value)) continue;
        Text text = {0};
        text_real(&text, value);
        double back = strtod(text.data, NULL);
        assert_memory_equal(&back, &value, sizeof value);
        assert_non_null(strpbrk(text.data, ".ein"));
        text_free(&text);
    }
}

static void assert_json(const Tree *tree, int indent, const char *expected) {
    Text text = {0};
    tree_print_json(&text, tree, indent);
    assert_string_equal(text.data, expected);
    text_free(&text);
}

static Tree *append_int(Arena *arena, Tree *list, int64_t value) {
    Tree *item = tree_new(arena, TREE_INT, LOC_NONE);
    item->integer = value;
    tree_append(arena, list, NULL, LOC_NONE, item);
    return item;
}

/* {"train":{"epochs":3},"passes":[{"rank":8},[1,2]],"rate":null} */
static Tree *make_document(Arena *arena) {
    Tree *root = tree_new(arena, TREE_MAP, LOC_NONE);
    Tree *train = tree_new(arena, TREE_MAP, LOC_NONE);
    Tree *passes = tree_new(arena, TREE_LIST, LOC_NONE);
    Tree *step = tree_new(arena, TREE_MAP, LOC_NONE);
    Tree *pair = tree_new(arena, TREE_LIST, LOC_NONE);
    tree_append(arena, root, "train", LOC_NONE, train);
    tree_put_int(arena, train, "epochs", 3);
    tree_append(arena, root, "passes", LOC_NONE, passes);
    tree_append(arena, passes, NULL, LOC_NONE, step);
    tree_put_int(arena, step, "rank", 8);
    tree_append(arena, passes, NULL, LOC_NONE, pair);
    append_int(arena, pair, 1);
    append_int(arena, pair, 2);
    tree_put_real(arena, root, "rate", NAN);
    return root;
}

/* Puts an own value at a path of a copy of the document: whether both are equal still. */
static bool equal_with(const char *path, TreeKind kind, double real) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Tree *root = make_document(arena), *copy = tree_copy(arena, root);
    Tree *value = tree_new(arena, kind, LOC_NONE);
    if (kind == TREE_INT) value->integer = (int64_t)real;
    if (kind == TREE_FLOAT) value->real = real;
    assert_int_equal(tree_set(arena, copy, path, value, diag), STATUS_OK);
    const bool equal = tree_equal(root, copy);
    assert_int_equal(tree_equal(copy, root), equal);
    diag_destroy(diag);
    arena_destroy(arena);
    return equal;
}

/* Equal is what prints alike. */
static void test_tree_equal(void **state) {
    (void)state;
    assert_true(equal_with("train.epochs", TREE_INT, 3));
    assert_false(equal_with("train.epochs", TREE_INT, 4));
    assert_false(equal_with("train.epochs", TREE_FLOAT, 3));
    assert_false(equal_with("train.rate", TREE_FLOAT, 3)); /* a further key */
    assert_false(equal_with("passes.1.0", TREE_INT, 2));
    assert_false(equal_with("passes.1", TREE_LIST, 0)); /* an empty list */
    assert_true(equal_with("rate", TREE_FLOAT, INFINITY));
    Arena *arena = arena_create();
    Tree *root = make_document(arena), *copy = tree_copy(arena, root);
    tree_put(arena, copy, "rate", tree_new(arena, TREE_NULL, LOC_NONE));
    assert_true(tree_equal(root, copy));
    Tree *a = tree_new(arena, TREE_MAP, LOC_NONE);
    Tree *b = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_put_bool(arena, a, "x", true);
    tree_put_bool(arena, b, "y", true);
    assert_false(tree_equal(a, b));
    tree_put_string(arena, a, "x", "1");
    tree_put_string(arena, b, "y", "2");
    assert_false(tree_equal(a->first, b->first)); /* keys of parents are not theirs */
    assert_true(tree_equal(NULL, NULL));
    assert_false(tree_equal(NULL, a) || tree_equal(a, NULL));
    arena_destroy(arena);
}

static void test_tree(void **state) {
    (void)state;
    Arena *arena = arena_create();
    Tree *root = make_document(arena);
    Tree *passes = tree_get(root, "passes");
    assert_string_equal(tree_path(arena, root), "");
    assert_string_equal(tree_path(arena, tree_get(passes->first, "rank")),
                        "passes[0].rank");
    assert_string_equal(tree_path(arena, passes->last->last), "passes[1][1]");
    assert_null(tree_get(root, "nothing"));
    assert_null(tree_get(passes, "rank"));
    assert_null(tree_get(NULL, "rank"));
    tree_put_string(arena, passes->first, "name", "one");
    assert_string_equal(tree_string(passes->first, "name"), "one");
    assert_null(tree_string(passes->first, "rank")); /* a number */
    assert_null(tree_string(passes->first, "nothing"));
    assert_null(tree_string(passes, "name"));
    assert_null(tree_string(NULL, "name"));
    assert_json(root, 0,
                "{\"train\":{\"epochs\":3},\"passes\":[{\"rank\":8,\"name\":\"one\"},"
                "[1,2]],\"rate\":null}");
    assert_json(
        root, 2,
        "{\n  \"train\": {\n    \"epochs\": 3\n  },\n  \"passes\": [\n    {\n"
        "      \"rank\": 8,\n      \"name\": \"one\"\n    },\n    [1, 2]\n  ],\n  \"rate\": null\n}");
    arena_destroy(arena);
}

static void test_tree_copy(void **state) {
    (void)state;
    Arena *arena = arena_create(), *other = arena_create();
    Tree *root = make_document(arena);
    root->loc = (Loc){arena_strdup(arena, "x.yaml"), 4, 2};
    Tree *copy = tree_copy(other, root);
    arena_destroy(arena);
    assert_string_equal(copy->loc.file, "x.yaml");
    assert_int_equal(copy->loc.line, 4);
    assert_json(copy, 0,
                "{\"train\":{\"epochs\":3},\"passes\":[{\"rank\":8},[1,2]],"
                "\"rate\":null}");
    arena_destroy(other);
}

static void test_tree_large_map(void **state) {
    (void)state;
    Arena *arena = arena_create();
    Tree *map = tree_new(arena, TREE_MAP, LOC_NONE);
    for (int i = 0; i < 50000; i++) {
        const char *key = arena_printf(arena, "key%d", i);
        assert_null(tree_get(map, key));
        tree_put_int(arena, map, key, i);
    }
    tree_put_int(arena, map, "key77", -1);
    assert_int_equal(map->count, 50000);
    assert_int_equal(tree_get(map, "key77")->integer, -1);
    assert_int_equal(tree_get(map, "key49999")->integer, 49999);
    assert_null(tree_get(map, "key50000"));
    tree_remove(tree_get(map, "key77"));
    assert_int_equal(map->count, 49999);
    assert_null(tree_get(map, "key77"));
    tree_put_int(arena, map, "key77", 7);
    assert_int_equal(tree_get(map, "key77")->integer, 7);
    assert_int_equal(tree_get(map, "key78")->integer, 78);
    arena_destroy(arena);
}

static Status set_string(Arena *arena, Tree *root, const char *path, Diag *diag) {
    Tree *value = tree_new(arena, TREE_STRING, LOC_FILE("--set"));
    value->string = "v";
    return tree_set(arena, root, path, value, diag);
}

static void test_tree_set(void **state) {
    (void)state;
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Tree *root = make_document(arena);
    assert_int_equal(set_string(arena, root, "train.epochs", diag), STATUS_OK);
    assert_int_equal(set_string(arena, root, "passes.0.rank", diag), STATUS_OK);
    assert_int_equal(set_string(arena, root, "passes.1.1", diag), STATUS_OK);
    assert_int_equal(set_string(arena, root, "train.a.b", diag), STATUS_OK);
    assert_int_equal(set_string(arena, root, "rate", diag), STATUS_OK);
    assert_json(root, 0,
                "{\"train\":{\"epochs\":\"v\",\"a\":{\"b\":\"v\"}},"
                "\"passes\":[{\"rank\":\"v\"},[1,\"v\"]],\"rate\":\"v\"}");
    append_int(arena, tree_get(root, "passes")->last, 3);
    assert_string_equal(
        tree_path(arena, tree_get(root, "passes")->last->first->next->next),
        "passes[1][2]");

    /* as messages have it */
    assert_int_equal(set_string(arena, root, "passes[1][2]", diag), STATUS_OK);
    assert_int_equal(set_string(arena, root, "passes[0].rank", diag), STATUS_OK);
    assert_int_equal(tree_get(root, "passes")->last->first->next->next->kind,
                     TREE_STRING);
    assert_int_equal(set_string(arena, root, "train.a[x]", diag), STATUS_OK); /* a name */
    assert_non_null(tree_get(tree_get(root, "train"), "a[x]"));

    /* null takes a key away, and stands where there is none to take; not in lists */
    Tree *map = tree_get(root, "train");
    const int keys = map->count;
    const char *const taken[] = {"train.epochs", "train.none", "passes.1.0"};
    for (int i = 0; i < 3; i++)
        assert_int_equal(
            tree_set(arena, root, taken[i], tree_new(arena, TREE_NULL, LOC_NONE), diag),
            STATUS_OK);
    assert_null(tree_get(map, "epochs"));
    assert_int_equal(tree_get(map, "none")->kind, TREE_NULL);
    assert_int_equal(map->count, keys);
    assert_ptr_equal(map->last, tree_get(map, "none"));
    assert_int_equal(tree_get(root, "passes")->last->first->kind, TREE_NULL);

    Tree *empty = tree_new(arena, TREE_NULL, LOC_NONE);
    assert_int_equal(set_string(arena, empty, "a.b", diag), STATUS_OK);
    assert_json(empty, 0, "{\"a\":{\"b\":\"v\"}}");
    assert_int_equal(diag_errors(diag), 0);
    diag_destroy(diag);
    arena_destroy(arena);
}

static void test_tree_set_faults(void **state) {
    (void)state;
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Tree *root = make_document(arena);
    const char *const paths[] = {"",
                                 "a..b",
                                 ".a",
                                 "a.",
                                 "passes.2",
                                 "passes.x",
                                 "passes.99999999999",
                                 "train.epochs.x"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        assert_int_equal(set_string(arena, root, paths[i], diag),
                         i < 4 ? STATUS_USAGE : STATUS_RECIPE);
    }
    assert_printed(
        diag,
        "--set: error: expected a path such as train.epochs, found \"\"\n"
        "--set: error: expected a path such as train.epochs, found \"a..b\"\n"
        "--set: error: expected a path such as train.epochs, found \".a\"\n"
        "--set: error: expected a path such as train.epochs, found \"a.\"\n"
        "--set: error: passes.2: passes is a list: expected an index from 0 to 1, "
        "found \"2\"\n"
        "--set: error: passes.x: passes is a list: expected an index from 0 to 1, "
        "found \"x\"\n"
        "--set: error: passes.99999999999: passes is a list: expected an index from 0 "
        "to 1, found \"99999999999\"\n"
        "--set: error: train.epochs.x: expected a map or list at train.epochs to hold "
        "\"x\", found integer 3\n");
    assert_json(root, 0,
                "{\"train\":{\"epochs\":3},\"passes\":[{\"rank\":8},[1,2]],"
                "\"rate\":null}");
    diag_destroy(diag);
    arena_destroy(arena);
}

/* Known answers of the Random123 distribution for philox4x32-10. */
static void test_philox(void **state) {
    (void)state;
    static const uint32_t cases[][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0,
         0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t out[4];
        random_philox(cases[i], cases[i] + 4, out);
        assert_memory_equal(out, cases[i] + 6, sizeof out);
    }
    uint32_t block[4], words[4];
    const uint32_t counter[4] = {0x55667788, 0x11223344, 0, 0};
    const uint32_t key[2] = {0xddeeff00, 0x99aabbcc};
    random_block(0x99aabbccddeeff00, 0x1122334455667788, block);
    random_philox(counter, key, words);
    assert_memory_equal(block, words, sizeof block);
}

static void test_random_keys(void **state) {
    (void)state;
    assert_true(random_key(1, 2) != random_key(1, 3));
    assert_true(random_key(1, 2) != random_key(2, 2));
    assert_true(random_key(1, 2) != random_u64(1, 2));
    assert_true(random_key_name(1, "") != random_key_name(1, "a"));
    assert_true(random_key_name(1, "abcdefgh") != random_key_name(1, "abcdefghi"));
    assert_true(random_key_name(1, "abc") == random_key_name(1, "abc"));
}

static void test_random_moments(void **state) {
    (void)state;
    enum { COUNT = 200000 };
    double sums[6] = {0};
    for (uint64_t i = 0; i < COUNT; i++) {
        double u = random_uniform(3, i), n = random_normal(3, i);
        double t = random_trunc_normal(3, i);
        assert_true(u >= 0 && u < 1);
        assert_true(fabs(t) <= 2);
        const double terms[] = {u, u * u, n, n * n, t, t * t};
        for (int k = 0; k < 6; k++) sums[k] += terms[k] / COUNT;
    }
    const double expected[] = {0.5, 1.0 / 3, 0, 1, 0, 0.774};
    for (int k = 0; k < 6; k++) assert_true(fabs(sums[k] - expected[k]) < 0.01);
}

static void test_permutation(void **state) {
    (void)state;
    enum { COUNT = 10007 };
    static int64_t order[COUNT];
    static int seen[COUNT];
    random_permutation(5, order, COUNT);
    int64_t fixed = 0;
    for (int i = 0; i < COUNT; i++) {
        assert_in_range(order[i], 0, COUNT - 1);
        seen[order[i]]++;
        fixed += order[i] == i;
    }
    for (int i = 0; i < COUNT; i++) assert_int_equal(seen[i], 1);
    assert_true(fixed < 10);
    random_permutation(5, order, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status),
        cmocka_unit_test(test_diag),
        cmocka_unit_test(test_diag_take),
        cmocka_unit_test(test_repeated_warnings),
        cmocka_unit_test(test_many_warnings),
        cmocka_unit_test(test_arena),
        cmocka_unit_test(test_text_quoted),
        cmocka_unit_test(test_text_real),
        cmocka_unit_test(test_text_real_round_trip),
        cmocka_unit_test(test_tree),
        cmocka_unit_test(test_tree_copy),
        cmocka_unit_test(test_tree_equal),
        cmocka_unit_test(test_tree_large_map),
        cmocka_unit_test(test_tree_set),
        cmocka_unit_test(test_tree_set_faults),
        cmocka_unit_test(test_philox),
        cmocka_unit_test(test_random_keys),
        cmocka_unit_test(test_random_moments),
        cmocka_unit_test(test_permutation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
