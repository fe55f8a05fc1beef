/* Preprocess: resizing, cropping, values. The file is read in
 * io/datasets/preprocess_config.c. */
#include "io/datasets/preprocess.h"

#include <inttypes.h>
#include <string.h>

const Preprocess preprocess_default = {.rescale = 1 / 255.0, .std = {1, 1, 1}};

/* Sizes after resizing. */
static bool resized_size(const Preprocess *p, int64_t *rows, int64_t *cols) {
    const double pixels = (double)IMAGE_PIXELS_MAX;
    if (p->resize == RESIZE_NONE) return true;
    if (p->resize == RESIZE_EXACT) {
        *rows = p->rows;
        *cols = p->cols;
        return true;
    }
    const bool tall = *rows > *cols;
    const int64_t shorter = tall ? *cols : *rows, longer = tall ? *rows : *cols;
    const int64_t length = p->rows * longer / shorter;
    *rows = tall ? length : p->rows;
    *cols = tall ? p->rows : length;
    return (double)*rows * (double)*cols <= pixels;
}

bool preprocess_size(const Preprocess *p, int64_t *rows, int64_t *cols) {
    if (!resized_size(p, rows, cols)) return false;
    if (p->crop_rows == 0) return true;
    *rows = p->crop_rows;
    *cols = p->crop_cols;
    return true;
}

/* floor((size - crop) / 2): below 0 where the image is smaller. */
static int64_t crop_start(int64_t size, int64_t crop) {
    const int64_t rest = size - crop;
    return rest >= 0 ? rest / 2 : -((1 - rest) / 2);
}

static Status crop_middle(Image *out, const Image *image, int64_t rows, int64_t cols,
                          Diag *diag) {
    const int64_t channels = image->channels;
    const int64_t top = crop_start(image->rows, rows);
    const int64_t left = crop_start(image->cols, cols);
    const int64_t first = left < 0 ? -left : 0;
    const int64_t end = left + cols > image->cols ? image->cols - left : cols;
    TRY(image_create(out, rows, cols, channels, diag));
    memset(out->pixels, 0, (size_t)(rows * cols * channels));
    for (int64_t y = 0; y < rows; y++) {
        const int64_t from = y + top;
        if (from < 0 || from >= image->rows) continue;
        memcpy(out->pixels + (y * cols + first) * channels,
               image->pixels + (from * image->cols + left + first) * channels,
               (size_t)((end - first) * channels));
    }
    return STATUS_OK;
}

Status preprocess_image(Image *out, const Image *image, const Preprocess *p,
                        const char *path, Diag *diag) {
    int64_t rows = image->rows, cols = image->cols;
    Image resized = {0};
    *out = (Image){0};
    if (!resized_size(p, &rows, &cols))
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
                         "resizing makes %" PRId64 " x %" PRId64 " pixels of %" PRId64
                         " x %" PRId64 ", which are too many",
                         cols, rows, image->cols, image->rows);
    if (p->crop_rows == 0)
        return resample_image(out, image, rows, cols, (ResampleKind)p->resample, diag);
    TRY(resample_image(&resized, image, rows, cols, (ResampleKind)p->resample, diag));
    Status status = crop_middle(out, &resized, p->crop_rows, p->crop_cols, diag);
    image_free(&resized);
    return status;
}

float preprocess_value(const Preprocess *p, int64_t channel, int byte) {
    return (float)((byte * p->rescale - p->mean[channel]) / p->std[channel]);
}
