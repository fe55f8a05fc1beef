/* Models larger than memory: recipes without data, layers that go by what data say, and
 * conversion keep to twice the largest tensor and 200 MB, measured by the kernel on the
 * built program, and give the bytes that they give in memory. The model has 290 MB; its
 * largest tensor 16 (32 in float32). Where weights only go from file to file, tensors are
 * in memory in pieces: two of 164 MB, of another model, do not show. */
#include "exec/ops.h"
#include "io/files/file.h"
#include "io/formats/load.h"
#include "ir/resident.h"
#include "ir/sanitized.h"
#include "session/session.h"
#include "tests/support/check.h"
#include "tests/support/foretold.h"
#include "tests/support/program.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MB ((size_t)1000000)
/* What vocabulary and width below make the largest tensor, in bfloat16 and in float32. */
#define LARGEST     ((size_t)8000 * 1024 * 2)
#define LARGEST_F32 (2 * LARGEST)
/* What the program may have beside pieces of tensors. */
#define FEW (80 * MB)

typedef struct Place {
    char folder[64], model[96], large[96], recipe[96], output[96], wanted[96];
} Place;

/* Does something in a process of its own: what one has kept counts for the programs that
 * it starts. */
static void apart(void (*work)(const Place *place, const char *detail),
                  const Place *place, const char *detail) {
    int status;
    const pid_t child = fork();
    if (child == 0) {
        work(place, detail);
        exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static int make_model(void **state) {
    static Place place = {.folder = "/tmp/streaming_XXXXXX"};
    const char *base = getenv("TMPDIR");
    if (base && strlen(base) < 40)
        snprintf(place.folder, sizeof place.folder, "%s/streaming_XXXXXX", base);
    assert_non_null(mkdtemp(place.folder));
    snprintf(place.model, sizeof place.model, "%s/llama", place.folder);
    snprintf(place.large, sizeof place.large, "%s/large", place.folder);
    snprintf(place.recipe, sizeof place.recipe, "%s/recipe.yaml", place.folder);
    program_run((const char *[]){MAKE_LLAMA, place.model, "1024", "2816", "5", "8000",
                                 "100", NULL},
                NULL);
    program_run((const char *[]){MAKE_LLAMA, place.large, "1024", "64", "3", "80000",
                                 "200", NULL},
                NULL);
    *state = &place;
    return 0;
}

static int remove_model(void **state) {
    const Place *place = *state;
    program_run((const char *[]){"/bin/rm", "-r", place->folder, NULL}, NULL);
    return 0;
}

static void name_outputs(Place *place, const char *name) {
    snprintf(place->output, sizeof place->output, "%s/%s", place->folder, name);
    snprintf(place->wanted, sizeof place->wanted, "%s/wanted-%s", place->folder, name);
}

static void compare_outputs(const Place *place, const char *detail) {
    (void)detail;
    Diag *diag = diag_create();
    Buf *found, *wanted;
    assert_ok(file_map(&found, place->output, diag), diag);
    assert_ok(file_map(&wanted, place->wanted, diag), diag);
    assert_int_equal(buf_bytes(found), buf_bytes(wanted));
    assert_memory_equal(buf_data(found), buf_data(wanted), buf_bytes(wanted));
    buf_release(found);
    buf_release(wanted);
    diag_destroy(diag);
}

static void check_equal(const Place *place) {
    apart(compare_outputs, place, NULL);
    unlink(place->output);
    unlink(place->wanted);
}

static void check_peak(const char *what, size_t peak, size_t largest) {
    if (peak > 2 * largest + 200 * MB)
        fail_msg("%s: expected at most %zu MB of memory, found %zu MB", what,
                 (2 * largest + 200 * MB) / MB, peak / MB);
}

/* ---- conversion ---- */

static void convert_in_memory(const Place *place, const char *dtype) {
    Diag *diag = diag_create();
    Arena *arena = arena_create();
    Tree *map = tree_new(arena, TREE_MAP, LOC_NONE);
    ModelOutput output;
    Model *model;
    tree_put_string(arena, map, "path", place->wanted);
    tree_put_string(arena, map, "dtype", dtype);
    assert_ok(output_bind(&output, arena, map, STATUS_USAGE, diag), diag);
    assert_ok(model_load(&model, place->model, ops_table(), true, diag), diag);
    assert_ok(model_save(model, &output, diag), diag);
    model_destroy(model);
    arena_destroy(arena);
    diag_destroy(diag);
}

static void check_conversion(Place *place, const char *name, const char *dtype,
                             size_t largest) {
    name_outputs(place, name);
    const size_t peak =
        program_run((const char *[]){getenv("COMPRESS_BIN"), "convert", "--dtype", dtype,
                                     place->model, place->output, NULL},
                    NULL);
    apart(convert_in_memory, place, dtype);
    check_peak(name, peak, largest);
    check_equal(place);
}

static void test_convert(void **state) {
    check_conversion(*state, "keep.h5", "keep", LARGEST);
    check_conversion(*state, "keep.safetensors", "keep", LARGEST);
    check_conversion(*state, "f32.h5", "f32", LARGEST_F32);
}

/* ---- recipes ---- */

static void run_in_memory(const Place *place, const char *detail) {
    (void)detail;
    Diag *diag = diag_create();
    Session session;
    const SessionOptions options = {.recipe = place->recipe, .output = place->wanted};
    assert_ok(session_open(&session, &options, diag), diag);
    assert_ok(session_load(&session, true, diag), diag);
    resident_bound(0, NULL);
    assert_ok(session_plan(&session, diag), diag);
    assert_ok(session_run(&session, diag), diag);
    assert_ok(session_write(&session, diag), diag);
    assert_ok(session_finish(&session, STATUS_OK, diag), diag);
    session_close(&session);
    diag_destroy(diag);
}

#define RECIPE                                                                           \
    "version: 1\nmodel: %s\n"                                                            \
    "data: {texts: {format: language, path: %s/recipes/data/shakespeare/text.txt,\n"     \
    "  tokenizer: %s/recipes/data/shakespeare/tokenizer.json, lowercase: true,\n"        \
    "  skip_unknown: true, length: 16}}\n"                                               \
    "passes: %s\ncheckpoint: {every: 0}\n"

/* Runs a recipe, of the model in folder `model`; `passes` is its list in flow style. */
static size_t run_recipe(Place *place, const char *model, const char *passes) {
    FILE *file = fopen(place->recipe, "w");
    assert_non_null(file);
    char root[512];
    assert_non_null(getcwd(root, sizeof root));
    fprintf(file, RECIPE, model, root, root, passes);
    assert_int_equal(fclose(file), 0);
    name_outputs(place, "small.h5");
    const size_t peak =
        program_run((const char *[]){getenv("COMPRESS_BIN"), "--recipe", place->recipe,
                                     "--output", place->output, "--quiet", NULL},
                    NULL);
    check_foretold(place->recipe, place->wanted, peak);
    unlink(place->wanted);
    return peak;
}

/* Of the model of many tensors. */
static void check_recipe(Place *place, const char *passes, size_t largest) {
    check_peak(passes, run_recipe(place, "llama", passes), largest);
    apart(run_in_memory, place, NULL);
    check_equal(place);
}

static void test_remove_layer(void **state) {
    check_recipe(*state, "[remove_layer: {drop: [1, 3]}]", LARGEST);
}

static void test_multiplex(void **state) {
    check_recipe(*state,
                 "[weight_multiplex: {group: 5, init: mean, mixing: none, "
                 "position: none}]",
                 LARGEST_F32);
}

static void test_quantize(void **state) {
    check_recipe(*state,
                 "[quantize: {dtype: int8, only: ['model.layers.0.*'], "
                 "embeddings: float}]",
                 LARGEST);
}

/* Twice the batch of calibration, so that both threads have a part. */
static void test_influence(void **state) {
    check_recipe(*state,
                 "[remove_layer: {drop_count: 2, order: influence, data: texts, "
                 "samples: 32}]",
                 LARGEST);
}

static void check_few(const char *what, size_t peak) {
    if (SANITIZED) print_message("AddressSanitizer: memory is not compared\n");
    if (!SANITIZED && peak > FEW)
        fail_msg("%s: expected at most %zu MB of memory, found %zu MB", what, FEW / MB,
                 peak / MB);
}

static void test_pieces(void **state) {
    static const char *const NAMES[] = {"large.h5", "large.safetensors", "folder/"};
    Place *place = *state;
    const int count = SANITIZED ? 1 : 3; /* the others differ in what is not compared */
    for (int i = 0; i < count; i++) {
        name_outputs(place, NAMES[i]);
        check_few(NAMES[i],
                  program_run((const char *[]){getenv("COMPRESS_BIN"), "convert",
                                               place->large, place->output, NULL},
                              NULL));
        program_run((const char *[]){"/bin/rm", "-r", place->output, NULL}, NULL);
    }
    check_few("remove_layer", run_recipe(place, "large", "[remove_layer: {drop: [1]}]"));
    unlink(place->output);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_convert),   cmocka_unit_test(test_remove_layer),
        cmocka_unit_test(test_multiplex), cmocka_unit_test(test_quantize),
        cmocka_unit_test(test_influence), cmocka_unit_test(test_pieces)};
    return cmocka_run_group_tests(tests, make_model, remove_model);
}
