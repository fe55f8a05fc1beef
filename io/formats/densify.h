/* Densify: factors multiplied out again, so that a model has an architecture that other
 * programs know. The reverse of the passes factor_embedding and factor_linear, except
 * for rounding. */
#ifndef COMPRESS_IO_FORMATS_DENSIFY_H
#define COMPRESS_IO_FORMATS_DENSIFY_H

#include "ir/model.h"

/* What was multiplied out. */
typedef struct DenseReport {
    int factors;        /* embeddings */
    int linears;        /* projections' matrices */
    int64_t parameters; /* more than before */
} DenseReport;

/* Turns every factored word embedding, embedding(ids, W1) W2^T with whatever heads are
 * tied to it, into embedding(ids, W1 W2^T), and every factored projection, B (A x), into
 * (B A) x: sums in double, rounded once to the type of W1 or B. Without values, only
 * shapes. A factor with other readers is kept. Fails with STATUS_MEMORY.
 */
Status model_densify(Model *model, DenseReport *report, Diag *diag);

#endif
