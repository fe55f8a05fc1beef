/* Resample: see io/datasets/resample.h. */
#include "io/datasets/resample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Bits of a weight behind the point; 8 of a sum's 32 are the value's. */
#define WEIGHT_BITS 22

/* ---- filters ---- */

/* The filter's weight at distance x: a triangle, or Keys' cubic with a = -1/2. */
static double filter_value(ResampleKind kind, double x) {
    const double a = -0.5;
    x = fabs(x);
    if (kind != RESAMPLE_BICUBIC) return x < 1 ? 1 - x : 0;
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((x - 5) * x + 8) * x * a - 4 * a : 0;
}

/* ---- taps ---- */

/* Where along a line each value comes from: value i is the sum of weight[i * most + k] of
 * the values first[i] + k, for k < count[i]. */
typedef struct Taps {
    int64_t out, most;
    int64_t *first, *count;
    double *weight;
} Taps;

static void taps_free(Taps *taps) {
    free(taps->first);
    free(taps->count);
    free(taps->weight);
    *taps = (Taps){0};
}

/* Weights of one value around `center`, with a sum of 1. */
static void taps_weigh(Taps *taps, int64_t i, int64_t in, double center, double reach,
                       double stretch, ResampleKind kind) {
    int64_t first = (int64_t)floor(center - reach + 0.5);
    int64_t end = (int64_t)floor(center + reach + 0.5);
    double *weight = taps->weight + i * taps->most, sum = 0;
    if (first < 0) first = 0;
    if (end > in) end = in;
    taps->first[i] = first;
    taps->count[i] = end - first;
    for (int64_t k = 0; k < end - first; k++) {
        weight[k] =
            filter_value(kind, ((double)(first + k) - center + 0.5) * (1 / stretch));
        sum += weight[k];
    }
    for (int64_t k = 0; k < end - first && sum != 0; k++) weight[k] *= 1 / sum;
}

static Status taps_make(Taps *taps, int64_t in, int64_t out, ResampleKind kind,
                        Diag *diag) {
    const double scale = (double)in / (double)out, stretch = scale < 1 ? 1 : scale;
    const double reach = (kind == RESAMPLE_BICUBIC ? 2 : 1) * stretch;
    const size_t n = (size_t)out;
    *taps = (Taps){.out = out, .most = 2 * (int64_t)ceil(reach) + 1};
    taps->first = malloc(n * sizeof *taps->first);
    taps->count = malloc(n * sizeof *taps->count);
    taps->weight = calloc(n * (size_t)taps->most, sizeof *taps->weight);
    if (!taps->first || !taps->count || !taps->weight) {
        taps_free(taps);
        return diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL,
                         "no memory to resize an image");
    }
    for (int64_t i = 0; i < out; i++)
        taps_weigh(taps, i, in, ((double)i + 0.5) * scale, reach, stretch, kind);
    return STATUS_OK;
}

/* ---- bytes ---- */

/* Sums stay below 2^31: 255 times weights whose sizes add up to at most 1.5. */
static uint8_t byte_of(int32_t sum) {
    const int32_t value = sum >> WEIGHT_BITS;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

static const int32_t HALF = 1 << (WEIGHT_BITS - 1);

/* One row of pixels of three channels. */
static void colours_across(uint8_t *dst, const uint8_t *line, const Taps *taps,
                           const int32_t *fixed) {
    for (int64_t x = 0; x < taps->out; x++) {
        const int32_t *weight = fixed + x * taps->most;
        const uint8_t *from = line + 3 * taps->first[x];
        int32_t r = HALF, g = HALF, b = HALF;
        for (int64_t k = 0; k < taps->count[x]; k++) {
            r += from[3 * k] * weight[k];
            g += from[3 * k + 1] * weight[k];
            b += from[3 * k + 2] * weight[k];
        }
        dst[3 * x] = byte_of(r);
        dst[3 * x + 1] = byte_of(g);
        dst[3 * x + 2] = byte_of(b);
    }
}

static void bytes_across(Image *out, const Image *in, const Taps *taps,
                         const int32_t *fixed) {
    for (int64_t y = 0; y < in->rows; y++) {
        uint8_t *dst = out->pixels + y * out->cols * in->channels;
        const uint8_t *line = in->pixels + y * in->cols * in->channels;
        if (in->channels == 3) {
            colours_across(dst, line, taps, fixed);
            continue;
        }
        for (int64_t x = 0; x < taps->out; x++) {
            const int32_t *weight = fixed + x * taps->most;
            int32_t sum = HALF;
            for (int64_t k = 0; k < taps->count[x]; k++)
                sum += line[taps->first[x] + k] * weight[k];
            dst[x] = byte_of(sum);
        }
    }
}

/* Columns are summed a stretch of so many at a time, row by row. */
enum { STRETCH = 256 };

/* `n` bytes from the rows at `from`, which lie `width` bytes apart. */
static void stretch_down(uint8_t *dst, const uint8_t *from, int64_t n, int64_t width,
                         const int32_t *weight, int64_t count) {
    int32_t sum[STRETCH];
    for (int64_t x = 0; x < n; x++) sum[x] = HALF;
    for (int64_t k = 0; k < count; k++, from += width)
        for (int64_t x = 0; x < n; x++) sum[x] += from[x] * weight[k];
    for (int64_t x = 0; x < n; x++) dst[x] = byte_of(sum[x]);
}

static void bytes_down(Image *out, const Image *in, const Taps *taps,
                       const int32_t *fixed) {
    const int64_t width = in->cols * in->channels;
    for (int64_t y = 0; y < out->rows; y++)
        for (int64_t x = 0; x < width; x += STRETCH)
            stretch_down(out->pixels + y * width + x,
                         in->pixels + taps->first[y] * width + x,
                         width - x < STRETCH ? width - x : STRETCH, width,
                         fixed + y * taps->most, taps->count[y]);
}

/* One direction: `size` columns, or rows with `down`. */
static Status bytes_pass(Image *out, const Image *in, int64_t size, bool down,
                         ResampleKind kind, Diag *diag) {
    Taps taps;
    TRY(taps_make(&taps, down ? in->rows : in->cols, size, kind, diag));
    int32_t *fixed = malloc((size_t)(taps.out * taps.most) * sizeof *fixed);
    Status status = fixed ? image_create(out, down ? size : in->rows,
                                         down ? in->cols : size, in->channels, diag)
                          : diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL,
                                      "no memory to resize an image");
    if (status == STATUS_OK) {
        for (int64_t i = 0; i < taps.out * taps.most; i++) {
            const double scaled = taps.weight[i] * (1 << WEIGHT_BITS);
            fixed[i] = (int32_t)(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
        }
        (down ? bytes_down : bytes_across)(out, in, &taps, fixed);
    }
    free(fixed);
    taps_free(&taps);
    return status;
}

Status resample_image(Image *out, const Image *image, int64_t rows, int64_t cols,
                      ResampleKind kind, Diag *diag) {
    Image wide = {0};
    *out = (Image){0};
    if (cols == image->cols && rows == image->rows) {
        TRY(image_create(out, rows, cols, image->channels, diag));
        memcpy(out->pixels, image->pixels, (size_t)(rows * cols * image->channels));
        return STATUS_OK;
    }
    if (cols == image->cols) return bytes_pass(out, image, rows, true, kind, diag);
    if (rows == image->rows) return bytes_pass(out, image, cols, false, kind, diag);
    TRY(bytes_pass(&wide, image, cols, false, kind, diag));
    Status status = bytes_pass(out, &wide, rows, true, kind, diag);
    image_free(&wide);
    return status;
}

/* ---- floats ---- */

/* dst[cols] = sum of weight[k] times row k. */
static void row_mean(float *restrict dst, const float *restrict rows, int64_t cols,
                     const double *weight, int64_t count) {
    memset(dst, 0, (size_t)cols * sizeof *dst);
    for (int64_t k = 0; k < count; k++, rows += cols) {
        const float factor = (float)weight[k];
        for (int64_t x = 0; x < cols; x++) dst[x] += factor * rows[x];
    }
}

static void plane_work(float *dst, float *wide, const float *src, int64_t src_rows,
                       int64_t stride, const Taps *across, const Taps *down) {
    const int64_t cols = across->out;
    for (int64_t y = 0; y < src_rows; y++)
        for (int64_t x = 0; x < cols; x++) {
            const double *weight = across->weight + x * across->most;
            const float *line = src + y * stride + across->first[x];
            double sum = 0;
            for (int64_t k = 0; k < across->count[x]; k++)
                sum += (double)line[k] * weight[k];
            wide[y * cols + x] = (float)sum;
        }
    for (int64_t y = 0; y < down->out; y++)
        row_mean(dst + y * cols, wide + down->first[y] * cols, cols,
                 down->weight + y * down->most, down->count[y]);
}

Status resample_plane(float *dst, int64_t rows, int64_t cols, const float *src,
                      int64_t src_rows, int64_t src_cols, int64_t stride,
                      ResampleKind kind, Diag *diag) {
    Taps across, down;
    TRY(taps_make(&across, src_cols, cols, kind, diag));
    Status status = taps_make(&down, src_rows, rows, kind, diag);
    if (status != STATUS_OK) {
        taps_free(&across);
        return status;
    }
    float *wide = malloc((size_t)(src_rows * cols) * sizeof *wide);
    if (wide)
        plane_work(dst, wide, src, src_rows, stride, &across, &down);
    else
        status = diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL,
                           "no memory to resize an image");
    free(wide);
    taps_free(&across);
    taps_free(&down);
    return status;
}
