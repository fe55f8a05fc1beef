/* Parts of conditioning: faults, and what they were before. See condition_part.h. */
#include "passes/posterior/condition_part.h"

/* Elements handled together. */
enum { CHUNK = 512 };

Status condition_fail_singular(const Conditioning *c, const ConditionPart *part,
                               double jitter) {
    Status status = step_fail(
        c->ctx, c->diag,
        "'%s': the covariance of the parameters to be set is singular (form %s, jitter %g)",
        part->storage->name, gaussian_form_name(part->normal->form), jitter);
    diag_hint(c->diag, "estimate the posterior with a larger jitter or prior_floor");
    return status;
}

void condition_begin(const Conditioning *c, ConditionPart *part) {
    part->before = gaussian_copy(c->scratch, part->normal);
}

/* Adds n elements from `first` on to the sums. */
static void compare(Conditioning *c, const ConditionPart *part, int64_t first,
                    int64_t n) {
    double old_mean[CHUNK], mean[CHUNK], old_variance[CHUNK], variance[CHUNK];
    gaussian_mean_f64(part->before, first, n, old_mean);
    gaussian_mean_f64(part->normal, first, n, mean);
    gaussian_variance_f64(part->before, first, n, old_variance);
    gaussian_variance_f64(part->normal, first, n, variance);
    for (int64_t i = 0; i < n; i++) {
        if (condition_mark(part, first + i) != MARK_KEPT) continue;
        const double step = mean[i] - old_mean[i];
        c->moved += step * step;
        c->mean += old_mean[i] * old_mean[i];
        c->left += variance[i];
        c->variance += old_variance[i];
        c->changed |= step != 0 || variance[i] != old_variance[i];
    }
}

void condition_end(Conditioning *c, ConditionPart *part) {
    for (int64_t first = 0; first < part->count; first += CHUNK) {
        const int64_t left = part->count - first;
        compare(c, part, first, left < CHUNK ? left : CHUNK);
    }
    gaussian_release(part->before);
    part->before = NULL;
}
