/* Measures on activations and gradients: see cka.h. */
#include "exec/cka.h"

#include "exec/blas.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Double copy of x[samples, width] with every column centred. */
static double *centred(const float *x, int64_t width, int64_t samples) {
    double *out = memory_alloc((size_t)(samples * width), sizeof(double));
    for (int64_t c = 0; c < width; c++) {
        double mean = 0;
        for (int64_t i = 0; i < samples; i++) mean += x[i * width + c];
        mean /= (double)samples;
        for (int64_t i = 0; i < samples; i++)
            out[i * width + c] = x[i * width + c] - mean;
    }
    return out;
}

/* ||A^T B||_F^2 of a[samples, m] and b[samples, n]. */
static double cross_square(const double *a, int64_t m, const double *b, int64_t n,
                           int64_t samples) {
    double *product = memory_alloc((size_t)(m * n), sizeof(double));
    gemm_f64(true, false, m, n, samples, 1, a, m, b, n, 0, product, n);
    double sum = 0;
    for (int64_t i = 0; i < m * n; i++) sum += product[i] * product[i];
    free(product);
    return sum;
}

double linear_cka(const float *x, int64_t x_width, const float *y, int64_t y_width,
                  int64_t samples) {
    double *a = centred(x, x_width, samples), *b = centred(y, y_width, samples);
    const double xy = cross_square(a, x_width, b, y_width, samples);
    const double xx = cross_square(a, x_width, a, x_width, samples);
    const double yy = cross_square(b, y_width, b, y_width, samples);
    free(a);
    free(b);
    return xx > 0 && yy > 0 ? xy / (sqrt(xx) * sqrt(yy)) : (double)NAN;
}

/* One batch of samples from `first` on: fetch into the workspace, forward, backward. */
static Status add_batch(Workspace *workspace, const Batches *data, int64_t first,
                        int64_t n, int64_t total, int64_t *index, float *gradient,
                        Diag *diag) {
    void **dst = memory_alloc((size_t)data->column_count, sizeof(void *));
    for (int64_t i = 0; i < n; i++) index[i] = first + i;
    void *spare[64] = {0};
    Status status = STATUS_OK;
    for (int c = 0; c < data->column_count && c < 64; c++) {
        dst[c] = workspace_input(workspace, data->columns[c].name);
        const size_t bytes = (size_t)(n * type_count(&data->columns[c].type)) * 4;
        if (!dst[c]) dst[c] = spare[c] = memory_alloc(bytes, 1);
    }
    status = data->fetch(data, index, n, 0, dst, diag);
    const int labels = batches_column(data, "labels");
    if (status == STATUS_OK && labels >= 0)
        status = check_labels(dst[labels], n, data->classes, data->name, diag);
    if (status == STATUS_OK) {
        run_forward(workspace, (RunMode){0});
        run_backward(workspace, (RunMode){0}, (double)n / (double)total, gradient);
    }
    for (int c = 0; c < 64; c++) free(spare[c]);
    free(dst);
    return status;
}

static Status run_batches(Workspace *workspace, Graph *graph, Node *loss,
                          const Params *params, const Batches *data, int64_t total,
                          int64_t batch_size, const Watch *watch, float *gradient,
                          Diag *diag) {
    int64_t *index = memory_alloc((size_t)batch_size, sizeof(int64_t));
    Plan *plan = NULL;
    int64_t planned = 0;
    Status status = STATUS_OK;
    for (int64_t first = 0; first < total && status == STATUS_OK; first += batch_size) {
        const int64_t n = total - first < batch_size ? total - first : batch_size;
        if (watch && watch->cancelled && watch->cancelled(watch->self)) {
            status = diag_fail(diag, STATUS_INTERRUPTED, LOC_NONE, NULL, "interrupted");
            break;
        }
        if (n != planned) {
            plan_destroy(plan);
            plan = NULL;
            const PlanOptions options = {.sizes = {n}, .loss = loss};
            status = plan_create(&plan, graph, &options, diag);
            if (status == STATUS_OK)
                status = workspace_bind(workspace, plan, params, diag);
            planned = n;
        }
        if (status == STATUS_OK)
            status = add_batch(workspace, data, first, n, total, index, gradient, diag);
    }
    plan_destroy(plan);
    free(index);
    return status;
}

Status mean_gradient(Graph *graph, Node *loss, const Params *params, const Batches *data,
                     int64_t limit, int64_t batch_size, const Watch *watch,
                     float *gradient, Diag *diag) {
    const int64_t total = limit > 0 && limit < data->count ? limit : data->count;
    Workspace *workspace = NULL;
    TRY(workspace_create(&workspace, diag));
    Status status = run_batches(workspace, graph, loss, params, data, total, batch_size,
                                watch, gradient, diag);
    workspace_destroy(workspace);
    return status;
}
