/* The toy model with single units scaled, run in double, and what pruning and importance
 * leave behind, for the tests of both. */
#ifndef COMPRESS_TESTS_PASSES_PRUNE_FIXTURE_H
#define COMPRESS_TESTS_PASSES_PRUNE_FIXTURE_H

#include "exec/ops.h"
#include "ir/rewrite.h"
#include "tests/support/check.h"
#include "tests/support/passes.h"
#include "tests/support/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 4, WIDTH = 16, HEADS = 2, HIDDEN = 32, CLASSES = 3, SAMPLES = 60 };

#define OUT(l)     layer_storage(l, "attention.output.dense.weight")
#define FFN_OUT(l) layer_storage(l, "output.dense.weight")
#define FFN_IN(l)  layer_storage(l, "intermediate.dense.weight")

/* Name of a storage of a layer; valid until the next call. */
static inline const char *layer_storage(int layer, const char *part) {
    static char name[128];
    snprintf(name, sizeof name, "vit.encoder.layer.%d.%s", layer, part);
    return name;
}

static inline Storage *find_storage(const Model *model, const char *name) {
    Storage *storage = graph_storage(model->graph, name);
    if (!storage) fail_msg("no storage %s", name);
    return storage;
}

/* Weights as doubles, to be freed. */
static inline double *read_weights(const Storage *storage) {
    const int64_t count = tensor_count(&storage->tensor);
    double *out = calloc((size_t)count, sizeof *out);
    tensor_read_f64(&storage->tensor, 0, count, out);
    return out;
}

/* Multiplies columns [first, first + count) of a matrix; it becomes float64. */
static inline void scale_columns(Model *model, const char *name, int64_t first,
                                 int64_t count, double by) {
    Diag *diag = diag_create();
    Storage *storage = find_storage(model, name);
    const int64_t columns = storage->tensor.dim[1];
    double *w = read_weights(storage);
    for (int64_t row = 0; row < storage->tensor.dim[0]; row++)
        for (int64_t c = first; c < first + count; c++) w[row * columns + c] *= by;
    Tensor scaled;
    void *data = NULL;
    assert_ok(tensor_create(&scaled, DTYPE_F64, 2, storage->tensor.dim, diag), diag);
    assert_ok(tensor_writable(&scaled, &data, diag), diag);
    memcpy(data, w, tensor_bytes(&scaled));
    tensor_release(&storage->tensor);
    storage->tensor = scaled;
    free(w);
    diag_destroy(diag);
}

/* Runs the model on all toy samples in double: logits, or the mean label loss. */
static inline double run_model(Model *model, double *logits) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Graph *graph = graph_copy(arena, model->graph);
    Batches *toy = toy_batches();
    float pixels[SAMPLES * 64];
    int32_t labels[SAMPLES];
    int64_t index[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) index[i] = i;
    assert_ok(
        toy->fetch(toy, &(Fetch){index, SAMPLES, 0, 0}, (void *[]){pixels, labels}, diag),
        diag);
    Node *loss = reference_loss(graph), *out = graph_output(graph, "logits");
    Runner r;
    runner_open(&r, graph, SAMPLES, PRECISION_F64, NULL, (Node *[]){out, loss}, 2);
    double *input = workspace_input(r.workspace, "pixel_values");
    for (int i = 0; i < SAMPLES * 64; i++) input[i] = (double)pixels[i];
    memcpy(workspace_input(r.workspace, "labels"), labels, sizeof labels);
    runner_run(&r);
    const double result = *(const double *)workspace_value(r.workspace, loss);
    if (logits)
        memcpy(logits, workspace_value(r.workspace, out),
               SAMPLES * CLASSES * sizeof(double));
    runner_close(&r);
    graph_release(graph);
    batches_destroy(toy);
    diag_destroy(diag);
    arena_destroy(arena);
    return result;
}

/* Equal but for the rounding of double. */
static inline void expect_equal_logits(Model *a, Model *b) {
    double x[SAMPLES * CLASSES], y[SAMPLES * CLASSES];
    const int64_t sizes[DIM_SYMBOLS] = {SAMPLES};
    run_model(a, x);
    run_model(b, y);
    rounding_compare("logits", y, x, SAMPLES * CLASSES, PRECISION_F64,
                     rounding_terms(a->graph, graph_output(a->graph, "logits"), sizes),
                     0);
}

static inline void expect_same_logits(Model *a, Model *b) {
    double x[SAMPLES * CLASSES], y[SAMPLES * CLASSES];
    run_model(a, x);
    run_model(b, y);
    assert_memory_equal(x, y, sizeof x);
}

/* Derivative of the loss when columns of a weight are scaled by 1 + t, by differences;
 * *tolerance is how far off it may be. */
static inline double scaled_slope(const Model *model, const char *name, int64_t first,
                                  int64_t count, double *tolerance) {
    const double h = 1e-4;
    const int64_t sizes[DIM_SYMBOLS] = {SAMPLES};
    double slope[2], size = 0;
    for (int wide = 0; wide < 2; wide++) {
        double loss[2];
        for (int side = 0; side < 2; side++) {
            Model *copy = model_copy(model);
            const double by = (1 + wide) * (side ? -h : h);
            scale_columns(copy, name, first, count, 1 + by);
            loss[side] = run_model(copy, NULL);
            size = fmax(size, fabs(loss[side]));
            model_destroy(copy);
        }
        slope[wide] = (loss[0] - loss[1]) / (2 * (1 + wide) * h);
    }
    const double terms =
        rounding_terms(model->graph, graph_output(model->graph, "logits"), sizes) +
        SAMPLES;
    *tolerance = difference_tolerance(PRECISION_F64, h, slope[0], slope[1], terms, size);
    return slope[0];
}

/* How far a score, which is summed over all samples in float, may be from the slope. Its
 * terms may cancel: they are of the size of the larger scores. */
static inline double score_tolerance(const Model *model, double slope) {
    const double larger = 0.02;
    return 2 * loss_tolerance(model->graph, 0) * fmax(larger, fabs(slope));
}

/* Runs a pass that must fail with STATUS_MODEL and say `part`. */
static inline void expect_failure(Model *model, const char *pass, const char *options,
                                  const char *part) {
    expect_pass_fails(model, pass, options, STATUS_MODEL, part);
}

/* Stored score of a unit; list is "heads" or "ffn". */
static inline double stored_score(const Model *model, const char *list, int block,
                                  int unit) {
    const Tree *entry = tree_get(tree_get(model->provenance, "importance"), list);
    assert_non_null(entry);
    for (entry = entry->first; block > 0; block--) entry = entry->next;
    const Tree *item = tree_get(entry, "scores")->first;
    for (; unit > 0; unit--) item = item->next;
    assert_int_equal(item->kind, TREE_FLOAT);
    return item->real;
}

static inline int64_t attention_heads(const Model *model, int layer) {
    const Node *node = graph_find(model->graph, "encoder", layer, ROLE_ATTENTION);
    return node ? ((const AttentionAttrs *)node->attrs)->heads : 0;
}

#endif
