/* PNG through libpng, from memory. Errors leave the library by longjmp to one place;
 * everything that must be freed hangs on a struct of the caller's. */
#include "io/datasets/image_decoders.h"

#include <png.h>
#include <stdlib.h>
#include <string.h>

/* What deflate can shrink data to, and what one chunk may take. */
#define DEFLATE_RATIO   1040.0
#define CHUNK_BYTES_MAX ((png_alloc_size_t)8 << 20)

typedef struct Png {
    const ImageFile *file;
    const ImageOptions *options;
    bool header;
    size_t at; /* bytes read */
    png_structp png;
    png_infop info;
    png_bytep *rows;
    Image image;
    Status status; /* set with the message */
    char message[160];
} Png;

static void on_error(png_structp png, png_const_charp text) {
    Png *p = png_get_error_ptr(png);
    if (p->status == STATUS_OK) {
        p->status = STATUS_FORMAT;
        snprintf(p->message, sizeof p->message, "damaged PNG: %s", text);
    }
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp text) {
    (void)png, (void)text;
}

static void on_read(png_structp png, png_bytep data, size_t length) {
    Png *p = png_get_io_ptr(png);
    if (length > p->file->bytes - p->at) png_error(png, "the file ends early");
    memcpy(data, p->file->data + p->at, length);
    p->at += length;
}

/* Reads the header and checks sizes. */
static void read_header(Png *p) {
    /* Chunks whose texts nobody reads are not even inflated. */
    static const png_byte SKIPPED[] = "iCCP\0iTXt\0zTXt\0tEXt\0eXIf\0sPLT";
    png_set_read_fn(p->png, p, on_read);
    png_set_user_limits(p->png, (png_uint_32)IMAGE_SIDE_MAX, (png_uint_32)IMAGE_SIDE_MAX);
    png_set_chunk_malloc_max(p->png, CHUNK_BYTES_MAX);
    png_set_chunk_cache_max(p->png, 128);
    png_set_keep_unknown_chunks(p->png, PNG_HANDLE_CHUNK_NEVER, SKIPPED,
                                (int)sizeof SKIPPED / 5);
    png_read_info(p->png, p->info);
    const int64_t rows = png_get_image_height(p->png, p->info);
    const int64_t cols = png_get_image_width(p->png, p->info);
    const double bytes = (double)png_get_rowbytes(p->png, p->info) * (double)rows;
    p->image.rows = rows;
    p->image.cols = cols;
    if (image_check_size(p->message, sizeof p->message, p->file, p->options, rows, cols,
                         bytes, DEFLATE_RATIO)) {
        p->status = STATUS_FORMAT;
        png_error(p->png, "size");
    }
}

/* Pixels as 8-bit grey, RGB or RGBA. */
static void read_pixels(Png *p) {
    Image *image = &p->image;
    const bool alpha = (png_get_color_type(p->png, p->info) & PNG_COLOR_MASK_ALPHA) ||
                       png_get_valid(p->png, p->info, PNG_INFO_tRNS);
    png_set_expand(p->png);
    png_set_scale_16(p->png);
    if (alpha) png_set_gray_to_rgb(p->png);
    png_set_interlace_handling(p->png);
    png_read_update_info(p->png, p->info);
    image->channels = png_get_channels(p->png, p->info);
    const size_t row_bytes = png_get_rowbytes(p->png, p->info);
    p->rows = malloc((size_t)image->rows * sizeof *p->rows);
    image->pixels = malloc((size_t)image->rows * row_bytes);
    if (!p->rows || !image->pixels) {
        p->status = STATUS_MEMORY;
        snprintf(p->message, sizeof p->message, "no memory for the image");
        png_error(p->png, "memory");
    }
    for (int64_t y = 0; y < image->rows; y++)
        p->rows[y] = image->pixels + (size_t)y * row_bytes;
    png_read_image(p->png, p->rows);
    png_read_end(p->png, NULL);
}

/* Runs the library; false when it left by longjmp. */
static bool run_library(Png *p) {
    if (setjmp(png_jmpbuf(p->png))) return false;
    read_header(p);
    if (!p->header) read_pixels(p);
    return true;
}

/* RGBA over the background, in place. */
static void flatten(Image *image, int background) {
    const unsigned under = background == IMAGE_WHITE ? 255 : 0;
    const int64_t count = image->rows * image->cols;
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *from = image->pixels + 4 * i;
        const unsigned alpha = from[3];
        for (int c = 0; c < 3; c++)
            image->pixels[3 * i + c] =
                (uint8_t)((from[c] * alpha + under * (255 - alpha) + 127) / 255);
    }
    image->channels = 3;
}

Status png_decode(Image *out, const ImageFile *file, const ImageOptions *options,
                  bool header, Diag *diag) {
    Png p = {.file = file, .options = options, .header = header};
    p.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &p, on_error, on_warning);
    p.info = p.png ? png_create_info_struct(p.png) : NULL;
    if (!p.info) {
        p.status = STATUS_MEMORY;
        snprintf(p.message, sizeof p.message, "no memory for libpng");
    }
    const bool done = p.info && run_library(&p);
    png_destroy_read_struct(&p.png, &p.info, NULL);
    free(p.rows);
    if (!done) {
        image_free(&p.image);
        return diag_fail(diag, p.status, LOC_FILE(file->path), NULL, "%s", p.message);
    }
    if (p.image.channels == 4) flatten(&p.image, options->background);
    *out = p.image;
    return STATUS_OK;
}
