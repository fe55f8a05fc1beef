/* T5 and BART against the formulas of their papers in float64, gradients too
 * (tests/data/reference/make_seq2seq.py), two configurations of each. */
#include "io/formats/hf.h"
#include "tests/exec/seq2seq_fixture.h"

#include <stdlib.h>

static const struct {
    const char *name;
    int results; /* that the reference has of the model's values */
} CASES[] = {{"t5", 9}, {"t5_gated", 8}, {"bart", 9}, {"bart_scaled", 8}};

enum { CASE_COUNT = sizeof CASES / sizeof *CASES };

typedef struct Reference {
    Model *model;
    Checkpoint *values, *gradients;
    Diag *diag;
    int64_t sizes[DIM_SYMBOLS];
} Reference;

static void reference_open(Reference *r, const char *name) {
    char path[256];
    *r = (Reference){.diag = diag_create()};
    snprintf(path, sizeof path, ROOT "%s", name);
    assert_ok(hf_read(&r->model, path, ops_table(), r->diag), r->diag);
    snprintf(path, sizeof path, ROOT "%s/reference.safetensors", name);
    assert_ok(safetensors_read(&r->values, path, r->diag), r->diag);
    snprintf(path, sizeof path, ROOT "%s/gradients.safetensors", name);
    assert_ok(safetensors_read(&r->gradients, path, r->diag), r->diag);
    seq2seq_sizes(r->sizes, r->values);
}

static void reference_close(Reference *r) {
    checkpoint_destroy(r->values);
    checkpoint_destroy(r->gradients);
    model_destroy(r->model);
    diag_destroy(r->diag);
}

/* What enters the first layer of a stack stands before its norm, if that has one. */
static Node *find_value(const Graph *graph, const char *name) {
    const char *at = strstr(name, "_hidden_states.");
    if (!at) return graph_output(graph, name);
    const char *stack = name[0] == 'e' ? "encoder" : "decoder";
    const int layer = atoi(at + strlen("_hidden_states."));
    if (layer > 0) return graph_layer_output(graph, stack, layer - 1);
    Node *first = graph_find(graph, stack, 0, ROLE_Q)->in[0];
    return first->role == ROLE_NORM1 ? first->in[0] : first;
}

static void test_forward(void **state) {
    (void)state;
    for (int c = 0; c < CASE_COUNT; c++) {
        Reference r;
        Runner runner;
        Node *results[RESULTS_MAX];
        const char *names[RESULTS_MAX];
        int count = 0;
        reference_open(&r, CASES[c].name);
        for (int i = 0; i < r.values->count; i++) {
            names[count] = r.values->tensors[i].name;
            results[count] = find_value(r.model->graph, names[count]);
            if (results[count]) count++;
        }
        assert_int_equal(count, CASES[c].results);
        runner_open_sizes(&runner, r.model->graph, r.sizes, PRECISION_F32, NULL, results,
                          count);
        seq2seq_feed(&runner, r.values, r.sizes);
        runner_run(&runner);
        for (int i = 0; i < count; i++)
            runner_compare(&runner, r.values, names[i], results[i]);
        runner_close(&runner);
        reference_close(&r);
    }
}

static void test_gradients(void **state) {
    (void)state;
    for (int c = 0; c < CASE_COUNT; c++) {
        Reference r;
        Runner runner;
        reference_open(&r, CASES[c].name);
        assert_int_equal(r.gradients->count, r.model->graph->storage_count);
        Node *loss = reference_loss(r.model->graph);
        runner_open_sizes(&runner, r.model->graph, r.sizes, PRECISION_F32, loss, NULL, 0);
        seq2seq_feed(&runner, r.values, r.sizes);
        runner_run(&runner);
        runner_compare(&runner, r.values, "loss", loss);
        runner_compare_gradients(&runner, r.gradients, "grad.");
        runner_close(&runner);
        reference_close(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forward),
                                       cmocka_unit_test(test_gradients)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
