/* Decoder folders with reference tensors: hidden states, logits, loss of the next token
 * and gradients, and that no value depends on a later token. */
#ifndef COMPRESS_TESTS_EXEC_DECODER_FIXTURE_H
#define COMPRESS_TESTS_EXEC_DECODER_FIXTURE_H

#include "exec/ops.h"
#include "io/formats/hf.h"
#include "tests/support/check.h"
#include "tests/support/reference.h"

#include <stdlib.h>
#include <string.h>

#define ROOT "tests/data/reference/"

enum { RESULTS_MAX = 32, PATH_BYTES = 512 };

typedef struct Case {
    Model *model;
    Checkpoint *reference;
    Diag *diag;
    int64_t sizes[DIM_SYMBOLS];
    bool before_norm; /* the reference's last hidden state is before the final norm */
} Case;

/* Opens <root><name> and its reference.safetensors, which gives the sizes. */
static inline void case_open(Case *c, const char *root, const char *name) {
    char folder[PATH_BYTES], reference[PATH_BYTES + 32];
    *c = (Case){.diag = diag_create()};
    snprintf(folder, sizeof folder, "%s%s", root, name);
    snprintf(reference, sizeof reference, "%s/reference.safetensors", folder);
    assert_ok(hf_read(&c->model, folder, ops_table(), c->diag), c->diag);
    assert_ok(safetensors_read(&c->reference, reference, c->diag), c->diag);
    const Tensor *ids = checkpoint_find(c->reference, "input_ids");
    assert_non_null(ids);
    c->sizes[DIM_INDEX(DIM_N)] = ids->dim[0];
    c->sizes[DIM_INDEX(DIM_T)] = ids->dim[1];
}

static inline void case_close(Case *c) {
    checkpoint_destroy(c->reference);
    model_destroy(c->model);
    diag_destroy(c->diag);
}

/* The value that a tensor of the reference is compared with, NULL when it has none. */
static inline Node *find_value(const Case *c, const char *name) {
    const Graph *graph = c->model->graph;
    const int depth = graph_layer_count(graph, "decoder");
    int layer;
    if (strcmp(name, "last_block_output") == 0)
        return graph_layer_output(graph, "decoder", depth - 1);
    if (sscanf(name, "hidden_states.%d", &layer) != 1) return graph_output(graph, name);
    if (layer == 0) return graph_find(graph, "decoder", 0, ROLE_NORM1)->in[0];
    return layer < depth || c->before_norm
               ? graph_layer_output(graph, "decoder", layer - 1)
               : graph_output(graph, "last_hidden_state");
}

/* Compares everything that both sides name; exactly `expected` tensors. */
static inline void check_forward(Case *c, int expected) {
    Graph *graph = c->model->graph;
    Node *results[RESULTS_MAX];
    const char *names[RESULTS_MAX];
    int count = 0;
    for (int i = 0; i < c->reference->count && count < RESULTS_MAX; i++) {
        names[count] = c->reference->tensors[i].name;
        results[count] = find_value(c, names[count]);
        if (results[count]) count++;
    }
    assert_int_equal(count, expected);
    Runner r;
    runner_open_sizes(&r, graph, c->sizes, PRECISION_F32, NULL, results, count);
    reference_feed(r.workspace, c->reference, "input_ids", "input_ids");
    runner_run(&r);
    for (int i = 0; i < count; i++)
        runner_compare(&r, c->reference, names[i], results[i]);
    runner_close(&r);
}

/* The label of a token is the next one; the last has none. */
static inline void feed_labels(const Case *c, const Runner *r) {
    const int64_t T = c->sizes[DIM_INDEX(DIM_T)], rows = c->sizes[DIM_INDEX(DIM_N)] * T;
    const int32_t *ids = workspace_input(r->workspace, "input_ids");
    int32_t *labels = workspace_input(r->workspace, "labels");
    for (int64_t i = 0; i < rows; i++)
        labels[i] = i % T == T - 1 ? INDEX_SKIP : ids[i + 1];
}

/* `gradients` by the names of the storages, each behind "grad.". */
static inline void check_gradients(Case *c, const Checkpoint *gradients) {
    assert_int_equal(gradients->count, c->model->graph->storage_count);
    for (int i = 0; i < gradients->count; i++)
        assert_non_null(graph_storage(c->model->graph, gradients->tensors[i].name + 5));
    Node *loss = reference_loss(c->model->graph);
    Runner r;
    runner_open_sizes(&r, c->model->graph, c->sizes, PRECISION_F32, loss, NULL, 0);
    reference_feed(r.workspace, c->reference, "input_ids", "input_ids");
    feed_labels(c, &r);
    runner_run(&r);
    runner_compare(&r, c->reference, "loss", loss);
    runner_compare_gradients(&r, gradients, "grad.");
    runner_close(&r);
}

/* Logits of tokens before `change` stay the same bytes when that token changes, and its
 * own do not: samples filled up at the end need no mask. */
static inline void check_causal(Case *c, int64_t change) {
    Graph *graph = c->model->graph;
    Node *logits = graph_output(graph, "logits");
    const int64_t T = c->sizes[DIM_INDEX(DIM_T)], V = logits->type.dim[2];
    const size_t row = (size_t)V * sizeof(float);
    Runner r;
    runner_open_sizes(&r, graph, c->sizes, PRECISION_F32, NULL, &logits, 1);
    reference_feed(r.workspace, c->reference, "input_ids", "input_ids");
    runner_run(&r);
    const size_t bytes = (size_t)(c->sizes[DIM_INDEX(DIM_N)] * T) * row;
    char *before = memory_alloc(bytes, 1);
    memcpy(before, workspace_value(r.workspace, logits), bytes);
    int32_t *ids = workspace_input(r.workspace, "input_ids");
    for (int64_t n = 0; n < c->sizes[DIM_INDEX(DIM_N)]; n++)
        ids[n * T + change] = (int32_t)((ids[n * T + change] + 1) % V);
    runner_run(&r);
    const char *after = workspace_value(r.workspace, logits);
    for (int64_t n = 0; n < c->sizes[DIM_INDEX(DIM_N)]; n++) {
        const size_t sample = (size_t)(n * T) * row, token = (size_t)change * row;
        assert_memory_equal(before + sample, after + sample, token);
        assert_memory_not_equal(before + sample + token, after + sample + token, row);
    }
    free(before);
    runner_close(&r);
}

#endif
