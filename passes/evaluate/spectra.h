/* Spectra: singular values of a model's matrices, for `diagnose: {spectra: true}`. */
#ifndef COMPRESS_PASSES_EVALUATE_SPECTRA_H
#define COMPRESS_PASSES_EVALUATE_SPECTRA_H

#include "passes/context.h"

/* Records "spectra", a list with a map for every matrix of a projection, a
 * recurrence or an embedding at a place, each storage once:
 *
 *     {"place": "encoder.0", "role": "q", "storage": NAME, "rows": 64, "columns": 64,
 *      "rank90": 21, "rank99": 47, "sigma": [3.1, 2.9, ...]}
 *
 * rank90 and rank99 are the fewest singular values that hold that many percent of the
 * sum of all squares, 0 for a matrix of zeros. Of n values `sigma` has all up to
 * SPECTRUM_VALUES, else those at places round(i (n - 1) / (SPECTRUM_VALUES - 1)). They
 * are LAPACK's, in double. Matrices whose smaller side exceeds SPECTRUM_SIDE are only
 * counted in "spectra_left_out". Fails with STATUS_MEMORY, STATUS_MODEL,
 * STATUS_INTERRUPTED. */
Status spectra_record(PassContext *ctx, Graph *graph, Diag *diag);

#define SPECTRUM_VALUES 32
#define SPECTRUM_SIDE   16384

#endif
