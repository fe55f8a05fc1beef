/* Candidates of a search: recipes of its space, planned on shapes. */
#ifndef COMPRESS_SESSION_SEARCH_CANDIDATES_H
#define COMPRESS_SESSION_SEARCH_CANDIDATES_H

#include "session/search/search_state.h"

/* What goes on while candidates are planned. `lightest` begins at INFINITY. */
typedef struct CandidatePlanner {
    Search *search;
    Diag *
        refusal; /* of the first candidate that the model does not fit; to be destroyed */
    double lightest;  /* share of the FLOPs of the lightest that was planned */
    Candidate *maybe; /* a little above the budgets by a guess, the lightest first;
                         NULL = they are not kept */
    int maybe_count;
} CandidatePlanner;

/* Whether sizes, as shares of the input model's, are within the budgets. */
bool search_within(const SearchOptions *options, double flops, double parameters);

/* Recipe `index` of the space as a candidate that has no number yet. */
Candidate candidate_of(const Search *search, uint64_t index, int generation);

/* Gives the candidate behind the last one its number and the folder of its files, with
 * its recipe. Fails with STATUS_IO. */
Status candidate_name(const Search *search, Candidate *candidate, Diag *diag);

/* Plans a candidate and says whether it fits the model and the budgets. Fails as planning
 * does where the recipe is not the cause. */
Status candidate_plan(CandidatePlanner *planner, Candidate *candidate, bool *fits,
                      Diag *diag);

/* Draws recipes and keeps those that fit, up to `wanted`, with room for as many children
 * in each further generation; reads how long their training is. Where none fits those are
 * kept that only a guess of their plan is against. Fails with STATUS_RECIPE where there
 * are none either. */
Status candidates_draw(Search *search, int64_t wanted, Diag *diag);

#endif
