/* Models that embed texts: pairs from a file through evaluate, distill and finetune, held
 * against what follows from the embeddings of a forward run. */
#include "exec/run/forward.h"
#include "io/datasets/dataset.h"
#include "io/files/yaml.h"
#include "ir/model_parts.h"
#include "ir/random.h"
#include "passes/evaluate/correlation.h"
#include "passes/evaluate/probe.h"
#include "passes/evaluate/ranking.h"
#include "tests/support/check.h"
#include "tests/support/configured.h"
#include "tests/support/passes.h"
#include "tests/support/rounding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 24, WIDTH = 16, MOST = 3 * ROWS };

#define BERT(width, pooling)                                                             \
    "{model_type: bert, architectures: [BertModel], hidden_size: " #width                \
    ", num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 32,\n"           \
    " hidden_act: gelu, vocab_size: 104, max_position_embeddings: 16,\n"                 \
    " type_vocab_size: 2, hidden_dropout_prob: 0, attention_probs_dropout_prob: 0,\n"    \
    " initializer_range: 0.3, " pooling "}\n"
static const char MEAN[] = BERT(16, "pooling: mean, normalize: true");

/* ---- data ---- */

static void add_words(FILE *file, int row, int column, const char *end) {
    static const char *const WORDS[] = {"the", "sat",   "on",     "mat",
                                        "un",  "naive", "resume", "cafe"};
    /* every second row has the first text of the one before */
    if (column == 0) row -= row % 2;
    const int words = 2 + (row + column) % 5;
    for (int w = 0; w < words; w++) {
        /* the second text has the first word of the first */
        const int from = w == 0 && column == 1 ? 0 : column;
        const uint64_t draw = random_u64(1, (uint64_t)((row * 3 + from) * 16 + w));
        fprintf(file, "%s%s", w ? " " : "", WORDS[draw % 8]);
    }
    fputs(end, file);
}

static double row_score(int row) {
    return (double)(row * 7 % ROWS) / 4;
}

static void rows_write(FILE *file) {
    fputs("a\tb\tc\tlabel\n", file);
    for (int row = 0; row < ROWS; row++) {
        add_words(file, row, 0, "\t");
        add_words(file, row, 1, "\t");
        add_words(file, row, 2, "\t");
        fprintf(file, "%d\n", row_score(row) > 3);
    }
}

static Batches *rows_open(const char *options, Diag *diag) {
    const char *base = getenv("TMPDIR");
    const DataFormat *format;
    void *bound;
    Batches *data = NULL;
    Tree *spec;
    Arena *arena = arena_create();
    char *path = arena_printf(arena, "%s/pairs.XXXXXX", base ? base : "/tmp");
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *file = fdopen(fd, "w");
    rows_write(file);
    assert_int_equal(fclose(file), 0);
    char *vocabulary = realpath("tests/data/text/vocab.txt", NULL);
    const char *sentence = strstr(options, "sentence: ") ? "" : "sentence: a, ";
    const char *yaml =
        arena_printf(arena, "{format: text, path: %s, tokenizer: %s, %s%s}", path,
                     vocabulary, sentence, options);
    free(vocabulary);
    assert_ok(yaml_parse(&spec, arena, "data", yaml, strlen(yaml), diag), diag);
    assert_ok(dataset_bind(&format, &bound, arena, spec, ".", diag), diag);
    assert_ok(dataset_open(&data, format, bound, LOC_FILE("data"), diag), diag);
    unlink(path);
    arena_destroy(arena);
    return data;
}

/* ---- embeddings ---- */

typedef struct Embedded {
    int64_t count, width;
    double rows[MOST][WIDTH];
} Embedded;

static Status keep_rows(void *self, const Fetch *what, const float *const *values,
                        const void *const *columns, Diag *diag) {
    Embedded *e = self;
    (void)columns;
    (void)diag;
    for (int64_t i = 0; i < what->n * e->width; i++)
        e->rows[what->index[i / e->width]][i % e->width] = (double)values[0][i];
    e->count += what->n;
    return STATUS_OK;
}

/* Four texts at a time: where two of them are almost as near, steps that are to agree
 * need the same roundings, and so the same batches (batch_size: 4). */
static Embedded embed(Model *model, const Batches *data, Diag *diag) {
    Node *node = graph_output(model->graph, OUTPUT_EMBEDDING);
    Embedded e = {.width = node_width(node)};
    assert_ok(
        forward_batches(model->graph, &node, 1, data, 0, 4, 1, NULL, keep_rows, &e, diag),
        diag);
    return e;
}

static double cosine(const Embedded *e, int64_t i, const Embedded *f, int64_t j) {
    double xy = 0, xx = 0, yy = 0;
    for (int64_t c = 0; c < e->width; c++) {
        xy += e->rows[i][c] * f->rows[j][c];
        xx += e->rows[i][c] * e->rows[i][c];
        yy += f->rows[j][c] * f->rows[j][c];
    }
    return xy / sqrt(xx * yy);
}

/* One step on the data; what it records. */
static const Tree *run_step(Model *model, Model *teacher, Batches *data, const char *step,
                            Diag *diag) {
    const char *recipe = arena_printf(model->arena,
                                      "version: 1\nseed: 3\ndata: {d: {format: text}}\n"
                                      "passes: [%s]\n",
                                      step);
    assert_ok(
        run_with_inputs(&(RecipeInputs){data, teacher}, model, recipe, false, 2, diag),
        diag);
    return last_record(model);
}

static void expect_fails(Model *model, Batches *data, const char *step,
                         const char *part) {
    Diag *diag = diag_create();
    const char *recipe = arena_printf(
        model->arena, "version: 1\ndata: {d: {format: text}}\npasses: [%s]\n", step);
    const Status status =
        run_with_inputs(&(RecipeInputs){data, model}, model, recipe, false, 1, diag);
    char *text = diag_text(diag);
    if (status == STATUS_OK || !strstr(text, part))
        fail_msg("%s: expected '%s', found %d: %s", step, part, (int)status, text);
    free(text);
    diag_destroy(diag);
}

/* Values of cosines in float, of up to some hundred terms. */
static double near(void) {
    return rounding_tolerance(PRECISION_F32, 256, 1);
}

/* ---- evaluate ---- */

static void test_matching(void **state) {
    (void)state;
    static const char *const OPTIONS[] = {
        "sentence2: b, pairs: separate, label: ''",
        "sentence2: b, negative: c, pairs: separate, label: ''"};
    for (int k = 0; k < 2; k++) {
        Diag *diag = diag_create();
        Model *model = configured_model(MEAN, 5);
        Batches *data = rows_open(OPTIONS[k], diag);
        const int64_t group = 2 + k;
        assert_int_equal(batches_group(data), group);
        assert_int_equal(data->count, ROWS * group);
        const Embedded e = embed(model, data, diag);
        double first = 0, ten = 0, mrr = 0;
        for (int64_t i = 0; i < ROWS; i++) {
            double score[MOST];
            int64_t n = 0, match = 0;
            for (int64_t j = 0; j < data->count; j++) {
                if (j % group == 0) continue;
                if (j == i * group + 1) match = n;
                score[n++] = cosine(&e, i * group, &e, j);
            }
            const double place = (double)ranking_place(score, n, match);
            first += place == 1;
            ten += place <= 10;
            mrr += 1 / place;
        }
        const Tree *record = run_step(
            model, NULL, data, "evaluate: {data: d, metric: mrr, batch_size: 4}", diag);
        assert_true(number(record, "recall_at_1") == 100 * first / ROWS);
        assert_true(number(record, "recall_at_10") == 100 * ten / ROWS);
        assert_within(number(record, "mrr"), mrr / ROWS, 1e-12);
        assert_true(first > 0 && first < ROWS);
        expect_fails(model, data, "evaluate: {data: d, metric: spearman}",
                     "it has no labels: recall_at_1, recall_at_10 or mrr");
        expect_fails(model, data, "evaluate: {data: d, min: 101}",
                     "gate: expected recall_at_1 at least 101");
        expect_fails(model, data, "evaluate: {data: d, limit: 5}",
                     "expected a multiple of");
        batches_destroy(data);
        model_destroy(model);
        diag_destroy(diag);
    }
}

/* The text in a column of a row, as it was written. */
static void row_text(char out[256], int row, int column) {
    FILE *file = fmemopen(out, 256, "w");
    add_words(file, row, column, "");
    fclose(file);
}

/* Queries that occur several times, documents that do, and which are relevant. */
static void check_relevance(Model *model, Batches *data, const Embedded *e, Diag *diag) {
    char query[ROWS][256], document[ROWS][256];
    double recall = 0, mrr = 0, queries = 0;
    for (int i = 0; i < ROWS; i++) row_text(query[i], i, 0), row_text(document[i], i, 1);
    for (int i = 0; i < ROWS; i++) {
        double relevant = 0, found = 0, best = ROWS;
        bool again = false;
        for (int j = 0; j < i; j++) again |= strcmp(query[i], query[j]) == 0;
        for (int d = 0; d < ROWS && !again; d++) {
            bool wanted = false, seen = false;
            for (int j = 0; j < d; j++) seen |= strcmp(document[d], document[j]) == 0;
            for (int j = 0; j < ROWS; j++)
                wanted |= row_score(j) > 3 && strcmp(query[i], query[j]) == 0 &&
                          strcmp(document[d], document[j]) == 0;
            if (seen || !wanted) continue;
            double place = 0;
            for (int k = 0; k < ROWS; k++) {
                bool before = false;
                for (int j = 0; j < k; j++)
                    before |= strcmp(document[k], document[j]) == 0;
                place += !before &&
                         cosine(e, 2 * i, e, 2 * k + 1) >= cosine(e, 2 * i, e, 2 * d + 1);
            }
            relevant++;
            found += place <= 10;
            best = fmin(best, place);
        }
        if (relevant == 0) continue;
        queries++;
        recall += found / relevant;
        mrr += 1 / best;
    }
    const Tree *record = run_step(
        model, NULL, data, "evaluate: {data: d, metric: mrr, batch_size: 4}", diag);
    assert_within(number(record, "mrr"), mrr / queries, 1e-12);
    assert_within(number(record, "recall_at_10"), 100 * recall / queries, 1e-10);
    record = run_step(model, NULL, data, "evaluate: {data: d}", diag);
    assert_null(tree_get(record, "mrr"));
}

/* Measured on a development set while it is trained: by the metric that the data ask for,
 * and to the value that evaluate finds behind. */
static void test_development(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model = configured_model(MEAN, 5);
    Batches *data = rows_open("sentence2: b, pairs: separate, label: ''", diag);
    const Tree *best = tree_get(
        run_step(model, NULL, data,
                 "finetune: {data: d, dev: d, keep: best, batch_size: 6, epochs: 3}",
                 diag),
        "best");
    const char *metric = tree_get(best, "metric")->string;
    assert_string_equal(metric, "recall_at_1");
    const double value = number(best, "value");
    assert_true(value ==
                number(run_step(model, NULL, data, "evaluate: {data: d}", diag), metric));
    expect_fails(model, data, "finetune: {data: d, dev: d, dev_metric: spearman}",
                 "passes[0].finetune.dev_metric: ");
    batches_destroy(data);
    model_destroy(model);
    diag_destroy(diag);
}

static void test_labelled(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model = configured_model(MEAN, 5);
    Batches *data = rows_open("sentence2: b, pairs: separate", diag);
    const Embedded e = embed(model, data, diag);
    double score[ROWS], label[ROWS];
    bool positive[ROWS];
    for (int i = 0; i < ROWS; i++) {
        score[i] = cosine(&e, 2 * i, &e, 2 * i + 1);
        positive[i] = row_score(i) > 3;
        label[i] = positive[i];
    }
    const Tree *record = run_step(model, NULL, data, "evaluate: {data: d}", diag);
    assert_within(number(record, "average_precision"),
                  100 * ranking_average_precision(score, positive, ROWS), 1e-10);
    assert_within(number(record, "accuracy"),
                  100 * ranking_best_accuracy(score, positive, ROWS), 1e-10);
    assert_within(number(record, "f1"), 100 * ranking_best_f1(score, positive, ROWS),
                  1e-10);
    assert_within(number(record, "spearman"), correlation_spearman(score, label, ROWS),
                  1e-10);
    assert_within(number(record, "pearson"), correlation_pearson(score, label, ROWS),
                  100 * near());
    check_relevance(model, data, &e, diag);
    expect_fails(model, data, "finetune: {data: d, epochs: 1}", "expected no labels");
    batches_destroy(data);
    model_destroy(model);
    diag_destroy(diag);
}

static void test_no_pairs(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model = configured_model(MEAN, 5);
    Model *bare = configured_model(BERT(16, "pooling: none"), 5);
    Batches *data = rows_open("label: ''", diag);
    expect_fails(model, data, "evaluate: {data: d}", "expected pairs of samples");
    expect_fails(model, data, "finetune: {data: d, epochs: 1}",
                 "expected pairs of samples that belong together");
    expect_fails(bare, data, "evaluate: {data: d}", "expected an output \"embedding\"");
    expect_fails(model, data, "distill: {data: d, prediction: 1}",
                 "expected embedding in place of prediction");
    batches_destroy(data);
    model_destroy(bare);
    model_destroy(model);
    diag_destroy(diag);
}

/* Another model's embeddings, of the same width and of another. */
static void test_teacher(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Batches *data = rows_open("sentence: c, label: ''", diag);
    Model *model = configured_model(MEAN, 5);
    Model *teacher = configured_model(BERT(16, "pooling: first"), 6);
    Model *wide = configured_model(BERT(24, "pooling: mean"), 6);
    const Embedded own = embed(model, data, diag), theirs = embed(teacher, data, diag);
    double mean = 0, near_own[ROWS], near_theirs[ROWS];
    for (int64_t i = 0; i < ROWS; i++) {
        mean += cosine(&own, i, &theirs, i) / ROWS;
        if (i == 0) continue;
        near_own[i - 1] = cosine(&own, i - 1, &own, i);
        near_theirs[i - 1] = cosine(&theirs, i - 1, &theirs, i);
    }
    const Tree *record =
        run_step(model, teacher, data, "evaluate: {data: d, teacher: other.h5}", diag);
    assert_within(number(record, "cosine"), mean, 10 * near());
    assert_within(number(record, "spearman"),
                  correlation_spearman(near_own, near_theirs, ROWS - 1), 1e-10);
    record = run_step(model, model, data, "evaluate: {data: d, teacher: other.h5}", diag);
    assert_within(number(record, "cosine"), 1, 10 * near());
    assert_true(number(record, "spearman") > 1 - 1e-12);
    record = run_step(model, wide, data,
                      "evaluate: {data: d, teacher: other.h5, metric: spearman}", diag);
    assert_null(tree_get(record, "cosine"));
    expect_fails(model, data, "evaluate: {data: d, teacher: t.h5, fit: d}",
                 "expected teacher or fit, found both");
    model_destroy(wide);
    model_destroy(teacher);
    model_destroy(model);
    batches_destroy(data);
    diag_destroy(diag);
}

static void test_classes(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Batches *data = rows_open("max_length: 16", diag);
    Batches *bare = rows_open("label: ''", diag);
    Model *model = configured_model(MEAN, 5);
    const Embedded e = embed(model, data, diag);
    float rows[ROWS * WIDTH];
    int32_t labels[ROWS];
    for (int64_t i = 0; i < ROWS * WIDTH; i++)
        rows[i] = (float)e.rows[i / WIDTH][i % WIDTH];
    for (int i = 0; i < ROWS; i++) labels[i] = row_score(i) > 3;
    const ProbeSet set = {rows, labels, ROWS, WIDTH, 2};
    LinearProbe probe;
    double linear = 0, nearest = 0;
    probe_fit(&probe, &set, 0.01);
    for (int64_t i = 0; i < ROWS; i++) {
        linear += probe_classify(&probe, rows + i * WIDTH) == labels[i];
        nearest += probe_nearest(&set, rows + i * WIDTH, 5, 0.1) == labels[i];
    }
    free(probe.weights);
    const Tree *record = run_step(
        model, NULL, data,
        "evaluate: {data: d, fit: d, neighbours: 5, temperature: 0.1, l2: 0.01}", diag);
    assert_true(number(record, "accuracy") == 100 * linear / ROWS);
    assert_true(number(record, "nearest_accuracy") == 100 * nearest / ROWS);
    assert_true(linear > ROWS / 2);
    expect_fails(model, data, "evaluate: {data: d, fit: d, min: 101}",
                 "gate: expected accuracy at least 101");
    expect_fails(model, bare, "evaluate: {data: d, fit: d}", "has no column labels");
    data->classes = 0; /* labels are no classes, as those of choices */
    expect_fails(model, data, "evaluate: {data: d, fit: d}", "of one class for each");
    model_destroy(model);
    batches_destroy(bare);
    batches_destroy(data);
    diag_destroy(diag);
}

/* ---- importance ---- */

static double head_score(const Tree *record, int at) {
    const Tree *scores = tree_get(tree_get(record, "heads")->first, "scores")->first;
    for (; at > 0; at--) scores = scores->next;
    return scores->kind == TREE_INT ? (double)scores->integer : scores->real;
}

/* Without pairs the length of the embedding counts, as it was before it was taken away;
 * pairs have a loss. */
static void test_importance(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Batches *texts = rows_open("label: ''", diag);
    Batches *pairs = rows_open("sentence2: b, pairs: separate, label: ''", diag);
    Model *unit = configured_model(MEAN, 5);
    Model *plain = configured_model(BERT(16, "pooling: mean"), 5);
    double lengths[2], losses[2];
    const Tree *record = run_step(unit, NULL, texts, "importance: {data: d}", diag);
    for (int h = 0; h < 2; h++) lengths[h] = head_score(record, h);
    record = run_step(plain, NULL, texts, "importance: {data: d}", diag);
    for (int h = 0; h < 2; h++) assert_true(head_score(record, h) == lengths[h]);
    record = run_step(unit, NULL, pairs, "importance: {data: d}", diag);
    for (int h = 0; h < 2; h++) losses[h] = head_score(record, h);
    for (int h = 0; h < 2; h++) {
        assert_true(lengths[h] > 1e-4 && losses[h] > 1e-4);
        assert_true(fabs(losses[h] - lengths[h]) > 1e-3 * lengths[h]);
    }
    run_step(unit, NULL, pairs, "prune_heads: {keep: 1}", diag);
    run_step(unit, NULL, pairs, "prune_ffn: {keep: 20}", diag);
    model_destroy(plain);
    model_destroy(unit);
    batches_destroy(pairs);
    batches_destroy(texts);
    diag_destroy(diag);
}

/* ---- training ---- */

#define ONE_STEP "steps: 1, batch_size: 24, lr: 1.0e-9, shards: 3, micro_batch: 2"

/* The losses of a first step are those of the embeddings before it. */
static void test_distill_losses(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Batches *data = rows_open("label: ''", diag);
    Model *student = configured_model(MEAN, 5);
    Model *teacher = configured_model(BERT(16, "pooling: first"), 6);
    const Embedded s = embed(student, data, diag), t = embed(teacher, data, diag);
    double distance = 0, squared = 0, similarity = 0;
    for (int64_t i = 0; i < ROWS; i++) {
        distance += (1 - cosine(&s, i, &t, i)) / ROWS;
        for (int64_t c = 0; c < WIDTH; c++)
            squared += pow(s.rows[i][c] - t.rows[i][c], 2) / (ROWS * WIDTH);
        for (int64_t j = 0; j < ROWS; j++)
            similarity +=
                pow(cosine(&s, i, &s, j) - cosine(&t, i, &t, j), 2) / (ROWS * ROWS);
    }
    const Tree *record = run_step(student, teacher, data,
                                  "distill: {data: d, attention: 0, hidden: 0, "
                                  "similarity: 2, " ONE_STEP "}",
                                  diag);
    assert_within(number(record, "loss_embedding"), distance, 20 * near());
    assert_within(number(record, "loss_similarity"), similarity, 20 * near());
    assert_within(number(record, "first_loss"), distance + 2 * similarity, 60 * near());
    record = run_step(student, teacher, data,
                      "distill: {data: d, attention: 0, hidden: 0, embedding: 3, "
                      "embedding_form: squared, " ONE_STEP "}",
                      diag);
    assert_within(number(record, "loss_embedding"), squared, 60 * near());
    model_destroy(teacher);
    model_destroy(student);
    batches_destroy(data);
    diag_destroy(diag);
}

/* A wider teacher is followed through a projection that the model does not keep. */
static void test_projection(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Batches *data = rows_open("label: ''", diag);
    for (int form = 0; form < 2; form++) {
        Model *student = configured_model(MEAN, 5);
        Model *teacher = configured_model(BERT(24, "pooling: mean"), 6);
        const int storages = student->graph->storage_count;
        const Tree *record = run_step(
            student, teacher, data,
            form
                ? "distill: {data: d, attention: 0, hidden: 0, embedding: 1, similarity: "
                  "1, embedding_form: squared, epochs: 8, batch_size: 8, lr: 0.01}"
                : "distill: {data: d, attention: 0, hidden: 0, similarity: 1, epochs: 8, "
                  "batch_size: 8, lr: 0.01}",
            diag);
        assert_string_equal(tree_get(record, "projection")->string, "16 to 24");
        assert_true(number(record, "last_loss") < 0.6 * number(record, "first_loss"));
        assert_int_equal(student->graph->storage_count, storages);
        model_destroy(teacher);
        model_destroy(student);
    }
    batches_destroy(data);
    diag_destroy(diag);
}

/* The contrastive loss over the whole of a mini-batch, however it is cut. */
static void test_contrastive(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Batches *data = rows_open("sentence2: b, pairs: separate, label: ''", diag);
    Model *model = configured_model(MEAN, 5);
    const Embedded e = embed(model, data, diag);
    const Tree *record = run_step(model, NULL, data, "evaluate: {data: d}", diag);
    const double before = number(record, "mrr");
    double loss = 0;
    for (int64_t i = 0; i < ROWS; i++) {
        double sum = 0;
        for (int64_t j = 0; j < ROWS; j++)
            sum += exp(5 * cosine(&e, 2 * i, &e, 2 * j + 1));
        loss += (log(sum) - 5 * cosine(&e, 2 * i, &e, 2 * i + 1)) / ROWS;
    }
    record =
        run_step(model, NULL, data,
                 "finetune: {data: d, scale: 5, steps: 1, batch_size: 48, lr: 1.0e-9, "
                 "shards: 3, micro_batch: 2}",
                 diag);
    assert_within(number(record, "loss_contrastive"), loss, 60 * near());
    record = run_step(model, NULL, data,
                      "finetune: {data: d, symmetric: true, epochs: 10, batch_size: 24, "
                      "lr: 0.01}",
                      diag);
    assert_true(number(record, "last_loss") < 0.5 * number(record, "first_loss"));
    record = run_step(model, NULL, data, "evaluate: {data: d}", diag);
    assert_true(number(record, "mrr") > before + 0.1);
    expect_fails(model, data, "finetune: {data: d, exits: early}", "no early exits");
    expect_fails(model, data, "finetune: {data: d, positive_weights: [2]}",
                 "expected a model of task multi_label, found embed");
    expect_fails(model, data, "finetune: {data: d, label_smoothing: 0.1}",
                 "label_smoothing: expected none for a model of task embed");
    expect_fails(model, data, "distill: {data: d, label: 1, label_smoothing: 0.1}",
                 "label_smoothing: expected none for a model of task embed");
    model_destroy(model);
    batches_destroy(data);
    diag_destroy(diag);
}

/* Pairs with scores: the loss of a first step, and that it falls. */
static void test_scored(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Batches *data = rows_open("sentence2: b, pairs: separate, targets: values", diag);
    Model *model = configured_model(MEAN, 5);
    const Embedded e = embed(model, data, diag);
    double loss = 0, cosines[ROWS], scores[ROWS];
    for (int i = 0; i < ROWS; i++) {
        scores[i] = row_score(i) > 3;
        cosines[i] = cosine(&e, 2 * i, &e, 2 * i + 1);
        loss += pow(cosines[i] - scores[i], 2) / ROWS;
    }
    const Tree *record = run_step(model, NULL, data,
                                  "finetune: {data: d, steps: 1, batch_size: 48, "
                                  "lr: 1.0e-9, shards: 3}",
                                  diag);
    assert_within(number(record, "loss_cosine"), loss, 20 * near());
    record = run_step(model, NULL, data, "evaluate: {data: d}", diag);
    assert_within(number(record, "pearson"), correlation_pearson(cosines, scores, ROWS),
                  100 * near());
    const double before = number(record, "pearson");
    record = run_step(model, NULL, data,
                      "finetune: {data: d, epochs: 20, batch_size: 24, lr: 0.01}", diag);
    assert_true(number(record, "last_loss") < 0.5 * loss);
    record = run_step(model, NULL, data, "evaluate: {data: d, metric: pearson}", diag);
    assert_true(number(record, "pearson") > before + 0.2);
    expect_fails(model, data, "evaluate: {data: d, metric: mrr, batch_size: 4}",
                 "it has scores: spearman or pearson");
    model_destroy(model);
    batches_destroy(data);
    diag_destroy(diag);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matching),    cmocka_unit_test(test_labelled),
        cmocka_unit_test(test_no_pairs),    cmocka_unit_test(test_distill_losses),
        cmocka_unit_test(test_projection),  cmocka_unit_test(test_contrastive),
        cmocka_unit_test(test_teacher),     cmocka_unit_test(test_scored),
        cmocka_unit_test(test_classes),     cmocka_unit_test(test_importance),
        cmocka_unit_test(test_development),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
