/* Candidates of a search: recipes of its space, planned on shapes. */
#ifndef COMPRESS_SESSION_SEARCH_CANDIDATES_H
#define COMPRESS_SESSION_SEARCH_CANDIDATES_H

#include "session/search/search_state.h"

/* State while candidates are planned. `lightest` begins at INFINITY. */
typedef struct CandidatePlanner {
    Search *search;
    Diag *refusal;    /* errors of the first candidate that does not fit the model; to be
                         destroyed */
    double lightest;  /* share of the FLOPs of the lightest planned one */
    Candidate *maybe; /* slightly above the budgets by an estimate, lightest first; NULL =
                         not kept */
    int maybe_count;
} CandidatePlanner;

/* Whether sizes, as shares of the input model's, are within the budgets. */
bool search_within(const SearchOptions *options, double flops, double parameters);

/* Recipe `index` of the space as a candidate without a number. */
Candidate candidate_of(const Search *search, uint64_t index, int generation);

/* Gives the candidate after the last one its number and a folder for its files, with its
 * recipe. Fails with STATUS_IO. */
Status candidate_name(const Search *search, Candidate *candidate, Diag *diag);

/* Plans a candidate and says whether it fits the model and the budgets. Fails as
 * planning does if the recipe is not the cause. */
Status candidate_plan(CandidatePlanner *planner, Candidate *candidate, bool *fits,
                      Diag *diag);

/* Draws recipes and keeps those that fit, up to `wanted`, with room for as many children
 * in each further generation; determines the length of their training. If none fits,
 * keeps those that only an estimate of their plan excludes. Fails with STATUS_RECIPE if
 * there are none of these either. */
Status candidates_draw(Search *search, int64_t wanted, Diag *diag);

#endif
