/* Numbers that are finite, and what is computed of them is not: every pass stops at its
 * step, or leaves weights and a record that are finite. A model that was read has finite
 * weights and data sets of files have finite values (tests/io/); here weights are as
 * large as floats are, whole layers of them, and pixels are NaN and infinite, as a
 * library's may be. */
#include "tests/support/check.h"
#include "tests/support/passes.h"

#include "ir/verify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- models and data ---- */

/* Values +-`value` of every matrix of layer 1, signs in no pattern that cancels. */
static void fill_layer(Model *model, float value) {
    int filled = 0;
    for (int i = 0; i < model->graph->storage_count; i++) {
        Storage *storage = model->graph->storages[i];
        if (!strstr(storage->name, ".1.") || storage->tensor.rank != 2) continue;
        const int64_t count = tensor_count(&storage->tensor);
        Diag *diag = diag_create();
        void *data;
        assert_int_equal(storage->tensor.dtype, DTYPE_F32);
        assert_ok(tensor_writable(&storage->tensor, &data, diag), diag);
        for (int64_t k = 0; k < count; k++)
            ((float *)data)[k] = k * 7 % 13 < 8 ? value : -value;
        diag_destroy(diag);
        filled++;
    }
    assert_true(filled >= 6);
}

/* The toy data, one pixel of each sample replaced. */
typedef struct Poisoned {
    Batches batches;
    Batches *inner;
    float value;
} Poisoned;

static Status fetch_poisoned(const Batches *self, const Fetch *what, void *const *columns,
                             Diag *diag) {
    const Poisoned *p = (const void *)self;
    TRY(p->inner->fetch(p->inner, what, columns, diag));
    for (int64_t i = 0; i < what->n && columns[0]; i++)
        ((float *)columns[0])[i * 64 + 5] = p->value;
    return STATUS_OK;
}

/* ---- what must hold ---- */

static void check_numbers(const Tree *tree, const char *step) {
    if (tree->kind == TREE_FLOAT && !isfinite(tree->real))
        fail_msg("%s: a number of its record is not finite", step);
    for (const Tree *item = tree->first; item; item = item->next)
        check_numbers(item, step);
}

/* Runs steps, the last of them the one that is meant. Whether they were refused; then one
 * error says so, and it is the model's, the recipe's or the data's, not the program's. */
static bool is_refused(Model *model, Batches *data, const char *step) {
    char yaml[1024];
    Diag *diag = diag_create();
    snprintf(yaml, sizeof yaml,
             "version: 1\nseed: 1\ndata: {toy: {format: toy}}\npasses:\n%s", step);
    RecipeInputs inputs = {.data = data, .model = model_copy(model)};
    const Status status = run_with_inputs(&inputs, model, yaml, false, 2, diag);
    model_destroy(inputs.model);
    char *text = diag_text(diag);
    if (status != STATUS_OK) {
        if (status != STATUS_MODEL && status != STATUS_RECIPE && status != STATUS_FORMAT)
            fail_msg("%s: status %d:\n%s", step, (int)status, text);
        assert_int_equal(diag_errors(diag), 1);
        if (!strstr(text, "finite") && !strstr(text, "nan") && !strstr(text, "inf") &&
            !strstr(text, "largest"))
            fail_msg("%s: the reason does not speak of numbers:\n%s", step, text);
    } else {
        assert_ok(graph_verify_weights(model->graph, diag), diag);
        check_numbers(model->provenance, step);
    }
    free(text);
    diag_destroy(diag);
    return status != STATUS_OK;
}

/* ---- steps ---- */

/* Steps that compute from data what the huge layer makes infinite. */
static const char *const READING[] = {
    "  - finetune: {data: toy, steps: 1, batch_size: 4}\n",
    "  - finetune: {data: toy, steps: 1, batch_size: 4, low_rank: 2}\n",
    "  - distill: {data: toy, steps: 1, batch_size: 4}\n",
    "  - distill: {data: toy, steps: 1, batch_size: 4, preset: tinybert}\n",
    "  - evaluate: {data: toy}\n",
    "  - diagnose: {data: toy}\n",
    "  - diagnose: {data: toy, spectra: true}\n",
    "  - importance: {data: toy}\n",
    "  - estimate_posterior: {data: toy, steps: 2, samples: 2, batch_size: 4}\n",
    "  - add_exits: {}\n  - calibrate_exits: {data: toy, flops: 0.9}\n",
    "  - prune_ffn: {keep: 16, score: reconstruction, data: toy}\n",
    "  - prune_ffn: {keep: 16, score: magnitude, reconstruct: true, data: toy}\n",
    "  - prune_heads: {keep: 1, score: reconstruction, reconstruct: true, data: toy}\n",
    "  - quantize: {dtype: int4, group: 32, method: gptq, data: toy}\n",
    "  - quantize: {dtype: int8, activations: int8, smooth: 0.5, data: toy}\n",
    "  - factor_linear: {rank: 4, data: toy}\n",
    "  - remove_layer: {drop: [1], bridge: true, data: toy}\n",
    "  - remove_layer: {count: 1, order: influence, data: toy}\n",
    "  - remove_block: {block: ffn, drop: [1], bridge: true, data: toy}\n",
    "  - remove_block: {block: attention, drop_count: 1, order: influence, data: toy}\n"};

/* Steps that read weights alone. */
static const char *const WEIGHTS[] = {
    "  - weight_multiplex: {group: 2}\n",
    "  - weight_multiplex: {group: 2, init: first}\n",
    "  - factor_linear: {rank: 4}\n",
    "  - factor_linear: {energy: 0.9}\n",
    "  - factor_linear: {rank: 4}\n  - merge_factors: {all: true}\n",
    "  - importance: {score: magnitude}\n",
    "  - prune: {parameters: 0.8, score: magnitude, ranking: per_layer}\n",
    "  - prune_ffn: {keep: 16, score: magnitude}\n",
    "  - prune_heads: {keep: 1, score: magnitude}\n",
    "  - cast: {dtype: f16}\n",
    "  - cast: {dtype: bf16}\n",
    "  - quantize: {dtype: int8}\n",
    "  - quantize: {dtype: int4, group: 32}\n",
    "  - quantize: {dtype: int4, group: 32, asymmetric: true}\n",
    "  - attention_to_t2r: {feature_size: 3}\n",
    "  - attention_to_t2r: {feature_size: 3}\n  - merge_t2r: {}\n"};

enum {
    READING_COUNT = sizeof READING / sizeof *READING,
    WEIGHTS_COUNT = sizeof WEIGHTS / sizeof *WEIGHTS
};

static void test_huge_weights_and_data(void **state) {
    (void)state;
    int passed = 0;
    for (int i = 0; i < READING_COUNT; i++) {
        Model *model = toy_vit(1);
        Batches *data = toy_batches();
        fill_layer(model, 3e38f);
        if (!is_refused(model, data, READING[i]) && ++passed)
            fprintf(stderr, "not refused:\n%s", READING[i]);
        batches_destroy(data);
        model_destroy(model);
    }
    assert_int_equal(passed, 0);
}

static void test_huge_weights(void **state) {
    (void)state;
    for (int i = 0; i < WEIGHTS_COUNT; i++) {
        Model *model = toy_vit(1);
        fill_layer(model, 3e38f);
        is_refused(model, NULL, WEIGHTS[i]);
        model_destroy(model);
    }
}

static void test_data(void **state) {
    (void)state;
    const float values[] = {NAN, INFINITY};
    int passed = 0;
    for (int v = 0; v < 2; v++)
        for (int i = 0; i < READING_COUNT; i++) {
            Model *model = toy_vit(1);
            Poisoned poisoned = {.inner = toy_batches(), .value = values[v]};
            poisoned.batches = *poisoned.inner;
            poisoned.batches.fetch = fetch_poisoned;
            if (!is_refused(model, &poisoned.batches, READING[i]) && ++passed)
                fprintf(stderr, "not refused with %f:\n%s", (double)values[v],
                        READING[i]);
            batches_destroy(poisoned.inner);
            model_destroy(model);
        }
    assert_int_equal(passed, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_huge_weights_and_data),
                                       cmocka_unit_test(test_huge_weights),
                                       cmocka_unit_test(test_data)};
    return cmocka_run_group_tests_name("passes: overflow", tests, NULL, NULL);
}
