/* Judge of embeddings: by the cosines between them.
 *
 * Samples come in groups (Batches.group), of which the first two are compared. With
 * labels f32 they say how alike the two are: the cosines are correlated with them. With
 * labels 0 and 1 they say whether the two belong together: the cosines are ranked.
 * Without labels they do, and every first one looks for its second among all samples that
 * are not the first of a group. With labels 0 and 1, where that is asked for, every
 * distinct first text (a query) looks for the distinct second texts (documents) that are
 * labelled 1 for it, among all of them. */
#include "passes/evaluate/correlation.h"
#include "passes/evaluate/features.h"
#include "passes/evaluate/ranking.h"

#include <stdlib.h>

/* What a data set of pairs tells. */
typedef enum PairKind { PAIRS_SCORED, PAIRS_LABELLED, PAIRS_MATCHING } PairKind;

typedef struct Embeddings {
    PairKind kind;
    int64_t group, count; /* samples: those evaluated, whole groups */
    Features features;
    double *labels; /* [count / group] */
    uint64_t *text; /* by sample: a hash of its tokens; its number where it has none */
    double values[METRIC_COUNT];
} Embeddings;

static const unsigned METRICS_OF[] = {
    [PAIRS_SCORED] = JUDGE_KNOWS(METRIC_SPEARMAN) | JUDGE_KNOWS(METRIC_PEARSON),
    [PAIRS_LABELLED] = JUDGE_KNOWS(METRIC_AVERAGE_PRECISION) |
                       JUDGE_KNOWS(METRIC_ACCURACY) | JUDGE_KNOWS(METRIC_F1) |
                       JUDGE_KNOWS(METRIC_SPEARMAN) | JUDGE_KNOWS(METRIC_PEARSON) |
                       JUDGE_KNOWS(METRIC_RECALL_1) | JUDGE_KNOWS(METRIC_RECALL_10) |
                       JUDGE_KNOWS(METRIC_MRR),
    [PAIRS_MATCHING] = JUDGE_KNOWS(METRIC_RECALL_1) | JUDGE_KNOWS(METRIC_RECALL_10) |
                       JUDGE_KNOWS(METRIC_MRR)};

/* ---- data ---- */

static Status find_kind(Embeddings *m, const Evaluation *e, Diag *diag) {
    const Type *type = evaluation_label_type(e->data);
    m->kind = !type                      ? PAIRS_MATCHING
              : type->dtype == DTYPE_F32 ? PAIRS_SCORED
                                         : PAIRS_LABELLED;
    if (!type || type->rank == 0 || (type->rank == 1 && type->dim[0] == 1))
        return STATUS_OK;
    return step_fail(e->ctx, diag,
                     "data set \"%s\": expected labels of one number a pair, found "
                     "several",
                     e->options->data);
}

static Status choose_metric(const Embeddings *m, Evaluation *e, Diag *diag) {
    static const Metric USUAL[] = {[PAIRS_SCORED] = METRIC_SPEARMAN,
                                   [PAIRS_LABELLED] = METRIC_AVERAGE_PRECISION,
                                   [PAIRS_MATCHING] = METRIC_RECALL_1};
    static const char *const NEEDS[] = {
        [PAIRS_SCORED] = "it has scores: spearman or pearson",
        [PAIRS_LABELLED] = ("its labels are 0 and 1: average_precision, accuracy, f1, "
                            "spearman, pearson, recall_at_1, recall_at_10 or mrr"),
        [PAIRS_MATCHING] = "it has no labels: recall_at_1, recall_at_10 or mrr"};
    if (e->options->metric == METRIC_AUTO) e->metric = USUAL[m->kind];
    if (METRICS_OF[m->kind] & JUDGE_KNOWS(e->metric)) return STATUS_OK;
    return step_fail_option(e->ctx, e->metric_option, diag,
                            "expected one that data set \"%s\" allows; %s",
                            e->options->data, NEEDS[m->kind]);
}

static Status embed_begin(void *self, Evaluation *e, Diag *diag) {
    Embeddings *m = self;
    m->group = batches_group(e->data);
    m->count = evaluation_samples(e);
    if (m->group < 2) {
        step_fail(e->ctx, diag, "data set \"%s\": expected pairs of samples",
                  e->options->data);
        diag_hint(diag, "`pairs: separate` reads sentence and sentence2 as samples of "
                        "their own; `probe` judges embeddings by classes");
        return STATUS_MODEL;
    }
    if (m->count % m->group != 0)
        return step_fail_option(e->ctx, "limit", diag,
                                "expected a multiple of %lld, the samples of a group",
                                (long long)m->group);
    TRY(find_kind(m, e, diag));
    TRY(choose_metric(m, e, diag));
    if (e->ctx->plan) return STATUS_OK;
    m->labels = ARENA_ARRAY(e->ctx->arena, double, (size_t)(m->count / m->group));
    m->text = ARENA_ARRAY(e->ctx->arena, uint64_t, (size_t)m->count);
    return features_open(&m->features, e, graph_output(e->model->graph, OUTPUT_EMBEDDING),
                         e->data, m->count, diag);
}

/* Takes the label of a pair, which its first sample has. */
static Status take_label(Embeddings *m, const Evaluation *e, int64_t sample,
                         const void *labels, int64_t row, Diag *diag) {
    const double label = m->kind == PAIRS_SCORED ? (double)((const float *)labels)[row]
                                                 : (double)((const int32_t *)labels)[row];
    if (m->kind == PAIRS_LABELLED && label != 0 && label != 1)
        return step_fail(e->ctx, diag,
                         "data set \"%s\", sample %lld: expected a label 0 or 1, whether "
                         "a pair belongs together, found %g",
                         e->options->data, (long long)sample, label);
    m->labels[sample / m->group] = label;
    return STATUS_OK;
}

/* FNV-1a of the tokens of a sample in row `row` of what was fetched. */
static uint64_t hash_text(const Batches *data, const Fetch *what, int64_t row,
                          const void *const *columns) {
    const int ids = batches_column(data, INPUT_IDS);
    const int64_t sample = what->index[row];
    if (ids < 0 || !data->length) return (uint64_t)sample;
    const int32_t *tokens = (const int32_t *)columns[ids] + row * what->tokens;
    uint64_t hash = 0xcbf29ce484222325;
    for (int64_t t = 0; t < data->length(data, sample); t++)
        hash = (hash ^ (uint32_t)tokens[t]) * 0x100000001b3;
    return hash;
}

static Status embed_add(void *self, Evaluation *e, const Fetch *what,
                        const float *predictions, const void *const *columns,
                        Diag *diag) {
    Embeddings *m = self;
    const int labels = batches_column(e->data, DATA_LABELS);
    TRY(features_add(&m->features, what, predictions, columns, diag));
    for (int64_t i = 0; i < what->n; i++)
        m->text[what->index[i]] = hash_text(e->data, what, i, columns);
    for (int64_t i = 0; i < what->n && labels >= 0; i++)
        if (what->index[i] % m->group == 0)
            TRY(take_label(m, e, what->index[i], columns[labels], i, diag));
    return STATUS_OK;
}

/* ---- metrics ---- */

static double cosine_of(const Embeddings *m, int64_t a, int64_t b) {
    return features_cosine(&m->features, a, &m->features, b);
}

static void judge_pairs(Embeddings *m) {
    const int64_t pairs = m->count / m->group;
    double *cosine = memory_alloc((size_t)pairs + 1, sizeof *cosine);
    bool *positive = memory_alloc((size_t)pairs + 1, sizeof *positive);
    for (int64_t i = 0; i < pairs; i++) {
        cosine[i] = cosine_of(m, i * m->group, i * m->group + 1);
        positive[i] = m->labels[i] > 0;
    }
    m->values[METRIC_PEARSON] = correlation_pearson(cosine, m->labels, pairs);
    m->values[METRIC_SPEARMAN] = correlation_spearman(cosine, m->labels, pairs);
    m->values[METRIC_AVERAGE_PRECISION] =
        100 * ranking_average_precision(cosine, positive, pairs);
    m->values[METRIC_ACCURACY] = 100 * ranking_best_accuracy(cosine, positive, pairs);
    m->values[METRIC_F1] = 100 * ranking_best_f1(cosine, positive, pairs);
    free(cosine);
    free(positive);
}

/* A text, and the first pair that has it at this side. */
typedef struct TextAt {
    uint64_t text;
    int64_t pair;
} TextAt;

static int compare_texts(const void *a, const void *b) {
    const TextAt *x = a, *y = b;
    if (x->text != y->text) return x->text < y->text ? -1 : 1;
    return (x->pair > y->pair) - (x->pair < y->pair);
}

/* The texts of one side, sorted; with `distinct`, each once. Their number. */
static int64_t list_texts(TextAt *out, const Embeddings *m, int side, bool distinct) {
    const int64_t pairs = m->count / m->group;
    int64_t n = 0;
    for (int64_t i = 0; i < pairs; i++)
        out[i] = (TextAt){m->text[i * m->group + side], i};
    qsort(out, (size_t)pairs, sizeof *out, compare_texts);
    for (int64_t i = 0; i < pairs; i++)
        if (!distinct || n == 0 || out[n - 1].text != out[i].text) out[n++] = out[i];
    return n;
}

/* One query, the pairs rows[0..n), adds to the sums of recall at 1 and 10 and of
 * reciprocal ranks; false where nothing is relevant for it. */
static bool judge_query(const Embeddings *m, const TextAt *rows, int64_t n,
                        const TextAt *documents, int64_t count, double *score,
                        double sums[3]) {
    int64_t relevant = 0, first = 0, ten = 0, best = count;
    for (int64_t d = 0; d < count; d++)
        score[d] =
            cosine_of(m, rows[0].pair * m->group, documents[d].pair * m->group + 1);
    for (int64_t d = 0; d < count; d++) {
        bool wanted = false;
        for (int64_t i = 0; i < n && !wanted; i++)
            wanted = m->labels[rows[i].pair] > 0 &&
                     m->text[rows[i].pair * m->group + 1] == documents[d].text;
        if (!wanted) continue;
        const int64_t place = ranking_place(score, count, d);
        first += place == 1;
        ten += place <= 10;
        if (place < best) best = place;
        relevant++;
    }
    if (relevant == 0) return false;
    sums[0] += (double)first / (double)relevant;
    sums[1] += (double)ten / (double)relevant;
    sums[2] += 1 / (double)best;
    return true;
}

/* Queries, documents and which of them are relevant. */
static void judge_relevance(Embeddings *m) {
    const size_t pairs = (size_t)(m->count / m->group);
    TextAt *rows = memory_alloc(pairs + 1, sizeof *rows);
    TextAt *documents = memory_alloc(pairs + 1, sizeof *documents);
    double *score = memory_alloc(pairs + 1, sizeof *score), sums[3] = {0};
    const int64_t count = list_texts(documents, m, 1, true);
    const int64_t all = list_texts(rows, m, 0, false);
    int64_t queries = 0;
    for (int64_t i = 0, n; i < all; i += n) {
        for (n = 1; i + n < all && rows[i + n].text == rows[i].text;) n++;
        queries += judge_query(m, rows + i, n, documents, count, score, sums);
    }
    const double by = queries ? 1 / (double)queries : 0;
    m->values[METRIC_RECALL_1] = 100 * sums[0] * by;
    m->values[METRIC_RECALL_10] = 100 * sums[1] * by;
    m->values[METRIC_MRR] = sums[2] * by;
    free(rows);
    free(documents);
    free(score);
}

/* Every first sample of a group looks for its second among those that are not first. */
static void judge_matches(Embeddings *m) {
    const int64_t groups = m->count / m->group, candidates = m->count - groups;
    double *score = memory_alloc((size_t)candidates + 1, sizeof *score);
    double first = 0, ten = 0, reciprocal = 0;
    for (int64_t i = 0; i < groups; i++) {
        int64_t n = 0, match = 0;
        for (int64_t sample = 0; sample < m->count; sample++) {
            if (sample % m->group == 0) continue;
            if (sample == i * m->group + 1) match = n;
            score[n++] = cosine_of(m, i * m->group, sample);
        }
        const int64_t place = ranking_place(score, n, match);
        first += place == 1;
        ten += place <= 10;
        reciprocal += 1 / (double)place;
    }
    m->values[METRIC_RECALL_1] = 100 * first / (double)groups;
    m->values[METRIC_RECALL_10] = 100 * ten / (double)groups;
    m->values[METRIC_MRR] = reciprocal / (double)groups;
    free(score);
}

static Status embed_end(void *self, Evaluation *e, Tree *record, Diag *diag) {
    static const struct {
        Metric metric;
        const char *name;
    } NAMES[] = {{METRIC_SPEARMAN, "spearman"},
                 {METRIC_PEARSON, "pearson"},
                 {METRIC_AVERAGE_PRECISION, "average_precision"},
                 {METRIC_ACCURACY, "accuracy"},
                 {METRIC_F1, "f1"},
                 {METRIC_RECALL_1, "recall_at_1"},
                 {METRIC_RECALL_10, "recall_at_10"},
                 {METRIC_MRR, "mrr"}};
    Embeddings *m = self;
    (void)diag;
    const unsigned places = METRICS_OF[PAIRS_MATCHING];
    const bool search = places & JUDGE_KNOWS(e->metric);
    if (m->kind == PAIRS_MATCHING)
        judge_matches(m);
    else
        judge_pairs(m);
    if (m->kind == PAIRS_LABELLED && search) judge_relevance(m);
    tree_put_int(e->ctx->arena, record, "groups", m->count / m->group);
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if ((METRICS_OF[m->kind] & JUDGE_KNOWS(NAMES[i].metric)) &&
            (m->kind != PAIRS_LABELLED || search ||
             !(places & JUDGE_KNOWS(NAMES[i].metric))))
            tree_put_real(e->ctx->arena, record, NAMES[i].name,
                          m->values[NAMES[i].metric]);
    return STATUS_OK;
}

static double embed_metric(const void *self, Metric metric) {
    return ((const Embeddings *)self)->values[metric];
}

static void embed_close(void *self) {
    features_close(&((Embeddings *)self)->features);
}

const Judge judge_embed = {
    .task = TASK_EMBED,
    .output = OUTPUT_EMBEDDING,
    .metrics = JUDGE_KNOWS(METRIC_SPEARMAN) | JUDGE_KNOWS(METRIC_PEARSON) |
               JUDGE_KNOWS(METRIC_AVERAGE_PRECISION) | JUDGE_KNOWS(METRIC_ACCURACY) |
               JUDGE_KNOWS(METRIC_F1) | JUDGE_KNOWS(METRIC_RECALL_1) |
               JUDGE_KNOWS(METRIC_RECALL_10) | JUDGE_KNOWS(METRIC_MRR),
    .usual = METRIC_SPEARMAN,
    .size = sizeof(Embeddings),
    .begin = embed_begin,
    .add = embed_add,
    .end = embed_end,
    .metric = embed_metric,
    .close = embed_close,
};
