/* Quantised tensors: see quantised.h. */
#include "ir/quantised.h"

#include "ir/arena.h"
#include "ir/half.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Parts start at multiples of this many bytes. */
#define PART_ALIGNMENT ((size_t)64)

/* Largest finite float16. */
#define F16_LARGEST 65504.0

enum { Q8_MOST = 127, Q4_MOST = 15, Q4_MIDDLE = 8 };

const int64_t QUANTISED_GROUP[QUANTISED_GROUPS] = {32, 64, 128};

/* ---- form ---- */

int64_t quantised_rows(const Tensor *tensor) {
    return tensor->rank > 0 ? tensor->dim[0] : 1;
}

int64_t quantised_width(const Tensor *tensor) {
    uint64_t width = 1; /* wraps for shapes that tensor_size refuses */
    for (int i = 1; i < tensor->rank; i++) width *= (uint64_t)tensor->dim[i];
    return (int64_t)width;
}

int64_t quantised_groups(const Tensor *tensor) {
    if (tensor->dtype == DTYPE_Q8) return 1;
    if (tensor->group <= 0) return 0; /* tensor_size refuses it */
    return (quantised_width(tensor) + tensor->group - 1) / tensor->group;
}

bool quantised_is_valid(const Tensor *tensor) {
    if (tensor->rank < 2 || tensor->rank > RANK_MAX) return false;
    if (tensor->dtype == DTYPE_Q8)
        return tensor->group == quantised_width(tensor) && !tensor->zeros;
    bool known = false;
    for (int g = 0; g < QUANTISED_GROUPS; g++)
        known |= tensor->group == QUANTISED_GROUP[g];
    return tensor->dtype == DTYPE_Q4 && known;
}

static size_t align_part(size_t bytes) {
    return (bytes + PART_ALIGNMENT - 1) / PART_ALIGNMENT * PART_ALIGNMENT;
}

QuantisedParts quantised_parts(const Tensor *tensor) {
    const size_t rows = (size_t)quantised_rows(tensor);
    const size_t width = (size_t)quantised_width(tensor);
    const size_t groups = (size_t)quantised_groups(tensor);
    const bool q8 = tensor->dtype == DTYPE_Q8;
    QuantisedParts parts = {
        .row_values = q8 ? width : (width + 1) / 2,
        .row_scales = q8 ? sizeof(float) : groups * sizeof(uint16_t),
        .row_zeros = tensor->zeros ? groups : 0,
    };
    parts.scales = align_part(rows * parts.row_values);
    parts.zeros = parts.scales + rows * parts.row_scales;
    if (tensor->zeros) parts.zeros = align_part(parts.zeros);
    parts.bytes = parts.zeros + rows * parts.row_zeros;
    return parts;
}

Tensor q8_shape(int rank, const int64_t *dim) {
    return tensor_shape(DTYPE_Q8, rank, dim);
}

Tensor q4_shape(int rank, const int64_t *dim, int64_t group, bool zeros) {
    const Tensor like = {.dtype = DTYPE_Q4, .group = group, .zeros = zeros};
    return tensor_shape_like(&like, rank, dim);
}

/* ---- parts ---- */

const void *tensor_q_values(const Tensor *tensor) {
    return tensor_data(tensor);
}

const void *tensor_q_scales(const Tensor *tensor) {
    const char *data = tensor_data(tensor);
    return data ? data + quantised_parts(tensor).scales : NULL;
}

const uint8_t *tensor_q_zeros(const Tensor *tensor) {
    const char *data = tensor_data(tensor);
    return data && tensor->zeros ? (const uint8_t *)data + quantised_parts(tensor).zeros
                                 : NULL;
}

int64_t tensor_q_groups(const Tensor *tensor) {
    return quantised_groups(tensor);
}

/* Elements of a group of a row. */
static int64_t group_size(const Tensor *tensor, int64_t group) {
    const int64_t rest = quantised_width(tensor) - group * tensor->group;
    return rest < tensor->group ? rest : tensor->group;
}

/* ---- grids ---- */

Grid quantised_grid(const Tensor *type, double scale, int zero) {
    if (type->dtype == DTYPE_Q8)
        return (Grid){.scale = (float)scale, .least = -Q8_MOST, .most = Q8_MOST};
    const double size = fabs(scale) < F16_LARGEST ? fabs(scale) : F16_LARGEST;
    const float stored = f16_to_float(f16_from_float((float)size));
    return (Grid){.scale = scale < 0 && stored > 0 ? -stored : stored,
                  .zero = type->zeros ? zero : Q4_MIDDLE,
                  .most = Q4_MOST};
}

/* The scale of a group as it is stored. Parts may lie anywhere in a file. */
static float read_scale(const Tensor *tensor, const char *scales, int64_t index) {
    float scale;
    uint16_t half;
    if (tensor->dtype == DTYPE_Q8) {
        memcpy(&scale, scales + (size_t)index * sizeof scale, sizeof scale);
        return scale;
    }
    memcpy(&half, scales + (size_t)index * sizeof half, sizeof half);
    return f16_to_float(half);
}

Grid quantised_read_grid(const Tensor *tensor, int64_t row, int64_t group) {
    const int64_t index = row * quantised_groups(tensor) + group;
    const uint8_t *zeros = tensor_q_zeros(tensor);
    Grid grid = quantised_grid(tensor, 0, zeros ? zeros[index] : 0);
    grid.scale = read_scale(tensor, tensor_q_scales(tensor), index);
    return grid;
}

int grid_round(const Grid *grid, double weight) {
    if (grid->scale == 0) return grid->zero;
    const double q = rint(weight / (double)grid->scale) + grid->zero;
    if (!(q > grid->least)) return grid->least;
    return q < grid->most ? (int)q : grid->most;
}

/* ---- writing ---- */

static void put_nibble(uint8_t *row, int64_t column, int q) {
    const int shift = column % 2 ? 4 : 0;
    row[column / 2] = (uint8_t)((row[column / 2] & ~(15 << shift)) | q << shift);
}

void quantised_write(Tensor *tensor, int64_t row, int64_t group, const Grid *grid,
                     const int8_t *q) {
    const QuantisedParts parts = quantised_parts(tensor);
    const int64_t size = group_size(tensor, group), first = group * tensor->group;
    const int64_t index = row * quantised_groups(tensor) + group;
    uint8_t *data = (uint8_t *)(uintptr_t)tensor_data(tensor);
    uint8_t *values = data + (size_t)row * parts.row_values;
    if (tensor->dtype == DTYPE_Q8) {
        memcpy(data + parts.scales + (size_t)index * sizeof(float), &grid->scale,
               sizeof(float));
        memcpy(values, q, (size_t)size);
        return;
    }
    const uint16_t half = f16_from_float(grid->scale);
    memcpy(data + parts.scales + (size_t)index * sizeof half, &half, sizeof half);
    if (tensor->zeros) data[parts.zeros + (size_t)index] = (uint8_t)grid->zero;
    for (int64_t i = 0; i < size; i++) put_nibble(values, first + i, q[i]);
}

/* Weights of a group from the least to the largest, and 0. */
typedef struct Range {
    double low, high;
} Range;

static Range range_of(const float *weights, int64_t count) {
    Range range = {0};
    for (int64_t i = 0; i < count; i++) {
        const double w = (double)weights[i];
        range.low = w < range.low ? w : range.low;
        range.high = w > range.high ? w : range.high;
    }
    return range;
}

/* The grid that reaches from the least to the largest of the weights, and to 0. */
static Grid grid_of_range(const Tensor *type, const float *weights, int64_t count) {
    const Range range = range_of(weights, count);
    if (type->zeros) {
        const double scale = (range.high - range.low) / Q4_MOST;
        return quantised_grid(type, scale, scale > 0 ? (int)rint(-range.low / scale) : 0);
    }
    const double largest = -range.low > range.high ? -range.low : range.high;
    const int steps = type->dtype == DTYPE_Q8 ? Q8_MOST : Q4_MOST - Q4_MIDDLE;
    return quantised_grid(type, largest / steps, 0);
}

void quantised_round_row(Tensor *tensor, int64_t row, const float *weights) {
    const int64_t groups = quantised_groups(tensor);
    int8_t *q = memory_alloc((size_t)quantised_width(tensor) + 1, sizeof *q);
    for (int64_t g = 0; g < groups; g++) {
        const int64_t size = group_size(tensor, g);
        const float *from = weights + g * tensor->group;
        const Grid grid = grid_of_range(tensor, from, size);
        for (int64_t i = 0; i < size; i++)
            q[i] = (int8_t)grid_round(&grid, (double)from[i]);
        quantised_write(tensor, row, g, &grid, q);
    }
    free(q);
}

/* ---- the best grid ---- */

/* Elements that are summed in float, so many sums beside each other. */
enum { CHUNK = 256, LANES = 8 };

/* Adding and taking away 1.5 * 2^23 rounds a small float to a whole number. */
static inline float whole(float x) {
    return (x + 12582912.0f) - 12582912.0f;
}

/* Sum of the squares of what a grid is off by; of the numbers it gives and the weights
 * the products, and of these numbers the squares, from which the scale follows that fits
 * them best. */
typedef struct GridFit {
    double off, wq, qq;
} GridFit;

static GridFit fit_grid(const Grid *grid, const float *weights, int64_t count) {
    GridFit fit = {0};
    if (grid->scale == 0) {
        for (int64_t i = 0; i < count; i++)
            fit.off += (double)weights[i] * (double)weights[i];
        return fit;
    }
    const float by = 1 / grid->scale, scale = grid->scale;
    const float least = (float)(grid->least - grid->zero);
    const float most = (float)(grid->most - grid->zero);
    for (int64_t at = 0; at < count; at += CHUNK) {
        float off[LANES] = {0}, wq[LANES] = {0}, qq[LANES] = {0};
        const int64_t n = count - at < CHUNK ? count - at : CHUNK;
        for (int64_t i = 0; i < n; i += LANES) {
            float w[LANES] = {0};
            memcpy(w, weights + at + i,
                   (size_t)(n - i < LANES ? n - i : LANES) * sizeof *w);
            for (int l = 0; l < LANES; l++) {
                float q = w[l] * by;
                q = q > least ? q : least;
                q = whole(q < most ? q : most);
                const float d = w[l] - scale * q;
                off[l] += d * d;
                wq[l] += w[l] * q;
                qq[l] += q * q;
            }
        }
        for (int l = 0; l < LANES; l++) {
            fit.off += (double)off[l];
            fit.wq += (double)wq[l];
            fit.qq += (double)qq[l];
        }
    }
    return fit;
}

/* Takes a grid, and the one whose scale fits its numbers, where they are better. */
static void try_grid(Grid *best, double *least, const Tensor *type, double scale,
                     int zero, const float *weights, int64_t count) {
    Grid grid = quantised_grid(type, scale, zero);
    for (int round = 0; round < 2; round++) {
        const GridFit fit = fit_grid(&grid, weights, count);
        if (fit.off < *least) {
            *least = fit.off;
            *best = grid;
        }
        if (!(fit.qq > 0) || !(fit.wq * scale > 0)) return;
        grid = quantised_grid(type, fit.wq / fit.qq, zero);
    }
}

/* Scales that are tried: from the one with which `numbers` numbers span the weights,
 * which may be negative, by steps of a part of it. */
typedef struct Candidates {
    double span; /* of weights */
    int numbers, count;
    double step;
} Candidates;

static void try_grids(Grid *best, double *least, const Tensor *type, Candidates c,
                      double low, const float *weights, int64_t count) {
    for (int i = 0; i < c.count && c.span != 0; i++) {
        const double part = 1 - i * c.step, scale = part * c.span / c.numbers;
        const int zero = scale > 0 ? (int)rint(-part * low / scale) : 0;
        try_grid(best, least, type, scale, zero, weights, count);
    }
}

/* q4 without zero points reaches further on one side, -8 to 7 times the scale: the weight
 * that is farthest from 0 lies there, or on the other. */
Grid quantised_best_grid(const Tensor *type, const float *weights, int64_t count) {
    const Range range = range_of(weights, count);
    const double farthest = -range.low > range.high ? range.low : range.high;
    Grid best = quantised_grid(type, 0, 0);
    double least = INFINITY;
    if (type->dtype == DTYPE_Q8) {
        const Candidates scales = {fabs(farthest), Q8_MOST, 7, 1.0 / 48};
        try_grids(&best, &least, type, scales, 0, weights, count);
    } else if (type->zeros) {
        const Candidates scales = {range.high - range.low, Q4_MOST, 14, 1.0 / 26};
        try_grids(&best, &least, type, scales, range.low, weights, count);
    } else {
        const Candidates longer = {-farthest, Q4_MIDDLE, 8, 1.0 / 26};
        const Candidates shorter = {farthest, Q4_MOST - Q4_MIDDLE, 6, 1.0 / 26};
        try_grids(&best, &least, type, longer, 0, weights, count);
        try_grids(&best, &least, type, shorter, 0, weights, count);
    }
    return best;
}

/* ---- reading ----
 *
 * A span is the elements of one row that share a scale. */

static void read_q8_f32(const Grid *grid, const uint8_t *row, int64_t first,
                        int64_t count, float *out) {
    const int8_t *q = (const int8_t *)row + first;
    for (int64_t i = 0; i < count; i++) out[i] = (float)q[i] * grid->scale;
}

static void read_q8_f64(const Grid *grid, const uint8_t *row, int64_t first,
                        int64_t count, double *out) {
    const int8_t *q = (const int8_t *)row + first;
    for (int64_t i = 0; i < count; i++) out[i] = (double)q[i] * (double)grid->scale;
}

static int nibble(const uint8_t *row, int64_t column) {
    return row[column / 2] >> (column % 2 ? 4 : 0) & 15;
}

static void read_q4_f32(const Grid *grid, const uint8_t *row, int64_t first,
                        int64_t count, float *out) {
    for (int64_t i = 0; i < count; i++)
        out[i] = (float)(nibble(row, first + i) - grid->zero) * grid->scale;
}

static void read_q4_f64(const Grid *grid, const uint8_t *row, int64_t first,
                        int64_t count, double *out) {
    for (int64_t i = 0; i < count; i++)
        out[i] = (double)(nibble(row, first + i) - grid->zero) * (double)grid->scale;
}

/* Defines `name`, which reads elements [first, first + count) span by span. */
#define READ_SPANS(name, T, read_q8, read_q4)                                            \
    void name(const Tensor *tensor, int64_t first, int64_t count, T *out) {              \
        const int64_t width = quantised_width(tensor);                                   \
        const size_t row_bytes = quantised_parts(tensor).row_values;                     \
        const uint8_t *values = tensor_q_values(tensor);                                 \
        while (count > 0) {                                                              \
            const int64_t row = first / width, column = first % width;                   \
            const int64_t group = column / tensor->group;                                \
            const int64_t end = group * tensor->group + group_size(tensor, group);       \
            const int64_t span = end - column < count ? end - column : count;            \
            const Grid grid = quantised_read_grid(tensor, row, group);                   \
            const uint8_t *at = values + (size_t)row * row_bytes;                        \
            if (tensor->dtype == DTYPE_Q8)                                               \
                read_q8(&grid, at, column, span, out);                                   \
            else                                                                         \
                read_q4(&grid, at, column, span, out);                                   \
            first += span;                                                               \
            count -= span;                                                               \
            out += span;                                                                 \
        }                                                                                \
    }

/* clang-format off */
READ_SPANS(quantised_read_f32, float, read_q8_f32, read_q4_f32)
READ_SPANS(quantised_read_f64, double, read_q8_f64, read_q4_f64)
/* clang-format on */

/* ---- checking ---- */

int64_t quantised_find_nonfinite(const Tensor *tensor) {
    const int64_t groups = quantised_groups(tensor), width = quantised_width(tensor);
    const int64_t count = width > 0 ? quantised_rows(tensor) * groups : 0;
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(read_scale(tensor, tensor_q_scales(tensor), i)))
            return i / groups * width + i % groups * tensor->group;
    return -1;
}

static Status check_scales(const Tensor *tensor, Status status, const char *name,
                           Diag *diag) {
    const int64_t groups = quantised_groups(tensor);
    const uint8_t *zeros = tensor_q_zeros(tensor);
    const bool either = tensor->dtype == DTYPE_Q4 && !tensor->zeros; /* sign */
    for (int64_t i = 0; i < quantised_rows(tensor) * groups; i++) {
        const double scale = (double)read_scale(tensor, tensor_q_scales(tensor), i);
        const bool below = signbit(scale) && (scale == 0 || !either);
        if (!isfinite(scale) || below)
            return diag_fail(diag, status, LOC_NONE, name,
                             "row %lld, group %lld: expected a finite scale%s, found %g",
                             (long long)(i / groups), (long long)(i % groups),
                             either ? ", and no -0" : " of at least 0", scale);
        if (zeros && zeros[i] > Q4_MOST)
            return diag_fail(diag, status, LOC_NONE, name,
                             "row %lld, group %lld: expected a zero point from 0 to %d, "
                             "found %d",
                             (long long)(i / groups), (long long)(i % groups), Q4_MOST,
                             zeros[i]);
    }
    return STATUS_OK;
}

Status quantised_check(const Tensor *tensor, Status status, const char *name,
                       Diag *diag) {
    const int64_t rows = quantised_rows(tensor), width = quantised_width(tensor);
    const size_t row_bytes = quantised_parts(tensor).row_values;
    const uint8_t *values = tensor_q_values(tensor);
    for (int64_t row = 0; row < rows && width > 0; row++) {
        const uint8_t *at = values + (size_t)row * row_bytes;
        const uint8_t *least = memchr(at, 0x80, row_bytes);
        if (tensor->dtype == DTYPE_Q8 && least)
            return diag_fail(diag, status, LOC_NONE, name,
                             "row %lld, column %lld: expected a number from -%d to %d, "
                             "found -128",
                             (long long)row, (long long)(least - at), Q8_MOST, Q8_MOST);
        if (tensor->dtype == DTYPE_Q4 && width % 2 && at[row_bytes - 1] >> 4)
            return diag_fail(diag, status, LOC_NONE, name,
                             "row %lld: expected zero bits behind its %lld numbers",
                             (long long)row, (long long)width);
    }
    return check_scales(tensor, status, name, diag);
}
