/* Label thresholds: the probability from which a model with several labels (task
 * multi_label) considers a label present.
 *
 * evaluate chooses them from data (`thresholds: choose`) and stores them in the model's
 * provenance under "labels", with the hash of the weights that they were chosen for. */
#ifndef COMPRESS_PASSES_EVALUATE_LABEL_THRESHOLDS_H
#define COMPRESS_PASSES_EVALUATE_LABEL_THRESHOLDS_H

#include "ir/model.h"

/* The threshold of a label for which none was chosen. */
#define LABEL_THRESHOLD 0.5

/* Fills thresholds[labels] with the stored ones, else LABEL_THRESHOLD; `*stored`:
 * whether there are any. Fails with STATUS_MODEL if their number is wrong, or one is not
 * a number from 0 to 1. */
Status label_thresholds_read(double *thresholds, int64_t labels, bool *stored,
                             const Model *model, Diag *diag);

/* Whether stored ones were chosen for other weights, or another graph. Not for planning.
 */
bool label_thresholds_are_stale(Model *model);

/* Stores them. */
Status label_thresholds_store(const double *thresholds, int64_t labels, Model *model,
                              Diag *diag);

/* The probability of a label: 1 / (1 + exp(-logit)). */
float label_probability(float logit);

#endif
