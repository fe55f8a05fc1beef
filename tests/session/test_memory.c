/* Memory: what plans foretell, against what the kernel measured of the same recipes.
 * Streamed models are in test_streaming.c. AddressSanitizer keeps memory of its own, so
 * there is nothing to compare under it. */
#include "ir/sanitized.h"
#include "tests/support/check.h"
#include "tests/support/foretold.h"
#include "tests/support/program.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Images of 28 x 28, and a model that outweighs the program: 6 million parameters. */
static const char HEAD[] = "version: 1\n"
                           "seed: 1\n"
                           "data:\n"
                           "  images: {format: idx, images: %s/images, labels: %s/labels,"
                           " limit: 64}\n"
                           "model:\n"
                           "  model_type: vit\n"
                           "  image_size: 28\n"
                           "  patch_size: 7\n"
                           "  num_channels: 1\n"
                           "  hidden_size: 256\n"
                           "  num_hidden_layers: 8\n"
                           "  num_attention_heads: 8\n"
                           "  intermediate_size: 1024\n"
                           "  num_labels: 10\n"
                           "checkpoint: {every: 0}\n"
                           "passes:\n";

typedef struct Place {
    char folder[64], recipe[96], output[96], scratch[96];
} Place;

enum { IMAGES = 64, PIXELS = 28 * 28 };

static void write_images(const Place *place) {
    static unsigned char pixels[IMAGES * PIXELS];
    static const unsigned char images[] = {0, 0, 8, 3,  0, 0, 0, IMAGES,
                                           0, 0, 0, 28, 0, 0, 0, 28};
    static const unsigned char labels[] = {0, 0, 8, 1, 0, 0, 0, IMAGES};
    char path[96];
    for (int i = 0; i < IMAGES * PIXELS; i++) pixels[i] = (unsigned char)(i * 31 % 251);
    snprintf(path, sizeof path, "%s/images", place->folder);
    FILE *file = fopen(path, "w");
    fwrite(images, 1, sizeof images, file);
    fwrite(pixels, 1, sizeof pixels, file);
    assert_int_equal(fclose(file), 0);
    snprintf(path, sizeof path, "%s/labels", place->folder);
    file = fopen(path, "w");
    fwrite(labels, 1, sizeof labels, file);
    for (int i = 0; i < IMAGES; i++) fputc(i % 10, file);
    assert_int_equal(fclose(file), 0);
}

static int make_place(void **state) {
    static Place place = {.folder = "/tmp/memory_XXXXXX"};
    const char *base = getenv("TMPDIR");
    if (base && strlen(base) < 40)
        snprintf(place.folder, sizeof place.folder, "%s/memory_XXXXXX", base);
    assert_non_null(mkdtemp(place.folder));
    snprintf(place.recipe, sizeof place.recipe, "%s/recipe.yaml", place.folder);
    snprintf(place.output, sizeof place.output, "%s/small.h5", place.folder);
    snprintf(place.scratch, sizeof place.scratch, "%s/plan.json", place.folder);
    write_images(&place);
    *state = &place;
    return 0;
}

static int remove_place(void **state) {
    const Place *place = *state;
    program_run((const char *[]){"/bin/rm", "-r", place->folder, NULL}, NULL);
    return 0;
}

/* Runs a recipe and compares. */
static void check_run(const Place *place, const char *recipe) {
    if (SANITIZED) {
        print_message("AddressSanitizer: memory is not compared\n");
        skip();
    }
    const size_t peak = program_run((const char *[]){getenv("COMPRESS_BIN"), "--recipe",
                                                     recipe, "--output", place->output,
                                                     "--threads", "2", "--quiet", NULL},
                                    NULL);
    check_foretold(recipe, place->scratch, peak);
    unlink(place->output);
}

/* The same of a recipe of these steps. */
static void check_steps(const Place *place, const char *steps) {
    FILE *file = fopen(place->recipe, "w");
    assert_non_null(file);
    fprintf(file, HEAD, place->folder, place->folder);
    fputs(steps, file);
    assert_int_equal(fclose(file), 0);
    check_run(place, place->recipe);
}

static void test_training(void **state) {
    check_steps(*state, "  - finetune: {data: images, steps: 2, batch_size: 32}\n");
}

static void test_recomputed(void **state) {
    check_steps(*state,
                "  - finetune: {data: images, steps: 2, batch_size: 64, shards: 1,"
                " recompute: layers, optimizer: sgd}\n");
}

static void test_teacher(void **state) {
    check_steps(*state, "  - remove_layer: {drop: [1]}\n"
                        "  - distill: {data: images, steps: 2, prediction: 1}\n"
                        "  - evaluate: {data: images}\n");
}

static void test_calibrated(void **state) {
    check_steps(*state, "  - factor_linear: {rank: 128, data: images, samples: 64}\n");
}

static void test_quantised(void **state) {
    check_steps(*state,
                "  - quantize: {dtype: int4, method: gptq, data: images, samples: 64}\n"
                "  - evaluate: {data: images}\n");
}

static void test_importance(void **state) {
    check_steps(*state, "  - importance: {data: images}\n"
                        "  - prune: {flops: 0.5}\n"
                        "  - evaluate: {data: images}\n");
}

/* A text that outweighs the program, and takes more while it becomes tokens than they
 * take afterwards. */
static void test_text(void **state) {
    const Place *place = *state;
    char path[96], tokenizer[PATH_MAX];
    snprintf(path, sizeof path, "%s/text", place->folder);
    FILE *file = fopen(path, "w");
    for (int i = 0; i < 700000; i++)
        fprintf(file, "line %d of a text like others\n", i % 10007 * 7919 % 10007);
    assert_int_equal(fclose(file), 0);
    assert_non_null(realpath("tests/data/text/fallback/tokenizer.json", tokenizer));
    file = fopen(place->recipe, "w");
    fprintf(file,
            "version: 1\nseed: 1\n"
            "data:\n  text: {format: language, path: text, length: 32, tokenizer: %s}\n"
            "model: {model_type: llama, vocab_size: 427, hidden_size: 32,\n"
            "  intermediate_size: 64, num_hidden_layers: 1, num_attention_heads: 2}\n"
            "passes:\n  - finetune: {data: text, steps: 2, batch_size: 4}\n",
            tokenizer);
    assert_int_equal(fclose(file), 0);
    check_run(place, place->recipe);
    unlink(path);
}

static void test_shipped(void **state) {
    check_run(*state, "recipes/oneshot_bert.yaml");
    check_run(*state, "recipes/int8.yaml");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_training),  cmocka_unit_test(test_recomputed),
        cmocka_unit_test(test_teacher),   cmocka_unit_test(test_calibrated),
        cmocka_unit_test(test_quantised), cmocka_unit_test(test_importance),
        cmocka_unit_test(test_text),      cmocka_unit_test(test_shipped)};
    return cmocka_run_group_tests(tests, make_place, remove_place);
}
