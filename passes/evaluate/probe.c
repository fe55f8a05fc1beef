/* Probes: see probe.h. */
#include "passes/evaluate/probe.h"

#include "exec/linalg/blas.h"
#include "exec/linalg/gemm.h"
#include "ir/arena.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- nearest neighbours ---- */

typedef struct Neighbour {
    double cosine;
    int64_t index;
} Neighbour;

static int compare_neighbours(const void *a, const void *b) {
    const Neighbour *x = a, *y = b;
    if (x->cosine != y->cosine) return x->cosine > y->cosine ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static int32_t largest_class(const double *votes, int64_t classes) {
    int64_t best = 0;
    for (int64_t c = 1; c < classes; c++)
        if (votes[c] > votes[best]) best = c;
    return (int32_t)best;
}

int32_t probe_nearest(const ProbeSet *set, const float *row, int64_t neighbours,
                      double temperature) {
    Neighbour *all = memory_alloc((size_t)set->count + 1, sizeof *all);
    double *votes = memory_alloc((size_t)set->classes + 1, sizeof *votes);
    for (int64_t i = 0; i < set->count; i++) {
        const float *other = set->rows + i * set->width;
        all[i] = (Neighbour){0, i};
        for (int64_t c = 0; c < set->width; c++)
            all[i].cosine += (double)other[c] * (double)row[c];
    }
    qsort(all, (size_t)set->count, sizeof *all, compare_neighbours);
    /* as shares of the nearest one's vote, which cannot overflow */
    for (int64_t i = 0; i < neighbours && i < set->count; i++)
        votes[set->labels[all[i].index]] +=
            exp((all[i].cosine - all[0].cosine) / temperature);
    const int32_t best = largest_class(votes, set->classes);
    free(votes);
    free(all);
    return best;
}

/* ---- softmax regression ---- */

enum { PAIRS = 10, STEPS_MAX = 1000, HALVINGS_MAX = 40 };
static const double GRADIENT_SMALL = 1e-6, DECREASE = 1e-4;

/* The loss at some weights, and what it is computed with. */
typedef struct Regression {
    const ProbeSet *set;
    double l2;
    int64_t inputs; /* width + 1 */
    double *x;      /* [count, inputs], 1 behind each row */
    double *scores; /* [count, classes] */
} Regression;

/* Scores become P - Y; the row's cross-entropy. */
static double softmax_loss(double *scores, int64_t classes, int32_t label) {
    double most = scores[0], sum = 0;
    for (int64_t c = 1; c < classes; c++) most = fmax(most, scores[c]);
    const double own = scores[label] - most;
    for (int64_t c = 0; c < classes; c++) sum += scores[c] = exp(scores[c] - most);
    for (int64_t c = 0; c < classes; c++) scores[c] /= sum;
    scores[label] -= 1;
    return log(sum) - own;
}

/* The objective at w, its gradient in g. */
static double evaluate_at(const Regression *r, const double *w, double *g) {
    const int64_t n = r->set->count, k = r->set->classes, d = r->inputs;
    double loss = 0;
    gemm_f64(false, true, n, k, d, 1, r->x, d, w, d, 0, r->scores, k);
    for (int64_t i = 0; i < n; i++)
        loss += softmax_loss(r->scores + i * k, k, r->set->labels[i]) / (double)n;
    gemm_f64(true, false, k, d, n, 1 / (double)n, r->scores, k, r->x, d, 0, g, d);
    for (int64_t i = 0; i < k * d; i++) {
        if (i % d == d - 1) continue; /* b */
        loss += r->l2 / 2 * w[i] * w[i];
        g[i] += r->l2 * w[i];
    }
    return loss;
}

static double dot(const double *x, const double *y, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

static double largest(const double *x, int64_t n) {
    double most = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(x[i]));
    return most;
}

/* The last steps s and changes of the gradient y, pair t at t % PAIRS. */
typedef struct Memory {
    double *s[PAIRS], *y[PAIRS], rho[PAIRS];
    int64_t count;
} Memory;

/* direction = -H g, H the inverse Hessian as the pairs have it (two loops). */
static void find_direction(const Memory *m, const double *g, double *direction,
                           int64_t n) {
    double alpha[PAIRS];
    const int64_t first = m->count > PAIRS ? m->count - PAIRS : 0;
    for (int64_t i = 0; i < n; i++) direction[i] = -g[i];
    for (int64_t t = m->count - 1; t >= first; t--) {
        const int at = (int)(t % PAIRS);
        alpha[at] = m->rho[at] * dot(m->s[at], direction, n);
        for (int64_t i = 0; i < n; i++) direction[i] -= alpha[at] * m->y[at][i];
    }
    if (m->count > 0) {
        const int last = (int)((m->count - 1) % PAIRS);
        const double scale = 1 / (m->rho[last] * dot(m->y[last], m->y[last], n));
        for (int64_t i = 0; i < n; i++) direction[i] *= scale;
    }
    for (int64_t t = first; t < m->count; t++) {
        const int at = (int)(t % PAIRS);
        const double beta = m->rho[at] * dot(m->y[at], direction, n);
        for (int64_t i = 0; i < n; i++) direction[i] += (alpha[at] - beta) * m->s[at][i];
    }
}

/* Moves w along the direction as far as the objective, `*loss`, decreases enough; false
 * where it does not. The step and the change of the gradient become the next pair. */
static bool take_step(const Regression *r, Memory *m, double *w, double *g,
                      const double *direction, double *loss, int64_t n) {
    const int at = (int)(m->count % PAIRS);
    double *next = m->s[at], *gradient = m->y[at], length = 1;
    const double slope = dot(g, direction, n), before = *loss;
    for (int halvings = 0; halvings < HALVINGS_MAX; halvings++, length /= 2) {
        for (int64_t i = 0; i < n; i++) next[i] = w[i] + length * direction[i];
        *loss = evaluate_at(r, next, gradient);
        if (!(*loss <= before + DECREASE * length * slope)) continue;
        for (int64_t i = 0; i < n; i++) {
            const double to = next[i], slope_there = gradient[i];
            next[i] = to - w[i];
            gradient[i] = slope_there - g[i];
            w[i] = to;
            g[i] = slope_there;
        }
        const double curvature = dot(next, gradient, n);
        m->rho[at] = 1 / curvature;
        if (curvature > 0) m->count++;
        return true;
    }
    *loss = before;
    return false;
}

static void minimise(LinearProbe *probe, const Regression *r) {
    const int64_t n = r->set->classes * r->inputs;
    Memory m = {.count = 0};
    double *space = memory_alloc((size_t)(n * (2 * PAIRS + 2)), sizeof *space);
    double *g = space, *direction = g + n;
    for (int i = 0; i < PAIRS; i++) {
        m.s[i] = direction + n * (1 + 2 * i);
        m.y[i] = m.s[i] + n;
    }
    double loss = evaluate_at(r, probe->weights, g);
    while (probe->steps < STEPS_MAX && largest(g, n) > GRADIENT_SMALL) {
        find_direction(&m, g, direction, n);
        if (!take_step(r, &m, probe->weights, g, direction, &loss, n)) break;
        probe->steps++;
    }
    probe->gradient = largest(g, n);
    free(space);
}

void probe_fit(LinearProbe *probe, const ProbeSet *set, double l2) {
    Regression r = {.set = set, .l2 = l2, .inputs = set->width + 1};
    *probe = (LinearProbe){.width = set->width, .classes = set->classes};
    probe->weights = memory_alloc((size_t)(set->classes * r.inputs), sizeof(double));
    r.x = memory_alloc((size_t)(set->count * r.inputs), sizeof(double));
    r.scores = memory_alloc((size_t)(set->count * set->classes), sizeof(double));
    for (int64_t i = 0; i < set->count; i++) {
        for (int64_t c = 0; c < set->width; c++)
            r.x[i * r.inputs + c] = (double)set->rows[i * set->width + c];
        r.x[i * r.inputs + set->width] = 1;
    }
    blas_init();
    minimise(probe, &r);
    free(r.x);
    free(r.scores);
}

int32_t probe_classify(const LinearProbe *probe, const float *row) {
    double *scores = memory_alloc((size_t)probe->classes, sizeof *scores);
    for (int64_t k = 0; k < probe->classes; k++) {
        const double *w = probe->weights + k * (probe->width + 1);
        scores[k] = w[probe->width];
        for (int64_t c = 0; c < probe->width; c++) scores[k] += w[c] * (double)row[c];
    }
    const int32_t best = largest_class(scores, probe->classes);
    free(scores);
    return best;
}
