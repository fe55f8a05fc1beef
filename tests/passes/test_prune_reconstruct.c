/* Pruning with reconstruction on every family: the error that is recorded is that of the
 * block's output in the pruned model, computed in double sample by sample without
 * padding. Rankings over all layers, budgets, layers that end empty. */
#include "ir/random.h"
#include "passes/pruning/prune.h"
#include "tests/passes/prune_families.h"
#include "tests/support/check.h"
#include "tests/support/configured.h"
#include "tests/support/passes.h"
#include "tests/support/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 23, LONGEST = 6, LONGEST_SOURCE = 5, COLUMNS = 8 };

/* ---- data for whatever a model reads ---- */

static int64_t length_of(const Batches *self, int64_t i) {
    (void)self;
    return 2 + i * 7 % (LONGEST - 1);
}

static int64_t source_length_of(const Batches *self, int64_t i) {
    (void)self;
    return 1 + i * 3 % LONGEST_SOURCE;
}

/* Number k of a row of integers of sample i, of so many that are real. */
static int32_t integer_at(const char *name, int64_t i, int64_t k, int64_t real) {
    if (input_is_mask(name)) return k < real;
    if (strcmp(name, "token_type_ids") == 0) return 0;
    return k < real ? (int32_t)((i * 5 + k * k + 3 * k) % 11 + 1) : 0;
}

static float number_at(const char *name, int64_t i, int64_t k) {
    return (float)random_normal(random_key_name(9, name), (uint64_t)(i * 4096 + k));
}

/* Numbers of a column of one sample, and how many of them are real. */
static int64_t column_count(const Type *type, int64_t tokens, int64_t source) {
    const int64_t sizes[DIM_SYMBOLS] = {1, tokens, source, 0};
    Type bound;
    assert_true(type_bind(type, sizes, &bound));
    return type_count(&bound);
}

static Status fetch(const Batches *self, const Fetch *what, void *const *dst,
                    Diag *diag) {
    (void)diag;
    for (int c = 0; c < self->column_count; c++) {
        const Column *column = &self->columns[c];
        const int64_t count = column_count(&column->type, what->tokens, what->source);
        for (int64_t at = 0; at < what->n * count; at++) {
            const int64_t i = what->index[at / count], k = at % count;
            const int64_t real = column_count(&column->type, length_of(NULL, i),
                                              source_length_of(NULL, i));
            if (column->type.dtype == DTYPE_F32)
                ((float *)dst[c])[at] = number_at(column->name, i, k);
            else
                ((int32_t *)dst[c])[at] = integer_at(column->name, i, k, real);
        }
    }
    return STATUS_OK;
}

static bool has_symbol(const Graph *graph, int64_t symbol) {
    for (const Node *node = graph->first; node; node = node->next)
        for (int d = 0; node->name && d < node->type.rank; d++)
            if (node->type.dim[d] == symbol) return true;
    return false;
}

static Batches data_for(const Graph *graph, Column columns[COLUMNS]) {
    Batches data = {.name = "d", .count = SAMPLES, .columns = columns, .fetch = fetch};
    for (const Node *node = graph->first; node; node = node->next) {
        if (!node->name || !node_is_input(node)) continue;
        assert_true(data.column_count < COLUMNS);
        Column *column = &columns[data.column_count++];
        *column = (Column){.name = node->name, .type = node->type};
        column->type.rank--;
        memmove(column->type.dim, column->type.dim + 1,
                (size_t)column->type.rank * sizeof *column->type.dim);
    }
    if (has_symbol(graph, DIM_T)) data.length = length_of, data.max_tokens = LONGEST;
    if (has_symbol(graph, DIM_S))
        data.source_length = source_length_of, data.max_source = LONGEST_SOURCE;
    return data;
}

/* ---- what a block gives ---- */

/* A value of a model for one sample alone, in double; to be freed. */
static double *run_sample(Model *model, Node *value, int64_t sample, int64_t *count) {
    const int64_t sizes[DIM_SYMBOLS] = {1, length_of(NULL, sample),
                                        source_length_of(NULL, sample), 0};
    Runner r;
    runner_open_sizes(&r, model->graph, sizes, PRECISION_F64, NULL, &value, 1);
    for (const Node *in = model->graph->first; in; in = in->next) {
        void *input = in->name ? workspace_input(r.workspace, in->name) : NULL;
        Type bound;
        if (!input || !type_bind(&in->type, sizes, &bound)) continue;
        for (int64_t k = 0; k < type_count(&bound); k++)
            if (bound.dtype == DTYPE_F32)
                ((double *)input)[k] = (double)number_at(in->name, sample, k);
            else
                ((int32_t *)input)[k] =
                    integer_at(in->name, sample, k, type_count(&bound));
    }
    runner_run(&r);
    Type bound;
    assert_true(type_bind(&value->type, sizes, &bound));
    *count = type_count(&bound);
    double *out = malloc((size_t)*count * sizeof *out);
    memcpy(out, workspace_value(r.workspace, value), (size_t)*count * sizeof *out);
    runner_close(&r);
    return out;
}

/* What a projection gives, on the grid where it is one of windows. */
static Node *value_of(const Graph *graph, Node *out) {
    for (Node *node = graph->first; node; node = node->next)
        if (node_is(node, &op_window_reverse) && node->in[0] == out) return node;
    return out;
}

/* |out' - out| / |out - bias| over all samples, of a projection in both models. */
static double true_error(Model *pruned, Node *after, Model *model, Node *before) {
    const Node *bias = node_operand(before, "bias");
    const int64_t width = node_width(before);
    double change = 0, whole = 0;
    double *b = calloc((size_t)width, sizeof *b);
    if (bias) tensor_read_f64(&bias->storage->tensor, 0, width, b);
    for (int64_t s = 0; s < SAMPLES; s++) {
        int64_t count, same;
        double *x = run_sample(model, value_of(model->graph, before), s, &count);
        double *y = run_sample(pruned, value_of(pruned->graph, after), s, &same);
        assert_int_equal(count, same);
        for (int64_t i = 0; i < count; i++) {
            change += (y[i] - x[i]) * (y[i] - x[i]);
            whole += (x[i] - b[i % width]) * (x[i] - b[i % width]);
        }
        free(x);
        free(y);
    }
    free(b);
    return sqrt(change / whole);
}

/* ---- running ---- */

static Status run_step(Model *model, const char *pass, const char *options, bool plan,
                       int threads, const Watch *watch, Diag *diag) {
    Column columns[COLUMNS];
    Batches data = data_for(model->graph, columns);
    RecipeInputs inputs = {.data = &data, .watch = watch};
    char yaml[512];
    snprintf(yaml, sizeof yaml,
             "version: 1\nseed: 1\ndata: {d: {format: toy}}\npasses:\n  - %s: %s\n", pass,
             options);
    return run_with_inputs(&inputs, model, yaml, plan, threads, diag);
}

static Status run(Model *model, const char *options, bool plan, int threads, Diag *diag) {
    return run_step(model, "prune", options, plan, threads, NULL, diag);
}

/* The block that runs first of those that lost units, and its record; *alone: its weights
 * are its own. */
static bool find_first(PruneBlock *out, const Tree **row, bool *alone, Model *model,
                       const Tree *record, Arena *arena, Diag *diag) {
    static const char *const names[] = {"heads", "ffn"};
    PassContext ctx = {.arena = arena, .model = model};
    int first = -1;
    graph_number(model->graph);
    for (int k = 0; k < PRUNE_KINDS; k++) {
        Prune p;
        const Tree *list = tree_get(tree_get(record, names[k]), "blocks");
        if (!list) continue;
        assert_ok(
            prune_find(&p, &ctx, model->graph, (PruneKind)k, UNIT_GROUP, NULL, diag),
            diag);
        const Tree *entry = list->first;
        for (int i = 0; i < p.block_count; i++, entry = entry->next) {
            const PruneBlock *block = &p.blocks[i];
            if (!tree_get(entry, "rows") || (first >= 0 && block->out->id > first))
                continue;
            first = block->out->id;
            *out = *block;
            *row = entry;
            *alone = p.group_count == p.block_count;
        }
    }
    return first >= 0;
}

/* All errors that are recorded are no larger than without taking over. */
static int check_errors(const Tree *record) {
    static const char *const names[] = {"heads", "ffn"};
    int count = 0;
    for (int k = 0; k < PRUNE_KINDS; k++) {
        const Tree *list = tree_get(tree_get(record, names[k]), "blocks");
        for (const Tree *row = list ? list->first : NULL; row; row = row->next) {
            if (!tree_get(row, "rows")) continue;
            assert_true(number(row, "error") <= number(row, "error_cut") + 1e-6);
            assert_true(number(row, "rows") > SAMPLES);
            count++;
        }
    }
    return count;
}

static void try_family(const char *config, const char *options) {
    Model *before = configured_model(config, 5), *model = model_copy(before);
    Model *other = model_copy(before);
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    char one[HASH_TEXT_BYTES], three[HASH_TEXT_BYTES];
    PruneBlock block = {0};
    const Tree *row = NULL;
    bool alone = false;
    assert_ok(run(model, options, false, 1, diag), diag);
    assert_ok(run(other, options, false, 3, diag), diag);
    model_content_hash(model, one);
    model_content_hash(other, three);
    assert_string_equal(one, three);
    const Tree *record = last_record(model);
    assert_true(check_errors(record) > 0);
    assert_true(find_first(&block, &row, &alone, before, record, arena, diag));
    Node *after = graph_find(model->graph, block.stack, block.layer, block.out->role);
    assert_non_null(after);
    const double found = number(row, "error");
    const double expected = alone ? true_error(model, after, before, block.out) : found;
    if (fabs(found - expected) > 1e-4 * (1 + expected))
        fail_msg("%s: error %.8g, true %.8g\n%s", options, found, expected, config);
    diag_destroy(diag);
    arena_destroy(arena);
    model_destroy(other);
    model_destroy(model);
    model_destroy(before);
}

static void test_families(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof FAMILIES / sizeof *FAMILIES; i++) {
        try_family(FAMILIES[i], "{flops: 0.95, score: magnitude, reconstruct: true, "
                                "data: d, samples: 23}");
        try_family(FAMILIES[i], "{flops: 0.93, score: reconstruction, reconstruct: true, "
                                "follow: true, data: d, samples: 23}");
        try_family(FAMILIES[i], "{flops: 0.9, ranking: per_layer, score: reconstruction, "
                                "data: d, samples: 23}");
        if (!strstr(FAMILIES[i], "num_key_value_heads: 2")) continue;
        try_family(FAMILIES[i], "{flops: 0.9, score: reconstruction, unit: group, "
                                "reconstruct: true, data: d, samples: 23}");
        try_family(FAMILIES[i], "{flops: 0.95, score: magnitude, unit: group, "
                                "reconstruct: true, data: d, samples: 23}");
    }
}

/* |y' - y| / |y| of an output, over all samples. */
static double output_error(Model *pruned, Model *model, const char *name) {
    double change = 0, whole = 0;
    for (int64_t s = 0; s < SAMPLES; s++) {
        int64_t count, same;
        double *x = run_sample(model, graph_output(model->graph, name), s, &count);
        double *y = run_sample(pruned, graph_output(pruned->graph, name), s, &same);
        assert_int_equal(count, same);
        for (int64_t i = 0; i < count; i++) {
            change += (y[i] - x[i]) * (y[i] - x[i]);
            whole += x[i] * x[i];
        }
        free(x);
        free(y);
    }
    return sqrt(change / whole);
}

static double pruned_error(const Model *before, const char *options, const char *name) {
    Model *reference = model_copy(before), *model = model_copy(before);
    Diag *diag = diag_create();
    assert_ok(run(model, options, false, 2, diag), diag);
    const double error = output_error(model, reference, name);
    diag_destroy(diag);
    model_destroy(model);
    model_destroy(reference);
    return error;
}

/* Taking over is better than cutting, making up for the blocks before better still: with
 * norms after the sums, before them, on an image and for two stacks. */
static void test_follow(void **state) {
    static const int families[] = {2, 9, 22, 23};
    static const char *const names[] = {OUTPUT_STATES, "logits", "logits", "logits"};
    (void)state;
    for (int i = 0; i < 4; i++) {
        Model *model = configured_model(FAMILIES[families[i]], 5);
        const double cut =
            pruned_error(model, "{flops: 0.9, score: random, ranking: global}", names[i]);
        const double taken = pruned_error(
            model, "{flops: 0.9, score: random, reconstruct: true, data: d, samples: 23}",
            names[i]);
        const double followed = pruned_error(
            model,
            "{flops: 0.9, score: random, reconstruct: true, follow: true, data: d, "
            "samples: 23}",
            names[i]);
        if (!(followed < taken && taken < cut))
            fail_msg("family %d: %g, %g and %g", families[i], cut, taken, followed);
        model_destroy(model);
    }
}

/* Makes rows [to, to + count) of a projection those from `from` on. */
static void repeat_rows(Model *model, int layer, Role role, int64_t from, int64_t to,
                        int64_t count) {
    Node *node = graph_find(model->graph, "decoder", layer, role);
    const Tensor *tensor = &node_operand(node, "weight")->storage->tensor;
    float *w = (float *)(uintptr_t)tensor_data(tensor);
    const int64_t width = tensor->dim[1];
    memcpy(w + to * width, w + from * width, (size_t)(count * width) * sizeof *w);
}

/* Heads that share keys and values: where each group, or each query of a group, has a
 * twin, one of the two goes and the other takes over. */
static void test_grouped_twins(void **state) {
    (void)state;
    for (PruneUnit unit = UNIT_QUERY; unit <= UNIT_GROUP; unit++) {
        Model *model = configured_model(FAMILIES[11], 5); /* llama, heads of width 2 */
        Diag *diag = diag_create();
        for (int layer = 0; layer < 3; layer++) {
            if (unit == UNIT_GROUP) {
                repeat_rows(model, layer, ROLE_Q, 0, 4, 4);
                repeat_rows(model, layer, ROLE_K, 0, 2, 2);
                repeat_rows(model, layer, ROLE_V, 0, 2, 2);
            } else {
                repeat_rows(model, layer, ROLE_Q, 0, 2, 2);
                repeat_rows(model, layer, ROLE_Q, 4, 6, 2);
            }
        }
        Model *before = model_copy(model);
        assert_ok(run_step(model, "prune_heads",
                           unit == UNIT_GROUP
                               ? "{keep: 2, score: reconstruction, unit: group, "
                                 "reconstruct: true, data: d, samples: 23, damp: 1.0e-7}"
                               : "{keep: 2, score: reconstruction, "
                                 "reconstruct: true, data: d, samples: 23, damp: 1.0e-7}",
                           false, 2, NULL, diag),
                  diag);
        const Tree *row = tree_get(last_record(model), "blocks")->first;
        assert_true(number(row, "error_cut") > 0.1);
        assert_true(number(row, "error") < 0.01);
        assert_true(number(row, "key_heads") == (unit == UNIT_GROUP ? 1 : 2));
        assert_true(output_error(model, before, "logits") < 0.01);
        diag_destroy(diag);
        model_destroy(before);
        model_destroy(model);
    }
}

/* Rankings over all layers, and layers that keep no head and end in their mean. */
static void test_rankings(void **state) {
    (void)state;
    Model *model = configured_model(FAMILIES[23], 5), *other = model_copy(model);
    Diag *diag = diag_create();
    assert_ok(run(model,
                  "{flops: 0.6, allow_empty: true, score: reconstruction, "
                  "reconstruct: true, data: d, samples: 23}",
                  false, 2, diag),
              diag);
    assert_true(number(last_record(model), "flops_share") <= 0.6);
    assert_int_equal(run(other,
                         "{flops: 0.6, score: reconstruction, reconstruct: true, "
                         "data: d, samples: 23}",
                         true, 1, diag),
                     STATUS_OK);
    diag_destroy(diag);
    model_destroy(other);
    model_destroy(model);
}

/* The share that is done, as it was told last, which never falls. */
static void take_progress(void *self, int64_t done, int64_t total, const char *text) {
    double *share = self;
    (void)text;
    assert_true(done <= total);
    assert_true((double)done / (double)total >= *share);
    *share = (double)done / (double)total;
}

/* Scores and what follows from them are one way from nothing to all; one round of chunks
 * is one call of progress. */
static void test_progress(void **state) {
    (void)state;
    static const char *const OPTIONS[] = {
        "{flops: 0.9, score: reconstruction, reconstruct: true, data: d, samples: 16}",
        "{flops: 0.9, score: reconstruction, reconstruct: true, follow: true, data: d, "
        "samples: 16}",
        "{flops: 0.9, score: magnitude, reconstruct: true, data: d, samples: 16}"};
    for (int i = 0; i < 3; i++) {
        double share = 0;
        const Watch watch = {.self = &share, .progress = take_progress};
        Model *model = configured_model(FAMILIES[23], 5);
        Diag *diag = diag_create();
        assert_ok(run_step(model, "prune", OPTIONS[i], false, 1, &watch, diag), diag);
        assert_true(share == 1);
        diag_destroy(diag);
        model_destroy(model);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families), cmocka_unit_test(test_follow),
        cmocka_unit_test(test_rankings), cmocka_unit_test(test_progress),
        cmocka_unit_test(test_grouped_twins)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
