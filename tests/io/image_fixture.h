/* Image files that tests write: PNG and JPEG through the libraries, and patches. */
#ifndef COMPRESS_TESTS_IO_IMAGE_FIXTURE_H
#define COMPRESS_TESTS_IO_IMAGE_FIXTURE_H

#include "io/datasets/image.h"
#include "tests/io/dataset_test.h"

#include <jpeglib.h>
#include <png.h>
#include <zlib.h>

/* A byte of the pattern that the tests draw, and that Python drew for their numbers. */
static inline uint8_t pattern(int64_t y, int64_t x, int64_t c) {
    return (uint8_t)((x * 37 + y * 71 + c * 53 + x * y * 7) % 256);
}

/* An image of that pattern. */
static inline Image pattern_image(int64_t rows, int64_t cols, int64_t channels,
                                  Diag *diag) {
    Image image;
    assert_ok(image_create(&image, rows, cols, channels, diag), diag);
    for (int64_t y = 0; y < rows; y++)
        for (int64_t x = 0; x < cols; x++)
            for (int64_t c = 0; c < channels; c++)
                image.pixels[(y * cols + x) * channels + c] = pattern(y, x, c);
    return image;
}

/* What png_spill writes. */
typedef struct PngSpec {
    int64_t rows, cols;
    int type, depth; /* PNG_COLOR_TYPE_, bits */
    bool interlaced;
    const png_color *palette; /* of 4 */
    const png_byte *alpha;    /* of the palette */
    const png_color_16 *clear;
} PngSpec;

/* Writes a PNG; `data` are rows as the file has them. */
static inline void png_spill(const char *name, const PngSpec *spec, const uint8_t *data) {
    FILE *file = fopen(path_of(name), "wb");
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    assert_non_null(file);
    png_init_io(png, file);
    png_set_IHDR(png, info, (png_uint_32)spec->cols, (png_uint_32)spec->rows, spec->depth,
                 spec->type, spec->interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    if (spec->palette) png_set_PLTE(png, info, spec->palette, 4);
    if (spec->alpha) png_set_tRNS(png, info, spec->alpha, 4, NULL);
    if (spec->clear) png_set_tRNS(png, info, NULL, 0, spec->clear);
    png_write_info(png, info);
    const size_t each = png_get_rowbytes(png, info);
    png_bytep *rows = calloc((size_t)spec->rows, sizeof *rows);
    for (int64_t y = 0; y < spec->rows; y++)
        rows[y] = (png_bytep)(uintptr_t)data + (size_t)y * each;
    png_write_image(png, rows);
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
    free(rows);
    fclose(file);
}

/* Writes an image of 1 or 3 channels as PNG. */
static inline void png_spill_image(const char *name, const Image *image) {
    const PngSpec spec = {image->rows, image->cols,
                          image->channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB,
                          8};
    png_spill(name, &spec, image->pixels);
}

/* Writes a JPEG of 1, 3 or 4 (CMYK) channels at quality 100 without subsampling. */
static inline void jpeg_spill(const char *name, const Image *image, bool adobe,
                              bool progressive) {
    struct jpeg_compress_struct library;
    struct jpeg_error_mgr errors;
    FILE *file = fopen(path_of(name), "wb");
    assert_non_null(file);
    library.err = jpeg_std_error(&errors);
    jpeg_create_compress(&library);
    jpeg_stdio_dest(&library, file);
    library.image_width = (JDIMENSION)image->cols;
    library.image_height = (JDIMENSION)image->rows;
    library.input_components = (int)image->channels;
    library.in_color_space = image->channels == 1   ? JCS_GRAYSCALE
                             : image->channels == 3 ? JCS_RGB
                                                    : JCS_CMYK;
    jpeg_set_defaults(&library);
    jpeg_set_quality(&library, 100, TRUE);
    library.comp_info[0].h_samp_factor = library.comp_info[0].v_samp_factor = 1;
    library.write_Adobe_marker = adobe;
    if (progressive) jpeg_simple_progression(&library);
    jpeg_start_compress(&library, TRUE);
    while (library.next_scanline < library.image_height) {
        JSAMPROW row = image->pixels +
                       library.next_scanline * (size_t)(image->cols * image->channels);
        jpeg_write_scanlines(&library, &row, 1);
    }
    jpeg_finish_compress(&library);
    jpeg_destroy_compress(&library);
    fclose(file);
}

/* A file's bytes; the caller frees them. */
static inline uint8_t *slurp(const char *name, size_t *length) {
    FILE *file = fopen(path_of(name), "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *length = (size_t)ftell(file);
    rewind(file);
    uint8_t *data = malloc(*length);
    assert_int_equal(fread(data, 1, *length, file), *length);
    fclose(file);
    return data;
}

static inline void put_big_endian(uint8_t *at, uint32_t value, int bytes) {
    for (int i = 0; i < bytes; i++) at[i] = (uint8_t)(value >> (8 * (bytes - 1 - i)));
}

/* Sets the sizes in a PNG's header and its check sum. */
static inline void png_resize(uint8_t *data, uint32_t rows, uint32_t cols) {
    put_big_endian(data + 16, cols, 4);
    put_big_endian(data + 20, rows, 4);
    put_big_endian(data + 29, (uint32_t)crc32(0, data + 12, 17), 4);
}

/* Sets the sizes in a JPEG's frame header. */
static inline void jpeg_resize(uint8_t *data, size_t length, uint32_t rows,
                               uint32_t cols) {
    for (size_t i = 0; i + 9 < length; i++)
        if (data[i] == 0xff && (data[i + 1] == 0xc0 || data[i + 1] == 0xc2)) {
            put_big_endian(data + i + 5, rows, 2);
            put_big_endian(data + i + 7, cols, 2);
            return;
        }
    fail_msg("no frame header");
}

#endif
