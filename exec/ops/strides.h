/* Strides: a walk over all elements of a shape along which several values each move by
 * their own steps: 0 along dimensions in which a value is repeated, different ones if it
 * is transposed.
 *
 *     Strides s = strides_over(&call->out);
 *     strides_repeat(&s, &call->in[0]);
 *     strides_ready(&s);
 *     do
 *         for (int64_t j = 0; j < s.dim[0]; j++) y[j] = x[s.at[0] + j * s.step[0][0]];
 *     while (y += s.dim[0], strides_next(&s));
 *
 * The walked shape's own elements follow each other. Dimensions are stored from the last
 * one on; neighbouring dimensions that all values cross with a single step are
 * merged. */
#ifndef COMPRESS_EXEC_OPS_STRIDES_H
#define COMPRESS_EXEC_OPS_STRIDES_H

#include "exec/ops/kernel.h"

enum { STRIDES_VALUES = 3 };

typedef struct Strides {
    int rank, values;
    int64_t dim[RANK_MAX + 1], index[RANK_MAX + 1];
    int64_t step[STRIDES_VALUES][RANK_MAX + 1];
    int64_t at[STRIDES_VALUES]; /* of the row's first element in each value */
} Strides;

/* A walk over a shape, without values yet. */
static inline Strides strides_over(const View *shape) {
    Strides s = {.rank = shape->rank};
    for (int i = 0; i < s.rank; i++) s.dim[i] = shape->dim[s.rank - 1 - i];
    return s;
}

/* Adds a value with its own steps, last dimension first, and the place that it starts
 * at. */
static inline void strides_add(Strides *s, const int64_t *step, int64_t start) {
    for (int i = 0; i < s->rank; i++) s->step[s->values][i] = step[i];
    s->at[s->values++] = start;
}

/* Adds a value that is repeated along leading dimensions that it lacks or where it has
 * 1. */
static inline void strides_repeat(Strides *s, const View *value) {
    int64_t step[RANK_MAX] = {0}, each = 1;
    for (int i = 0; i < value->rank; i++) {
        const int64_t dim = value->dim[value->rank - 1 - i];
        step[i] = dim == 1 ? 0 : each;
        each *= dim;
    }
    strides_add(s, step, 0);
}

/* Merges dimensions; call after all values are added. */
static inline void strides_ready(Strides *s) {
    int rank = 0;
    for (int i = 0; i < s->rank; i++) {
        if (s->dim[i] == 1) continue;
        bool merged = rank > 0;
        for (int v = 0; merged && v < s->values; v++)
            merged = s->step[v][i] == s->step[v][rank - 1] * s->dim[rank - 1];
        if (merged) {
            s->dim[rank - 1] *= s->dim[i];
            continue;
        }
        for (int v = 0; v < s->values; v++) s->step[v][rank] = s->step[v][i];
        s->dim[rank++] = s->dim[i];
    }
    if (rank == 0) s->dim[rank++] = 1;
    s->rank = rank;
}

/* Moves to the next row, dim[0] elements; false after the last one. */
static inline bool strides_next(Strides *s) {
    for (int i = 1; i < s->rank; i++) {
        for (int v = 0; v < s->values; v++) s->at[v] += s->step[v][i];
        if (++s->index[i] < s->dim[i]) return true;
        for (int v = 0; v < s->values; v++) s->at[v] -= s->dim[i] * s->step[v][i];
        s->index[i] = 0;
    }
    return false;
}

#endif
