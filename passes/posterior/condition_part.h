/* Parts: one storage's share in conditioning; condition.c marks it, the forms of
 * covariances change it (condition_forms.h), and the report compares it. */
#ifndef COMPRESS_PASSES_POSTERIOR_CONDITION_PART_H
#define COMPRESS_PASSES_POSTERIOR_CONDITION_PART_H

#include "ir/storage.h"
#include "passes/fault.h"

typedef enum ConditionMark { MARK_KEPT, MARK_REMOVED, MARK_GIVEN } ConditionMark;

/* One storage with a Gaussian. */
typedef struct ConditionPart {
    Storage *storage;
    Gaussian *normal; /* the storage's Gaussian */
    Gaussian
        *before; /* copy of the old one, while it is changed; shares data until written */
    uint8_t *mark; /* by element: ConditionMark; NULL = all kept */
    double *value; /* by element, for given ones; NULL = none are given */
    int64_t count; /* elements */
    int64_t given;
} ConditionPart;

typedef struct Conditioning {
    PassContext *ctx;
    ConditionPart *parts;
    int part_count;
    Arena *scratch;
    struct ConditionReport *report; /* condition.h's; what the forms find stands below */
    double jitter; /* smallest diagonal part among v2's elements of form low_rank; 0 =
                      there are none */
    bool changed;  /* whether a mean or variance of v changed */
    double moved, mean, left, variance; /* sums of squares, and of variances */
    Diag *diag;
} Conditioning;

/* The mark of an element. */
static inline ConditionMark condition_mark(const ConditionPart *part, int64_t i) {
    return part->mark ? (ConditionMark)part->mark[i] : MARK_KEPT;
}

/* Reports that S_22 is singular, because of a storage; `jitter` is its diagonal part. */
Status condition_fail_singular(const Conditioning *c, const ConditionPart *part,
                               double jitter);

/* Before and after a part is changed: remembers what it was, and compares. */
void condition_begin(const Conditioning *c, ConditionPart *part);
void condition_end(Conditioning *c, ConditionPart *part);

#endif
