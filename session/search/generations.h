/* Generations of a search: the whole search, and one rung. */
#ifndef COMPRESS_SESSION_SEARCH_GENERATIONS_H
#define COMPRESS_SESSION_SEARCH_GENERATIONS_H

#include "session/search/search_state.h"

/* Runs the chosen candidates (indices) with the training of a rung, and takes their
 * results. Fails as trials_run does. */
Status search_run_rung(Search *search, const int *chosen, int count, int rung,
                       int generation, Diag *diag);

/* Runs all rungs and generations; then front and best are known. Fails as trials_run
 * does. */
Status search_run(Search *search, Diag *diag);

#endif
