/* What the losses of exits and of masked tokens do to gradients: equilibrium against its
 * closed form, masked positions against all tokens. */
#include "exec/ops.h"
#include "ir/rewrite.h"
#include "ir/verify.h"
#include "passes/training/objective.h"
#include "tests/support/check.h"
#include "tests/support/configured.h"
#include "tests/support/passes.h"
#include "tests/support/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 4, N = 3, T = 5, M = 2 };

static const int64_t sizes[DIM_SYMBOLS] = {
    [DIM_INDEX(DIM_N)] = N, [DIM_INDEX(DIM_T)] = T, [DIM_INDEX(DIM_M)] = M};

static Model *exit_bert(const char *options) {
    Model *model = configured_bert(DEPTH, 5);
    run_pass(model, "add_exits", options);
    return model;
}

/* A copy of a model's graph to put losses on. */
typedef struct Trial {
    Arena *arena;
    PassContext ctx;
    Diag *diag;
    Graph *graph;
    Exits exits;
} Trial;

static Trial trial_open(const Model *model) {
    Trial t = {.arena = arena_create(), .diag = diag_create()};
    t.ctx = (PassContext){.ops = ops_table(), .arena = t.arena, .source.key = "test"};
    t.graph = graph_copy(t.arena, model->graph);
    assert_ok(exits_find(&t.exits, t.arena, &t.ctx, t.graph, t.diag), t.diag);
    return t;
}

static void trial_close(Trial *t) {
    graph_release(t->graph);
    diag_destroy(t->diag);
    arena_destroy(t->arena);
}

/* ---- gradients ---- */

static void fill_inputs(const Graph *graph, Workspace *workspace) {
    for (const Node *node = graph->first; node; node = node->next) {
        int32_t *data = node->name ? workspace_input(workspace, node->name) : NULL;
        Type bound;
        if (!data || !type_bind(&node->type, sizes, &bound)) continue;
        for (int64_t i = 0; i < type_count(&bound); i++) {
            data[i] = (int32_t)((i * 7 + 3) % 12);
            if (strcmp(node->name, "attention_mask") == 0) data[i] = i % T < 4;
            if (strcmp(node->name, "token_type_ids") == 0) data[i] = 0;
            if (strcmp(node->name, "labels") == 0) data[i] = (int32_t)(i % 3);
        }
    }
}

/* Gradients of a loss, by storage at params_offset, to be freed. */
static double *gradients(const Trial *t, Node *loss, Runner *r) {
    runner_open_sizes(r, t->graph, sizes, PRECISION_F64, loss, NULL, 0);
    fill_inputs(t->graph, r->workspace);
    runner_run(r);
    const size_t bytes = (size_t)params_gradient_count(r->params) * sizeof(double);
    double *out = memory_alloc(bytes, 1);
    memcpy(out, r->gradients, bytes);
    return out;
}

/* Gradients of one exit's loss alone. */
static double *exit_gradients(const Model *model, int exit) {
    Runner r;
    Node *loss = NULL;
    Trial t = trial_open(model);
    const Exits one = {&t.exits.items[exit], 1};
    assert_ok(exits_label_loss(&loss, t.graph, &one, &(LabelLossOptions){0}, t.diag),
              t.diag);
    double *out = gradients(&t, loss, &r);
    runner_close(&r);
    trial_close(&t);
    return out;
}

/* The first layer, from 1, whose input a storage's gradient comes through; 0 for the
 * weights of an early exit. */
static int storage_layer(const char *name) {
    const char *layer = strstr(name, "encoder.layer.");
    if (layer) return atoi(layer + strlen("encoder.layer.")) + 1;
    if (strncmp(name, "exits.", 6) == 0) return 0;
    return strstr(name, "embeddings.") ? 1 : DEPTH;
}

/* By the closed form: the mean of the gradients of the exits at `layer` or later; an
 * exit's own weights get its own gradient. */
static double expected_gradient(const Exits *exits, double *const *each, int64_t at,
                                int layer) {
    double sum = 0;
    int count = 0;
    for (int e = 0; e < exits->count; e++) {
        if (exits->items[e].layer < layer) continue;
        sum += each[e][at];
        count++;
    }
    return layer == 0 ? sum : sum / count;
}

/* Gradients are made of terms of size 1 at most, which may cancel. */
static double gradient_tolerance(const Runner *r) {
    const double terms = rounding_gradient_terms(r->graph, r->loss, NULL, sizes);
    return rounding_tolerance(PRECISION_F64, terms, 1);
}

static void compare_gradients(const Trial *t, const Runner *r, const double *got,
                              double *const *each) {
    for (int i = 0; i < t->graph->storage_count; i++) {
        const Storage *storage = t->graph->storages[i];
        const int64_t first = params_offset(r->params, storage);
        for (int64_t k = 0; k < tensor_count(&storage->tensor); k++) {
            const double want = expected_gradient(&t->exits, each, first + k,
                                                  storage_layer(storage->name));
            assert_within(got[first + k], want, gradient_tolerance(r));
        }
    }
}

static void check_equilibrium(const char *options, int count) {
    Runner r;
    Node *loss = NULL;
    double *each[DEPTH] = {0};
    Model *model = exit_bert(options);
    Trial t = trial_open(model);
    assert_int_equal(t.exits.count, count);
    for (int e = 0; e < count; e++) each[e] = exit_gradients(model, e);
    assert_ok(exits_label_loss(&loss, t.graph, &t.exits, &(LabelLossOptions){0}, t.diag),
              t.diag);
    assert_ok(exits_equilibrium(t.graph, &t.exits, t.diag), t.diag);
    assert_ok(graph_verify(t.graph, STATUS_INTERNAL, t.diag), t.diag);
    double *got = gradients(&t, loss, &r);
    compare_gradients(&t, &r, got, each);
    free(got);
    for (int e = 0; e < count; e++) free(each[e]);
    runner_close(&r);
    trial_close(&t);
    model_destroy(model);
}

static void test_equilibrium(void **state) {
    (void)state;
    check_equilibrium("{}", 4);
    check_equilibrium("{layers: [2, 3], head: pooler}", 3);
    check_equilibrium("{layers: [1, 3], head: linear}", 3);
    check_equilibrium("{layers: [3], final: replace}", 2);
}

/* The early exits alone: the last of them takes the place of the last exit. */
static void test_equilibrium_of_early(void **state) {
    (void)state;
    Runner r;
    Node *loss = NULL;
    Model *model = exit_bert("{}");
    Trial t = trial_open(model);
    double *each[DEPTH] = {0};
    t.exits.count--;
    for (int e = 0; e < t.exits.count; e++) each[e] = exit_gradients(model, e);
    assert_ok(exits_label_loss(&loss, t.graph, &t.exits, &(LabelLossOptions){0}, t.diag),
              t.diag);
    assert_ok(exits_equilibrium(t.graph, &t.exits, t.diag), t.diag);
    double *got = gradients(&t, loss, &r);
    for (int i = 0; i < t.graph->storage_count; i++) {
        const Storage *storage = t.graph->storages[i];
        const int layer = storage_layer(storage->name);
        const int64_t at = params_offset(r.params, storage);
        if (layer == DEPTH) continue;
        const double want = expected_gradient(&t.exits, each, at, layer);
        assert_within(got[at], want, gradient_tolerance(&r));
    }
    free(got);
    for (int e = 0; e < t.exits.count; e++) free(each[e]);
    runner_close(&r);
    trial_close(&t);
    model_destroy(model);
}

/* ---- masked tokens ---- */

static const char MASKED_BERT[] =
    "{model_type: bert, architectures: [BertForMaskedLM], hidden_size: 8,\n"
    " num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 16,\n"
    " hidden_act: gelu, vocab_size: 12, max_position_embeddings: 6,\n"
    " type_vocab_size: 2, initializer_range: 0.3}\n";

static const int32_t positions[N][M] = {{1, 3}, {4, 0}, {2, 1}};
static const int32_t masked[N][M] = {{7, 2}, {5, INDEX_SKIP}, {11, 0}};

/* Loss over all tokens, the ones that are not masked left out. */
static double loss_of_all(const Model *model) {
    Runner r;
    Node *loss = NULL;
    Trial t = trial_open(model);
    assert_ok(exits_label_loss(&loss, t.graph, &t.exits, &(LabelLossOptions){0}, t.diag),
              t.diag);
    runner_open_sizes(&r, t.graph, sizes, PRECISION_F64, NULL, &loss, 1);
    fill_inputs(t.graph, r.workspace);
    int32_t *labels = workspace_input(r.workspace, "labels");
    for (int i = 0; i < N * T; i++) labels[i] = INDEX_SKIP;
    for (int i = 0; i < N; i++)
        for (int k = 0; k < M; k++)
            if (masked[i][k] >= 0) labels[i * T + positions[i][k]] = masked[i][k];
    runner_run(&r);
    const double result = *(const double *)workspace_value(r.workspace, loss);
    runner_close(&r);
    trial_close(&t);
    return result;
}

static double loss_of_masked(Model *model, Model *teacher) {
    Runner r;
    Objective o;
    Diag *diag = diag_create();
    Arena *arena = arena_create();
    PassContext ctx = {.ops = ops_table(), .arena = arena, .source.key = "test"};
    assert_ok(objective_begin(&o, &ctx, model, diag), diag);
    assert_true(objective_predicts_tokens(o.graph));
    assert_ok(objective_add_teacher(&o, teacher, diag), diag);
    assert_ok(objective_mask_tokens(&o, diag), diag);
    assert_ok(graph_verify(o.graph, STATUS_INTERNAL, diag), diag);
    assert_ok(objective_add_labels(&o, EXITS_ALL, 1, 0, diag), diag);
    Node *theirs = objective_teacher_node(&o, graph_output(teacher->graph, "logits"));
    Node *ours = graph_output(o.graph, "logits");
    assert_true(type_equal(&theirs->type, &ours->type));
    assert_int_equal(ours->type.dim[1], DIM_M);
    runner_open_sizes(&r, o.graph, sizes, PRECISION_F64, NULL, &o.part[0], 1);
    fill_inputs(o.graph, r.workspace);
    memcpy(workspace_input(r.workspace, "masked_positions"), positions, sizeof positions);
    memcpy(workspace_input(r.workspace, "masked_labels"), masked, sizeof masked);
    runner_run(&r);
    const double result = *(const double *)workspace_value(r.workspace, o.part[0]);
    runner_close(&r);
    objective_end(&o);
    arena_destroy(arena);
    diag_destroy(diag);
    return result;
}

static void test_masked_tokens(void **state) {
    (void)state;
    Model *model = configured_model(MASKED_BERT, 3);
    Model *teacher = configured_model(MASKED_BERT, 4);
    const double all = loss_of_all(model), some = loss_of_masked(model, teacher);
    assert_true(all > 0.1);
    assert_within(
        some, all,
        rounding_tolerance(
            PRECISION_F64,
            rounding_terms(model->graph, graph_output(model->graph, "logits"), sizes),
            all));
    model_destroy(teacher);
    model_destroy(model);
}

/* ---- training on masked tokens ---- */

enum { SENTENCES = 24 };

static int64_t sentence_length(const Batches *self, int64_t index) {
    (void)self, (void)index;
    return T;
}

static int64_t sentence_masked(const Batches *self, int64_t tokens) {
    (void)self, (void)tokens;
    return M;
}

/* Sentences a a+1 a+2 ... with two words masked as 11: the others tell which. */
static Status sentence_fetch(const Batches *self, const Fetch *what, void *const *dst,
                             Diag *diag) {
    (void)self, (void)diag;
    for (int64_t i = 0; i < what->n; i++) {
        int32_t *row[5];
        for (int c = 0; c < 5; c++)
            row[c] = (int32_t *)dst[c] + i * (c < 3 ? what->tokens : M);
        for (int64_t t = 0; t < what->tokens; t++) {
            row[0][t] = t < T ? (int32_t)((what->index[i] + t) % 6) : 0;
            row[1][t] = t < T;
            row[2][t] = 0;
        }
        for (int k = 0; k < M; k++) {
            row[3][k] = (int32_t)(1 + (what->index[i] / 6 + 2 * k) % 4);
            row[4][k] = (int32_t)((what->index[i] + row[3][k]) % 6);
            row[0][row[3][k]] = 11;
        }
    }
    return STATUS_OK;
}

static void test_masked_training(void **state) {
    (void)state;
    static const char recipe_text[] =
        "version: 1\ndata: {train: {format: text}}\npasses:\n"
        "  - finetune: {data: train, epochs: 60, batch_size: 8, lr: 0.01}\n";
    static const Type words = {DTYPE_I32, 1, {DIM_T}}, chosen = {DTYPE_I32, 1, {DIM_M}};
    const Column columns[5] = {{"input_ids", words},
                               {"attention_mask", words},
                               {"token_type_ids", words},
                               {"masked_positions", chosen},
                               {"masked_labels", chosen}};
    Batches data = {.name = "sentences",
                    .count = SENTENCES,
                    .columns = columns,
                    .column_count = 5,
                    .length = sentence_length,
                    .max_tokens = T,
                    .masked = sentence_masked,
                    .fetch = sentence_fetch};
    Model *model = configured_model(MASKED_BERT, 3);
    Diag *diag = diag_create();
    assert_ok(
        run_with_inputs(&(RecipeInputs){&data, NULL}, model, recipe_text, false, 1, diag),
        diag);
    const Tree *record = last_record(model);
    const double first = tree_get(record, "first_loss")->real;
    const double last = tree_get(record, "loss_label")->real;
    if (!(first > 1 && last < 0.5 * first)) fail_msg("loss from %g to %g", first, last);
    diag_destroy(diag);
    model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equilibrium),
        cmocka_unit_test(test_equilibrium_of_early),
        cmocka_unit_test(test_masked_tokens),
        cmocka_unit_test(test_masked_training),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
