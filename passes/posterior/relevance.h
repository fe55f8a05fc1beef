/* Relevance: how much of the posterior's density is lost when some weights are set to
 * given values and all others adapt.
 *
 * For u ~ N(mu, S) and values c for the part v2,
 *
 *     relevance = max log p(u) - max log p(u | v2 = c)
 *               = 1/2 (c - mu_2)^T S_22^-1 (c - mu_2),
 *
 * half the squared Mahalanobis distance of c. With c = 0 and S the inverse of a Hessian
 * it is the saliency of optimal brain surgeon (Hassibi and Stork, NIPS 1993), for many
 * weights at once. The part with the smallest relevance is the one whose removal the
 * posterior finds most plausible. */
#ifndef COMPRESS_PASSES_POSTERIOR_RELEVANCE_H
#define COMPRESS_PASSES_POSTERIOR_RELEVANCE_H

#include "passes/posterior/condition.h"

/* Factorisations kept from one call to the next, for parts of one storage. */
typedef struct RelevanceCache {
    const Storage *storage;
    bool of_rows; /* else of columns */
    double *lower;
} RelevanceCache;

/* Relevance of setting `given`; no element may be in two slices. Entries whose storage
 * has no Gaussian do not count; neither do those with a variance of zero that have their
 * value already. `cache` may be NULL; zero it before the first call, release it after
 * the last. Fails with STATUS_MODEL at the step's place when no entry has a Gaussian or
 * S_22 is singular, naming a storage. */
Status relevance_of(double *out, PassContext *ctx, const ConditionSlice *given, int count,
                    RelevanceCache *cache, Diag *diag);

/* Fails as relevance_of does when no entry has a Gaussian; their shapes suffice. */
Status relevance_check(PassContext *ctx, const ConditionSlice *given, int count,
                       Diag *diag);

/* Frees what a cache holds and empties it. */
void relevance_release(RelevanceCache *cache);

#endif
