/* Search: the recipes of a space (session/search/search_space.h) that are not beaten in
 * cost and worth by any other, found by a genetic algorithm on both (Deb et al.,
 * NSGA-II, 2002) that begins with successive halving (Jamieson and Talwalkar, 2016).
 *
 * Candidates are drawn, and planned on shapes: one that does not fit the model or the
 * budgets is skipped. All that fit run with a ninth of their training, the best third of
 * them with a third, the best third of those with all of it. The best are those that are
 * least beaten in FLOPs and in the metric of their last evaluate step (pareto_select).
 * Recipes without training run once; so do all with one rung.
 *
 * Each further generation consists of children of the best that ran in full
 * (search_space_child). Ten times as many as in the last rung are planned, which gives
 * their FLOPs; their metric is predicted from the recipes that ran (forecast), and the
 * best by both run in full.
 *
 * Every trial is a separate process; trials share finished steps through a cache. With a
 * number of candidates the outcome depends only on the recipe and the seed; with
 * minutes, also on the time of the first trial, which is measured once and kept in the
 * folder. */
#ifndef COMPRESS_SESSION_SEARCH_SEARCH_H
#define COMPRESS_SESSION_SEARCH_SEARCH_H

#include "session/search/search_state.h"

/* Reads the recipe and its ranges, draws and plans candidates, and runs the input model's
 * evaluation. To be closed whatever it returns. Fails as reading and planning do; with
 * STATUS_RECIPE for a recipe without ranges or evaluate step, or without a candidate
 * that fits; with STATUS_USAGE if the folder holds another search. */
Status search_open(Search *search, const SearchOptions *options, Diag *diag);

/* Writes a candidate's full recipe, with one line of comment above it. Fails with
 * STATUS_IO. */
Status search_write_recipe(const Search *search, const Candidate *candidate,
                           const char *path, const char *comment, Diag *diag);

/* Frees everything except the files of the folder. */
void search_close(Search *search);

#endif
