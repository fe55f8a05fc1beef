/* Text encoders against PyTorch's outputs and gradients (tests/data/reference/README.md
 * says how they were computed), and against the outputs of two released models where
 * COMPRESS_DATA names the folder that has them. */
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
} Case;

/* Opens <root><name> and its reference.safetensors, which gives the sizes. */
static void case_open(Case *c, const char *root, const char *name) {
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

static void case_close(Case *c) {
    checkpoint_destroy(c->reference);
    model_destroy(c->model);
    diag_destroy(c->diag);
}

static void feed(const Case *c, const Runner *r) {
    static const char *const INPUTS[] = {"input_ids", "attention_mask", "token_type_ids",
                                         "labels"};
    for (size_t i = 0; i < sizeof INPUTS / sizeof *INPUTS; i++)
        if (workspace_input(r->workspace, INPUTS[i]))
            reference_feed(r->workspace, c->reference, INPUTS[i], INPUTS[i]);
}

/* The value of the graph that a tensor of the reference is compared with. */
static Node *find_value(Graph *graph, const char *name) {
    int layer;
    if (sscanf(name, "hidden_states.%d", &layer) != 1) return graph_output(graph, name);
    if (layer == 0) return graph_find(graph, "encoder", 0, ROLE_Q)->in[0];
    return graph_layer_output(graph, "encoder", layer - 1);
}

/* Compares everything that both sides name; at least `least` tensors. */
static void check_forward(Case *c, int least) {
    Graph *graph = c->model->graph;
    Node *results[RESULTS_MAX];
    const char *names[RESULTS_MAX];
    int count = 0;
    for (int i = 0; i < c->reference->count && count < RESULTS_MAX; i++) {
        names[count] = c->reference->tensors[i].name;
        results[count] = find_value(graph, names[count]);
        if (results[count]) count++;
    }
    assert_true(count >= least);
    Runner r;
    runner_open_sizes(&r, graph, c->sizes, PRECISION_F32, NULL, results, count);
    feed(c, &r);
    runner_run(&r);
    for (int i = 0; i < count; i++)
        runner_compare(&r, c->reference, names[i], results[i]);
    runner_close(&r);
}

static void check_gradients(Case *c, const char *name) {
    char path[PATH_BYTES];
    Checkpoint *gradients = NULL;
    snprintf(path, sizeof path, ROOT "%s/gradients.safetensors", name);
    assert_ok(safetensors_read(&gradients, path, c->diag), c->diag);
    for (int i = 0; i < gradients->count; i++) /* none is left out of the comparison */
        assert_non_null(graph_storage(c->model->graph, gradients->tensors[i].name + 5));
    Node *loss = reference_loss(c->model->graph);
    Runner r;
    runner_open_sizes(&r, c->model->graph, c->sizes, PRECISION_F32, loss, NULL, 0);
    feed(c, &r);
    runner_run(&r);
    runner_compare(&r, c->reference, "loss", loss);
    runner_compare_gradients(&r, gradients, "grad.");
    runner_close(&r);
    checkpoint_destroy(gradients);
}

static void check_case(const char *name, int least) {
    Case c;
    case_open(&c, ROOT, name);
    check_forward(&c, least);
    check_gradients(&c, name);
    case_close(&c);
}

static void test_bert(void **state) {
    (void)state;
    check_case("bert", 7);
}

static void test_bert_mlm(void **state) {
    (void)state;
    check_case("bert_mlm", 6);
}

static void test_distilbert(void **state) {
    (void)state;
    check_case("distilbert", 6);
}

/* Those of make_encoders.py: names, and how many outputs they hold at least; gradients
 * where there is a loss. */
static const struct {
    const char *name;
    int least;
    bool gradients;
} RELATIVES[] = {
    {"roberta", 5, true},           {"roberta_mlm", 4, true},
    {"roberta_choice", 3, false},   {"roberta_bare", 3, false},
    {"xlm_roberta", 4, true},       {"xlm_roberta_span", 4, false},
    {"electra", 4, true},           {"electra_mlm", 5, true},
    {"electra_choice", 3, false},   {"mpnet", 4, true},
    {"mpnet_mlm", 5, true},         {"mpnet_bare", 3, false},
    {"modernbert", 7, true},        {"modernbert_mlm", 6, true},
    {"modernbert_tokens", 5, true},
};

static void test_relatives(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof RELATIVES / sizeof *RELATIVES; i++) {
        Case c;
        case_open(&c, ROOT, RELATIVES[i].name);
        check_forward(&c, RELATIVES[i].least);
        if (RELATIVES[i].gradients) check_gradients(&c, RELATIVES[i].name);
        case_close(&c);
    }
}

/* ---- released models ---- */

static void check_released(const char *name, int least, bool pooled) {
    const char *data = getenv("COMPRESS_DATA");
    char root[PATH_BYTES - 64], config[PATH_BYTES];
    snprintf(root, sizeof root, "%s/models/", data ? data : "");
    snprintf(config, sizeof config, "%s%s/config.json", root, name);
    FILE *file = data ? fopen(config, "rb") : NULL;
    if (!file) {
        print_message("left out: COMPRESS_DATA has no models/%s\n", name);
        skip();
    }
    fclose(file);
    Case c;
    case_open(&c, root, name);
    check_forward(&c, least);
    assert_int_equal(graph_output(c.model->graph, "pooler_output") != NULL, pooled);
    case_close(&c);
}

static void test_minilm(void **state) {
    (void)state;
    check_released("minilm-l6-v2", 3, true);
}

static void test_gte(void **state) {
    (void)state;
    check_released("gte-small", 1, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bert),       cmocka_unit_test(test_bert_mlm),
        cmocka_unit_test(test_distilbert), cmocka_unit_test(test_minilm),
        cmocka_unit_test(test_gte),        cmocka_unit_test(test_relatives),
    };
    return cmocka_run_group_tests_name("bert reference", tests, NULL, NULL);
}
