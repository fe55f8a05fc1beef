/* Inside of conditioning: see condition.h. */
#ifndef COMPRESS_PASSES_POSTERIOR_CONDITION_INTERNAL_H
#define COMPRESS_PASSES_POSTERIOR_CONDITION_INTERNAL_H

#include "passes/posterior/condition.h"

typedef enum ConditionMark { MARK_KEPT, MARK_REMOVED, MARK_GIVEN } ConditionMark;

/* One storage with a Gaussian. */
typedef struct ConditionPart {
    Storage *storage;
    Gaussian *normal; /* the storage's Gaussian */
    Gaussian *before; /* copy of what it was, while it is changed; shares data until
                         that is written */
    uint8_t *mark;    /* by element: ConditionMark; NULL = all kept */
    double *value;    /* by element, of those given; NULL = none are */
    int64_t count;    /* elements */
    int64_t given;
} ConditionPart;

typedef struct Conditioning {
    PassContext *ctx;
    ConditionPart *parts;
    int part_count;
    Arena *scratch;
    ConditionReport *report;
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

/* All storages of forms diagonal and low_rank. Fails before anything is changed. */
Status condition_low_rank(Conditioning *c);

/* One storage of form kron. */
Status condition_kron(const Conditioning *c, const ConditionPart *part);

/* Before and after a part is changed: remembers what it was, and compares. */
void condition_begin(const Conditioning *c, ConditionPart *part);
void condition_end(Conditioning *c, ConditionPart *part);

#endif
