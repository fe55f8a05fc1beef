/* The recurrent translation model against outputs and gradients computed by hand from its
 * equations (tests/data/reference/README.md), for both contexts and both inputs of the
 * decoder; and that attention without preference is the mean. */
#include "tests/exec/seq2seq_fixture.h"
#include "tests/support/configured.h"

#include <math.h>
#include <stdlib.h>

#define FOLDER ROOT "rnn_attention/"

enum { CELL = 14, ENCODER = 16, NAME_BYTES = 128 };

typedef struct Case {
    Model *model;
    Checkpoint *weights, *reference, *gradients;
    Diag *diag;
    int64_t sizes[DIM_SYMBOLS];
    const char *context, *feed;
} Case;

static const char *const CONTEXTS[] = {"additive", "mean"};
static const char *const FEEDS[] = {"token", "state"};

/* ---- the reference's tensors as the model has them ---- */

/* Gates in the order of the model. */
static const char *const GATES[] = {"input", "forget", "candidate", "output"};

/* Rows of the four gates' tensors "<prefix>decoder.<gate>.<part>", columns first to first
 * + width. */
static Tensor join_gates(const Checkpoint *from, const char *prefix, const char *part,
                         int64_t first, int64_t width, int rank) {
    Tensor out;
    void *data;
    const int64_t dim[] = {4 * CELL, width};
    Diag *diag = diag_create();
    assert_ok(tensor_create(&out, DTYPE_F32, rank, dim, diag), diag);
    assert_ok(tensor_writable(&out, &data, diag), diag);
    for (int g = 0; g < 4; g++) {
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "%sdecoder.%s.%s", prefix, GATES[g], part);
        const Tensor *gate = checkpoint_find(from, name);
        assert_non_null(gate);
        const int64_t row = gate->rank == 2 ? gate->dim[1] : 1;
        for (int64_t i = 0; i < CELL; i++)
            tensor_read_f32(gate, i * row + first, width,
                            (float *)data + (g * CELL + i) * width);
    }
    diag_destroy(diag);
    return out;
}

static void add(Checkpoint *to, const char *prefix, const char *name, Tensor tensor) {
    to->tensors[to->count++] =
        (NamedTensor){arena_printf(to->arena, "%s%s", prefix, name), tensor};
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const NamedTensor *)a)->name, ((const NamedTensor *)b)->name);
}

static bool is_gate(const char *name) {
    const char *at = strstr(name, "decoder.");
    for (int g = 0; g < 4 && at; g++)
        if (strstr(at, GATES[g])) return true;
    return false;
}

/* The tensors of a file that begin with `prefix`, gates joined. */
static Checkpoint *join(const char *path, const char *prefix) {
    Diag *diag = diag_create();
    Checkpoint *from = NULL;
    assert_ok(safetensors_read(&from, path, diag), diag);
    diag_destroy(diag);
    Arena *arena = arena_create();
    Checkpoint *to = ARENA_NEW(arena, Checkpoint);
    to->arena = arena;
    to->path = path;
    to->tensors = ARENA_ARRAY(arena, NamedTensor, (size_t)from->count + 3);
    for (int i = 0; i < from->count; i++) {
        const char *name = from->tensors[i].name;
        if (strncmp(name, prefix, strlen(prefix)) == 0 && !is_gate(name))
            add(to, "", name, tensor_retain(&from->tensors[i].tensor));
    }
    add(to, prefix, "decoder.weight_in", join_gates(from, prefix, "weight", 0, CELL, 2));
    add(to, prefix, "decoder.weight_context",
        join_gates(from, prefix, "weight", CELL, ENCODER, 2));
    add(to, prefix, "decoder.bias", join_gates(from, prefix, "bias", 0, 1, 1));
    qsort(to->tensors, (size_t)to->count, sizeof *to->tensors, by_name);
    checkpoint_destroy(from);
    return to;
}

/* ---- cases ---- */

static void case_open(Case *c, const char *context, const char *feed) {
    char yaml[512], prefix[64];
    snprintf(yaml, sizeof yaml,
             "{model_type: rnn_attention, source_vocab_size: 29, target_vocab_size: 23, "
             "embedding_size: 12, encoder_size: 16, decoder_size: 14, "
             "alignment_size: 10, context: %s, decoder_input: %s}",
             context, feed);
    *c = (Case){.diag = diag_create(), .context = context, .feed = feed};
    c->model = configured_model(yaml, 1);
    c->weights = join(FOLDER "model.safetensors", "");
    reference_bind(c->model->graph, c->weights);
    snprintf(prefix, sizeof prefix, "grad.%s.%s.", context, feed);
    c->gradients = join(FOLDER "gradients.safetensors", prefix);
    assert_ok(safetensors_read(&c->reference, FOLDER "reference.safetensors", c->diag),
              c->diag);
    seq2seq_sizes(c->sizes, c->reference);
}

static void case_close(Case *c) {
    checkpoint_destroy(c->reference);
    checkpoint_destroy(c->gradients);
    checkpoint_destroy(c->weights);
    model_destroy(c->model);
    diag_destroy(c->diag);
}

static void each_case(void (*check)(Case *)) {
    for (int i = 0; i < 4; i++) {
        Case c;
        case_open(&c, CONTEXTS[i / 2], FEEDS[i % 2]);
        check(&c);
        case_close(&c);
    }
}

static const char *value_name(const Case *c, const char *name) {
    return arena_printf(c->model->arena, "%s.%s.%s", c->context, c->feed, name);
}

static void check_forward(Case *c) {
    static const char *const OUTPUTS[] = {"encoder_last_hidden_state",
                                          "last_hidden_state", "logits"};
    const char *const names[] = {"encoder_hidden_states", value_name(c, "output"),
                                 value_name(c, "logits")};
    Node *results[3];
    for (int i = 0; i < 3; i++) results[i] = graph_output(c->model->graph, OUTPUTS[i]);
    Runner r;
    runner_open_sizes(&r, c->model->graph, c->sizes, PRECISION_F32, NULL, results, 3);
    seq2seq_feed(&r, c->reference, c->sizes);
    runner_run(&r);
    for (int i = 0; i < 3; i++) runner_compare(&r, c->reference, names[i], results[i]);
    runner_close(&r);
}

static void test_forward(void **state) {
    (void)state;
    each_case(check_forward);
}

static void check_gradients(Case *c) {
    Graph *graph = c->model->graph;
    assert_int_equal(c->gradients->count, graph->storage_count);
    Node *loss = reference_loss(graph);
    Runner r;
    char prefix[64];
    snprintf(prefix, sizeof prefix, "grad.%s.%s.", c->context, c->feed);
    for (int single = 0; single < 2; single++) {
        const Precision precision = single ? PRECISION_F32 : PRECISION_F64;
        runner_open_sizes(&r, graph, c->sizes, precision, loss, NULL, 0);
        seq2seq_feed(&r, c->reference, c->sizes);
        runner_run(&r);
        runner_compare(&r, c->reference, value_name(c, "loss"), loss);
        runner_compare_gradients(&r, c->gradients, prefix);
        runner_close(&r);
    }
}

static void test_gradients(void **state) {
    (void)state;
    each_case(check_gradients);
}

/* ---- attention without preference ---- */

static void zero(Graph *graph, const char *name) {
    Diag *diag = diag_create();
    void *data;
    Storage *storage = graph_storage(graph, name);
    assert_non_null(storage);
    assert_ok(tensor_writable(&storage->tensor, &data, diag), diag);
    memset(data, 0, tensor_bytes(&storage->tensor));
    diag_destroy(diag);
}

/* Returns how many terms the logits are made of. */
static double run_logits(const Case *c, double *out, int64_t count) {
    Runner r;
    Node *logits = graph_output(c->model->graph, "logits");
    runner_open_sizes(&r, c->model->graph, c->sizes, PRECISION_F64, NULL, &logits, 1);
    seq2seq_feed(&r, c->reference, c->sizes);
    runner_run(&r);
    memcpy(out, workspace_value(r.workspace, logits), (size_t)count * sizeof *out);
    const double terms = runner_terms(&r, logits);
    runner_close(&r);
    return terms;
}

/* Equal scores are equal weights: with U0 = 0, or with U1 and U2 = 0, the context is the
 * mean, which is what the model without attention computes. */
static void test_equal_scores(void **state) {
    (void)state;
    enum { COUNT = 3 * 6 * 23 };
    static double mean[COUNT], equal[COUNT];
    for (int i = 0; i < 4; i++) {
        Case with, without;
        case_open(&with, "additive", FEEDS[i % 2]);
        case_open(&without, "mean", FEEDS[i % 2]);
        if (i < 2) {
            zero(with.model->graph, "attention.score.weight");
        } else {
            zero(with.model->graph, "attention.memory.weight");
            zero(with.model->graph, "attention.state.weight");
        }
        const double terms = run_logits(&with, equal, COUNT);
        run_logits(&without, mean, COUNT);
        rounding_compare("logits", equal, mean, COUNT, PRECISION_F64, terms, 0);
        case_close(&with);
        case_close(&without);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_equal_scores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
