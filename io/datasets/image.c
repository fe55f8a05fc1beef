/* Image: which decoder a file needs, sizes, grey. */
#include "io/datasets/image_decoders.h"

#include "io/files/file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Room for headers, whatever the size of the data. */
#define SLACK_BYTES 65536.0

Status image_create(Image *out, int64_t rows, int64_t cols, int64_t channels,
                    Diag *diag) {
    const int64_t shape[] = {rows, cols, channels};
    size_t bytes = 0;
    *out = (Image){.rows = rows, .cols = cols, .channels = channels};
    if (shape_size(DTYPE_U8, 3, shape, NULL, &bytes))
        out->pixels = malloc(bytes ? bytes : 1);
    if (out->pixels) return STATUS_OK;
    return diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL,
                     "no memory for an image of %" PRId64 " x %" PRId64 " pixels", cols,
                     rows);
}

void image_free(Image *image) {
    free(image->pixels);
    *image = (Image){0};
}

const char *image_check_size(char *message, size_t length, const ImageFile *file,
                             const ImageOptions *options, int64_t rows, int64_t cols,
                             double bytes, double ratio) {
    const bool sides =
        rows >= 1 && cols >= 1 && rows <= IMAGE_SIDE_MAX && cols <= IMAGE_SIDE_MAX;
    if (!sides || rows * cols > options->pixels) {
        snprintf(message, length,
                 "expected an image of 1 to %" PRId64 " pixels, found %" PRId64
                 " x %" PRId64,
                 options->pixels, cols, rows);
        return message;
    }
    if (bytes <= SLACK_BYTES + ratio * (double)file->bytes) return NULL;
    snprintf(message, length,
             "an image of %" PRId64 " x %" PRId64 " pixels cannot lie in %zu bytes", cols,
             rows, file->bytes);
    return message;
}

typedef Status Decoder(Image *out, const ImageFile *file, const ImageOptions *options,
                       bool header, Diag *diag);

/* Decodes the bytes of a file, without converting them. */
static Status decode(Image *out, const ImageFile *file, const ImageOptions *options,
                     bool header, Diag *diag) {
    static const uint8_t PNG[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    static const uint8_t JPEG[] = {0xff, 0xd8, 0xff};
    Decoder *decoder = NULL;
    *out = (Image){0};
    if (file->bytes >= sizeof PNG && memcmp(file->data, PNG, sizeof PNG) == 0)
        decoder = png_decode;
    if (file->bytes >= sizeof JPEG && memcmp(file->data, JPEG, sizeof JPEG) == 0)
        decoder = jpeg_decode;
    if (decoder) return decoder(out, file, options, header, diag);
    return diag_fail(diag, STATUS_FORMAT, LOC_FILE(file->path), NULL,
                     file->bytes == 0 ? "expected an image, found an empty file"
                                      : "expected a PNG or JPEG image");
}

Status image_convert(Image *image, int color, Diag *diag) {
    const int64_t count = image->rows * image->cols;
    if (color == IMAGE_RGB && image->channels != 3) {
        Image gray = *image;
        Status status = image_create(image, gray.rows, gray.cols, 3, diag);
        for (int64_t i = 0; i < count && status == STATUS_OK; i++)
            memset(image->pixels + 3 * i, gray.pixels[i], 3);
        image_free(&gray);
        return status;
    }
    if (color != IMAGE_GRAY) return STATUS_OK;
    /* In place; a pixel of one channel never lies behind the three it is made of. */
    for (int64_t i = 0; i < count && image->channels == 3; i++) {
        const uint8_t *rgb = image->pixels + 3 * i;
        image->pixels[i] =
            (uint8_t)((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 0x8000u) >>
                      16);
    }
    image->channels = 1;
    return STATUS_OK;
}

Status image_decode(Image *out, const char *name, const void *data, size_t bytes,
                    const ImageOptions *options, bool header, Diag *diag) {
    const ImageFile file = {name, data, bytes};
    TRY(decode(out, &file, options, header, diag));
    if (!header) return image_convert(out, options->color, diag);
    out->channels = options->color == IMAGE_GRAY ? 1 : 3;
    return STATUS_OK;
}

static Status decode_file(Image *out, const char *path, const ImageOptions *options,
                          bool header, Diag *diag) {
    Buf *map;
    *out = (Image){0};
    TRY(file_map(&map, path, diag));
    Status status =
        image_decode(out, path, buf_data(map), buf_bytes(map), options, header, diag);
    buf_release(map);
    return status;
}

Status image_read(Image *out, const char *path, const ImageOptions *options, Diag *diag) {
    return decode_file(out, path, options, false, diag);
}

Status image_measure(Image *out, const char *path, const ImageOptions *options,
                     Diag *diag) {
    return decode_file(out, path, options, true, diag);
}
