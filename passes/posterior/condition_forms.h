/* Conditioning of marked parts, by the form of their covariance: see condition.h. */
#ifndef COMPRESS_PASSES_POSTERIOR_CONDITION_FORMS_H
#define COMPRESS_PASSES_POSTERIOR_CONDITION_FORMS_H

#include "passes/posterior/condition_part.h"

/* All storages of forms diagonal and low_rank. Fails before anything is changed. */
Status condition_low_rank(Conditioning *c);

/* One storage of form kron. */
Status condition_kron(const Conditioning *c, const ConditionPart *part);

#endif
