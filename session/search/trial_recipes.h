/* Recipes and files of a search's trials. */
#ifndef COMPRESS_SESSION_SEARCH_TRIAL_RECIPES_H
#define COMPRESS_SESSION_SEARCH_TRIAL_RECIPES_H

#include "session/search/search_state.h"

/* A rung has a third of the trials of the previous one, with three times their training;
 * but at least two, if there are that many. */
enum { SEARCH_SHRINK = 3, SEARCH_FEWEST = 2 };

/* Share of the training in a rung (from 0): 1 in the last one. */
double search_rung_share(const Search *search, int rung);

/* A copy of an evaluate step, or of anything else, without the options that end a run:
 * short training must not fail gates. In the arena. */
Tree *search_without_gates(Arena *arena, const Tree *step);

/* Writes the searched recipe with other passes, and one line of comment above it; a
 * trial's recipe has no output. Fails with STATUS_IO. */
Status search_recipe_write(const Search *search, const char *path, const char *comment,
                           const Tree *passes, bool trial, Diag *diag);

/* Writes a candidate's recipe for a rung: the full one in the last rung, otherwise with
 * a share of its training and without gates. Fails with STATUS_IO. */
Status search_rung_write(const Search *search, const Trial *trial,
                         const Candidate *candidate, int rung, Diag *diag);

/* Changes of the recipe that are passed to trials; those of its passes are already in
 * the trials' recipes. In the search's arena. */
StringList search_sets(const Search *search);

/* How trials are run: program, cache, flags, threads. In the search's arena. */
TrialRunner search_runner(const Search *search);

/* The files of a trial in `folder`, named after `name`. */
Trial search_trial(const Search *search, const char *folder, const char *name,
                   bool writes_model);

#endif
