/* History: see exec/train/history.h. */
#include "exec/train/history.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sums over steps: of the first and of the last epoch (or tenth) of the run, of the
 * current row of the curve, since the last measurement, and between the two before. */
enum { SUM_FIRST, SUM_LAST, SUM_ROW, SUM_SINCE, SUM_BETWEEN, SUM_COUNT };

/* Columns of a sum; of losses and priors it is over samples, of norms over steps. */
enum { IN_SAMPLES, IN_STEPS, IN_PRIOR, IN_NORM, IN_LOSS, IN_PARTS };

/* Columns of the curve. A state holds finite numbers: AT_MEASURED says MEASURED_NONE of
 * a row without a measurement, MEASURED_ODD of one that found no finite number. */
enum { MEASURED_NONE, MEASURED, MEASURED_ODD };
enum { AT_STEP, AT_RATE, AT_NORM, AT_PRIOR, AT_MEASURED, AT_VALUE, AT_LOSS, AT_PARTS };

struct History {
    int64_t total;           /* steps */
    int64_t window;          /* steps that the first and last means are over */
    int64_t span, span_rows; /* steps that are cut into so many rows */
    int parts, width, columns;
    double *sums;  /* [SUM_COUNT][width] */
    double *curve; /* [capacity][columns] */
    int64_t count, capacity;
    double largest_norm, rate; /* of the run; of the last step */
};

/* ---- rows ---- */

/* Rows of a run whose options say nothing of them. */
static void choose_rows(History *h, int64_t epoch) {
    const int64_t epochs = (h->total + epoch - 1) / epoch;
    h->span = h->total > 0 && h->total < epoch ? h->total : epoch;
    if (epochs > HISTORY_ROWS_MOST)
        h->span *= (epochs + HISTORY_ROWS_MOST - 1) / HISTORY_ROWS_MOST;
    else if (epochs > 0)
        h->span_rows = (HISTORY_ROWS_LEAST + epochs - 1) / epochs;
}

History *history_create(int64_t total, int64_t epoch, int64_t log_every, int parts) {
    History *h = memory_alloc(1, sizeof *h);
    *h = (History){.total = total, .span = log_every, .span_rows = 1, .parts = parts};
    h->window = total >= 2 * epoch ? epoch : total / 10;
    if (h->window < 1) h->window = 1;
    if (log_every == 0) choose_rows(h, epoch);
    h->width = IN_PARTS + parts;
    h->columns = AT_PARTS + parts;
    h->sums = memory_alloc(SUM_COUNT * (size_t)h->width, sizeof *h->sums);
    return h;
}

void history_destroy(History *h) {
    if (!h) return;
    free(h->sums);
    free(h->curve);
    free(h);
}

static double *sum_of(const History *h, int which) {
    return h->sums + (size_t)which * (size_t)h->width;
}

static double *row_of(const History *h, int64_t row) {
    return h->curve + (size_t)row * (size_t)h->columns;
}

/* Mean over samples of a column of a sum. */
static double mean_of(const double *sum, int column) {
    return sum[IN_SAMPLES] > 0 ? sum[column] / sum[IN_SAMPLES] : 0;
}

/* Whether a row ends with step `step` (from 0): a span's rows are about equally long. */
static bool ends_row(const History *h, int64_t step) {
    const int64_t before = step % h->span, rows = h->span_rows;
    return (before + 1) * rows / h->span > before * rows / h->span ||
           step + 1 == h->total;
}

static void reserve_rows(History *h, int64_t count) {
    if (count <= h->capacity) return;
    h->capacity = 2 * count;
    h->curve =
        memory_grow(h->curve, (size_t)h->capacity * (size_t)h->columns, sizeof *h->curve);
}

/* Ends a row after `step` steps. */
static void add_row(History *h, int64_t step) {
    reserve_rows(h, h->count + 1);
    double *sum = sum_of(h, SUM_ROW), *row = row_of(h, h->count++);
    row[AT_STEP] = (double)step;
    row[AT_RATE] = h->rate;
    row[AT_NORM] = sum[IN_NORM] / sum[IN_STEPS];
    row[AT_PRIOR] = mean_of(sum, IN_PRIOR);
    row[AT_MEASURED] = MEASURED_NONE;
    row[AT_VALUE] = 0;
    for (int i = 0; i <= h->parts; i++) row[AT_LOSS + i] = mean_of(sum, IN_LOSS + i);
    memset(sum, 0, (size_t)h->width * sizeof *sum);
}

/* ---- steps ---- */

static void add_to_sum(const History *h, int which, const HistoryStep *step) {
    double *sum = sum_of(h, which);
    const double samples = (double)step->samples;
    sum[IN_SAMPLES] += samples;
    sum[IN_STEPS] += 1;
    sum[IN_PRIOR] += step->prior * samples;
    sum[IN_NORM] += step->norm;
    for (int i = 0; i <= h->parts; i++) sum[IN_LOSS + i] += step->losses[i] * samples;
}

void history_add(History *h, const HistoryStep *step) {
    if (step->norm > h->largest_norm) h->largest_norm = step->norm;
    h->rate = step->rate;
    add_to_sum(h, SUM_ROW, step);
    add_to_sum(h, SUM_SINCE, step);
    if (step->step < h->window) add_to_sum(h, SUM_FIRST, step);
    if (step->step >= h->total - h->window) add_to_sum(h, SUM_LAST, step);
    if (ends_row(h, step->step)) add_row(h, step->step + 1);
}

void history_measured(History *h, int64_t step, double value) {
    const size_t bytes = (size_t)h->width * sizeof(double);
    if (h->count == 0 || row_of(h, h->count - 1)[AT_STEP] < (double)step)
        add_row(h, step);
    double *row = row_of(h, h->count - 1);
    row[AT_MEASURED] = isfinite(value) ? MEASURED : MEASURED_ODD;
    row[AT_VALUE] = isfinite(value) ? value : 0;
    memcpy(sum_of(h, SUM_BETWEEN), sum_of(h, SUM_SINCE), bytes);
    memset(sum_of(h, SUM_SINCE), 0, bytes);
}

/* ---- the report ---- */

static void report_row(const History *h, int64_t i, Arena *arena, TrainRow *out) {
    const double *row = row_of(h, i);
    double *parts = ARENA_ARRAY(arena, double, (size_t)h->parts);
    for (int p = 0; p < h->parts; p++) parts[p] = row[AT_PARTS + p];
    *out = (TrainRow){.step = (int64_t)row[AT_STEP],
                      .loss = row[AT_LOSS],
                      .learning_rate = row[AT_RATE],
                      .gradient_norm = row[AT_NORM],
                      .prior = row[AT_PRIOR],
                      .parts = parts,
                      .measured = row[AT_MEASURED] != MEASURED_NONE,
                      .value = row[AT_MEASURED] == MEASURED_ODD ? NAN : row[AT_VALUE]};
}

void history_report(const History *h, int64_t steps, Arena *arena, TrainReport *report) {
    const double *first = sum_of(h, SUM_FIRST);
    const double *last = sum_of(h, steps < h->total ? SUM_BETWEEN : SUM_LAST);
    *report = (TrainReport){.steps = steps,
                            .first_loss = mean_of(first, IN_LOSS),
                            .last_loss = mean_of(last, IN_LOSS),
                            .row_count = (int)h->count,
                            .largest_norm = h->largest_norm,
                            .first_prior = mean_of(first, IN_PRIOR),
                            .last_prior = mean_of(last, IN_PRIOR)};
    report->rows = ARENA_ARRAY(arena, TrainRow, (size_t)h->count);
    report->part_loss = ARENA_ARRAY(arena, double, (size_t)h->parts);
    for (int i = 0; i < h->parts; i++) report->part_loss[i] = mean_of(last, IN_PARTS + i);
    for (int64_t i = 0; i < h->count; i++) report_row(h, i, arena, &report->rows[i]);
}

/* ---- the state ---- */

void history_save(const History *h, TrainState *state) {
    train_state_view(state, "history/", "sums", DTYPE_F64, 2,
                     (int64_t[]){SUM_COUNT, h->width}, h->sums);
    if (h->count > 0)
        train_state_view(state, "history/", "curve", DTYPE_F64, 2,
                         (int64_t[]){h->count, h->columns}, h->curve);
    tree_put_int(state->arena, state->numbers, "rows", h->count);
    tree_put_real(state->arena, state->numbers, "largest_norm", h->largest_norm);
    tree_put_real(state->arena, state->numbers, "rate", h->rate);
}

/* Whether the rows end after whole steps in order, up to `steps`. */
static bool rows_rise(const Tensor *curve, int64_t steps) {
    double before = 0;
    for (int64_t i = 0; i < curve->dim[0]; i++) {
        double step;
        tensor_read_f64(curve, i * curve->dim[1] + AT_STEP, 1, &step);
        if (!(step > before) || step > (double)steps || step != floor(step)) return false;
        before = step;
    }
    return true;
}

Status history_load(History *h, TrainState *state, int64_t steps, Diag *diag) {
    const Tensor *sums = NULL, *curve = NULL;
    int64_t rows;
    double largest, rate;
    TRY(train_state_int(&rows, state, "rows", 0, steps, diag));
    TRY(train_state_real(&largest, state, "largest_norm", diag));
    TRY(train_state_real(&rate, state, "rate", diag));
    TRY(train_state_find(&sums, state, "history/", "sums", DTYPE_F64, 2,
                         (int64_t[]){SUM_COUNT, h->width}, diag));
    if (rows > 0)
        TRY(train_state_find(&curve, state, "history/", "curve", DTYPE_F64, 2,
                             (int64_t[]){rows, h->columns}, diag));
    if (curve && !rows_rise(curve, steps))
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                         "\"history/curve\" in the state of the training: expected rows "
                         "whose steps rise up to %lld",
                         (long long)steps);
    h->largest_norm = largest;
    h->rate = rate;
    memcpy(h->sums, tensor_data(sums), tensor_bytes(sums));
    reserve_rows(h, rows);
    h->count = rows;
    if (curve) memcpy(h->curve, tensor_data(curve), tensor_bytes(curve));
    return STATUS_OK;
}
