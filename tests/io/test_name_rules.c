/* Name maps: new names, parts, turned tensors, and rules that are wrong. */
#include "io_test.h"

#include "io/formats/name_rules.h"
#include "io/formats/safetensors.h"

static char folder[256], path[300], rules_path[300];
static Diag *diag;

static int enter(void **state) {
    (void)state;
    scratch_make(folder);
    snprintf(path, sizeof path, "%s/own.safetensors", folder);
    snprintf(rules_path, sizeof rules_path, "%s/names.yaml", folder);
    diag = diag_create();
    return 0;
}

static int leave(void **state) {
    (void)state;
    scratch_remove(folder);
    diag_destroy(diag);
    return 0;
}

/* Own names: "a.0.qkv" [6, 2], "a.1.qkv" [6, 2], "head" [2, 3], "step" []; values count
 * from 0 in each. */
static void put_checkpoint(void) {
    static const char *const NAMES[] = {"a.0.qkv", "a.1.qkv", "head", "step"};
    static const int64_t DIMS[][2] = {{6, 2}, {6, 2}, {2, 3}, {1, 1}};
    static const int RANKS[] = {2, 2, 2, 0};
    NamedTensor tensors[4];
    for (int i = 0; i < 4; i++) {
        void *data;
        tensors[i].name = NAMES[i];
        expect_ok(diag,
                  tensor_create(&tensors[i].tensor, DTYPE_F32, RANKS[i], DIMS[i], diag));
        expect_ok(diag, tensor_writable(&tensors[i].tensor, &data, diag));
        for (int64_t j = 0; j < tensor_count(&tensors[i].tensor); j++)
            ((float *)data)[j] = (float)j;
    }
    expect_ok(diag, safetensors_write(path, tensors, 4, diag));
    for (int i = 0; i < 4; i++) tensor_release(&tensors[i].tensor);
}

/* The checkpoint under the rules of this text. */
static Status apply(Checkpoint **out, const char *text) {
    NameRules *rules;
    Checkpoint *own;
    put_text(rules_path, text);
    TRY(name_rules_read(&rules, rules_path, diag));
    expect_ok(diag, safetensors_read(&own, path, diag));
    const Status status = name_rules_apply(out, rules, own, diag);
    checkpoint_destroy(own);
    name_rules_destroy(rules);
    return status;
}

static void expect_values(const Checkpoint *got, const char *name, int rank,
                          const int64_t *dim, const float *values) {
    const Tensor *tensor = checkpoint_find(got, name);
    if (!tensor) fail_msg("no tensor %s", name);
    const Tensor want = tensor_shape(DTYPE_F32, rank, dim);
    assert_true(tensor_same_shape(tensor, &want));
    const float *found = tensor_data(tensor);
    for (int64_t i = 0; i < tensor_count(tensor); i++)
        if (found[i] != values[i])
            fail_msg("%s[%d]: expected %g, found %g", name, (int)i, (double)values[i],
                     (double)found[i]);
}

static void new_names(void **state) {
    (void)state;
    Checkpoint *got;
    put_checkpoint();
    expect_ok(diag, apply(&got, "rules:\n"
                                "  - {match: 'a\\.(\\d)\\.(qkv)', to: 'l$1.$part.$0', "
                                "split: [q, k, v]}\n"
                                "  - {match: 'head|heads', to: out, transpose: true}\n"
                                "  - {match: 'st.*', drop: true}\n"));
    assert_int_equal(got->count, 7);
    expect_values(got, "l0.q.a.0.qkv", 2, (int64_t[]){2, 2}, (float[]){0, 1, 2, 3});
    expect_values(got, "l1.v.a.1.qkv", 2, (int64_t[]){2, 2}, (float[]){8, 9, 10, 11});
    expect_values(got, "out", 2, (int64_t[]){3, 2}, (float[]){0, 3, 1, 4, 2, 5});
    checkpoint_destroy(got);
    expect_ok(diag,
              apply(&got, "rules:\n"
                          "  - {match: 'a.0.qkv', to: '$part', split: [x, y], axis: "
                          "1}\n"
                          "  - {match: 'a.1.qkv', to: z, reshape: [3, 2, 2], permute: "
                          "[2, 0, 1]}\n"
                          "  - {match: '.*', to: 'same.$0'}\n"));
    assert_int_equal(got->count, 5);
    expect_values(got, "y", 2, (int64_t[]){6, 1}, (float[]){1, 3, 5, 7, 9, 11});
    expect_values(got, "z", 3, (int64_t[]){2, 3, 2},
                  (float[]){0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11});
    expect_values(got, "same.step", 0, (int64_t[]){0}, (float[]){0});
    checkpoint_destroy(got);
}

#define REST " - {match: .*, drop: true}"

static const struct {
    const char *text;
    Status status;
    const char *message;
} BAD[] = {
    {"[]", STATUS_RECIPE,
     "names.yaml:1:1: error: expected a map with `rules`, found list"},
    {"rules: []\nfrm: x", STATUS_RECIPE, "frm: unknown key; did you mean \"from\"?"},
    {"rules: {}", STATUS_RECIPE, "rules: expected a list of rules"},
    {"rules: [x]", STATUS_RECIPE, ":1:9: error: rules[0]: expected a map, found string"},
    {"rules:\n - {match: x, too: y}", STATUS_RECIPE, "too"},
    {"rules:\n - {match: x}", STATUS_RECIPE, "expected `to` or `drop: true`"},
    {"rules:\n - {match: x, to: y, drop: true}", STATUS_RECIPE, "`drop` stands with"},
    {"rules:\n - {match: '(', to: y}", STATUS_FORMAT, "rules[0]: expected a regular"},
    {"rules:\n - {match: '(x)', to: '$2'}", STATUS_RECIPE,
     "$2, but the expression has 1"},
    {"rules:\n - {match: 'x', to: '$y'}", STATUS_RECIPE, "expected $0 to $9 or $part"},
    {"rules:\n - {match: 'x', to: '$part'}", STATUS_RECIPE, "$part without `split`"},
    {"rules:\n - {match: 'x', to: 'y', split: [a, b]}", STATUS_RECIPE, "expected $part"},
    {"rules:\n - {match: 'x', to: y, transpose: true, permute: [0]}", STATUS_RECIPE,
     "`transpose` or `permute`, found both"},
    {"rules:\n - {match: 'x', to: y, permute: [0, 0]}", STATUS_RECIPE, "each of 0 to 1"},
    {"rules:\n - {match: '()()()()()()()()()()', to: y}", STATUS_RECIPE,
     "at most 9 groups"},
    {"rules:\n - {match: head, to: y}\n - {match: 'hea', drop: true}\n" REST,
     STATUS_RECIPE, "rules[1]: 'hea' matches none of the 4 tensors"},
    {"rules:\n - {match: head, to: y}\n", STATUS_RECIPE,
     "own.safetensors: error: a.0.qkv: no rule of the name map matches this tensor, nor"},
    {"rules:\n - {match: 'a.*', to: y}\n" REST, STATUS_RECIPE,
     "y: the name map gives two tensors this name"},
    {"rules:\n - {match: step, to: y, transpose: true}\n" REST, STATUS_RECIPE,
     "rules[0]: 'step' of shape []: expected 2 dimensions"},
    {"rules:\n - {match: head, to: $part, split: [a, b, c]}\n" REST, STATUS_RECIPE,
     "'head' of shape [2, 3] cannot be split into 3 along dimension 0"},
    {"rules:\n - {match: head, to: $part, split: [a, b], axis: 2}\n" REST, STATUS_RECIPE,
     "cannot be split into 2 along dimension 2"},
    {"rules:\n - {match: head, to: x, reshape: [2, 2]}\n" REST, STATUS_RECIPE,
     "'head' of shape [2, 3] does not fit `reshape`"},
    {"rules:\n - {match: '(x)?head', to: '$1'}\n" REST, STATUS_RECIPE,
     "'head' gets an empty name"},
};

static void wrong_rules(void **state) {
    (void)state;
    Checkpoint *got;
    put_checkpoint();
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++)
        expect_error(diag, apply(&got, BAD[i].text), BAD[i].status, BAD[i].message);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(new_names, enter, leave),
        cmocka_unit_test_setup_teardown(wrong_rules, enter, leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
