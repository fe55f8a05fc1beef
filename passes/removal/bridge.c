/* Bridges: see bridge.h. */
#include "passes/removal/bridge.h"

#include "exec/linalg/blas.h"
#include "ir/rewrite.h"
#include "ir/storage.h"
#include "passes/fault.h"
#include "passes/nodes.h"

#include <math.h>
#include <stdlib.h>

/* ---- sums ---- */

/* Rows [x, y - x] of a Gram matrix of twice the width. */
typedef struct Pairs {
    Gram gram;
    int64_t width;
    float *row; /* [2 width] */
    int threads;
} Pairs;

static Status take_rows(void *self, const CalibrationRows *rows, Diag *diag) {
    Pairs *p = self;
    const int64_t D = p->width;
    (void)diag;
    for (int64_t r = 0; r < rows[0].count; r++) {
        const float *x = rows[0].x + r * D, *y = rows[1].x + r * D;
        for (int64_t i = 0; i < D; i++) {
            p->row[i] = x[i];
            p->row[D + i] = y[i] - x[i];
        }
        gram_add(&p->gram, p->row, 1, p->threads);
    }
    return STATUS_OK;
}

static Status sum_pairs(Pairs *p, PassContext *ctx, Calibration *calibration,
                        const BridgeSpan *span, Diag *diag) {
    *p = (Pairs){.width = node_width(span->x), .threads = ctx->threads};
    TRY(gram_create(&p->gram, 2 * p->width, diag));
    p->row = memory_alloc((size_t)p->width, 2 * sizeof *p->row);
    Status status = calibration_rows(calibration, (Node *[]){span->x, span->y}, 2,
                                     take_rows, p, diag);
    free(p->row);
    bool finite = true;
    if (status == STATUS_OK) status = gram_finish(&p->gram, ctx->threads, &finite, diag);
    if (!finite)
        status = step_fail_option(ctx, "data", diag,
                                  "the sums of the rows at %s.%lld are not finite",
                                  span->stack, (long long)span->first);
    if (status != STATUS_OK) gram_destroy(&p->gram);
    return status;
}

/* Covariance times rows of columns i and j of the pairs. */
static double centred(const Gram *gram, int64_t i, int64_t j) {
    return gram->sum[i * gram->width + j] -
           (double)gram->rows * gram->mean[i] * gram->mean[j];
}

/* ---- least squares ---- */

/* The map and what it leaves; solved[x, y - x] is that of (H + lambda I) X = C^T, so that
 * tr(X^T H X) = tr(X^T C^T) - lambda ||X||^2. */
static void fill_map(float *w, float *b, BridgeSpan *span, const Gram *gram, int64_t D,
                     const double *solved, double lambda) {
    double error = 0, norm = 0;
    for (int64_t m = 0; m < D; m++) {
        double bias = gram->mean[D + m];
        for (int64_t k = 0; k < D; k++) {
            const double delta = solved[k * D + m];
            w[m * D + k] = (float)((double)(m == k) + delta);
            bias -= delta * gram->mean[k];
            error -= delta * (centred(gram, k, D + m) + lambda * delta);
        }
        b[m] = (float)bias;
        error += centred(gram, D + m, D + m);
        norm += centred(gram, m, m) + 2 * centred(gram, m, D + m) +
                centred(gram, D + m, D + m);
    }
    span->error = norm > 0 ? sqrt(fmax(error, 0) / norm) : 0;
}

static Status solve(float *w, float *b, PassContext *ctx, BridgeSpan *span,
                    const Gram *gram, double damp, Diag *diag) {
    const int64_t D = gram->width / 2;
    double *h = memory_alloc((size_t)(2 * D * D), sizeof *h), *c = h + D * D, trace = 0;
    for (int64_t i = 0; i < D; i++) {
        for (int64_t j = 0; j < D; j++) {
            h[i * D + j] = centred(gram, i, j);
            c[i * D + j] = centred(gram, i, D + j);
        }
        trace += h[i * D + i];
    }
    const double lambda = trace > 0 ? damp * trace / (double)D : 1;
    for (int64_t i = 0; i < D; i++) h[i * D + i] += lambda;
    blas_init();
    const int info = cholesky_f64(D, h);
    if (info == 0) {
        cholesky_solve_f64(false, D, h, D, c, D);
        cholesky_solve_f64(true, D, h, D, c, D);
        fill_map(w, b, span, gram, D, c, lambda);
    }
    free(h);
    if (info == 0) return STATUS_OK;
    step_fail_option(ctx, "damp", diag,
                     "what layer %lld of stack \"%s\" reads depends on each other: %lld "
                     "rows of %lld numbers",
                     (long long)span->first, span->stack, (long long)gram->rows,
                     (long long)D);
    diag_hint(diag, "give a larger `damp`, or more samples");
    return STATUS_MODEL;
}

/* ---- the graph ---- */

static Status fill(Node *weight, Node *bias, PassContext *ctx, Calibration *calibration,
                   double damp, BridgeSpan *span, Diag *diag) {
    Pairs pairs;
    Tensor w = {0}, b = {0};
    void *w_data = NULL, *b_data = NULL;
    TRY(sum_pairs(&pairs, ctx, calibration, span, diag));
    Status status = tensor_create(&w, DTYPE_F32, 2, weight->type.dim, diag);
    if (status == STATUS_OK)
        status = tensor_create(&b, DTYPE_F32, 1, bias->type.dim, diag);
    if (status == STATUS_OK) status = tensor_writable(&w, &w_data, diag);
    if (status == STATUS_OK) status = tensor_writable(&b, &b_data, diag);
    if (status == STATUS_OK)
        status = solve(w_data, b_data, ctx, span, &pairs.gram, damp, diag);
    if (status == STATUS_OK)
        calibration_warn_rows(calibration, pairs.gram.rows, pairs.width, diag);
    gram_destroy(&pairs.gram);
    if (status != STATUS_OK) {
        tensor_release(&w);
        tensor_release(&b);
        return status;
    }
    storage_set_values(weight->storage, w);
    storage_set_values(bias->storage, b);
    return STATUS_OK;
}

Status bridge_add(PassContext *ctx, Graph *graph, Calibration *calibration, double damp,
                  BridgeSpan *span, Diag *diag) {
    const int64_t D = node_width(span->x);
    const char *name = arena_printf(graph->arena, "%s.bridge.%lld.weight", span->stack,
                                    (long long)span->first);
    Node *weight = NULL, *bias = NULL, *bridge = NULL;
    TRY(storage_create(&weight, graph, name, (Init){INIT_IDENTITY, 0}, 2,
                       (int64_t[]){D, D}, diag));
    name = arena_printf(graph->arena, "%s.bridge.%lld.bias", span->stack,
                        (long long)span->first);
    TRY(storage_create(&bias, graph, name, (Init){INIT_ZEROS, 0}, 1, &D, diag));
    if (calibration) TRY(fill(weight, bias, ctx, calibration, damp, span, diag));
    TRY(node_add(&bridge, graph, span->y->next, &op_linear,
                 (Node *[]){span->y, weight, bias}, 3, diag, NULL));
    node_place(graph, bridge, span->stack, span->layer, ROLE_BRIDGE);
    graph_replace_uses(graph, span->y, bridge);
    return STATUS_OK;
}
