/* First weights of feature maps: see t2r.h. */
#include "passes/t2r/t2r.h"

#include "ir/random.h"

#include <math.h>
#include <stdlib.h>

Status t2r_draw_identity(Tensor *tensor, Diag *diag) {
    void *data = NULL;
    const int64_t features = tensor->dim[1], width = tensor->dim[2];
    TRY(tensor_create(tensor, DTYPE_F32, 3, tensor->dim, diag));
    TRY(tensor_writable(tensor, &data, diag));
    float *w = data;
    for (int64_t row = 0; row < tensor->dim[0] * features; row++) {
        const int64_t i = row % features;
        w[row * width + i % width] = i / width % 2 ? -1 : 1;
    }
    return STATUS_OK;
}

/* Takes from row w what lies along the rows at `before`, keeping its length. */
static void orthogonalise(double *w, const double *before, int64_t rows, int64_t width) {
    double length = 0, rest = 0;
    for (int64_t j = 0; j < width; j++) length += w[j] * w[j];
    for (int64_t r = 0; r < rows; r++) {
        const double *b = before + r * width;
        double along = 0, square = 0;
        for (int64_t j = 0; j < width; j++) {
            along += w[j] * b[j];
            square += b[j] * b[j];
        }
        for (int64_t j = 0; j < width; j++) w[j] -= along / square * b[j];
    }
    for (int64_t j = 0; j < width; j++) rest += w[j] * w[j];
    const double factor = rest > 0 ? sqrt(length / rest) : 0;
    for (int64_t j = 0; j < width; j++) w[j] *= factor;
}

Status t2r_draw_orthogonal(Tensor *tensor, uint64_t key, Diag *diag) {
    void *data = NULL;
    const int64_t features = tensor->dim[1], width = tensor->dim[2];
    TRY(tensor_create(tensor, DTYPE_F32, 3, tensor->dim, diag));
    TRY(tensor_writable(tensor, &data, diag));
    float *out = data;
    double *w = memory_alloc((size_t)(features * width), sizeof *w);
    for (int64_t g = 0; g < tensor->dim[0]; g++, out += features * width) {
        for (int64_t i = 0; i < features; i++) {
            double *row = w + i * width;
            const int64_t first = (g * features + i) * width, rows = i % width;
            for (int64_t j = 0; j < width; j++)
                row[j] = random_normal(key, (uint64_t)(first + j));
            orthogonalise(row, row - rows * width, rows, width);
        }
        for (int64_t i = 0; i < features * width; i++) out[i] = (float)w[i];
    }
    free(w);
    return STATUS_OK;
}
