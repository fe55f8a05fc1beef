/* Dynamic runs and what to hold them against: the logits of all exits, to which the rule
 * is applied afterwards. */
#ifndef COMPRESS_TESTS_EXEC_DYNAMIC_FIXTURE_H
#define COMPRESS_TESTS_EXEC_DYNAMIC_FIXTURE_H

#include "exec/run/dynamic.h"
#include "exec/run/forward.h"
#include "exec/run/run.h"
#include "tests/support/check.h"
#include "tests/support/exits.h"
#include "tests/support/rounding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CLASSES = 3, EXITS_MOST = 6, SAMPLES_MOST = 60 };

typedef struct Case {
    Model *model;
    Batches *data;
    Node *exits[EXITS_MOST];
    int count;
    double flops[EXITS_MOST];     /* of one sample that leaves there */
    double tolerance[EXITS_MOST]; /* of logits of size 1, whatever runs together */
    Diag *diag;
} Case;

/* Where samples left and with what; also whether their labels came along. */
typedef struct Taken {
    const Case *of;
    int exit[SAMPLES_MOST];
    float logits[SAMPLES_MOST][CLASSES];
    int64_t samples;
    DynamicReport report;
} Taken;

/* Logits of all exits. */
typedef struct All {
    int count;
    float logits[EXITS_MOST][SAMPLES_MOST][CLASSES];
} All;

static inline void case_open(Case *c, Model *model, Batches *data) {
    *c = (Case){.model = model, .data = data, .diag = diag_create()};
    for (int e = 1; e < EXITS_MOST; e++) {
        char name[24];
        snprintf(name, sizeof name, "exit.%d", e);
        Node *logits = graph_output(model->graph, name);
        if (logits) c->exits[c->count++] = logits;
    }
    c->exits[c->count++] = graph_output(model->graph, "logits");
    assert_ok(dynamic_flops(model->graph, c->exits, c->count,
                            data->length ? SENTENCE_TOKENS : 0, c->flops, c->diag),
              c->diag);
    for (int e = 0; e < c->count; e++) {
        const int64_t sizes[DIM_SYMBOLS] = {1, SENTENCE_TOKENS};
        const double terms = rounding_terms(model->graph, c->exits[e], sizes);
        c->tolerance[e] = rounding_tolerance(PRECISION_F32, terms, 1);
    }
}

static inline void case_close(Case *c) {
    model_destroy(c->model);
    batches_destroy(c->data);
    diag_destroy(c->diag);
}

/* Columns that are inputs of the first stage are still there after the last. */
static inline void check_mask(const int32_t *mask, int64_t row, int64_t length) {
    for (int t = 0; t < SENTENCE_TOKENS; t++)
        assert_int_equal(mask[row * SENTENCE_TOKENS + t], t < length);
}

static inline Status take(void *self, const Fetch *what, const int *exit,
                          const float *logits, const void *const *columns, Diag *diag) {
    Taken *taken = self;
    const Batches *data = taken->of->data;
    const int32_t *labels = columns[batches_column(data, "labels")];
    (void)diag;
    for (int64_t i = 0; i < what->n; i++) {
        const int64_t s = what->index[i];
        taken->exit[s] = exit[i];
        memcpy(taken->logits[s], logits + i * CLASSES, sizeof taken->logits[s]);
        assert_int_equal(labels[i], data->length ? sentence_label(s) : s % 3);
        if (data->length) check_mask(columns[1], i, data->length(data, s));
    }
    taken->samples += what->n;
    return STATUS_OK;
}

static inline Status keep_all(void *self, const Fetch *what, const float *const *values,
                              const void *const *columns, Diag *diag) {
    All *all = self;
    (void)columns, (void)diag;
    for (int e = 0; e < all->count; e++)
        for (int64_t i = 0; i < what->n; i++)
            memcpy(all->logits[e][what->index[i]], values[e] + i * CLASSES,
                   CLASSES * sizeof(float));
    return STATUS_OK;
}

static inline void run_dynamic(Taken *taken, const Case *c, const ExitRule *rule,
                               int64_t batch, int threads) {
    memset(taken, 0, sizeof *taken);
    taken->of = c;
    assert_ok(dynamic_batches(c->model->graph, c->exits, c->count, rule, c->data, 0,
                              batch, threads, NULL, take, taken, &taken->report, c->diag),
              c->diag);
    assert_int_equal(taken->samples, c->data->count);
    assert_int_equal(taken->report.samples, c->data->count);
    assert_true(taken->report.seconds > 0);
}

static inline All *run_all(const Case *c, int64_t batch) {
    All *all = calloc(1, sizeof *all);
    all->count = c->count;
    assert_ok(forward_batches(c->model->graph, c->exits, c->count, c->data, 0, batch, 1,
                              NULL, keep_all, all, c->diag),
              c->diag);
    return all;
}

/* Whether logits are those of an exit but for rounding: rows of a matrix are summed in
 * another order when there are more of them. */
static inline void check_exit_logits(const Case *c, int exit, const float *got,
                                     const float *want) {
    double largest = 1;
    for (int k = 0; k < CLASSES; k++) largest = fmax(largest, fabs(want[k]));
    for (int k = 0; k < CLASSES; k++)
        if (!(fabs(got[k] - want[k]) <= c->tolerance[exit] * largest))
            fail_msg("exit %d: logit %d is %.9g, expected %.9g", exit, k, got[k],
                     want[k]);
}

/* Every sample left where the logits of all exits say, with those logits, and only what
 * it needed was computed. Returns how many exits were taken at all. */
static inline int check_taken(const Taken *taken, const All *all, const ExitRule *rule) {
    const Case *c = taken->of;
    double flops = 0;
    bool used[EXITS_MOST] = {0};
    for (int64_t s = 0; s < c->data->count; s++) {
        ExitState memory = {0};
        int e = 0;
        while (e + 1 < c->count &&
               !exit_leaves(rule, &memory, e, all->logits[e][s], CLASSES))
            e++;
        assert_int_equal(taken->exit[s], e);
        check_exit_logits(c, e, taken->logits[s], all->logits[e][s]);
        flops += c->flops[e];
        used[e] = true;
    }
    assert_true(taken->report.flops == flops); /* whole numbers */
    int count = 0;
    for (int e = 0; e < c->count; e++) count += used[e];
    return count;
}

static inline int compare_doubles(const void *a, const void *b) {
    return (*(const double *)a > *(const double *)b) -
           (*(const double *)a < *(const double *)b);
}

/* A threshold for each exit that a fifth of all samples pass, halfway between two
 * entropies that are not near each other. */
static inline void choose_thresholds(const Case *c, const All *all, double *threshold) {
    for (int e = 0; e < c->count; e++) {
        double entropy[SAMPLES_MOST];
        int64_t n = c->data->count, at = n / 5;
        for (int64_t s = 0; s < n; s++)
            entropy[s] = exit_entropy(all->logits[e][s], CLASSES);
        qsort(entropy, (size_t)n, sizeof *entropy, compare_doubles);
        while (at + 1 < n && entropy[at + 1] - entropy[at] < 1e-3) at++;
        threshold[e] = (entropy[at] + entropy[at + 1]) / 2;
    }
}

/* Nothing is computed twice: all stages cost what one run for all exits does. */
static inline void check_sum(const Case *c) {
    Plan *plan = NULL;
    const PlanOptions options = {
        .sizes = {1, SENTENCE_TOKENS}, .results = c->exits, .result_count = c->count};
    assert_ok(plan_create(&plan, c->model->graph, &options, c->diag), c->diag);
    assert_true(c->flops[c->count - 1] == plan_flops(plan));
    plan_destroy(plan);
}

#endif
