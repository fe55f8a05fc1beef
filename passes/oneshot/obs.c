/* OBS: see obs.h.
 *
 * P is never updated as a whole. Removing unit g, with P_gg = L L^T, takes V^T V from P,
 * V = L^-1 P[g, :]; these V are kept, and the rows of P that a removal needs are made of
 * P's first values and all V so far. W is kept as columns and updated at once. */
#include "passes/oneshot/obs.h"

#include "exec/linalg/blas.h"
#include "exec/run/parallel.h"
#include "ir/arena.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STRIPE = 64 }; /* columns that a thread takes at a time, at least */

/* Products of a removal from which on threads gain more than they wait for each other. */
#define SHARED_WORK 3e6

/* One layer; w columns a unit, T of them removed so far. */
typedef struct Layer {
    const LinearFit *fit;
    int64_t K, M, w;
    double *p;       /* P before anything was removed: [K, K] */
    double *columns; /* W^T: [K, M] */
    double *v;       /* all V so far: [T, K] */
    double *blocks;  /* P_uu of every unit: [units, w, w] */
    double *cost;    /* of removing each unit next: [units] */
    double *taken;   /* columns of the V so far that belong to the unit: [T, w] */
    double *l;       /* L: [w, w] */
    double *a;       /* L^-1 W_g^T: [w, M] */
} Layer;

typedef struct Obs {
    Layer *layers;
    int count;
    int64_t units;
    bool *gone;
    int64_t removed; /* units */
    int64_t unit;    /* that is being removed */
    int64_t stripe;  /* units of a stripe */
} Obs;

/* ---- memory ---- */

static void layer_free(Layer *layer) {
    free(layer->p);
    free(layer->columns);
    free(layer->v);
    free(layer->blocks);
    free(layer->cost);
    free(layer->taken);
    free(layer->l);
    free(layer->a);
}

static double *doubles(int64_t count) {
    return calloc((size_t)count + 1, sizeof(double));
}

static bool layer_open(Layer *layer, LinearFit *fit, int64_t units, int64_t removals) {
    const int64_t K = fit->inputs, M = fit->outputs, w = K / units;
    *layer = (Layer){.fit = fit, .K = K, .M = M, .w = w};
    layer->p = fit_invert(fit);
    layer->columns = doubles(K * M);
    layer->v = doubles(removals * w * K);
    layer->blocks = doubles(units * w * w);
    layer->cost = doubles(units);
    layer->taken = doubles(removals * w * w);
    layer->l = doubles(w * w);
    layer->a = doubles(w * M);
    if (!layer->p || !layer->columns || !layer->v || !layer->blocks || !layer->cost ||
        !layer->taken || !layer->l || !layer->a)
        return false;
    for (int64_t m = 0; m < M; m++)
        for (int64_t i = 0; i < K; i++)
            layer->columns[i * M + m] = fit->weight[m * K + i];
    for (int64_t i = 0; i < K; i++)
        memcpy(layer->blocks + i * w, layer->p + i * K + i / w * w,
               (size_t)w * sizeof *layer->p);
    return true;
}

/* ---- costs ---- */

/* Factors a block P_uu, which rounding may have brought below zero, into l. */
static void factor_block(const double *block, int64_t w, double *l) {
    double trace = 0;
    for (int64_t i = 0; i < w; i++) trace += fabs(block[i * w + i]);
    for (double add = 0;; add = fmax(10 * add, 1e-13 * trace + 1e-300)) {
        memcpy(l, block, (size_t)(w * w) * sizeof *l);
        for (int64_t i = 0; i < w; i++) l[i * w + i] += add;
        if (w > 1 ? cholesky_f64(w, l) == 0 : l[0] > 0) break;
    }
    if (w == 1) l[0] = sqrt(l[0]);
}

/* Sum of squares, in eight parts so that it becomes vector code. */
static double squares_of(const double *x, int64_t count) {
    double part[8] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + 8 <= count; i += 8)
        for (int j = 0; j < 8; j++) part[j] += x[i + j] * x[i + j];
    for (; i < count; i++) sum += x[i] * x[i];
    for (int j = 0; j < 8; j++) sum += part[j];
    return sum;
}

/* Sum of squares of L^-1 W_u^T, for the unit's columns [w, M]; `room` is [w, w + M]. */
static double cost_of(const Layer *layer, int64_t unit, double *room) {
    const int64_t w = layer->w, M = layer->M;
    const double *columns = layer->columns + unit * w * M;
    double *scaled = room + w * w;
    if (!(layer->fit->scale > 0)) return 0;
    factor_block(layer->blocks + unit * w * w, w, room);
    if (w == 1) return squares_of(columns, M) / (room[0] * room[0]) / layer->fit->scale;
    memcpy(scaled, columns, (size_t)(w * M) * sizeof *scaled);
    cholesky_solve_f64(false, w, room, M, scaled, M);
    return squares_of(scaled, w * M) / layer->fit->scale;
}

static int64_t last_of(const Obs *obs, int64_t stripe) {
    const int64_t last = (stripe + 1) * obs->stripe;
    return last < obs->units ? last : obs->units;
}

static double *room_of(const Layer *layer) {
    return memory_alloc((size_t)(layer->w * (layer->w + layer->M)), sizeof(double));
}

static void first_costs(void *self, int64_t stripe, int worker) {
    const Obs *obs = self;
    (void)worker;
    for (Layer *layer = obs->layers; layer < obs->layers + obs->count; layer++) {
        double *room = room_of(layer);
        for (int64_t u = stripe * obs->stripe; u < last_of(obs, stripe); u++)
            layer->cost[u] = cost_of(layer, u, room);
        free(room);
    }
}

/* ---- one removal ---- */

/* V of the unit, columns [first, last): the unit's rows of P as it is now, times L^-1. */
static void make_rows(const Obs *obs, const Layer *layer, int64_t first, int64_t last) {
    const int64_t K = layer->K, w = layer->w, T = obs->removed * w;
    double *v = layer->v + T * K;
    for (int64_t i = 0; i < w; i++) {
        double *restrict row = v + i * K;
        memcpy(row + first, layer->p + (obs->unit * w + i) * K + first,
               (size_t)(last - first) * sizeof *row);
        for (int64_t t = 0; t < T; t++) {
            const double by = layer->taken[t * w + i];
            const double *restrict old = layer->v + t * K;
            for (int64_t k = first; k < last; k++) row[k] -= by * old[k];
        }
    }
    cholesky_solve_f64(false, w, layer->l, last - first, v + first, K);
}

/* Takes the removed unit's part from a unit's columns and block. */
static void update_unit(const Obs *obs, const Layer *layer, int64_t unit) {
    const int64_t K = layer->K, w = layer->w, M = layer->M;
    const double *v = layer->v + obs->removed * w * K + unit * w; /* [w, w] of [w, K] */
    double *restrict columns = layer->columns + unit * w * M;
    double *restrict block = layer->blocks + unit * w * w;
    for (int64_t i = 0; i < w; i++)
        for (int64_t k = 0; k < w; k++) {
            const double by = v[k * K + i], *restrict a = layer->a + k * M;
            for (int64_t m = 0; m < M; m++) columns[i * M + m] -= by * a[m];
            for (int64_t j = 0; j < w; j++) block[i * w + j] -= by * v[k * K + j];
        }
}

static void update_stripe(void *self, int64_t stripe, int worker) {
    const Obs *obs = self;
    const int64_t first = stripe * obs->stripe, last = last_of(obs, stripe);
    (void)worker;
    for (const Layer *layer = obs->layers; layer < obs->layers + obs->count; layer++) {
        double *room = room_of(layer);
        make_rows(obs, layer, first * layer->w, last * layer->w);
        for (int64_t u = first; u < last; u++) {
            if (obs->gone[u]) continue;
            update_unit(obs, layer, u);
            layer->cost[u] = cost_of(layer, u, room);
        }
        free(room);
    }
}

/* What the unit has of the V so far, its own L, and L^-1 W_u^T. */
static void prepare_unit(const Obs *obs, Layer *layer) {
    const int64_t K = layer->K, M = layer->M, w = layer->w;
    for (int64_t t = 0; t < obs->removed * w; t++)
        memcpy(layer->taken + t * w, layer->v + t * K + obs->unit * w,
               (size_t)w * sizeof *layer->v);
    factor_block(layer->blocks + obs->unit * w * w, w, layer->l);
    memcpy(layer->a, layer->columns + obs->unit * w * M,
           (size_t)(w * M) * sizeof *layer->a);
    cholesky_solve_f64(false, w, layer->l, M, layer->a, M);
}

/* The unit whose removal costs least next. */
static ObsRemoval find_cheapest(const Obs *obs) {
    ObsRemoval best = {-1, INFINITY};
    for (int64_t u = obs->units - 1; u >= 0; u--) {
        double cost = 0;
        for (int i = 0; i < obs->count; i++) cost += obs->layers[i].cost[u];
        if (!obs->gone[u] && (best.unit < 0 || cost < best.cost))
            best = (ObsRemoval){u, cost};
    }
    return best;
}

static Status remove_all(Obs *obs, ObsRemoval *removals, int64_t count, int threads,
                         const Watch *watch, Diag *diag) {
    const int64_t stripes = (obs->units + obs->stripe - 1) / obs->stripe;
    Ticker ticker = {.watch = watch};
    parallel_for(stripes, threads, first_costs, obs);
    for (; obs->removed < count; obs->removed++) {
        if (ticker_cancelled(&ticker))
            return diag_fail(diag, STATUS_INTERRUPTED, LOC_NONE, NULL,
                             "stopped after %lld of %lld removals",
                             (long long)obs->removed, (long long)count);
        removals[obs->removed] = find_cheapest(obs);
        obs->unit = removals[obs->removed].unit;
        obs->gone[obs->unit] = true;
        for (int i = 0; i < obs->count; i++) prepare_unit(obs, &obs->layers[i]);
        parallel_for(stripes, threads, update_stripe, obs);
    }
    return STATUS_OK;
}

Status obs_remove(ObsRemoval *removals, int64_t count, LinearFit *fits, int layers,
                  int64_t units, int threads, const Watch *watch, Diag *diag) {
    Obs obs = {.layers = calloc((size_t)layers, sizeof(Layer)),
               .count = layers,
               .units = units,
               .gone = calloc((size_t)units, sizeof(bool))};
    bool ready = obs.layers && obs.gone;
    int64_t w = 1;
    for (int i = 0; ready && i < layers; i++) {
        ready = layer_open(&obs.layers[i], &fits[i], units, count);
        if (obs.layers[i].w > w) w = obs.layers[i].w;
    }
    obs.stripe = w < STRIPE ? STRIPE / w : 1;
    const LinearFit *fit = fits;
    const double work =
        (double)(fit->inputs * w) * (double)(fit->outputs + count * w / 2) * layers;
    Status status =
        ready ? STATUS_OK
              : diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL,
                          "out of memory for the scores of %lld units", (long long)units);
    if (ready)
        status = remove_all(&obs, removals, count, work < SHARED_WORK ? 1 : threads,
                            watch, diag);
    for (int i = 0; obs.layers && i < layers; i++) layer_free(&obs.layers[i]);
    free(obs.layers);
    free(obs.gone);
    return status;
}
