/* Preprocess compare: see preprocess_compare.h. */
#include "io/datasets/preprocess_compare.h"

#include <inttypes.h>
#include <math.h>

/* ---- sizes ---- */

static bool changes_sizes(const Preprocess *p) {
    return p->resize != RESIZE_NONE || p->crop_rows > 0;
}

/* Whether a crop takes off anything. */
static bool crops(const Preprocess *p) {
    return p->crop_rows > 0 && (p->resize != RESIZE_EXACT || p->crop_rows != p->rows ||
                                p->crop_cols != p->cols);
}

/* Whether images of so many rows and columns keep them; without `crop` those that
 * resizing makes are asked for. */
static bool keeps_sizes(const Preprocess *p, const PreparedImages *images, bool crop) {
    Preprocess only = *p;
    int64_t rows = images->rows, cols = images->cols;
    if (!crop) only.crop_rows = only.crop_cols = 0;
    return preprocess_size(&only, &rows, &cols) && rows == images->rows &&
           cols == images->cols;
}

static bool same_sizes(const Preprocess *own, const Preprocess *other,
                       const PreparedImages *images) {
    if (!changes_sizes(other)) return true;
    if (images->drawn) return keeps_sizes(other, images, true);
    if (!changes_sizes(own))
        return keeps_sizes(other, images, true) && keeps_sizes(other, images, false);
    if (own->resize != other->resize || crops(own) != crops(other)) return false;
    if (own->resize != RESIZE_NONE && own->rows != other->rows) return false;
    if (own->resize == RESIZE_EXACT && own->cols != other->cols) return false;
    if (own->resize != RESIZE_NONE && own->resample != other->resample) return false;
    return !crops(own) ||
           (own->crop_rows == other->crop_rows && own->crop_cols == other->crop_cols);
}

static void add_sizes(Text *text, const Preprocess *p) {
    if (p->resize == RESIZE_SHORTEST) text_add(text, "resize [%" PRId64 "]", p->rows);
    if (p->resize == RESIZE_EXACT)
        text_add(text, "resize [%" PRId64 ", %" PRId64 "]", p->rows, p->cols);
    if (p->resize == RESIZE_NONE) text_add(text, "no resize");
    if (p->resize != RESIZE_NONE)
        text_add(text, " %s", p->resample == RESAMPLE_BICUBIC ? "bicubic" : "bilinear");
    if (p->crop_rows > 0)
        text_add(text, ", center_crop [%" PRId64 ", %" PRId64 "]", p->crop_rows,
                 p->crop_cols);
}

/* ---- values ---- */

static bool same_values(const Preprocess *own, const Preprocess *other,
                        int64_t channels) {
    for (int64_t c = 0; c < channels; c++) {
        const double half = own->rescale / own->std[c] / 2;
        for (int byte = 0; byte < 256; byte += 255)
            if (fabs((double)preprocess_value(own, c, byte) -
                     (double)preprocess_value(other, c, byte)) >= half)
                return false;
    }
    return true;
}

/* "mean 0.5" or "mean [0.4, 0.5, 0.6]". */
static void add_triple(Text *text, const char *key, const double *value,
                       int64_t channels) {
    const bool one = channels == 1 || (value[0] == value[1] && value[1] == value[2]);
    text_add(text, "%s %s", key, one ? "" : "[");
    for (int64_t c = 0; c < (one ? 1 : channels); c++)
        text_add(text, "%s%g", c > 0 ? ", " : "", value[c]);
    if (!one) text_add(text, "]");
}

static void add_values(Text *text, const Preprocess *p, int64_t channels, bool rescale) {
    if (text->length > 0) text_add(text, ", ");
    if (rescale) text_add(text, "rescale %g, ", p->rescale);
    add_triple(text, "mean", p->mean, channels);
    add_triple(text, ", std", p->std, channels);
}

static void add_background(Text *text, const Preprocess *p) {
    text_add(text, "%sbackground %s", text->length > 0 ? ", " : "",
             p->background == IMAGE_BLACK ? "black" : "white");
}

const char *preprocess_difference(Arena *arena, const Preprocess *own,
                                  const Preprocess *other, const PreparedImages *images) {
    const bool sizes = !same_sizes(own, other, images);
    const bool values = !same_values(own, other, images->channels);
    const bool rescale = fabs(own->rescale / other->rescale - 1) > 1e-4;
    const Preprocess *const sides[] = {own, other};
    Text side[2] = {0};
    const char *out = NULL;
    for (int i = 0; i < 2; i++) {
        if (sizes) add_sizes(&side[i], sides[i]);
        if (values) add_values(&side[i], sides[i], images->channels, rescale);
        if (own->background != other->background) add_background(&side[i], sides[i]);
    }
    if (side[0].length > 0)
        out = arena_printf(arena, "%s where that has %s", side[0].data, side[1].data);
    text_free(&side[0]);
    text_free(&side[1]);
    return out;
}
