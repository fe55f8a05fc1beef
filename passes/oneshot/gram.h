/* Gram: what the inputs of a linear layer have in common over a calibration set.
 *
 * For y = W x + b, the change of the outputs caused by a change D of the weights, summed
 * over all rows x, is tr(D H D^T) with H = sum of x x^T. So H gives, without gradients,
 * the weights that change a layer least when inputs are removed, factored or rounded.
 * Rows come from a calibration set (passes/oneshot/calibration.h). */
#ifndef COMPRESS_PASSES_ONESHOT_GRAM_H
#define COMPRESS_PASSES_ONESHOT_GRAM_H

#include "ir/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct Gram {
    int64_t width;  /* K, of a row x */
    int64_t rows;   /* R, summed over */
    double *sum;    /* H, sum of x x^T: [K, K], symmetric once finished */
    double *mean;   /* of x: [K]; until finished its sum */
    double damping; /* what gram_damp has added to the diagonal, 0 at first */
    float *waiting; /* rows not in the sum yet, NULL once finished */
    int64_t waiting_count;
} Gram;

/* An empty sum over rows of `width`. Fails with STATUS_MEMORY; `gram` needs no
 * gram_destroy then. */
Status gram_create(Gram *gram, int64_t width, Diag *diag);
void gram_destroy(Gram *gram);

/* Adds rows[count, width]. Products are summed in float over blocks of 256 rows, counted
 * from the very first row, and blocks are summed in double and in order: the bytes
 * depend neither on threads nor on how many rows come in one call. */
void gram_add(Gram *gram, const float *rows, int64_t count, int threads);

/* Adds the waiting rows, fills the upper triangle and divides the mean. Call once, after
 * the last row. *finite is false when a sum is not finite: rows are too large, or were
 * not finite themselves. Collective if there are several ranks (exec/run/ranks.h), all
 * of which have added the same rows: each has summed its part of the products, and all
 * receive the whole. */
Status gram_finish(Gram *gram, int threads, bool *finite, Diag *diag);

/* Adds the rows of another finished, undamped Gram matrix of the same width. */
void gram_merge(Gram *gram, const Gram *other);

/* Adds damp * the mean of the diagonal of H to the diagonal, so that H can be inverted
 * even if some columns depend on others or there are fewer rows than columns. If all of
 * H is 0, it adds 1. Returns what it has added. */
double gram_damp(Gram *gram, double damp);

/* Whether column k was 0 in every row: its weights change nothing on the data. */
bool gram_is_dead(const Gram *gram, int64_t k);
int64_t gram_dead_count(const Gram *gram);

#endif
