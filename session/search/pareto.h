/* Pareto: which of many results are not beaten in both cost and worth by any other. */
#ifndef COMPRESS_SESSION_SEARCH_PARETO_H
#define COMPRESS_SESSION_SEARCH_PARETO_H

typedef struct ParetoPoint {
    double cost;  /* lower is better */
    double worth; /* higher is better */
} ParetoPoint;

/* Number of the front that each point is on: 0 = nothing is as good in both and better
 * in one; 1 = the same without front 0; ... Values are finite. */
void pareto_ranks(const ParetoPoint *points, int count, int *ranks);

/* Chooses `keep` of the points, whole fronts in order, and from the last front the most
 * isolated ones (crowding distance: Deb et al., NSGA-II, 2002), ties by position. Fills
 * `chosen` with their indices, ascending, and returns their number. */
int pareto_select(const ParetoPoint *points, int count, int keep, int *chosen);

#endif
