/* Rounded: the weights that linears of a plan multiply, in bfloat16, kept in addition to
 * the trained floats. They are rounded once for all products of a step. */
#ifndef COMPRESS_EXEC_RUN_ROUNDED_H
#define COMPRESS_EXEC_RUN_ROUNDED_H

#include "exec/plan/plan.h"

typedef struct Rounded Rounded;

/* Makes room for the parameters that linears of a plan with `bf16` use as weights, for
 * the products that it computes; those of a frozen storage are rounded only once. Fails
 * with STATUS_MEMORY. */
Status rounded_create(Rounded **out, const Plan *plan, Diag *diag);

/* NULL is allowed. */
void rounded_destroy(Rounded *rounded);

/* Bytes that it takes. */
size_t rounded_bytes(const Plan *plan);

/* Rounds the current weights from the floats of `params`. */
typedef struct Params Params;
void rounded_update(Rounded *rounded, const Params *params, int threads);

/* The rounded weights of a storage; NULL if there are none. */
const struct Bf16Matrix *rounded_find(const Rounded *rounded, const Storage *storage);

#endif
