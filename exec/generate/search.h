/* Search: which tokens the hypotheses of sentences go on with. */
#ifndef COMPRESS_EXEC_GENERATE_SEARCH_H
#define COMPRESS_EXEC_GENERATE_SEARCH_H

#include "exec/generate/hypotheses.h"

/* How the next tokens are searched for.
 *   beam: the `beam` hypotheses with the largest sums of log-probabilities go on; those
 * that end are kept with the score sum / length^length_penalty, the end counted in the
 *     length; the best score wins. The search stops when `beam` have ended
 *     (early_stopping), else when none that goes on could still win. beam 1 takes the
 *     likeliest token each time (greedy) and stops at the first end.
 *   lookahead: of the `beam` likeliest next tokens that one is taken which begins the
 *     likeliest pair of tokens; an end is a pair by itself. */
#define SEARCH_NAMES "beam|lookahead"
typedef enum SearchKind { SEARCH_BEAM, SEARCH_LOOKAHEAD } SearchKind;

typedef struct Search {
    SearchKind kind;
    int64_t beam;
    double length_penalty;
    bool early_stopping;
    int32_t start, end; /* tokens; `start` is never chosen, unless it is `end` */
    int64_t vocabulary; /* tokens below it are chosen; 0 = all */
    bool forced; /* translations begin with `first`, which adds nothing to their sums */
    int32_t first;
} Search;

/* What was found for one sentence. */
typedef struct Translation {
    int32_t *tokens; /* room for max_length; the end is not among them */
    int64_t length;
    bool ended;   /* by the end, not by max_length */
    double score; /* as above; of lookahead the sum of log-probabilities */
    int64_t odd;  /* its first token, from 1, with logits of which one is NaN or the
                     largest not finite: there is no translation then; 0 = none */
} Translation;

/* Searches for the translations out[0 .. sentences) of sentences that hypotheses_start
 * began with. The search's vocabulary is set, its beam no more than the slots. Fails with
 * STATUS_MEMORY. */
Status search_translations(Hypotheses *h, const Search *search, Translation *out,
                           Diag *diag);

#endif
