/* Generations of a search: search_run (session/search/search.h), and one rung of it. */
#ifndef COMPRESS_SESSION_SEARCH_GENERATIONS_H
#define COMPRESS_SESSION_SEARCH_GENERATIONS_H

#include "session/search/search.h"

/* Runs the chosen candidates (indices) with the training of a rung, and takes their
 * results. Fails as trials_run does. */
Status search_run_rung(Search *search, const int *chosen, int count, int rung,
                       int generation, Diag *diag);

#endif
