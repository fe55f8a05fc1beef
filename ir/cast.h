/* Cast: the weights of a model in another element type of real numbers. */
#ifndef COMPRESS_IR_CAST_H
#define COMPRESS_IR_CAST_H

#include "ir/model.h"

/* What rounding did, to all weights together. */
typedef struct CastReport {
    int storages;       /* whose type changed */
    int64_t elements;   /* of them */
    int64_t zeros;      /* of these: numbers that became 0 without having been 0 */
    int64_t subnormals; /* numbers that became subnormal: below the range in which the
                           relative error is bounded */
    double error; /* largest |rounded - w| / |w| of all others; 2^-11 for f16, 2^-8 for
                     bf16 at most */
    const char *worst; /* the storage with that error, borrowed; NULL = no error */
} CastReport;

/* Gives every storage of real numbers the type `dtype` (F32, F16 or BF16): nearest
 * numbers, ties to even, rounded once. Lineages, Gaussians and initial distributions
 * stay; without values (planning), only shapes get the type. `report` may be NULL. Fails
 * with STATUS_MODEL if a finite number becomes infinite, naming storage, index and
 * value, and with STATUS_MEMORY; earlier storages have been converted by then. */
Status model_cast(Model *model, DType dtype, CastReport *report, Diag *diag);

/* One tensor of real numbers in the type `dtype` (F32, F16 or BF16), rounded likewise.
 * `name` is the weight's in messages. Fails as model_cast. */
Status tensor_cast(Tensor *out, const Tensor *from, DType dtype, const char *name,
                   Diag *diag);

/* Whether a cast from one type to another gives every number exactly. */
bool dtype_widens(DType from, DType to);

#endif
