/* Non-dominated sorting and crowding, for some hundred points. */
#include "session/search/pareto.h"

#include "ir/arena.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

static bool beats(const ParetoPoint *a, const ParetoPoint *b) {
    return a->cost <= b->cost && a->worth >= b->worth &&
           (a->cost < b->cost || a->worth > b->worth);
}

void pareto_ranks(const ParetoPoint *points, int count, int *ranks) {
    for (int i = 0; i < count; i++) ranks[i] = -1;
    for (int rank = 0, left = count; left > 0; rank++) {
        /* Those of this front are marked aside: they beat others of it until all are
         * known. */
        for (int i = 0; i < count; i++) {
            if (ranks[i] >= 0 && ranks[i] < rank) continue;
            bool beaten = false;
            for (int j = 0; j < count && !beaten; j++)
                beaten =
                    (ranks[j] < 0 || ranks[j] == rank) && beats(&points[j], &points[i]);
            if (beaten) continue;
            ranks[i] = rank;
            left--;
        }
    }
}

/* How alone a point stands on its front: the sides of the box between its neighbours, as
 * shares of the front's extent; infinite at the ends. */
static double crowding(const ParetoPoint *points, const int *ranks, int count, int of) {
    double below = -INFINITY, above = INFINITY, low = INFINITY, high = -INFINITY;
    double worth_below = 0, worth_above = 0, least = INFINITY, most = -INFINITY;
    for (int i = 0; i < count; i++) {
        if (ranks[i] != ranks[of]) continue;
        const ParetoPoint *p = &points[i];
        low = fmin(low, p->cost);
        high = fmax(high, p->cost);
        least = fmin(least, p->worth);
        most = fmax(most, p->worth);
        if (i == of) continue;
        const bool before =
            p->cost < points[of].cost || (p->cost == points[of].cost && i < of);
        if (before && p->cost >= below) {
            below = p->cost;
            worth_below = p->worth;
        } else if (!before && p->cost < above) {
            above = p->cost;
            worth_above = p->worth;
        }
    }
    if (!isfinite(below) || !isfinite(above)) return INFINITY;
    const double width = high > low ? (above - below) / (high - low) : 0;
    return width + (most > least ? fabs(worth_above - worth_below) / (most - least) : 0);
}

typedef struct Ranked {
    int index, rank;
    double alone;
} Ranked;

static int by_rank(const void *a, const void *b) {
    const Ranked *x = a, *y = b;
    if (x->rank != y->rank) return x->rank - y->rank;
    if (x->alone != y->alone) return x->alone > y->alone ? -1 : 1;
    return x->index - y->index;
}

static int by_index(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

int pareto_select(const ParetoPoint *points, int count, int keep, int *chosen) {
    int *ranks = memory_alloc((size_t)count + 1, sizeof *ranks);
    Ranked *order = memory_alloc((size_t)count + 1, sizeof *order);
    pareto_ranks(points, count, ranks);
    for (int i = 0; i < count; i++)
        order[i] = (Ranked){i, ranks[i], crowding(points, ranks, count, i)};
    qsort(order, (size_t)count, sizeof *order, by_rank);
    if (keep > count) keep = count;
    for (int i = 0; i < keep; i++) chosen[i] = order[i].index;
    qsort(chosen, (size_t)keep, sizeof *chosen, by_index);
    free(order);
    free(ranks);
    return keep;
}
