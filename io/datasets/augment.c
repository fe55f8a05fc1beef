/* Augment: the images. What is drawn stands in io/datasets/augment_draw.c. */
#include "io/datasets/augment_draw.h"

#include "io/datasets/dataset.h"
#include "ir/random.h"

#include <stdlib.h>
#include <string.h>

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

static float black_of(const Fetching *f, int64_t channel) {
    return f->source->black ? f->source->black[channel] : 0;
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

/* One row: dst[x] = src[x + right], black outside; mirrored when flipped. */
static void move_row(float *dst, const float *src, int64_t cols, Shift shift,
                     float black) {
    const int64_t right = shift.right;
    const int64_t first = right < 0 ? -right : 0;
    const int64_t end = right > 0 ? cols - right : cols;
    for (int64_t x = 0; x < cols; x++) {
        const int64_t at = shift.flip ? cols - 1 - x : x;
        dst[x] = at >= first && at < end ? src[at + right] : black;
    }
}

static void move_plane(float *dst, const float *src, int64_t rows, int64_t cols,
                       Shift shift, float black) {
    for (int64_t y = 0; y < rows; y++, dst += cols) {
        const int64_t from = y + shift.down;
        if (from >= 0 && from < rows)
            move_row(dst, src + from * cols, cols, shift, black);
        else
            for (int64_t x = 0; x < cols; x++) dst[x] = black;
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
                   black_of(f, c));
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

static void paste(const Fetching *f, const Box *box, float *dst) {
    const int64_t cols = f->source->cols;
    for (int64_t c = 0; c < f->source->channels; c++)
        for (int64_t y = box->top; y < box->top + box->rows; y++) {
            const int64_t at = c * f->pixels + y * cols + box->left;
            memcpy(dst + at, f->other + at, (size_t)box->cols * sizeof *dst);
        }
}

static Status read_sample(Fetching *f, const Mix *mix, int64_t sample, float *dst) {
    TRY(read_single(f, sample, dst));
    if (mix->share == 0) return STATUS_OK;
    TRY(need_image(f, &f->other));
    TRY(read_single(f, mix->other, f->other));
    if (mix->cut) {
        paste(f, &mix->box, dst);
        return STATUS_OK;
    }
    const float share = (float)mix->share;
    for (int64_t i = 0; i < f->source->channels * f->pixels; i++)
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
