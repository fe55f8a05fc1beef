/* Fields: binding, its messages for every kind, printing, manual and schema. */
#include "ir/field.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct Sample {
    bool shuffle;
    int64_t rank, seed;
    double rate, scale;
    const char *name;
    int act;
    IntList dims;
    RealList weights;
    StringList parts;
    const Tree *extra;
} Sample;

static const Field FIELDS[] = {
    F_BOOL(Sample, shuffle, "shuffle the samples"),
    F_INT(Sample, rank, 1, 768, "rank of the factors"),
    F_INT(Sample, seed, 0, 0, "seed"),
    F_REAL(Sample, rate, 0, 1, "learning rate"),
    F_REAL(Sample, scale, 0, INFINITY, "scale"),
    F_STRING(Sample, name, "name of the result", .nullable = true),
    F_CHOICE(Sample, act, "relu|gelu|gelu_tanh", "activation"),
    F_INTS(Sample, dims, 1, 9, "dimensions"),
    F_REALS(Sample, weights, 0, 0, "weights of terms"),
    F_STRINGS(Sample, parts, "parts to change"),
    F_TREE(Sample, extra, NULL, "anything", .nullable = true),
    F_END,
};

static const Field REQUIRED[] = {
    {.name = "rank",
     .kind = FIELD_INT,
     .offset = offsetof(Sample, rank),
     .min = 1,
     .max = 768,
     .required = true,
     .help = "rank of the factors"},
    F_END,
};

static const Sample DEFAULTS = {.rank = 8, .rate = 0.5, .scale = 1, .act = 1};

typedef struct Setup {
    Arena *arena;
    Diag *diag;
    Tree *root, *map; /* map stands at passes[0] */
    int line;
    Sample sample;
} Setup;

static int setup(void **state) {
    Setup *s = memory_alloc(1, sizeof *s);
    s->arena = arena_create();
    s->diag = diag_create();
    s->root = tree_new(s->arena, TREE_MAP, LOC_NONE);
    Tree *passes = tree_new(s->arena, TREE_LIST, LOC_NONE);
    tree_append(s->arena, s->root, "passes", LOC_NONE, passes);
    s->map = tree_new(s->arena, TREE_MAP, (Loc){"x.yaml", 1, 5});
    tree_append(s->arena, passes, NULL, LOC_NONE, s->map);
    s->sample = DEFAULTS;
    *state = s;
    return 0;
}

static int teardown(void **state) {
    Setup *s = *state;
    arena_destroy(s->arena);
    diag_destroy(s->diag);
    free(s);
    return 0;
}

static Tree *new_value(Setup *s, TreeKind kind) {
    return tree_new(s->arena, kind, (Loc){"x.yaml", s->line, 11});
}

static Tree *new_int(Setup *s, int64_t integer) {
    Tree *value = new_value(s, TREE_INT);
    value->integer = integer;
    return value;
}

static Tree *new_real(Setup *s, double real) {
    Tree *value = new_value(s, TREE_FLOAT);
    value->real = real;
    return value;
}

static Tree *new_string(Setup *s, const char *string) {
    Tree *value = new_value(s, TREE_STRING);
    value->string = string;
    return value;
}

static Tree *new_pair(Setup *s, Tree *a, Tree *b) {
    Tree *list = new_value(s, TREE_LIST);
    tree_append(s->arena, list, NULL, LOC_NONE, a);
    tree_append(s->arena, list, NULL, LOC_NONE, b);
    return list;
}

/* Adds a key to the map; every key stands on a line of its own. */
static void put(Setup *s, const char *key, Tree *value) {
    s->line++;
    tree_append(s->arena, s->map, key, (Loc){"x.yaml", s->line, 5}, value);
    value->loc.line = s->line;
}

static Status bind(Setup *s, const Field *fields) {
    return fields_bind(fields, s->map, &s->sample, s->arena, STATUS_RECIPE, s->diag);
}

static void assert_printed(const Setup *s, const char *expected) {
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    assert_non_null(out);
    diag_print(s->diag, out);
    fclose(out);
    assert_string_equal(text, expected);
    free(text);
}

static void print_schema(Text *text, Arena *arena, const Field *fields,
                         const void *defaults) {
    tree_print_json(text, fields_schema(arena, fields, defaults), 0);
}

static void put_everything(Setup *s) {
    Tree *yes = new_value(s, TREE_BOOL);
    yes->boolean = true;
    put(s, "shuffle", yes);
    put(s, "rank", new_int(s, 768));
    put(s, "rate", new_int(s, 1));
    put(s, "name", new_string(s, "a b"));
    put(s, "act", new_string(s, "gelu_tanh"));
    put(s, "dims", new_pair(s, new_int(s, 3), new_int(s, 4)));
    put(s, "weights", new_pair(s, new_int(s, 1), new_real(s, -0.25)));
    put(s, "parts", new_pair(s, new_string(s, "q"), new_string(s, "k")));
    put(s, "extra", new_pair(s, new_int(s, 1), new_value(s, TREE_NULL)));
}

static void test_bind(void **state) {
    Setup *s = *state;
    put_everything(s);
    assert_int_equal(bind(s, FIELDS), STATUS_OK);
    const Sample *sample = &s->sample;
    assert_true(sample->shuffle);
    assert_int_equal(sample->rank, 768);
    assert_true(sample->rate == 1.0 && sample->scale == 1.0);
    assert_string_equal(sample->name, "a b");
    assert_int_equal(sample->act, 2);
    assert_int_equal(sample->dims.count, 2);
    assert_int_equal(sample->dims.items[1], 4);
    assert_true(sample->weights.items[1] == -0.25);
    assert_string_equal(sample->parts.items[1], "k");
    assert_ptr_equal(sample->extra, tree_get(s->map, "extra"));
    assert_int_equal(diag_errors(s->diag), 0);
}

static void test_bind_empty(void **state) {
    Setup *s = *state;
    Tree *null = new_value(s, TREE_NULL);
    Status status = STATUS_RECIPE;
    status = fields_bind(FIELDS, NULL, &s->sample, s->arena, status, s->diag);
    assert_int_equal(status, STATUS_OK);
    status = fields_bind(FIELDS, null, &s->sample, s->arena, STATUS_RECIPE, s->diag);
    assert_int_equal(status, STATUS_OK);
    assert_memory_equal(&s->sample, &DEFAULTS, sizeof DEFAULTS);
    Tree *text = new_string(s, "abc");
    status = fields_bind(FIELDS, text, &s->sample, s->arena, STATUS_MODEL, s->diag);
    assert_int_equal(status, STATUS_MODEL);
    assert_printed(s, "x.yaml: error: expected map, found string \"abc\"\n");
}

static void test_wrong_types(void **state) {
    Setup *s = *state;
    put(s, "shuffle", new_int(s, 1));
    put(s, "rank", new_string(s, "abc"));
    put(s, "seed", new_real(s, 3));
    put(s, "rate", new_string(s, "0.1"));
    put(s, "name", new_int(s, 5));
    put(s, "act", new_string(s, "gelo"));
    put(s, "dims", new_int(s, 3));
    put(s, "weights", new_string(s, "all"));
    put(s, "parts", new_pair(s, new_string(s, "q"), new_value(s, TREE_MAP)));
    assert_int_equal(bind(s, FIELDS), STATUS_RECIPE);
    assert_int_equal(diag_errors(s->diag), 9);
    assert_printed(
        s,
        "x.yaml:1:11: error: passes[0].shuffle: expected boolean, found integer 1\n"
        "x.yaml:2:11: error: passes[0].rank: expected integer between 1 and 768, found "
        "string \"abc\"\n"
        "x.yaml:3:11: error: passes[0].seed: expected integer, found float 3.0\n"
        "x.yaml:4:11: error: passes[0].rate: expected number between 0 and 1, found "
        "string \"0.1\"\n"
        "x.yaml:5:11: error: passes[0].name: expected string, found integer 5\n"
        "x.yaml:6:11: error: passes[0].act: expected one of relu, gelu, gelu_tanh, "
        "found string \"gelo\"\n"
        "    hint: did you mean \"gelu\"?\n"
        "x.yaml:7:11: error: passes[0].dims: expected list of integers between 1 and 9, "
        "found integer 3\n"
        "    hint: a list of one is written [3]\n"
        "x.yaml:8:11: error: passes[0].weights: expected list of numbers, found string "
        "\"all\"\n"
        "x.yaml:8:11: error: passes[0].parts[1]: expected string, found map\n");
}

static void test_out_of_range(void **state) {
    Setup *s = *state;
    put(s, "rank", new_int(s, 769));
    put(s, "rate", new_real(s, NAN));
    put(s, "scale", new_int(s, -1));
    put(s, "dims", new_pair(s, new_int(s, 0), new_int(s, 10)));
    put(s, "weights", new_pair(s, new_real(s, 2), new_real(s, INFINITY)));
    put(s, "act", new_value(s, TREE_BOOL));
    assert_int_equal(bind(s, FIELDS), STATUS_RECIPE);
    assert_printed(
        s,
        "x.yaml:1:11: error: passes[0].rank: expected integer between 1 and 768, found "
        "integer 769\n"
        "x.yaml:2:11: error: passes[0].rate: expected finite number between 0 and 1, "
        "found float nan\n"
        "x.yaml:3:11: error: passes[0].scale: expected number of at least 0, found "
        "integer -1\n"
        "x.yaml:3:11: error: passes[0].dims[0]: expected integer between 1 and 9, "
        "found integer 0\n"
        "x.yaml:3:11: error: passes[0].dims[1]: expected integer between 1 and 9, "
        "found integer 10\n"
        "x.yaml:4:11: error: passes[0].weights[1]: expected finite number, found "
        "float inf\n"
        "x.yaml:6:11: error: passes[0].act: expected one of relu, gelu, gelu_tanh, "
        "found boolean false\n");
    assert_int_equal(s->sample.rank, DEFAULTS.rank);
    assert_int_equal(s->sample.dims.count, 0);
}

static void test_unknown_and_missing(void **state) {
    Setup *s = *state;
    put(s, "Rnak", new_int(s, 1));
    put(s, "temperature", new_int(s, 1));
    assert_int_equal(bind(s, REQUIRED), STATUS_RECIPE);
    assert_printed(s, "x.yaml:1:5: error: passes[0].Rnak: unknown key; did you mean "
                      "\"rank\"?\n"
                      "x.yaml:2:5: error: passes[0].temperature: unknown key\n"
                      "    hint: known keys: rank\n"
                      "x.yaml:1:5: error: passes[0].rank: expected integer between 1 "
                      "and 768, found no such key\n"
                      "    hint: rank: rank of the factors\n");
}

static void test_null_pointers(void **state) {
    Setup *s = *state;
    s->sample.name = "before";
    s->sample.extra = s->root;
    put(s, "name", new_value(s, TREE_NULL));
    put(s, "extra", new_value(s, TREE_NULL));
    put(s, "rank", new_value(s, TREE_NULL));
    assert_int_equal(bind(s, FIELDS), STATUS_RECIPE);
    assert_null(s->sample.name);
    assert_null(s->sample.extra);
    assert_int_equal(diag_errors(s->diag), 1);
}

/* null, "", [] and kinds of trees: refused unless the row says otherwise. */
typedef struct Strict {
    const char *name, *label;
    IntList dims;
    StringList parts, words;
    const Tree *model, *any;
} Strict;

static const Field STRICT[] = {
    F_STRING(Strict, name, "name"),
    F_STRING(Strict, label, "label", .empty = true, .nullable = true),
    F_INTS(Strict, dims, 1, 9, "dimensions", .required = true),
    F_STRINGS(Strict, parts, "parts"),
    F_STRINGS(Strict, words, "words", .empty = true),
    F_TREE(Strict, model, "string|map", "model", .expect = "a path or a map"),
    F_TREE(Strict, any, NULL, "anything"),
    F_END,
};

static Tree *new_list(Setup *s, Tree *item) {
    Tree *list = new_value(s, TREE_LIST);
    if (item) tree_append(s->arena, list, NULL, LOC_NONE, item);
    return list;
}

static void test_null_and_empty(void **state) {
    Setup *s = *state;
    Strict strict = {.name = "before", .label = "before"};
    put(s, "name", new_value(s, TREE_NULL));
    put(s, "dims", new_list(s, NULL));
    put(s, "parts", new_list(s, new_string(s, "")));
    put(s, "model", new_value(s, TREE_NULL));
    put(s, "any", new_value(s, TREE_NULL));
    put(s, "words", new_value(s, TREE_NULL));
    Status status =
        fields_bind(STRICT, s->map, &strict, s->arena, STATUS_RECIPE, s->diag);
    assert_int_equal(status, STATUS_RECIPE);
    assert_string_equal(strict.name, "before");
    assert_printed(
        s,
        "x.yaml:1:11: error: passes[0].name: expected string, found null\n"
        "x.yaml:2:11: error: passes[0].dims: expected non-empty list of integers between "
        "1 and 9, found list\n"
        "x.yaml:2:11: error: passes[0].parts[0]: expected non-empty string, found string "
        "\"\"\n"
        "x.yaml:4:11: error: passes[0].model: expected a path or a map, found null\n"
        "x.yaml:5:11: error: passes[0].any: expected any value, found null\n"
        "x.yaml:6:11: error: passes[0].words: expected list of strings, found null\n");
}

static void test_null_and_empty_allowed(void **state) {
    Setup *s = *state;
    Strict strict = {.label = "before"};
    put(s, "label", new_value(s, TREE_NULL));
    put(s, "dims", new_list(s, new_int(s, 1)));
    put(s, "parts", new_list(s, NULL));
    put(s, "words", new_list(s, new_string(s, "")));
    put(s, "model", new_value(s, TREE_MAP));
    put(s, "any", new_value(s, TREE_BOOL));
    Status status =
        fields_bind(STRICT, s->map, &strict, s->arena, STATUS_RECIPE, s->diag);
    assert_int_equal(status, STATUS_OK);
    assert_null(strict.label);
    assert_int_equal(strict.parts.count, 0);
    assert_string_equal(strict.words.items[0], "");
    assert_int_equal(strict.model->kind, TREE_MAP);
}

static void test_kinds_of_trees(void **state) {
    Setup *s = *state;
    Strict strict = {0};
    Text text = {0};
    put(s, "dims", new_list(s, new_int(s, 1)));
    put(s, "model", new_int(s, 7));
    put(s, "name", new_string(s, ""));
    put(s, "label", new_string(s, ""));
    fields_bind(STRICT, s->map, &strict, s->arena, STATUS_RECIPE, s->diag);
    assert_string_equal(strict.label, "");
    assert_printed(s, "x.yaml:2:11: error: passes[0].model: expected a path or a map, "
                      "found integer 7\n"
                      "x.yaml:3:11: error: passes[0].name: expected non-empty string, "
                      "found string \"\"\n");
    print_schema(&text, s->arena, STRICT, NULL);
    assert_non_null(strstr(text.data, "\"name\":{\"type\":\"string\",\"minLength\":1,"));
    assert_non_null(
        strstr(text.data, "\"label\":{\"type\":[\"string\",\"null\"],\"desc"));
    assert_non_null(strstr(text.data, "\"dims\":{\"type\":\"array\",\"minItems\":1,"));
    assert_non_null(strstr(text.data, "\"model\":{\"type\":[\"string\",\"object\"],"));
    text_free(&text);
    fields_document(&text, STRICT + 5, NULL);
    assert_string_equal(text.data, "  model  string or map    model\n"
                                   "  any    any value        anything\n");
    text_free(&text);
}

static void test_print(void **state) {
    Setup *s = *state;
    Text text = {0};
    put_everything(s);
    assert_int_equal(bind(s, FIELDS), STATUS_OK);
    fields_print(&text, FIELDS, &s->sample, &DEFAULTS);
    assert_string_equal(
        text.data,
        "shuffle=true rank=768 rate=1.0 name=\"a b\" act=gelu_tanh dims=[3, 4] "
        "weights=[1.0, -0.25] parts=[\"q\", \"k\"] extra=[1,null]");
    text_free(&text);
    fields_print(&text, FIELDS, &DEFAULTS, &DEFAULTS);
    assert_int_equal(text.length, 0);
    fields_print(&text, FIELDS, &DEFAULTS, NULL);
    assert_string_equal(text.data, "shuffle=false rank=8 seed=0 rate=0.5 scale=1.0 "
                                   "act=gelu dims=[] weights=[] parts=[]");
    text_free(&text);
}

/* What fields_to_tree gives binds back to the same values. */
static void test_tree_round_trip(void **state) {
    Setup *s = *state;
    Sample back = {0};
    Text a = {0}, b = {0};
    put_everything(s);
    assert_int_equal(bind(s, FIELDS), STATUS_OK);
    Tree *map = fields_to_tree(s->arena, FIELDS, &s->sample);
    assert_int_equal(map->count, 11);
    Status status = STATUS_RECIPE;
    status = fields_bind(FIELDS, map, &back, s->arena, status, s->diag);
    assert_int_equal(status, STATUS_OK);
    fields_print(&a, FIELDS, &s->sample, NULL);
    fields_print(&b, FIELDS, &back, NULL);
    assert_string_equal(a.data, b.data);
    map = fields_to_tree(s->arena, FIELDS, &DEFAULTS);
    status = fields_bind(FIELDS, map, &back, s->arena, STATUS_RECIPE, s->diag);
    assert_int_equal(status, STATUS_OK);
    text_free(&a);
    text_free(&b);
}

/* A default outside of the range stands for "not given": null in maps and documents. */
static void test_absent(void **state) {
    typedef struct Share {
        double share;
    } Share;
    static const Field fields[] = {F_REAL(Share, share, 0, 1, "share"), F_END};
    const Share none = {.share = -1};
    Setup *s = *state;
    Share back = none;
    Text text = {0};
    Tree *map = fields_to_tree(s->arena, fields, &none);
    assert_int_equal(tree_get(map, "share")->kind, TREE_NULL);
    Status status = fields_bind(fields, map, &back, s->arena, STATUS_RECIPE, s->diag);
    assert_int_equal(status, STATUS_OK);
    assert_true(field_is_absent(fields, &back) && back.share == -1);
    print_schema(&text, s->arena, fields, &none);
    assert_non_null(strstr(text.data, "{\"type\":[\"number\",\"null\"],\"minimum\":0.0,"
                                      "\"maximum\":1.0,\"description\""));
    text_free(&text);
    fields_document(&text, fields, &none);
    assert_non_null(strstr(text.data, "default none"));
    text_free(&text);
    back.share = 0.5; /* given: null is no number */
    status = fields_bind(fields, map, &back, s->arena, STATUS_RECIPE, s->diag);
    assert_int_equal(status, STATUS_RECIPE);
}

/* Numbers with units: as many thousands, or powers of 1024, and nothing else. */
static void test_units(void **state) {
    typedef struct Sizes {
        double count, bytes;
    } Sizes;
    static const Field fields[] = {
        F_REAL(Sizes, count, 1, 5e12, "", .units = FIELD_COUNTS),
        F_REAL(Sizes, bytes, 0, 1e15, "", .units = FIELD_BYTES), F_END};
    static const struct {
        const char *text;
        double count, bytes; /* -1: refused */
    } rows[] = {{"1K", 1e3, -1},
                {"10M", 10e6, -1},
                {"1.5G", 1.5e9, -1},
                {"5 T", 5e12, -1},
                {"6T", -1, -1},
                {"0.0001K", -1, -1},
                {"45MB", -1, 45e6},
                {"0.5GB", -1, 0.5e9},
                {"1KiB", -1, 1024},
                {"1.5 MiB", -1, 1572864},
                {"2TiB", -1, 2199023255552},
                {"3TB", -1, 3e12},
                {"1e3K", -1, -1},
                {"-1K", -1, -1},
                {"K", -1, -1},
                {".5K", -1, -1},
                {"1..5K", -1, -1},
                {"1  K", -1, -1},
                {"1K ", -1, -1},
                {"1k", -1, -1},
                {"1KIB", -1, -1},
                {"infK", -1, -1},
                {"7", -1, -1},
                {"1K|M", -1, -1},
                {"9999999999999999K", -1, -1}};
    Setup *s = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int f = 0; f < 2; f++) {
            Sizes sizes = {-1, -1};
            Tree *value = tree_new(s->arena, TREE_STRING, LOC_NONE);
            value->string = rows[i].text;
            field_set(&fields[f], value, &sizes, s->arena, STATUS_RECIPE, s->diag);
            const double found = f ? sizes.bytes : sizes.count;
            if (found != (f ? rows[i].bytes : rows[i].count))
                fail_msg("%s as %s: found %g", rows[i].text, fields[f].name, found);
        }
    Text text = {0};
    print_schema(&text, s->arena, fields, NULL);
    assert_non_null(strstr(text.data, "\"type\":[\"number\",\"string\"]"));
    text_free(&text);
}

static void test_document(void **state) {
    (void)state;
    Text text = {0};
    fields_document(&text, FIELDS + 5, &DEFAULTS);
    assert_string_equal(
        text.data,
        "  name     string                            default none  name of the result\n"
        "  act      relu|gelu|gelu_tanh               default gelu  activation\n"
        "  dims     list of integers between 1 and 9  default []    dimensions\n"
        "  weights  list of numbers                   default []    weights of terms\n"
        "  parts    list of strings                   default []    parts to change\n"
        "  extra    any value                         default none  anything\n");
    text_free(&text);
    fields_document(&text, REQUIRED, &DEFAULTS);
    assert_string_equal(
        text.data, "  rank  integer between 1 and 768  required  rank of the factors\n");
    text_free(&text);
}

static void test_schema(void **state) {
    Setup *s = *state;
    Text text = {0};
    print_schema(&text, s->arena, REQUIRED, NULL);
    assert_string_equal(
        text.data, "{\"type\":\"object\",\"properties\":{\"rank\":{\"type\":\"integer\","
                   "\"minimum\":1,\"maximum\":768,\"description\":\"rank of the "
                   "factors\"}},\"required\":[\"rank\"],\"additionalProperties\":false}");
    text_free(&text);
    print_schema(&text, s->arena, FIELDS, &DEFAULTS);
    assert_non_null(strstr(text.data, "\"scale\":{\"type\":\"number\",\"minimum\":0.0,"
                                      "\"default\":1.0,\"description\":\"scale\"}"));
    assert_non_null(strstr(text.data, "\"act\":{\"enum\":[\"relu\",\"gelu\","
                                      "\"gelu_tanh\"],\"default\":\"gelu\","));
    assert_non_null(strstr(text.data, "\"dims\":{\"type\":\"array\",\"items\":{\"type\":"
                                      "\"integer\",\"minimum\":1,\"maximum\":9},"));
    text_free(&text);
}

static void test_nearest(void **state) {
    (void)state;
    const char *const names[] = {"epochs", "learning_rate", "lr", "batch_size"};
    assert_string_equal(name_nearest("epoch", names, 4), "epochs");
    assert_string_equal(name_nearest("ecpohs", names, 4), "epochs");
    assert_string_equal(name_nearest("Learning-Rate", names, 4), "learning_rate");
    assert_string_equal(name_nearest("rl", names, 4), "lr");
    assert_string_equal(name_nearest("batch", names, 4), "batch_size");
    const char *const types[] = {"int8", "int8_int8", "int4_128", "int4_32", "int4_64"};
    assert_string_equal(name_nearest("int4", types, 5), "int4_32");
    assert_string_equal(name_nearest("int9", types, 5), "int8");
    assert_null(name_nearest("x", names, 4));
    assert_null(name_nearest("temperature", names, 4));
    assert_null(name_nearest("", names, 4));
    char word[200];
    memset(word, 'a', sizeof word);
    word[sizeof word - 1] = 0;
    assert_null(name_nearest(word, names, 4));
}

/* `true` and `false` among choices are booleans on every way in and out. */
static void test_choices_true_and_false(void **state) {
    static const Field fields[] = {F_CHOICE(Sample, act, "auto|true|false", "three"),
                                   F_END};
    Setup *s = *state;
    Tree *no = new_value(s, TREE_BOOL);
    no->boolean = false;
    put(s, "act", no);
    assert_int_equal(bind(s, fields), STATUS_OK);
    assert_int_equal(s->sample.act, 2);
    const Tree *back = fields_to_tree(s->arena, fields, &s->sample);
    assert_int_equal(tree_get(back, "act")->kind, TREE_BOOL);
    assert_false(tree_get(back, "act")->boolean);
    Text schema = {0};
    print_schema(&schema, s->arena, fields, NULL);
    assert_non_null(strstr(schema.data, "true"));
    assert_null(strstr(schema.data, "\"true\""));
    assert_non_null(strstr(schema.data, "\"auto\""));
    text_free(&schema);
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_bind),
        CASE(test_bind_empty),
        CASE(test_wrong_types),
        CASE(test_out_of_range),
        CASE(test_unknown_and_missing),
        CASE(test_null_pointers),
        CASE(test_null_and_empty),
        CASE(test_null_and_empty_allowed),
        CASE(test_kinds_of_trees),
        CASE(test_print),
        CASE(test_tree_round_trip),
        CASE(test_absent),
        CASE(test_units),
        cmocka_unit_test(test_document),
        CASE(test_schema),
        CASE(test_choices_true_and_false),
        cmocka_unit_test(test_nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
