/* Forecast: predicts the metric of recipes of a space from those that ran. */
#ifndef COMPRESS_SESSION_SEARCH_FORECAST_H
#define COMPRESS_SESSION_SEARCH_FORECAST_H

#include "session/search/search_space.h"

/* Similarity of two recipes, from 0 to 1, 1 = the same: the mean over the ranges that
 * are not within another's choice, where half counts whether the values are equal and
 * half how close they are, about 1 for neighbours in a long range, 0 at its two ends. */
double recipe_likeness(const SearchSpace *space, uint64_t a, uint64_t b);

/* Kernel ridge regression (Saunders et al., 1998) with that similarity, so that each
 * range contributes to a recipe's worth by its value: `worth` of the `known` recipes,
 * finite, gives `foretold` for the `asked` ones. With none known all are 0. */
void forecast(const SearchSpace *space, const uint64_t *known, const double *worth,
              int known_count, const uint64_t *asked, double *foretold, int asked_count);

#endif
