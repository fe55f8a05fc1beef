/* When a sample leaves at an exit of dynamic inference: see exec/run/dynamic.h. */
#ifndef COMPRESS_EXEC_RUN_EXIT_RULE_H
#define COMPRESS_EXEC_RUN_EXIT_RULE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum ExitCriterion {
    EXIT_NEVER,   /* everything runs to the last exit */
    EXIT_ENTROPY, /* leave when -sum p ln p (nats) is below the exit's threshold (DeeBERT,
                     Xin et al. 2020; COST-EFF) */
    EXIT_PATIENCE /* leave when `patience` exits in a row have agreed with the one before
                     them (PABEE, Zhou et al. 2020) */
} ExitCriterion;
#define EXIT_CRITERION_NAMES "never|entropy|patience"

typedef struct ExitRule {
    int criterion;           /* ExitCriterion */
    const double *threshold; /* entropy: by exit, the last one's not used */
    int64_t patience;        /* patience: at least 1 */
} ExitRule;

/* What the rule remembers about one sample between exits; starts as zeros. */
typedef struct ExitState {
    int64_t last;  /* class that the previous exit predicted, plus 1 */
    int64_t agree; /* exits in a row that agreed with the one before them */
} ExitState;

/* Entropy of softmax(logits) in nats; 0 ln 0 = 0. */
double exit_entropy(const float *logits, int64_t classes);

/* Whether a sample leaves at exit `exit`, not the last, with these logits. */
bool exit_leaves(const ExitRule *rule, ExitState *state, int exit, const float *logits,
                 int64_t classes);

#endif
