/* Tally: see evaluate_tally.h; and what all ways to evaluate add to it (evaluation.h). */
#include "passes/evaluate/evaluate_tally.h"

#include "exec/run/parallel.h"
#include "exec/run/ticker.h"
#include "passes/evaluate/evaluation.h"

#include <math.h>
#include <stdlib.h>

void tally_open(Tally *tally, Arena *arena, int64_t classes, bool words) {
    *tally = (Tally){.classes = classes};
    if (words) return;
    tally->hits = ARENA_ARRAY(arena, int64_t, (size_t)classes);
    tally->predicted = ARENA_ARRAY(arena, int64_t, (size_t)classes);
    tally->labelled = ARENA_ARRAY(arena, int64_t, (size_t)classes);
}

static RowScore score_row(const float *logits, int64_t classes, int32_t label) {
    int64_t best = 0;
    double sum = 0;
    for (int64_t c = 0; c < classes; c++)
        if (!isfinite(logits[c])) return (RowScore){.bad = c};
    for (int64_t c = 1; c < classes; c++)
        if (logits[c] > logits[best]) best = c;
    for (int64_t c = 0; c < classes; c++) sum += exp((double)logits[c] - logits[best]);
    return (RowScore){log(sum) + logits[best] - logits[label], (int32_t)best, -1};
}

/* Rows to be scored: those that have labels, so that threads get equally many. */
typedef struct Scoring {
    RowScore *scores;
    const float *logits;
    const int32_t *labels;
    int64_t classes, *rows;
} Scoring;

static void score_one(void *self, int64_t i, int worker) {
    const Scoring *s = self;
    const int64_t row = s->rows[i];
    (void)worker;
    s->scores[row] = score_row(s->logits + row * s->classes, s->classes, s->labels[row]);
}

void tally_score(RowScore *scores, const float *logits, const int32_t *labels,
                 int64_t count, int64_t classes, int threads) {
    Scoring s = {scores, logits, labels, classes, NULL};
    int64_t rows = 0;
    s.rows = memory_alloc((size_t)count + 1, sizeof *s.rows);
    for (int64_t i = 0; i < count; i++)
        if (labels[i] >= 0 && labels[i] < classes) s.rows[rows++] = i;
    parallel_for(rows, threads, score_one, &s);
    free(s.rows);
}

void tally_add(Tally *tally, const RowScore *score, int32_t label) {
    const bool right = score->likely == label;
    tally->row_class = score->likely;
    tally->loss += score->loss;
    tally->correct += right;
    tally->rows++;
    if (!tally->hits) return;
    tally->hits[label] += right;
    tally->predicted[score->likely]++;
    tally->labelled[label]++;
}

/* 2 hits / (predicted + labelled) of one class, the harmonic mean of precision and
 * recall; 0 when the class does not occur. */
static double class_f1(const Tally *tally, int64_t c) {
    const int64_t both = tally->predicted[c] + tally->labelled[c];
    return both > 0 ? 2.0 * (double)tally->hits[c] / (double)both : 0;
}

static double tally_f1(const Tally *tally) {
    double sum = 0;
    int64_t occur = 0;
    if (tally->classes == 2) return class_f1(tally, 1);
    for (int64_t c = 0; c < tally->classes; c++) {
        sum += class_f1(tally, c);
        occur += tally->predicted[c] + tally->labelled[c] > 0;
    }
    return sum / (double)occur;
}

/* Gorodkin's correlation for any number of classes; for two, Matthews'. With s rows, c of
 * them correct, p_k predicted and t_k labelled as class k:
 *     (c s - sum p_k t_k) / sqrt((s^2 - sum p_k^2) (s^2 - sum t_k^2)) */
static double tally_mcc(const Tally *tally) {
    const double s = (double)tally->rows;
    double pt = 0, pp = 0, tt = 0;
    for (int64_t k = 0; k < tally->classes; k++) {
        const double p = (double)tally->predicted[k], t = (double)tally->labelled[k];
        pt += p * t;
        pp += p * p;
        tt += t * t;
    }
    const double spread = sqrt(s * s - pp) * sqrt(s * s - tt);
    return spread > 0 ? ((double)tally->correct * s - pt) / spread : 0;
}

double tally_metric(const Tally *tally, Metric metric) {
    const double rows = (double)tally->rows;
    switch (metric) {
    case METRIC_ACCURACY: return 100.0 * (double)tally->correct / rows;
    case METRIC_F1: return 100.0 * tally_f1(tally);
    case METRIC_MCC: return tally_mcc(tally);
    case METRIC_PERPLEXITY: return exp(tally->loss / rows);
    case METRIC_BITS: return tally->loss / rows / (M_LN2 * tally->characters);
    default: break;
    }
    return tally->loss / rows;
}

void tally_record(const Tally *tally, Arena *arena, Tree *map) {
    tree_put_real(arena, map, "accuracy", tally_metric(tally, METRIC_ACCURACY));
    tree_put_real(arena, map, "loss", tally_metric(tally, METRIC_LOSS));
    if (!tally->hits) {
        tree_put_real(arena, map, "perplexity", tally_metric(tally, METRIC_PERPLEXITY));
        if (tally->characters > 0)
            tree_put_real(arena, map, "bits_per_character",
                          tally_metric(tally, METRIC_BITS));
        return;
    }
    tree_put_real(arena, map, "f1", tally_metric(tally, METRIC_F1));
    tree_put_string(arena, map, "f1_average", tally->classes == 2 ? "binary" : "macro");
    tree_put_real(arena, map, "mcc", tally_metric(tally, METRIC_MCC));
}

/* ---- of an evaluation ---- */

Status evaluation_add(const Evaluation *e, Tally *tally, int64_t sample,
                      const float *logits, int32_t label, Diag *diag) {
    RowScore score;
    tally_score(&score, logits, &label, 1, e->classes, 1);
    return evaluation_add_scored(e, tally, sample, &score, logits, label, diag);
}

Status evaluation_add_scored(const Evaluation *e, Tally *tally, int64_t sample,
                             const RowScore *score, const float *logits, int32_t label,
                             Diag *diag) {
    if (label < 0 || label >= e->classes)
        return step_fail_label(e->ctx, diag, e->data, sample, e->classes, label);
    if (score->bad >= 0)
        return step_fail(e->ctx, diag,
                         "sample %lld: expected finite logits, found %g for class %lld",
                         (long long)sample, logits[score->bad], (long long)score->bad);
    tally_add(tally, score, label);
    return STATUS_OK;
}

int64_t evaluation_samples(const Evaluation *e) {
    const int64_t limit = e->options->limit, all = e->data->count;
    return limit > 0 && limit < all ? limit : all;
}

const Type *evaluation_label_type(const Batches *data) {
    const int column = batches_column(data, DATA_LABELS);
    return column < 0 ? NULL : &data->columns[column].type;
}

void evaluation_time(const Evaluation *e, int64_t samples, double seconds) {
    Tree *times = e->ctx->times;
    const double passed = ticker_seconds() - e->start;
    if (!times) return;
    if (passed > 0)
        tree_put_real(e->ctx->arena, times, "samples_per_second",
                      (double)samples / passed);
    if (seconds > 0)
        tree_put_real(e->ctx->arena, times, "milliseconds_per_sample",
                      1000 * seconds / (double)samples);
}
