/* Augment: options, what is drawn, and the images. */
#include "io/datasets/augment_draw.h"

#include "io/datasets/dataset.h"
#include "ir/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Boxes that are tried before the fallback. */
#define TRIES 10

static const double ERASE_AREA[] = {0.02, 0.33};
static const double ERASE_RATIO[] = {0.3, 3.3};

/* ---- options ---- */

static const Field FIELDS[] = {
    F_BOOL(Augment, flip, "mirror every other sample, at random"),
    F_INT(Augment, crop, 0, 16384,
          "pad with so many black pixels and cut a random part of the old size"),
    F_REALS(Augment, resized_crop, 1e-6, 1,
            "resize a random part of the image: least and largest share of its area"),
    F_REALS(Augment, resized_ratio, 1e-3, 1e3,
            "and the part's least and largest width / height"),
    F_CHOICE(Augment, resample, RESAMPLE_NAMES, "how such a part is resized"),
    F_REAL(Augment, erase, 0, 1, "probability that a random box is erased"),
    F_CHOICE(Augment, erase_fill, ERASE_FILLS,
             "what stands there then: 0, or normal noise"),
    F_REAL(Augment, mixup, 0, 1e3,
           "mixup: alpha of the beta distribution of weights; 0 = off"),
    F_REAL(Augment, cutmix, 0, 1e3, "CutMix: alpha of that of areas; 0 = off"),
    F_REAL(Augment, mix, 0, 1, "probability that a sample is mixed"),
    F_REAL(Augment, cutmix_share, 0, 1, "share of CutMix where mixup is on as well"),
    F_END};

static Status range_check(const RealList *list, const char *name, const Tree *spec,
                          Diag *diag) {
    const Tree *at = tree_get(spec, name);
    if (list->count == 0 || (list->count == 2 && list->items[0] <= list->items[1]))
        return STATUS_OK;
    return diag_fail(diag, STATUS_RECIPE, at ? at->loc : spec->loc, name,
                     "expected two numbers, the least and the largest, found %s",
                     list->count == 2 ? "the larger one first"
                                      : (list->count == 1 ? "one" : "more"));
}

/* A key that says how something is done comes with one that asks for it. */
static Status needs_check(const Tree *spec, Diag *diag) {
    static const struct {
        const char *name, *one, *other;
    } NEEDS[] = {{"resized_ratio", "resized_crop", NULL},
                 {"resample", "resized_crop", NULL},
                 {"erase_fill", "erase", NULL},
                 {"mix", "mixup", "cutmix"},
                 {"cutmix_share", "mixup", "cutmix"}};
    for (size_t i = 0; i < sizeof NEEDS / sizeof *NEEDS; i++) {
        const char *one = NEEDS[i].one, *other = NEEDS[i].other;
        const Tree *at = tree_get(spec, NEEDS[i].name);
        if (!at || tree_get(spec, one) || (other && tree_get(spec, other))) continue;
        return diag_fail(diag, STATUS_RECIPE, at->loc, NEEDS[i].name,
                         "expected %s%s%s with it", one, other ? " or " : "",
                         other ? other : "");
    }
    return STATUS_OK;
}

Status augment_bind(Augment *out, const Tree *spec, Arena *arena, Diag *diag) {
    static double ratio[] = {3.0 / 4, 4.0 / 3};
    *out = (Augment){.resized_ratio = {ratio, 2}, .mix = 1, .cutmix_share = 0.5};
    if (!spec) return STATUS_OK;
    TRY(fields_bind(FIELDS, spec, out, arena, STATUS_RECIPE, diag));
    TRY(range_check(&out->resized_crop, "resized_crop", spec, diag));
    TRY(range_check(&out->resized_ratio, "resized_ratio", spec, diag));
    TRY(needs_check(spec, diag));
    if (out->resized_ratio.count == 0) out->resized_ratio = (RealList){ratio, 2};
    out->on = out->flip || out->crop > 0 || out->resized_crop.count > 0 ||
              out->erase > 0 || augment_mixes(out);
    return STATUS_OK;
}

bool augment_mixes(const Augment *augment) {
    return augment->mix > 0 && (augment->mixup > 0 || augment->cutmix > 0);
}

/* ---- numbers ---- */

uint64_t draw_key(uint64_t key, int64_t sample) {
    return random_key(random_key_name(key, "image"), (uint64_t)sample);
}

static double between(uint64_t key, uint64_t index, double least, double most) {
    return least + (most - least) * random_uniform(key, index);
}

/* A whole number in [0, bound). */
static int64_t below(uint64_t key, uint64_t index, int64_t bound) {
    return (int64_t)((unsigned __int128)random_u64(key, index) * (uint64_t)bound >> 64);
}

/* Gamma(shape, 1), shape >= 1: Marsaglia and Tsang, A simple method for generating gamma
 * variables, 2000. */
static double draw_gamma(uint64_t key, double shape) {
    const double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (uint64_t i = 0;; i += 2) {
        const double x = random_normal(key, i), v = pow(1 + c * x, 3);
        const double u = 1 - random_uniform(key, i + 1); /* in (0, 1] */
        if (v > 0 && log(u) < x * x / 2 + d - d * v + d * log(v)) return d * v;
    }
}

/* The logarithm of Gamma(shape, 1): below shape 1 the number itself may underflow. */
static double draw_log_gamma(uint64_t key, double shape) {
    const double u = 1 - random_uniform(random_key_name(key, "power"), 0);
    return log(draw_gamma(key, shape + 1)) + log(u) / shape;
}

double draw_beta(uint64_t key, double alpha) {
    const double x = draw_log_gamma(random_key(key, 0), alpha);
    const double y = draw_log_gamma(random_key(key, 1), alpha);
    return 1 / (1 + exp(y - x));
}

/* ---- draws of one image ---- */

Shift draw_shift(const Augment *augment, uint64_t draws) {
    Shift shift = {0};
    if (augment->flip) shift.flip = random_u64(random_key_name(draws, "flip"), 0) & 1;
    if (augment->crop == 0) return shift;
    const uint64_t key = random_key_name(draws, "crop");
    shift.down = below(key, 0, 2 * augment->crop + 1) - augment->crop;
    shift.right = below(key, 1, 2 * augment->crop + 1) - augment->crop;
    return shift;
}

/* Tries boxes of a random share of the area, ratios with a uniform logarithm. */
static bool draw_box(uint64_t key, int64_t rows, int64_t cols, const double *area,
                     const double *ratio, Box *out) {
    for (uint64_t i = 0; i < 4 * TRIES; i += 4) {
        const double size =
            (double)rows * (double)cols * between(key, i, area[0], area[1]);
        const double shape = exp(between(key, i + 1, log(ratio[0]), log(ratio[1])));
        const double height = round(sqrt(size / shape)),
                     width = round(sqrt(size * shape));
        if (height < 1 || width < 1 || height > (double)rows || width > (double)cols)
            continue;
        *out = (Box){.rows = (int64_t)height, .cols = (int64_t)width};
        out->top = below(key, i + 2, rows - out->rows + 1);
        out->left = below(key, i + 3, cols - out->cols + 1);
        return true;
    }
    return false;
}

/* The largest box in the middle with a ratio in the range. */
static Box middle_box(int64_t rows, int64_t cols, const double *ratio) {
    const double shape = (double)cols / (double)rows;
    Box box = {0, 0, rows, cols};
    if (shape < ratio[0]) box.rows = (int64_t)round((double)cols / ratio[0]);
    if (shape > ratio[1]) box.cols = (int64_t)round((double)rows * ratio[1]);
    if (box.rows < 1) box.rows = 1;
    if (box.cols < 1) box.cols = 1;
    box.top = (rows - box.rows) / 2;
    box.left = (cols - box.cols) / 2;
    return box;
}

Box draw_resized_crop(const Augment *augment, uint64_t draws, int64_t rows,
                      int64_t cols) {
    const double *ratio = augment->resized_ratio.items;
    Box box;
    if (draw_box(random_key_name(draws, "resized"), rows, cols,
                 augment->resized_crop.items, ratio, &box))
        return box;
    return middle_box(rows, cols, ratio);
}

bool draw_erase(const Augment *augment, uint64_t draws, int64_t rows, int64_t cols,
                Box *out) {
    const uint64_t key = random_key_name(draws, "erase");
    if (!(random_uniform(key, 0) < augment->erase)) return false;
    return draw_box(random_key(key, 1), rows, cols, ERASE_AREA, ERASE_RATIO, out);
}

/* ---- draws of two images ---- */

/* The ends [first, last) of a side of CutMix's box around a random centre, cut off at the
 * image's border. */
static void cut_side(uint64_t key, uint64_t index, int64_t side, double length,
                     int64_t *first, int64_t *last) {
    const int64_t center = below(key, index, side), half = (int64_t)(length / 2);
    *first = center - half < 0 ? 0 : center - half;
    *last = center + half > side ? side : center + half;
}

Mix augment_mix(const Augment *augment, uint64_t key, int64_t sample, int64_t count,
                int64_t rows, int64_t cols) {
    Mix mix = {.other = sample};
    if (!augment_mixes(augment)) return mix;
    key = random_key(random_key_name(key, "mix"), (uint64_t)sample);
    if (!(random_uniform(key, 0) < augment->mix)) return mix;
    const bool both = augment->mixup > 0 && augment->cutmix > 0;
    const bool cut =
        both ? random_uniform(key, 1) < augment->cutmix_share : augment->cutmix > 0;
    mix.other = below(key, 2, count);
    mix.share =
        draw_beta(random_key_name(key, "beta"), cut ? augment->cutmix : augment->mixup);
    if (!cut) return mix;
    /* The box's share of the area is what remains of it at the border. */
    const double root = sqrt(mix.share);
    int64_t top, bottom, left, right;
    key = random_key_name(key, "box");
    cut_side(key, 0, rows, (double)rows * root, &top, &bottom);
    cut_side(key, 1, cols, (double)cols * root, &left, &right);
    mix.cut = true;
    mix.box = (Box){top, left, bottom - top, right - left};
    mix.share = (double)(mix.box.rows * mix.box.cols) / ((double)rows * (double)cols);
    return mix;
}

/* ---- columns ---- */

enum { COLUMN_PIXELS, COLUMN_LABEL, COLUMN_OTHER, COLUMN_SHARE };

int augment_columns(Column *columns, const char *input, const Augment *augment,
                    const AugmentSource *source, bool labels) {
    columns[COLUMN_PIXELS] =
        (Column){input, {DTYPE_F32, 3, {source->channels, source->rows, source->cols}}};
    columns[COLUMN_LABEL] = (Column){DATA_LABELS, {DTYPE_I32, 0, {0}}};
    columns[COLUMN_OTHER] = (Column){DATA_MIX_LABELS, {DTYPE_I32, 0, {0}}};
    columns[COLUMN_SHARE] = (Column){DATA_MIX_SHARE, {DTYPE_F32, 0, {0}}};
    if (!labels) return 1;
    return augment_mixes(augment) ? IMAGE_COLUMNS : 2;
}

/* One fetch: what it needs beside its destination. */
typedef struct Fetching {
    const Augment *augment;
    const AugmentSource *source;
    uint64_t key;
    int64_t pixels;       /* of one channel */
    float *spare, *other; /* images; NULL until they are needed */
    float *cut;           /* the part of an image that is resized */
    Diag *diag;
} Fetching;

static Status need_image(Fetching *f, float **image) {
    if (*image) return STATUS_OK;
    *image = malloc((size_t)(f->source->channels * f->pixels) * sizeof **image);
    if (*image) return STATUS_OK;
    return diag_fail(f->diag, STATUS_MEMORY, LOC_NONE, NULL,
                     "no memory to augment an image");
}

/* ---- geometry ---- */

/* A part of a source whose images all have the same size: resized from the whole. */
static Status read_resized(Fetching *f, int64_t sample, const Box *box, float *dst) {
    const AugmentSource *s = f->source;
    TRY(need_image(f, &f->cut));
    TRY(s->read(s->self, sample, f->key, NULL, f->cut, f->diag));
    for (int64_t c = 0; c < s->channels; c++)
        TRY(resample_plane(dst + c * f->pixels, s->rows, s->cols,
                           f->cut + c * f->pixels + box->top * s->cols + box->left,
                           box->rows, box->cols, s->cols,
                           (ResampleKind)f->augment->resample, f->diag));
    return STATUS_OK;
}

/* The sample, or a random part of it. */
static Status read_view(Fetching *f, uint64_t draws, int64_t sample, float *dst) {
    const AugmentSource *s = f->source;
    Box whole = {0, 0, s->rows, s->cols};
    if (f->augment->resized_crop.count == 0)
        return s->read(s->self, sample, f->key, NULL, dst, f->diag);
    if (s->size) TRY(s->size(s->self, sample, &whole, f->diag));
    const Box box = draw_resized_crop(f->augment, draws, whole.rows, whole.cols);
    return s->size ? s->read(s->self, sample, f->key, &box, dst, f->diag)
                   : read_resized(f, sample, &box, dst);
}

/* dst[y][x] = src[y + down][x + right], black outside; mirrored when flipped. */
static void move_plane(float *dst, const float *src, int64_t rows, int64_t cols,
                       Shift shift, float black) {
    const int64_t right = shift.right, first = right < 0 ? -right : 0;
    const int64_t end = right > 0 ? cols - right : cols;
    for (int64_t y = 0; y < rows; y++, dst += cols) {
        const int64_t from = y + shift.down;
        const float *row = from >= 0 && from < rows ? src + from * cols : NULL;
        for (int64_t x = 0; x < cols; x++) {
            const int64_t at = shift.flip ? cols - 1 - x : x;
            dst[x] = row && at >= first && at < end ? row[at + right] : black;
        }
    }
}

static Status read_moved(Fetching *f, uint64_t draws, int64_t sample, float *dst) {
    const AugmentSource *s = f->source;
    const Shift shift = draw_shift(f->augment, draws);
    if (!shift.flip && shift.down == 0 && shift.right == 0)
        return read_view(f, draws, sample, dst);
    TRY(need_image(f, &f->spare));
    TRY(read_view(f, draws, sample, f->spare));
    for (int64_t c = 0; c < s->channels; c++)
        move_plane(dst + c * f->pixels, f->spare + c * f->pixels, s->rows, s->cols, shift,
                   s->black ? s->black[c] : 0);
    return STATUS_OK;
}

/* ---- erasing and mixing ---- */

static void erase(const Fetching *f, uint64_t draws, float *image) {
    const AugmentSource *s = f->source;
    Box box;
    if (!draw_erase(f->augment, draws, s->rows, s->cols, &box)) return;
    const bool noise = f->augment->erase_fill == ERASE_NOISE;
    const uint64_t key = random_key_name(draws, "noise");
    for (int64_t c = 0; c < s->channels; c++)
        for (int64_t y = box.top; y < box.top + box.rows; y++)
            for (int64_t x = box.left; x < box.left + box.cols; x++) {
                const int64_t at = c * f->pixels + y * s->cols + x;
                image[at] = noise ? (float)random_normal(key, (uint64_t)at) : 0;
            }
}

/* A sample changed by itself. */
static Status read_single(Fetching *f, int64_t sample, float *dst) {
    if (f->key == 0)
        return f->source->read(f->source->self, sample, 0, NULL, dst, f->diag);
    const uint64_t draws = draw_key(f->key, sample);
    TRY(read_moved(f, draws, sample, dst));
    erase(f, draws, dst);
    return STATUS_OK;
}

static Status read_sample(Fetching *f, const Mix *mix, int64_t sample, float *dst) {
    const int64_t channels = f->source->channels;
    TRY(read_single(f, sample, dst));
    if (mix->share == 0) return STATUS_OK;
    TRY(need_image(f, &f->other));
    TRY(read_single(f, mix->other, f->other));
    if (mix->cut) {
        const Box *box = &mix->box;
        for (int64_t c = 0; c < channels; c++)
            for (int64_t y = box->top; y < box->top + box->rows; y++) {
                const int64_t at = c * f->pixels + y * f->source->cols + box->left;
                memcpy(dst + at, f->other + at, (size_t)box->cols * sizeof *dst);
            }
        return STATUS_OK;
    }
    const float share = (float)mix->share;
    for (int64_t i = 0; i < channels * f->pixels; i++)
        dst[i] = (1 - share) * dst[i] + share * f->other[i];
    return STATUS_OK;
}

/* ---- fetching ---- */

/* Writes sample i of the fetch into the columns that are wanted. */
static Status put_sample(Fetching *f, const int32_t *labels, const Batches *data,
                         int64_t sample, int64_t i, void *const *dst) {
    const AugmentSource *s = f->source;
    Mix mix = {.other = sample};
    if (f->key != 0)
        mix = augment_mix(f->augment, f->key, sample, data->count, s->rows, s->cols);
    if (dst[COLUMN_PIXELS])
        TRY(read_sample(f, &mix, sample,
                        (float *)dst[COLUMN_PIXELS] + i * s->channels * f->pixels));
    if (data->column_count > COLUMN_LABEL && dst[COLUMN_LABEL])
        ((int32_t *)dst[COLUMN_LABEL])[i] = labels[sample];
    if (data->column_count > COLUMN_OTHER && dst[COLUMN_OTHER])
        ((int32_t *)dst[COLUMN_OTHER])[i] = labels[mix.other];
    if (data->column_count > COLUMN_SHARE && dst[COLUMN_SHARE])
        ((float *)dst[COLUMN_SHARE])[i] = (float)mix.share;
    return STATUS_OK;
}

Status augment_fetch(const Augment *augment, const AugmentSource *source,
                     const int32_t *labels, const Batches *data, const Fetch *what,
                     void *const *dst, Diag *diag) {
    Fetching f = {.augment = augment,
                  .source = source,
                  .key = what->key,
                  .pixels = source->rows * source->cols,
                  .diag = diag};
    Status status = STATUS_OK;
    for (int64_t i = 0; i < what->n && status == STATUS_OK; i++) {
        const int64_t sample = what->index[i];
        status = dataset_check_sample(data, sample, diag);
        if (status == STATUS_OK) status = put_sample(&f, labels, data, sample, i, dst);
    }
    free(f.spare);
    free(f.other);
    free(f.cut);
    return status;
}
