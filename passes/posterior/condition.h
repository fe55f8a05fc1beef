/* Conditioning the Gaussian of a model's weights on values of some of them.
 *
 * With u = [v, v1, v2] ~ N(mu, S), z = [v, v1] (v stays, v1 goes, v2 is set to c, usually
 * zeros: the values that make what is removed the identity), u given v2 = c is
 *
 *     m = mu_z + S_z2 S_22^-1 (c - mu_2),    R = S_zz - S_z2 S_22^-1 S_2z,
 *
 * and what stays has N(m_v, R_vv) ("Bayesian distillation of transformer models",
 * theorems 2 to 5). For each form of the covariance (ir/gaussian.h):
 *
 *     diagonal   m_v = mu_v, R_vv = S_vv: selection, nothing moves
 *     low_rank   S = F^T F + N. With A = F_2 N_2^-1 F_2^T [K, K], I + A = L L^T:
 *                m = mu_z + F_z^T (I + A)^-1 F_2 N_2^-1 (c - mu_2),
 *                R = F_z^T (I + A)^-1 F_z + N_z, so F_z becomes L^-1 F_z: one Cholesky
 *                for the whole model, and low rank again (Woodbury)
 *     kron       within one weight, for whole columns J: M_K + (C - M_J) V_JJ^-1 V_JK,
 *                V_KK - V_KJ V_JJ^-1 V_JK, row covariance unchanged; for whole rows the
 *                same of the transpose
 *
 * Sums are in double, storages are streamed; nothing of size P x P is formed. */
#ifndef COMPRESS_PASSES_POSTERIOR_CONDITION_H
#define COMPRESS_PASSES_POSTERIOR_CONDITION_H

#include "ir/storage.h"
#include "passes/fault.h"
#include "passes/nodes.h"

/* Elements of a storage: entries index[0..count) of an axis with everything belonging to
 * them, or (axis < 0) the whole storage. */
typedef struct ConditionSlice {
    Storage *storage;
    int axis;
    const int64_t *index; /* increasing */
    int64_t count;
    double value;         /* v2: what each element is set to, */
    const double *values; /* or, unless NULL, one for each element of the STORAGE,
                             row-major (those outside the slice are not read) */
} ConditionSlice;

/* v2 with its values, and v1. Elements in both count as v2. Everything else is v. */
typedef struct Condition {
    const ConditionSlice *given;
    int given_count;
    const ConditionSlice *removed;
    int removed_count;
} Condition;

typedef struct ConditionReport {
    int64_t given, removed, kept; /* elements of v2, v1 and v, of storages that have a
                                     Gaussian */
    int64_t unknown; /* elements of slices whose storage has none: they are assumed to be
                        independent of the rest */
    double moved;    /* ||m_v - mu_v|| / ||mu_v||; 0 when nothing moved */
    double
        shrunk; /* 1 - trace R_vv / trace S_vv: share of the variance that was removed */
    double jitter; /* smallest diagonal part among v2's elements of form low_rank; 0 =
                      there are none */
    bool changed;  /* whether a mean or variance of v changed */
} ConditionReport;

/* Conditions the Gaussians of a graph's storages in place: elements of v and v1 get m and
 * R, those of v2 their value and variance zero. Code that removes v1 and v2 drops or
 * cuts them, which is marginalising. Weights are not touched. When planning (shapes
 * only), only the checks are made.
 *
 * Fails with STATUS_MODEL at the step's place, the Gaussians unchanged, when no storage
 * has a Gaussian, the Gaussians do not belong together (graph_check_gaussians) or hold
 * impossible numbers, or S_22 is singular (the message names the storage; an element of
 * v2 of variance zero is fine when its mean is its value). */
Status condition_gaussians(PassContext *ctx, Graph *graph, const Condition *condition,
                           ConditionReport *report, Diag *diag);

/* Puts a report into the step's record as the map `name`, with a line "note" when
 * conditioning did nothing, which is what a diagonal covariance means. */
void condition_record(PassContext *ctx, const char *name, const ConditionReport *report);

/* Sets the weights of every storage that has a Gaussian to its mean, as F32: the start of
 * a student that is trained from its prior. Fails with STATUS_MEMORY. */
Status condition_set_weights(Graph *graph, Diag *diag);

#endif
