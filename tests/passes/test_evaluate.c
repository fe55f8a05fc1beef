/* evaluate: scores by hand, exits against runs of their own, masked tokens against the
 * logits of all tokens. */
#include "exec/train/train.h"
#include "io/files/yaml.h"
#include "ir/random.h"
#include "passes/evaluate/evaluate_tally.h"
#include "passes/exits/exits.h"
#include "tests/support/check.h"
#include "tests/support/configured.h"
#include "tests/support/exits.h"
#include "tests/support/passes.h"
#include "tests/support/rounding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Scores in double, of up to some hundred samples. */
static void assert_near(double found, double expected) {
    assert_within(found, expected,
                  rounding_tolerance(PRECISION_F64, 256, 1 + fabs(expected)));
}

/* ---- scores ---- */

/* Adds the samples of a confusion matrix: counts[label * classes + predicted]. */
static void tally_fill(Tally *tally, Arena *arena, int classes, const int *counts) {
    tally_open(tally, arena, classes, false);
    for (int t = 0; t < classes; t++)
        for (int p = 0; p < classes; p++)
            for (int i = 0; i < counts[t * classes + p]; i++) {
                float logits[4] = {0};
                RowScore score;
                logits[p] = 1;
                tally_score(&score, logits, &t, 1, tally->classes, 1);
                tally_add(tally, &score, t);
            }
}

/* 50 negative and 10 false positive, 5 missed and 35 found: precision 35/45, recall
 * 35/40. */
static void test_two_classes(void **state) {
    (void)state;
    Arena *arena = arena_create();
    Tally tally;
    tally_fill(&tally, arena, 2, (const int[]){50, 10, 5, 35});
    const double precision = 35.0 / 45, recall = 35.0 / 40;
    assert_near(tally_metric(&tally, METRIC_ACCURACY), 85);
    assert_near(tally_metric(&tally, METRIC_F1),
                200 * precision * recall / (precision + recall));
    assert_near(tally_metric(&tally, METRIC_MCC),
                (35.0 * 50 - 10.0 * 5) / sqrt(45.0 * 40 * 60 * 55));
    /* two logits, 0 and 1: ln(1 + e) - 1 where right, ln(1 + e) where wrong */
    assert_near(tally_metric(&tally, METRIC_LOSS), log(1 + exp(1)) - 0.85);
    arena_destroy(arena);
}

/* By hand, f1: 2*2/(3+4), 2*3/(5+4), 2*1/(3+3); mcc: c = 6, s = 11, p = (3,5,3),
 * t = (4,4,3). */
static void test_three_classes(void **state) {
    (void)state;
    Arena *arena = arena_create();
    Tally tally;
    tally_fill(&tally, arena, 3, (const int[]){2, 1, 1, 0, 3, 1, 1, 1, 1});
    assert_near(tally_metric(&tally, METRIC_F1), 100 * (4.0 / 7 + 6.0 / 9 + 2.0 / 6) / 3);
    assert_near(tally_metric(&tally, METRIC_MCC),
                (6 * 11 - (3 * 4 + 5 * 4 + 3 * 3)) /
                    sqrt((121.0 - (9 + 25 + 9)) * (121.0 - (16 + 16 + 9))));
    arena_destroy(arena);
}

/* Classes that do not occur, predictions that are all equal. */
static void test_degenerate(void **state) {
    (void)state;
    Arena *arena = arena_create();
    Tally tally;
    tally_fill(&tally, arena, 3, (const int[]){4, 0, 0, 0, 2, 0, 0, 0, 0});
    assert_near(tally_metric(&tally, METRIC_F1), 100);
    assert_near(tally_metric(&tally, METRIC_MCC), 1);
    tally_fill(&tally, arena, 2, (const int[]){3, 0, 2, 0});
    assert_near(tally_metric(&tally, METRIC_F1), 0);
    assert_near(tally_metric(&tally, METRIC_MCC), 0);
    assert_near(tally_metric(&tally, METRIC_ACCURACY), 60);
    arena_destroy(arena);
}

/* Runs one step with these options; *record lies in the model's provenance. */
static Status run(Model *model, Batches *data, const char *options, const Tree **record,
                  Diag *diag) {
    Arena *arena = arena_create();
    Tree *document;
    Recipe recipe;
    const char *yaml = arena_printf(arena,
                                    "version: 1\n"
                                    "data: {some: {format: toy}}\n"
                                    "passes:\n"
                                    "  - evaluate: {data: some, %s}\n",
                                    options);
    RecipeInputs inputs = {data, NULL};
    const PipelineOptions pipeline = {.threads = 2,
                                      .resources = inputs_resources(&inputs)};
    assert_ok(yaml_parse(&document, arena, "test", yaml, strlen(yaml), diag), diag);
    assert_ok(recipe_bind(&recipe, arena, document, "test", ".", diag), diag);
    const Status status = pipeline_run(model, &recipe, &pipeline, diag);
    const Tree *steps = tree_get(model->provenance, "steps");
    if (record) *record = steps ? tree_get(steps->last, "record") : NULL;
    arena_destroy(arena);
    return status;
}

static const Tree *row(const Tree *record, int i) {
    const Tree *item = tree_get(record, "exits")->first;
    while (i-- > 0) item = item->next;
    return item;
}

typedef struct Case {
    Model *model;
    Batches *data;
    Diag *diag;
} Case;

static void case_open(Case *c) {
    *c = (Case){configured_bert(4, 3), sentence_batches(), diag_create()};
    exits_add(c->model, 1.2, 4);
}

static void case_close(Case *c) {
    model_destroy(c->model);
    batches_destroy(c->data);
    diag_destroy(c->diag);
}

static const Tree *evaluated(Case *c, const char *options) {
    const Tree *record;
    assert_ok(run(c->model, c->data, options, &record, c->diag), c->diag);
    return record;
}

/* What the tests find out about one exit on their own. */
typedef struct Single {
    int64_t correct;
    double loss;
} Single;

static Status add_single(void *self, const Fetch *what, const float *const *values,
                         const void *const *columns, Diag *diag) {
    Single *single = self;
    (void)columns, (void)diag;
    for (int64_t i = 0; i < what->n; i++) {
        const float *z = values[0] + i * 3;
        const int32_t label = sentence_label(what->index[i]);
        const double sum = exp(z[0]) + exp(z[1]) + exp(z[2]);
        single->loss -= log(exp(z[label]) / sum);
        single->correct += z[label] >= z[0] && z[label] >= z[1] && z[label] >= z[2];
    }
    return STATUS_OK;
}

static void test_each(void **state) {
    (void)state;
    static const char *const names[] = {"exit.1", "exit.2", "exit.3", "logits"};
    Case c;
    double flops = 0;
    case_open(&c);
    const Tree *record = evaluated(&c, "exits: each, batch_size: 7");
    assert_int_equal(tree_get(record, "exits")->count, 4);
    for (int e = 0; e < 4; e++) {
        Single single = {0};
        Node *logits = graph_output(c.model->graph, names[e]);
        assert_ok(forward_batches(c.model->graph, &logits, 1, c.data, 0, 5, 1, NULL,
                                  add_single, &single, c.diag),
                  c.diag);
        const Tree *found = row(record, e);
        assert_string_equal(tree_get(found, "exit")->string, names[e]);
        assert_true(number(found, "layer") == e + 1);
        assert_near(number(found, "accuracy"),
                    100.0 * (double)single.correct / SENTENCE_SAMPLES);
        assert_within(number(found, "loss"), single.loss / SENTENCE_SAMPLES,
                      loss_tolerance(c.model->graph, single.loss / SENTENCE_SAMPLES));
        assert_string_equal(tree_get(found, "f1_average")->string, "macro");
        assert_true(number(found, "flops") > flops);
        flops = number(found, "flops");
    }
    assert_near(number(record, "accuracy"), number(row(record, 3), "accuracy"));
    case_close(&c);
}

/* At the ends a rule is one exit; in between it costs what the samples took. */
static void test_rule(void **state) {
    (void)state;
    Case c;
    case_open(&c);
    const Tree *each = evaluated(&c, "exits: each"), *last = evaluated(&c, "exits: last");
    assert_near(number(last, "loss"), number(row(each, 3), "loss"));
    assert_null(tree_get(last, "exits"));
    const Tree *all = evaluated(&c, "entropy: 50");
    assert_near(number(all, "loss"), number(row(each, 0), "loss"));
    assert_near(number(all, "mean_depth"), 1);
    assert_near(number(row(all, 0), "share"), 1);
    assert_near(number(all, "flops"), number(row(each, 0), "flops"));
    const Tree *none = evaluated(&c, "exits: rule, patience: 3");
    assert_near(number(none, "loss"), number(last, "loss"));
    assert_near(number(none, "mean_depth"), 4);
    assert_near(number(none, "full_flops"), number(row(each, 3), "flops"));
    assert_true(number(none, "flops_share") > 1 && number(none, "flops_share") < 1.1);
    case_close(&c);
}

static void test_stored_rule(void **state) {
    (void)state;
    Case c;
    Exits exits;
    case_open(&c);
    Arena *arena = arena_create();
    PassContext ctx = {.arena = arena};
    const double threshold[] = {0.05, 0.3, 50, 0};
    const ExitRule rule = {.criterion = EXIT_ENTROPY, .threshold = threshold};
    assert_ok(exits_find(&exits, arena, &ctx, c.model->graph, c.diag), c.diag);
    assert_ok(exits_store_rule(&rule, c.model, &exits, c.diag), c.diag);
    const Tree *record = evaluated(&c, "batch_size: 1");
    assert_string_equal(tree_get(record, "criterion")->string, "entropy");
    assert_near(tree_get(record, "thresholds")->first->next->real, 0.3);
    double depth = 0, share = 0;
    for (int e = 0; e < 4; e++) {
        share += number(row(record, e), "share");
        depth += number(row(record, e), "share") * (e + 1);
    }
    assert_near(share, 1);
    assert_near(number(row(record, 3), "share"), 0);
    assert_near(number(record, "mean_depth"), depth);
    assert_true(depth > 1 && depth < 3);
    assert_near(number(record, "flops_share"),
                number(record, "flops") / number(record, "full_flops"));
    assert_true(number(record, "flops_share") < depth / 3);
    assert_null(tree_get(evaluated(&c, "exits: last"), "criterion"));
    arena_destroy(arena);
    case_close(&c);
}

/* Times go where times may go, and only there. */
static void test_times(void **state) {
    (void)state;
    Case c;
    case_open(&c);
    const Pass *pass = pass_find("evaluate");
    char *options = malloc(pass->options_size);
    Arena *arena = arena_create();
    const Tree *named = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_put_string(arena, (Tree *)(uintptr_t)named, "data", "some");
    tree_put_int(arena, (Tree *)(uintptr_t)named, "batch_size", 1);
    memcpy(options, pass->defaults, pass->options_size);
    assert_ok(fields_bind(pass->fields, named, options, arena, STATUS_RECIPE, c.diag),
              c.diag);
    RecipeInputs inputs = {c.data, NULL};
    PassContext ctx = {.arena = arena,
                       .threads = 1,
                       .record = tree_new(arena, TREE_MAP, LOC_NONE),
                       .times = tree_new(arena, TREE_MAP, LOC_NONE),
                       .resources = inputs_resources(&inputs)};
    assert_ok(pass->run(&ctx, c.model, options, c.diag), c.diag);
    assert_true(number(ctx.times, "milliseconds_per_sample") > 0);
    assert_true(number(ctx.times, "samples_per_second") > 0);
    assert_null(tree_get(ctx.record, "samples_per_second"));
    ctx.times = NULL;
    assert_ok(pass->run(&ctx, c.model, options, c.diag), c.diag);
    free(options);
    arena_destroy(arena);
    case_close(&c);
}

static void test_gates(void **state) {
    (void)state;
    Case c;
    case_open(&c);
    const Tree *record = evaluated(&c, "limit: 30");
    const char *const metrics[] = {"accuracy", "f1", "mcc", "loss"};
    double value[4];
    for (int m = 0; m < 4; m++) value[m] = number(record, metrics[m]);
    for (int m = 0; m < 4; m++) {
        char options[100];
        snprintf(options, sizeof options, "limit: 30, metric: %s, min: %.9f, max: %.9f",
                 metrics[m], value[m] - 1e-6, value[m] + 1e-6);
        evaluated(&c, options);
        snprintf(options, sizeof options, "limit: 30, metric: %s, max: %.9f", metrics[m],
                 value[m] - 1e-6);
        assert_int_equal(run(c.model, c.data, options, NULL, c.diag), STATUS_GATE);
    }
    case_close(&c);
}

/* ---- masked tokens ---- */

enum { WORDS = 12, LENGTH = 6, MASKED = 3, TEXTS = 20 };

static int32_t word(int64_t sample, int t) {
    return (int32_t)(random_u64(5, (uint64_t)(sample * 8 + t)) % WORDS);
}

/* The second position of every sample, and the third and fifth of each other one, are
 * asked for; labels are the word before. Odd samples have one position to spare. */
static Status text_fetch(const Batches *self, const Fetch *what, void *const *dst,
                         Diag *diag) {
    static const int32_t places[MASKED] = {1, 2, 4};
    (void)self, (void)diag;
    for (int64_t i = 0; i < what->n; i++) {
        const int64_t s = what->index[i];
        for (int t = 0; t < LENGTH; t++) {
            ((int32_t *)dst[0])[i * LENGTH + t] = word(s, t);
            ((int32_t *)dst[1])[i * LENGTH + t] = 1;
            ((int32_t *)dst[2])[i * LENGTH + t] = 0;
        }
        for (int m = 0; m < MASKED; m++) {
            const bool real = m == 0 || s % 2 == 0;
            ((int32_t *)dst[3])[i * MASKED + m] = real ? places[m] : 0;
            ((int32_t *)dst[4])[i * MASKED + m] =
                real ? word(s, places[m] - 1) : INDEX_SKIP;
        }
    }
    return STATUS_OK;
}

static void text_destroy(Batches *self) {
    (void)self;
}

static int64_t text_length(const Batches *self, int64_t sample) {
    (void)self, (void)sample;
    return LENGTH;
}

static int64_t text_masked(const Batches *self, int64_t tokens) {
    (void)self;
    return tokens / 2;
}

static Batches texts(void) {
    static const Column COLUMNS[] = {
        {"input_ids", {.dtype = DTYPE_I32, .rank = 1, .dim = {DIM_T}}},
        {"attention_mask", {.dtype = DTYPE_I32, .rank = 1, .dim = {DIM_T}}},
        {"token_type_ids", {.dtype = DTYPE_I32, .rank = 1, .dim = {DIM_T}}},
        {"masked_positions", {.dtype = DTYPE_I32, .rank = 1, .dim = {DIM_M}}},
        {"masked_labels", {.dtype = DTYPE_I32, .rank = 1, .dim = {DIM_M}}}};
    return (Batches){.name = "texts",
                     .count = TEXTS,
                     .columns = COLUMNS,
                     .column_count = 5,
                     .length = text_length,
                     .max_tokens = LENGTH,
                     .masked = text_masked,
                     .fetch = text_fetch,
                     .destroy = text_destroy};
}

/* Rows, loss and hits from the logits of all tokens. */
typedef struct Plain {
    int64_t rows, correct;
    double loss;
} Plain;

static void add_plain(Plain *plain, const float *z, int32_t label) {
    double sum = 0;
    bool best = true;
    for (int w = 0; w < WORDS; w++) {
        sum += exp(z[w]);
        best = best && z[label] >= z[w];
    }
    plain->loss += log(sum) - z[label];
    plain->correct += best;
    plain->rows++;
}

static Status add_text(void *self, const Fetch *what, const float *const *values,
                       const void *const *columns, Diag *diag) {
    const int32_t *positions = columns[3], *labels = columns[4];
    (void)diag;
    for (int64_t i = 0; i < what->n * MASKED; i++)
        if (labels[i] != INDEX_SKIP)
            add_plain(self, values[0] + (i / MASKED * LENGTH + positions[i]) * WORDS,
                      labels[i]);
    return STATUS_OK;
}

static const char MASKED_LM[] =
    "{model_type: bert, architectures: [BertForMaskedLM], hidden_size: 8,\n"
    " num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 16,\n"
    " hidden_act: gelu, vocab_size: 12, max_position_embeddings: 6,\n"
    " type_vocab_size: 2, initializer_range: 0.3}\n";

static void test_words(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model = configured_model(MASKED_LM, 3);
    Batches data = texts();
    Plain plain = {0};
    const Tree *record;
    Node *logits = graph_output(model->graph, "logits");
    assert_ok(forward_batches(model->graph, &logits, 1, &data, 0, 8, 1, NULL, add_text,
                              &plain, diag),
              diag);
    assert_ok(run(model, &data, "metric: perplexity, max: 1000", &record, diag), diag);
    assert_true(number(record, "samples") == TEXTS);
    assert_true(number(record, "tokens") == TEXTS / 2 * (1 + MASKED));
    assert_true(plain.rows == TEXTS / 2 * (1 + MASKED));
    const double loss = plain.loss / (double)plain.rows;
    assert_within(number(record, "loss"), loss, loss_tolerance(model->graph, loss));
    assert_near(number(record, "perplexity"), exp(number(record, "loss")));
    assert_near(number(record, "accuracy"),
                100.0 * (double)plain.correct / (double)plain.rows);
    assert_null(tree_get(record, "f1"));
    assert_int_equal(run(model, &data, "metric: perplexity, max: 1.01", NULL, diag),
                     STATUS_GATE);
    assert_int_equal(run(model, &data, "metric: f1", NULL, diag), STATUS_MODEL);
    assert_int_equal(run(model, &data, "exits: each", NULL, diag), STATUS_MODEL);
    model_destroy(model);
    diag_destroy(diag);
}

/* Data that has not what the model asks for. */
static void test_unfit_data(void **state) {
    (void)state;
    static const Column COUNTED[] = {
        {"input_ids", {.dtype = DTYPE_I32, .rank = 1, .dim = {DIM_T}}},
        {"attention_mask", {.dtype = DTYPE_I32, .rank = 1, .dim = {DIM_T}}},
        {"token_type_ids", {.dtype = DTYPE_I32, .rank = 1, .dim = {DIM_T}}},
        {"labels", {.dtype = DTYPE_F32}}};
    Case c;
    case_open(&c);
    Batches data = texts(), real = *c.data;
    real.columns = COUNTED;
    Model *masked = configured_model(MASKED_LM, 3);
    assert_int_equal(run(c.model, &data, "limit: 0", NULL, c.diag), STATUS_MODEL);
    assert_int_equal(run(c.model, &real, "limit: 0", NULL, c.diag), STATUS_MODEL);
    assert_int_equal(run(masked, c.data, "limit: 0", NULL, c.diag), STATUS_MODEL);
    model_destroy(masked);
    case_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_classes), cmocka_unit_test(test_three_classes),
        cmocka_unit_test(test_degenerate),  cmocka_unit_test(test_each),
        cmocka_unit_test(test_rule),        cmocka_unit_test(test_stored_rule),
        cmocka_unit_test(test_times),       cmocka_unit_test(test_gates),
        cmocka_unit_test(test_words),       cmocka_unit_test(test_unfit_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
