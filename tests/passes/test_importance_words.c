/* importance and diagnose of models that predict words: the loss is that of the masked
 * tokens. */
#include "tests/passes/distill_fixture.h"

/* Runs one step on the sentences. */
static void run_step(Model *model, const char *step, bool plan) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Batches data = sentences();
    RecipeInputs inputs = {&data, model};
    const char *yaml = arena_printf(
        arena, "version: 1\ndata: {text: {format: text}}\npasses: [%s]\n", step);
    assert_ok(run_with_inputs(&inputs, model, yaml, plan, 1, diag), diag);
    diag_destroy(diag);
    arena_destroy(arena);
}

/* Mean cross-entropy of the masked tokens, from the logits of all tokens in double. */
static double masked_loss(Model *model) {
    double *logits = output_of(model, "logits"), sum = 0;
    int count = 0;
    for (int64_t i = 0; i < SAMPLES; i++)
        for (int m = 0; m < MASKED; m++) {
            const int32_t label = sentence_value("masked_labels", i, m);
            const int at = sentence_value("masked_positions", i, m);
            const double *row = logits + (i * TOKENS + at) * WORDS;
            double total = 0;
            for (int w = 0; w < WORDS; w++) total += exp(row[w]);
            if (label == INDEX_SKIP) continue;
            sum += log(total) - row[label];
            count++;
        }
    free(logits);
    return sum / count;
}

/* The loss with columns [first, first + count) of a matrix, kept as f64, times a factor.
 */
static double scaled_loss(const Model *model, const char *name, int64_t first,
                          int64_t count, double by) {
    Model *copy = model_copy(model);
    Tensor wide, *tensor = &graph_storage(copy->graph, name)->tensor;
    Diag *diag = diag_create();
    void *data = NULL;
    assert_ok(tensor_create(&wide, DTYPE_F64, 2, tensor->dim, diag), diag);
    assert_ok(tensor_writable(&wide, &data, diag), diag);
    tensor_read_f64(tensor, 0, tensor_count(tensor), data);
    for (int64_t r = 0; r < tensor->dim[0]; r++)
        for (int64_t c = first; c < first + count; c++)
            ((double *)data)[r * tensor->dim[1] + c] *= by;
    tensor_release(tensor);
    *tensor = wide;
    const double loss = masked_loss(copy);
    model_destroy(copy);
    diag_destroy(diag);
    return loss;
}

static double stored(const Model *model, const char *kind, int layer, int unit) {
    const Tree *entry = tree_get(tree_get(model->provenance, "importance"), kind)->first;
    for (; layer > 0; layer--) entry = entry->next;
    const Tree *score = tree_get(entry, "scores")->first;
    for (; unit > 0; unit--) score = score->next;
    return score->real;
}

/* The score of a unit of `count` columns is the derivative of the loss by their scale.
 * Its terms, which are summed in float, may cancel: they are of the size of the larger
 * scores, some hundredths. */
static void expect_score(const Model *model, const char *kind, int layer, int unit,
                         const char *name, int64_t count) {
    const double h = 1e-4;
    const int64_t sizes[DIM_SYMBOLS] = {SAMPLES, TOKENS};
    double slope[2], size = 0;
    for (int wide = 0; wide < 2; wide++) {
        double loss[2];
        for (int side = 0; side < 2; side++) {
            const double by = 1 + (1 + wide) * (side ? -h : h);
            loss[side] = scaled_loss(model, name, unit * count, count, by);
            size = fmax(size, loss[side]);
        }
        slope[wide] = (loss[0] - loss[1]) / (2 * (1 + wide) * h);
    }
    const double terms =
        rounding_terms(model->graph, graph_output(model->graph, "logits"), sizes) +
        SAMPLES * MASKED;
    assert_within(
        stored(model, kind, layer, unit), fabs(slope[0]),
        difference_tolerance(PRECISION_F64, h, slope[0], slope[1], terms, size) +
            2 * loss_tolerance(model->graph, 0) * fmax(0.02, fabs(slope[0])));
}

static void test_taylor(void **state) {
    (void)state;
    Model *model = masked_lm(2, 5);
    run_step(model,
             "importance: {data: text, abs: block, accumulate: sum_then_abs, "
             "batch_size: 6}",
             false);
    char name[100];
    for (int l = 0; l < 2; l++) {
        snprintf(name, sizeof name, "bert.encoder.layer.%d.attention.output.dense.weight",
                 l);
        for (int h = 0; h < 2; h++) expect_score(model, "heads", l, h, name, 4);
        snprintf(name, sizeof name, "bert.encoder.layer.%d.output.dense.weight", l);
        for (int u = 0; u < 16; u += 3) expect_score(model, "ffn", l, u, name, 1);
    }
    model_destroy(model);
}

/* A plan measures nothing; a run gives a norm for every layer. */
static void test_norms(void **state) {
    (void)state;
    Model *model = masked_lm(2, 5);
    run_step(model, "diagnose: {data: text}", true);
    assert_null(tree_get(last_record(model), "gradient_norms"));
    run_step(model, "diagnose: {data: text}", false);
    const Tree *norms = tree_get(last_record(model), "gradient_norms");
    assert_int_equal(norms->count, 2);
    for (const Tree *norm = norms->first; norm; norm = norm->next)
        assert_true(norm->real > 0 && isfinite(norm->real));
    model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_taylor),
        cmocka_unit_test(test_norms),
    };
    return cmocka_run_group_tests_name("importance of words", tests, NULL, NULL);
}
