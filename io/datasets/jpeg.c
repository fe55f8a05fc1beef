/* JPEG through libjpeg, from memory. Errors leave the library by longjmp to one place;
 * everything that must be freed hangs on a struct of the caller's. */
#include "io/datasets/image_decoders.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <jerror.h>
#include <jpeglib.h>

/* A block of 64 samples takes at least a bit; more scans than any encoder makes are taken
 * for an attack on time. */
#define PIXEL_RATIO 1024.0
#define SCANS_MAX   200

typedef struct Jpeg {
    struct jpeg_decompress_struct library;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf leave;
    const ImageFile *file;
    const ImageOptions *options;
    bool header;
    Image image;
    Status status; /* set with the message */
    char message[JMSG_LENGTH_MAX + 32];
} Jpeg;

static Jpeg *owner(j_common_ptr library) {
    return library->client_data;
}

/* Says what the library found wrong and leaves it. */
static void on_error(j_common_ptr library) {
    Jpeg *p = owner(library);
    if (p->status == STATUS_OK) {
        char text[JMSG_LENGTH_MAX];
        library->err->format_message(library, text);
        p->status = STATUS_FORMAT;
        snprintf(p->message, sizeof p->message, "damaged JPEG: %s", text);
    }
    longjmp(p->leave, 1);
}

static void on_message(j_common_ptr library, int level) {
    /* Warnings that leave every pixel what it was. */
    const int code = library->err->msg_code;
    const bool harmless = code == JWRN_EXTRANEOUS_DATA || code == JWRN_JFIF_MAJOR ||
                          code == JWRN_ADOBE_XFORM || code == JWRN_TOO_MUCH_DATA;
    if (level < 0 && !harmless) on_error(library);
}

static void on_output(j_common_ptr library) {
    (void)library;
}

static void fail(Jpeg *p, Status status) {
    p->status = status;
    longjmp(p->leave, 1);
}

static void on_progress(j_common_ptr library) {
    Jpeg *p = owner(library);
    if (p->library.input_scan_number <= SCANS_MAX) return;
    snprintf(p->message, sizeof p->message, "damaged JPEG: more than %d scans",
             SCANS_MAX);
    fail(p, STATUS_FORMAT);
}

static void read_header(Jpeg *p) {
    struct jpeg_decompress_struct *library = &p->library;
    jpeg_mem_src(library, p->file->data, p->file->bytes);
    jpeg_read_header(library, TRUE);
    p->image.rows = library->image_height;
    p->image.cols = library->image_width;
    const double pixels = (double)p->image.rows * (double)p->image.cols;
    if (image_check_size(p->message, sizeof p->message, p->file, p->options,
                         p->image.rows, p->image.cols, pixels, PIXEL_RATIO))
        fail(p, STATUS_FORMAT);
}

static void read_pixels(Jpeg *p) {
    struct jpeg_decompress_struct *library = &p->library;
    Image *image = &p->image;
    switch (library->jpeg_color_space) {
    case JCS_GRAYSCALE: library->out_color_space = JCS_GRAYSCALE; break;
    case JCS_CMYK:
    case JCS_YCCK: library->out_color_space = JCS_CMYK; break;
    default: library->out_color_space = JCS_RGB;
    }
    jpeg_start_decompress(library);
    image->channels = library->output_components;
    const size_t row_bytes = (size_t)image->cols * (size_t)image->channels;
    image->pixels = malloc((size_t)image->rows * row_bytes);
    if (!image->pixels) {
        snprintf(p->message, sizeof p->message, "no memory for the image");
        fail(p, STATUS_MEMORY);
    }
    while (library->output_scanline < library->output_height) {
        JSAMPROW row = image->pixels + library->output_scanline * row_bytes;
        jpeg_read_scanlines(library, &row, 1);
    }
    jpeg_finish_decompress(library);
}

/* Runs the library; false when it left by longjmp. */
static bool run_library(Jpeg *p) {
    if (setjmp(p->leave)) return false;
    jpeg_create_decompress(&p->library);
    p->library.progress = &p->progress;
    p->progress.progress_monitor = on_progress;
    read_header(p);
    if (!p->header) read_pixels(p);
    return true;
}

/* CMYK in place; Adobe's files hold 255 - ink. */
static void convert_cmyk(Image *image, bool inverted) {
    const int64_t count = image->rows * image->cols;
    const unsigned flip = inverted ? 0 : 255;
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *ink = image->pixels + 4 * i;
        const unsigned key = ink[3] ^ flip;
        for (int c = 0; c < 3; c++)
            image->pixels[3 * i + c] = (uint8_t)(((ink[c] ^ flip) * key + 127) / 255);
    }
    image->channels = 3;
}

Status jpeg_decode(Image *out, const ImageFile *file, const ImageOptions *options,
                   bool header, Diag *diag) {
    Jpeg p = {.file = file, .options = options, .header = header};
    p.library.err = jpeg_std_error(&p.errors);
    p.library.client_data = &p;
    p.errors.error_exit = on_error;
    p.errors.emit_message = on_message;
    p.errors.output_message = on_output;
    const bool done = run_library(&p), adobe = p.library.saw_Adobe_marker;
    jpeg_destroy_decompress(&p.library);
    if (!done) {
        image_free(&p.image);
        return diag_fail(diag, p.status, LOC_FILE(file->path), NULL, "%s", p.message);
    }
    if (p.image.channels == 4) convert_cmyk(&p.image, adobe);
    *out = p.image;
    return STATUS_OK;
}
