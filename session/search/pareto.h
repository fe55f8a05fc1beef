/* Pareto: which of many results nothing else beats in cost and worth at once. */
#ifndef COMPRESS_SESSION_SEARCH_PARETO_H
#define COMPRESS_SESSION_SEARCH_PARETO_H

typedef struct ParetoPoint {
    double cost;  /* lower is better */
    double worth; /* higher is better */
} ParetoPoint;

/* Number of the front that each point is on: 0 = nothing is as good in both and better in
 * one; 1 = so without front 0; ... Values are finite. */
void pareto_ranks(const ParetoPoint *points, int count, int *ranks);

/* Chooses `keep` of the points, whole fronts in order, and of the last front those that
 * stand the most alone (crowding distance: Deb et al., NSGA-II, 2002), equal ones by
 * their place. Fills `chosen` with their indices, rising, and returns their number. */
int pareto_select(const ParetoPoint *points, int count, int keep, int *chosen);

#endif
