/* Several labels, values, and words with labels, from a file to a model that has learnt a
 * rule: the losses and metrics against plain loops over the logits, distillation, exits,
 * importance, posteriors, thresholds. */
#include "exec/run/forward.h"
#include "io/datasets/dataset.h"
#include "io/files/yaml.h"
#include "ir/random.h"
#include "ir/rewrite.h"
#include "passes/evaluate/label_thresholds.h"
#include "tests/support/check.h"
#include "tests/support/configured.h"
#include "tests/support/passes.h"
#include "tests/support/rounding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SENTENCES = 60, TOKENS = 12, MOST = 4 };

/* ---- data: labels by a rule ---- */

typedef enum Kind { SEVERAL, VALUE, WORDS, KINDS } Kind;

static const char *const PROBLEMS[KINDS] = {
    [SEVERAL] = "architectures: [BertForSequenceClassification], num_labels: 3,"
                " problem_type: multi_label_classification",
    [VALUE] = "architectures: [BertForSequenceClassification], num_labels: 1",
    [WORDS] = "architectures: [BertForTokenClassification],"
              " id2label: {'0': O, '1': B-X, '2': I-X}"};

static const char *const DATA[KINDS] = {
    [SEVERAL] = "format: text, table: tsv, targets: labels, labels: [cat, mat, play]",
    [VALUE] = "format: text, table: tsv, targets: values",
    [WORDS] = "format: tokens, labels: [O, B-X, I-X]"};

/* Labels: which of cat, mat and play occur. Value: cats less half the mats. Words: cat
 * begins an entity that goes on for as long as mat follows. */
static void sentence_write(FILE *file, Kind kind, int i) {
    static const char *const VOCABULARY[] = {"cat", "mat", "play", "the", "sat", "on"};
    const int words = 2 + i % 7;
    int seen[3] = {0}, inside = 0;
    Text line = {0};
    for (int w = 0; w < words; w++) {
        const uint64_t draw = random_u64(5, (uint64_t)(i * 16 + w)) % 6;
        if (draw < 3) seen[draw]++;
        inside = draw == 0 || (inside && draw == 1);
        if (kind == WORDS)
            fprintf(file, "%s %s\n", VOCABULARY[draw],
                    !inside     ? "O"
                    : draw == 0 ? "B-X"
                                : "I-X");
        text_add(&line, "%s%s", w ? " " : "", VOCABULARY[draw]);
    }
    if (kind == WORDS) fputs("\n", file);
    if (kind == VALUE) fprintf(file, "%s\t%g\n", line.data, seen[0] - 0.5 * seen[1]);
    if (kind == SEVERAL)
        fprintf(file, "%s\t%s%s%s\n", line.data, seen[0] ? "cat," : "",
                seen[1] ? "mat," : "", seen[2] ? "play" : "");
    text_free(&line);
}

static Batches *open_set(Kind kind, Arena *arena, Diag *diag) {
    const char *base = getenv("TMPDIR");
    char *path = arena_printf(arena, "%s/labels.XXXXXX", base ? base : "/tmp");
    const int fd = mkstemp(path);
    const DataFormat *format;
    void *options;
    Batches *data = NULL;
    Tree *spec;
    assert_true(fd >= 0);
    FILE *file = fdopen(fd, "w");
    if (kind != WORDS) fputs("sentence\tlabel\n", file);
    for (int i = 0; i < SENTENCES; i++) sentence_write(file, kind, i);
    assert_int_equal(fclose(file), 0);
    char *vocabulary = realpath("tests/data/text/vocab.txt", NULL);
    const char *yaml = arena_printf(arena, "{%s, path: %s, tokenizer: %s}", DATA[kind],
                                    path, vocabulary);
    free(vocabulary);
    assert_ok(yaml_parse(&spec, arena, "data", yaml, strlen(yaml), diag), diag);
    assert_ok(dataset_bind(&format, &options, arena, spec, ".", diag), diag);
    assert_ok(dataset_open(&data, format, options, LOC_FILE("data"), diag), diag);
    unlink(path);
    return data;
}

/* ---- a model, its data, and what is run on both ---- */

typedef struct Bench {
    Kind kind;
    Arena *arena;
    Diag *diag;
    Model *model;
    Batches *data;
    int64_t classes;
} Bench;

static Model *make_model(Kind kind, int layers, uint64_t seed) {
    char yaml[512];
    snprintf(yaml, sizeof yaml,
             "{model_type: bert, %s, hidden_size: 16, num_hidden_layers: %d,\n"
             " num_attention_heads: 2, intermediate_size: 32, hidden_act: gelu,\n"
             " vocab_size: 104, max_position_embeddings: 16, type_vocab_size: 2,\n"
             " hidden_dropout_prob: 0, attention_probs_dropout_prob: 0,\n"
             " initializer_range: 0.2}\n",
             PROBLEMS[kind], layers);
    return configured_model(yaml, seed);
}

static Bench bench_open(Kind kind) {
    Bench b = {.kind = kind,
               .arena = arena_create(),
               .diag = diag_create(),
               .classes = kind == VALUE ? 1 : 3,
               .model = make_model(kind, 2, 7)};
    b.data = open_set(kind, b.arena, b.diag);
    assert_int_equal(b.data->count, SENTENCES);
    return b;
}

static void bench_close(Bench *b) {
    batches_destroy(b->data);
    model_destroy(b->model);
    diag_destroy(b->diag);
    arena_destroy(b->arena);
}

/* Runs steps, a YAML list; with a teacher where one is given. */
static Status bench_run(Bench *b, Model *teacher, const char *steps, bool plan) {
    const char *recipe = arena_printf(
        b->arena, "version: 1\nseed: 3\ndata: {set: {format: text}}\npasses: %s\n",
        steps);
    return run_with_inputs(&(RecipeInputs){b->data, teacher}, b->model, recipe, plan, 2,
                           b->diag);
}

static void bench_expect(Bench *b, const char *steps, const char *part) {
    assert_int_equal(bench_run(b, NULL, steps, false), STATUS_MODEL);
    char *message = diag_text(b->diag);
    if (!strstr(message, part)) fail_msg("no '%s' in: %s", part, message);
    free(message);
}

/* The logits and labels of every sample, padded to TOKENS where they are of tokens. */
typedef struct Seen {
    const Bench *b;
    double *logits, *labels;
    int64_t rows, label_width;
    bool *labelled; /* rows */
} Seen;

static Status see(void *self, const Fetch *what, const float *const *values,
                  const void *const *columns, Diag *diag) {
    Seen *s = self;
    (void)diag;
    const bool words = s->b->kind == WORDS;
    const int64_t each = words ? what->tokens : 1, C = s->b->classes;
    const int column = batches_column(s->b->data, "labels");
    for (int64_t i = 0; i < what->n; i++)
        for (int64_t t = 0; t < each; t++) {
            const int64_t row = what->index[i] * (words ? TOKENS : 1) + t;
            for (int64_t c = 0; c < C; c++)
                s->logits[row * C + c] = (double)values[0][(i * each + t) * C + c];
            for (int64_t c = 0; c < s->label_width; c++)
                s->labels[row * s->label_width + c] =
                    words ? (double)((const int32_t *)columns[column])[i * each + t]
                          : (double)((const float *)columns[column])[i * C + c];
            s->labelled[row] = !words || s->labels[row] != INDEX_SKIP;
        }
    return STATUS_OK;
}

static Seen look_at(const Bench *b, Model *model, const char *output) {
    const bool words = b->kind == WORDS;
    Seen s = {.b = b, .rows = words ? SENTENCES * TOKENS : SENTENCES};
    s.label_width = words ? 1 : b->classes;
    s.logits = ARENA_ARRAY(b->arena, double, (size_t)(s.rows * b->classes));
    s.labels = ARENA_ARRAY(b->arena, double, (size_t)(s.rows * s.label_width));
    s.labelled = ARENA_ARRAY(b->arena, bool, (size_t)s.rows);
    Node *logits = graph_output(model->graph, output);
    assert_non_null(logits);
    assert_ok(forward_batches(model->graph, &logits, 1, b->data, 0, 16, 1, NULL, see, &s,
                              b->diag),
              b->diag);
    return s;
}

static Seen look(const Bench *b, Model *model) {
    return look_at(b, model, OUTPUT_LOGITS);
}

/* ---- losses by plain loops ---- */

static double sigmoid(double z) {
    return 1 / (1 + exp(-z));
}

/* Of one row; `q` are probabilities, or for a value the value itself. */
static double row_loss(Kind kind, const double *z, const double *q, int64_t C, double t) {
    double loss = 0, sum = 0;
    for (int64_t c = 0; c < C; c++) sum += exp(z[c] / t);
    for (int64_t c = 0; c < C; c++) {
        const double p = sigmoid(z[c] / t);
        if (kind == VALUE) loss += (z[c] - q[c]) * (z[c] - q[c]) / (double)C;
        if (kind == SEVERAL)
            loss -= (q[c] * log(p) + (1 - q[c]) * log(1 - p)) / (double)C;
        if (kind == WORDS) loss -= q[c] * (z[c] / t - log(sum));
    }
    return loss;
}

static double label_loss(const Seen *s) {
    const int64_t C = s->b->classes;
    double loss = 0, rows = 0, q[MOST];
    for (int64_t i = 0; i < s->rows; i++) {
        if (!s->labelled[i]) continue;
        for (int64_t c = 0; c < C; c++)
            q[c] = s->b->kind == WORDS ? s->labels[i] == (double)c : s->labels[i * C + c];
        loss += row_loss(s->b->kind, s->logits + i * C, q, C, 1);
        rows++;
    }
    return loss / rows;
}

/* Of a student against a teacher, at temperature t, times t^2; of words over all tokens
 * that are no padding. */
static double teacher_loss(const Seen *s, const Seen *teacher, double t) {
    const int64_t C = s->b->classes;
    double loss = 0, rows = 0, q[MOST];
    for (int64_t i = 0; i < s->rows; i++) {
        const int64_t place = i % TOKENS, sample = i / TOKENS;
        if (s->b->kind == WORDS && place >= s->b->data->length(s->b->data, sample))
            continue;
        double sum = 0;
        const double *y = teacher->logits + i * C;
        for (int64_t c = 0; c < C; c++) sum += exp(y[c] / t);
        for (int64_t c = 0; c < C; c++)
            q[c] = s->b->kind == VALUE     ? y[c]
                   : s->b->kind == SEVERAL ? sigmoid(y[c] / t)
                                           : exp(y[c] / t) / sum;
        loss += row_loss(s->b->kind, s->logits + i * C, q, C, t);
        rows++;
    }
    return loss / rows * (s->b->kind == VALUE ? 1 : t * t);
}

/* ---- tests ---- */

/* Evaluation, and the first step of training on all samples at once, tell the loss of a
 * model that nobody trained; so do importance and the posterior, which differentiate it.
 */
static void test_losses(void **state) {
    (void)state;
    static const char *const KEYS[KINDS] = {"loss", "mse", "loss"};
    for (int kind = 0; kind < KINDS; kind++) {
        Bench b = bench_open((Kind)kind);
        const Seen s = look(&b, b.model);
        const double want = label_loss(&s), bound = loss_tolerance(b.model->graph, want);
        assert_ok(bench_run(&b, NULL, "[evaluate: {data: set}]", false), b.diag);
        assert_within(number(last_record(b.model), KEYS[kind]), want, bound);
        assert_ok(
            bench_run(&b, NULL,
                      "[finetune: {data: set, steps: 1, batch_size: 60, lr: 1.0e-9}]",
                      false),
            b.diag);
        assert_within(number(last_record(b.model), "first_loss"), want, bound);
        assert_ok(
            bench_run(
                &b, NULL,
                "[importance: {data: set}, estimate_posterior: {data: set, steps: 20},"
                " prune_heads: {score: stored, keep: 1}]",
                false),
            b.diag);
        bench_close(&b);
    }
}

/* Smoothing goes half to either answer; positive labels weigh more. */
static void test_label_options(void **state) {
    (void)state;
    Bench b = bench_open(SEVERAL);
    const Seen s = look(&b, b.model);
    const double w[] = {2, 1, 0.5};
    double want = 0;
    for (int64_t i = 0; i < s.rows * 3; i++) {
        const double y = 0.8 * s.labels[i] + 0.1, p = sigmoid(s.logits[i]);
        want -= (w[i % 3] * y * log(p) + (1 - y) * log(1 - p)) / (double)(3 * s.rows);
    }
    assert_ok(bench_run(&b, NULL,
                        "[finetune: {data: set, steps: 1, batch_size: 60, lr: 1.0e-9,"
                        " label_smoothing: 0.2, positive_weights: [2, 1, 0.5]}]",
                        false),
              b.diag);
    assert_within(number(last_record(b.model), "first_loss"), want,
                  loss_tolerance(b.model->graph, want));
    bench_expect(&b, "[finetune: {data: set, steps: 1, positive_weights: [1, 2]}]",
                 "positive: expected no weight, one, or one for each of 3 labels");
    bench_close(&b);
    b = bench_open(VALUE);
    bench_expect(&b, "[finetune: {data: set, steps: 1, label_smoothing: 0.1}]",
                 "label_smoothing: expected none for a model of task regress");
    diag_destroy(b.diag);
    b.diag = diag_create();
    bench_expect(&b, "[finetune: {data: set, steps: 1, positive_weights: [2]}]",
                 "expected a model of task multi_label, found regress");
    bench_close(&b);
}

/* Each learns its rule; half of the layers gone and the whole model as teacher, it finds
 * back. The first loss of distillation is what plain loops say. */
static void test_learn_and_follow(void **state) {
    (void)state;
    static const char *const GATES[KINDS] = {"metric: f1_micro, min: 97",
                                             "metric: spearman, min: 0.97",
                                             "metric: f1, min: 97, entities: strict"};
    for (int kind = 0; kind < KINDS; kind++) {
        Bench b = bench_open((Kind)kind);
        assert_ok(bench_run(&b, NULL,
                            arena_printf(b.arena,
                                         "[finetune: {data: set, epochs: 60, batch_size: "
                                         "12, lr: 0.01}, evaluate: {data: set, %s}]",
                                         GATES[kind]),
                            false),
                  b.diag);
        Model *teacher = model_copy(b.model);
        run_pass(b.model, "remove_layer", "{drop: [1]}");
        const Seen s = look(&b, b.model), t = look(&b, teacher);
        const double want = teacher_loss(&s, &t, 2);
        static const char DISTILL[] =
            "[distill: {data: set, preset: none, prediction: 1, temperature: 2, %s}]";
        assert_ok(bench_run(&b, teacher,
                            arena_printf(b.arena, DISTILL,
                                         "steps: 1, batch_size: 60, lr: 1.0e-9"),
                            false),
                  b.diag);
        assert_within(number(last_record(b.model), "first_loss"), want,
                      loss_tolerance(teacher->graph, 4 * want));
        assert_ok(bench_run(&b, teacher,
                            arena_printf(b.arena, DISTILL,
                                         "epochs: 60, batch_size: 12, lr: 0.01"),
                            false),
                  b.diag);
        assert_ok(
            bench_run(&b, NULL,
                      arena_printf(b.arena, "[evaluate: {data: set, %s}]", GATES[kind]),
                      false),
            b.diag);
        model_destroy(teacher);
        bench_close(&b);
    }
}

/* What is counted from predictions, by plain loops. */
static void test_counted_metrics(void **state) {
    (void)state;
    Bench b = bench_open(SEVERAL);
    const Seen s = look(&b, b.model);
    double hits = 0, found = 0, there = 0, exact = 0;
    for (int64_t i = 0; i < s.rows; i++) {
        bool right = true;
        for (int64_t k = 3 * i; k < 3 * i + 3; k++) {
            hits += s.logits[k] >= 0 && s.labels[k] > 0;
            found += s.logits[k] >= 0;
            there += s.labels[k] > 0;
            right &= (s.logits[k] >= 0) == (s.labels[k] > 0);
        }
        exact += right;
    }
    assert_ok(bench_run(&b, NULL, "[evaluate: {data: set}]", false), b.diag);
    const Tree *record = last_record(b.model);
    assert_within(number(record, "f1_micro"), 200 * hits / (found + there), 1e-9);
    assert_within(number(record, "precision"), found > 0 ? 100 * hits / found : 0, 1e-9);
    assert_within(number(record, "recall"), 100 * hits / there, 1e-9);
    assert_within(number(record, "accuracy"), 100 * exact / (double)s.rows, 1e-9);
    bench_close(&b);
    b = bench_open(WORDS);
    const Seen t = look(&b, b.model);
    double rows = 0, correct = 0;
    for (int64_t i = 0; i < t.rows; i++) {
        int best = 0;
        for (int c = 1; c < 3; c++)
            if (t.logits[3 * i + c] > t.logits[3 * i + best]) best = c;
        rows += t.labelled[i];
        correct += t.labelled[i] && t.labels[i] == best;
    }
    assert_ok(bench_run(&b, NULL, "[evaluate: {data: set}]", false), b.diag);
    assert_within(number(last_record(b.model), "accuracy"), 100 * correct / rows, 1e-9);
    assert_true(number(last_record(b.model), "words") == rows);
    assert_string_equal(tree_get(last_record(b.model), "tags")->string, "iob2");
    bench_close(&b);
}

/* Chosen thresholds are kept, and none gives a label a better F1; later training makes
 * them stale. */
static void test_thresholds(void **state) {
    (void)state;
    Bench b = bench_open(SEVERAL);
    assert_ok(
        bench_run(&b, NULL,
                  "[evaluate: {data: set}, evaluate: {data: set, thresholds: half}]",
                  false),
        b.diag);
    const double half = number(last_record(b.model), "f1_macro");
    assert_ok(bench_run(&b, NULL, "[evaluate: {data: set, thresholds: choose}]", false),
              b.diag);
    const double chosen = number(last_record(b.model), "f1_macro");
    assert_true(chosen >= half);
    assert_ok(bench_run(&b, NULL, "[evaluate: {data: set}]", false), b.diag);
    assert_true(number(last_record(b.model), "f1_macro") == chosen);
    assert_false(label_thresholds_are_stale(b.model));
    const Seen s = look(&b, b.model);
    double thresholds[3];
    bool stored;
    assert_ok(label_thresholds_read(thresholds, 3, &stored, b.model, b.diag), b.diag);
    assert_true(stored);
    double sum = 0;
    for (int k = 0; k < 3; k++) {
        double best = 0;
        for (int64_t j = 0; j < s.rows; j++) { /* every score as the threshold */
            double hits = 0, both = 0;
            for (int64_t i = 0; i < s.rows; i++) {
                const bool found = s.logits[3 * i + k] >= s.logits[3 * j + k];
                hits += found && s.labels[3 * i + k] > 0;
                both += found + s.labels[3 * i + k];
            }
            best = fmax(best, 2 * hits / both);
        }
        sum += best;
    }
    assert_within(chosen, 100 * sum / 3, 1e-9);
    assert_ok(bench_run(&b, NULL,
                        "[finetune: {data: set, steps: 1}, evaluate: {data: set}]",
                        false),
              b.diag);
    char *message = diag_text(b.diag);
    assert_non_null(strstr(message, "thresholds of labels were chosen before"));
    free(message);
    bench_close(&b);
}

/* Stored thresholds that cannot be are told, not used. */
static void test_damaged_thresholds(void **state) {
    (void)state;
    static const struct {
        const char *list, *part;
    } CASES[] = {{"[0.5, 0.5]", "one threshold for each label"},
                 {"[0.5, 0.5, 1.5]", "thresholds from 0 to 1"},
                 {"[0.5, 0.5, high]", "thresholds from 0 to 1"},
                 {"0.5", "one threshold for each label"}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        Bench b = bench_open(SEVERAL);
        Tree *value;
        const char *yaml = arena_printf(b.arena, "{thresholds: %s}", CASES[i].list);
        assert_ok(yaml_parse(&value, b.model->arena, "p", yaml, strlen(yaml), b.diag),
                  b.diag);
        assert_ok(tree_set(b.model->arena, b.model->provenance, "labels", value, b.diag),
                  b.diag);
        bench_expect(&b, "[evaluate: {data: set}]", CASES[i].part);
        bench_close(&b);
    }
}

/* Exits are trained by the task's loss, summed; rules for leaving are about classes. */
static void test_exits(void **state) {
    (void)state;
    static const Kind WITH[] = {SEVERAL, VALUE};
    for (int i = 0; i < 2; i++) {
        Bench b = bench_open(WITH[i]);
        run_pass(b.model, "add_exits", "{init: copy, head: pooler}");
        const Seen s = look(&b, b.model);
        double want = label_loss(&s);
        const Seen e = look_at(&b, b.model, "exit.1");
        want += label_loss(&e);
        assert_ok(
            bench_run(&b, NULL,
                      "[finetune: {data: set, steps: 1, batch_size: 60, lr: 1.0e-9}]",
                      false),
            b.diag);
        assert_within(number(last_record(b.model), "first_loss"), want,
                      2 * loss_tolerance(b.model->graph, want));
        assert_ok(bench_run(&b, NULL,
                            "[finetune: {data: set, steps: 1}, evaluate: {data: set},"
                            " evaluate: {data: set, exits: each}]",
                            false),
                  b.diag);
        const Tree *rows = tree_get(last_record(b.model), "exits");
        const Seen each[] = {look_at(&b, b.model, "exit.1"), look(&b, b.model)};
        assert_int_equal(rows->count, 2);
        for (int k = 0; k < 2; k++) {
            const double loss = label_loss(&each[k]);
            assert_within(number(k ? rows->last : rows->first, i ? "mse" : "loss"), loss,
                          loss_tolerance(b.model->graph, loss));
        }
        bench_expect(&b, "[calibrate_exits: {data: set, flops: 0.8}]",
                     "rules for leaving are about classes");
        bench_close(&b);
    }
}

/* Labels of another kind are refused before training, with what is wanted. */
static void test_other_labels(void **state) {
    (void)state;
    static const char *const WANTED[KINDS] = {"targets: labels", "targets: values",
                                              "format: tokens"};
    for (int data = 0; data < KINDS; data++)
        for (int kind = 0; kind < KINDS; kind++) {
            if (data == kind || (data != WORDS && kind != WORDS)) continue;
            Bench b = bench_open((Kind)data);
            model_destroy(b.model);
            b.model = make_model((Kind)kind, 1, 2);
            assert_int_equal(
                bench_run(&b, NULL, "[finetune: {data: set, steps: 1}]", true),
                STATUS_MODEL);
            char *message = diag_text(b.diag);
            if (!strstr(message, WANTED[kind]))
                fail_msg("no '%s' in: %s", WANTED[kind], message);
            free(message);
            bench_close(&b);
        }
}

/* Metrics, options and data sets of other tasks are refused, when planned already. */
static void test_refused(void **state) {
    (void)state;
    static const struct {
        Kind kind;
        const char *steps, *part;
    } CASES[] = {
        {SEVERAL, "[evaluate: {data: set, metric: mcc}]",
         "f1_micro, f1_macro, precision, recall, loss), found mcc"},
        {VALUE, "[evaluate: {data: set, metric: accuracy}]",
         "task regress (loss, mse, pearson, spearman), found accuracy"},
        {WORDS, "[evaluate: {data: set, metric: f1_micro}]", "found f1_micro"},
        {VALUE, "[evaluate: {data: set, thresholds: choose}]", "task multi_label, found"},
        {SEVERAL, "[evaluate: {data: set, entities: strict}]",
         "task label_tokens, found"},
        {SEVERAL, "[evaluate: {data: set, exits: each}]", "no early exits"},
        {VALUE, "[evaluate: {data: set, entropy: 0.5}]", "expected none for a model"},
        {WORDS, "[evaluate: {data: set, exits: each}]", "expected none for a model"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        Bench b = bench_open(CASES[i].kind);
        assert_int_equal(bench_run(&b, NULL, CASES[i].steps, true), STATUS_MODEL);
        char *message = diag_text(b.diag);
        if (!strstr(message, CASES[i].part))
            fail_msg("no '%s' in: %s", CASES[i].part, message);
        free(message);
        bench_close(&b);
    }
    for (int data = 0; data < KINDS; data++)
        for (int kind = 0; kind < KINDS; kind++) {
            Bench b = bench_open((Kind)data);
            model_destroy(b.model);
            b.model = make_model((Kind)kind, 1, 2);
            const Status status = bench_run(&b, NULL, "[evaluate: {data: set}]", true);
            assert_int_equal(status, data == kind ? STATUS_OK : STATUS_MODEL);
            bench_close(&b);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_losses),
        cmocka_unit_test(test_label_options),
        cmocka_unit_test(test_learn_and_follow),
        cmocka_unit_test(test_counted_metrics),
        cmocka_unit_test(test_thresholds),
        cmocka_unit_test(test_exits),
        cmocka_unit_test(test_damaged_thresholds),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_other_labels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
