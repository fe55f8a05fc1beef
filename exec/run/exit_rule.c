/* When a sample leaves: see exec/run/exit_rule.h. */
#include "exec/run/exit_rule.h"

#include <math.h>

static int64_t largest(const float *logits, int64_t classes) {
    int64_t best = 0;
    for (int64_t c = 1; c < classes; c++)
        if (logits[c] > logits[best]) best = c;
    return best;
}

/* With s = sum e^(z - max): H = log s - sum (z - max) e^(z - max) / s. */
double exit_entropy(const float *logits, int64_t classes) {
    const double top = logits[largest(logits, classes)];
    double sum = 0, weighted = 0;
    for (int64_t c = 0; c < classes; c++) {
        const double z = (double)logits[c] - top, e = exp(z);
        sum += e;
        if (e != 0) weighted += z * e; /* 0 ln 0 = 0, also where z is -infinity */
    }
    return log(sum) - weighted / sum;
}

bool exit_leaves(const ExitRule *rule, ExitState *state, int exit, const float *logits,
                 int64_t classes) {
    int64_t class;
    switch ((ExitCriterion)rule->criterion) {
    case EXIT_ENTROPY: return exit_entropy(logits, classes) < rule->threshold[exit];
    case EXIT_PATIENCE: /* exits in a row that agree; the first has none before it */
        class = largest(logits, classes) + 1;
        state->agree = class == state->last ? state->agree + 1 : 0;
        state->last = class;
        return state->agree >= rule->patience;
    case EXIT_NEVER: break;
    }
    return false;
}
