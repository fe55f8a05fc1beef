/* Image set: keys, fetching, and what is kept in memory. See io/datasets/image_set.h. */
#include "io/datasets/image_set.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Damaged images that are named one by one. */
#define NAMED_MAX 5

/* The first sample of a class. */
typedef struct ClassFirst {
    int32_t label;
    int64_t sample;
    const char *name; /* of its image, in the set's arena */
} ClassFirst;

typedef struct ImageSet {
    Batches base;
    Column columns[IMAGE_COLUMNS];
    Arena *arena; /* holds this struct */
    ImageSource source;
    bool open; /* the source is */
    Preprocess preprocess;
    ImageOptions options;
    Augment augment;
    AugmentSource view;
    int64_t *image;     /* by sample: number of its image in the source */
    int32_t *labels;    /* by sample; NULL without */
    ClassFirst *firsts; /* by label, where the source is closed; NULL without labels */
    int64_t first_count;
    Tensor ready;     /* u8[n, channels, rows, cols], or no data */
    Image *originals; /* by sample; NULL = not kept */
    int64_t original_count;
    float (*value)[256]; /* by channel and byte */
    float *black;
} ImageSet;

/* ---- keys, and what becomes of images by them ---- */

Status image_keys_check(void *options, Arena *arena, Loc at, Diag *diag) {
    ImageKeys *keys = options;
    if (keys->resize.count > 2)
        return diag_fail(diag, STATUS_RECIPE, at, "resize",
                         "expected one or two numbers, found %d", keys->resize.count);
    if (keys->center_crop.count > 2)
        return diag_fail(diag, STATUS_RECIPE, at, "center_crop",
                         "expected one or two numbers, found %d",
                         keys->center_crop.count);
    return augment_bind(&keys->changes, keys->augment, arena, diag);
}

static Status take_values(double out[3], const RealList *list, const char *key,
                          int64_t channels, Loc at, Diag *diag) {
    if (list->count == 0) return STATUS_OK;
    if (list->count != 1 && list->count != channels)
        return diag_fail(diag, STATUS_RECIPE, at, key,
                         "expected one value, or one for each of the %d channels, found "
                         "%d",
                         (int)channels, list->count);
    for (int c = 0; c < 3; c++) out[c] = list->items[list->count == 1 ? 0 : c % channels];
    return STATUS_OK;
}

static void take_sizes(Preprocess *out, const ImageKeys *keys) {
    const IntList *resize = &keys->resize, *crop = &keys->center_crop;
    if (resize->count > 0) {
        out->resize = resize->count == 1 ? RESIZE_SHORTEST : RESIZE_EXACT;
        out->rows = resize->items[0];
        out->cols = resize->items[resize->count - 1];
        out->crop_rows = out->crop_cols = 0;
    }
    if (crop->count > 0) {
        out->crop_rows = crop->items[0];
        out->crop_cols = crop->items[crop->count - 1];
    }
}

Status image_keys_preprocess(Preprocess *out, const ImageKeys *keys, Arena *arena, Loc at,
                             Diag *diag) {
    const int64_t channels = keys->color == IMAGE_GRAY ? 1 : 3;
    *out = preprocess_default;
    if (keys->preprocessor) TRY(preprocess_read(out, keys->preprocessor, arena, diag));
    take_sizes(out, keys);
    if (keys->resample > 0) out->resample = keys->resample - 1;
    if (keys->rescale > 0) out->rescale = keys->rescale;
    if (keys->background > 0) out->background = keys->background - 1;
    TRY(take_values(out->mean, &keys->mean, "mean", channels, at, diag));
    return take_values(out->std, &keys->std, "std", channels, at, diag);
}

/* ---- reading samples ---- */

static Status load(const ImageSet *set, int64_t sample, bool header, Image *out,
                   Diag *diag) {
    const ImageSource *source = &set->source;
    return source->load(source->self, set->image[sample], &set->options, header, out,
                        diag);
}

static const char *name_of(const ImageSet *set, int64_t sample) {
    if (!set->open) return set->base.name;
    return set->source.name(set->source.self, set->image[sample]);
}

/* All images must get the same size. */
static Status check_size(const ImageSet *set, int64_t sample, int64_t rows, int64_t cols,
                         Diag *diag) {
    const AugmentSource *view = &set->view;
    if (rows == view->rows && cols == view->cols) return STATUS_OK;
    Status status = diag_fail(diag, STATUS_FORMAT, LOC_FILE(name_of(set, sample)), NULL,
                              "expected %" PRId64 " x %" PRId64
                              " pixels as in other images, found %" PRId64 " x %" PRId64,
                              view->cols, view->rows, cols, rows);
    diag_hint(diag, "`resize: [rows, cols]`, `center_crop` or a preprocessor gives all "
                    "images one size");
    return status;
}

/* An image with the size that all get. */
static Status size_image(const ImageSet *set, int64_t sample, const Image *image,
                         Image *out, Diag *diag) {
    TRY(preprocess_image(out, image, &set->preprocess, name_of(set, sample), diag));
    Status status = check_size(set, sample, out->rows, out->cols, diag);
    if (status != STATUS_OK) image_free(out);
    return status;
}

/* Part of an image, resized. */
static Status cut_values(const ImageSet *set, const Image *image, const Box *box,
                         float *dst, Diag *diag) {
    const AugmentSource *view = &set->view;
    float *part = malloc((size_t)(box->rows * box->cols) * sizeof *part);
    if (!part)
        return diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL, "no memory for an image");
    Status status = STATUS_OK;
    for (int64_t c = 0; c < image->channels && status == STATUS_OK; c++) {
        for (int64_t y = 0; y < box->rows; y++)
            for (int64_t x = 0; x < box->cols; x++) {
                const int64_t at = (box->top + y) * image->cols + box->left + x;
                part[y * box->cols + x] =
                    set->value[c][image->pixels[at * image->channels + c]];
            }
        status = resample_plane(dst + c * view->rows * view->cols, view->rows, view->cols,
                                part, box->rows, box->cols, box->cols,
                                (ResampleKind)set->augment.resample, diag);
    }
    free(part);
    return status;
}

static Status original_values(const ImageSet *set, int64_t sample, const Image *image,
                              const Box *box, float *dst, Diag *diag) {
    Image small;
    if (box) return cut_values(set, image, box, dst, diag);
    TRY(size_image(set, sample, image, &small, diag));
    const int64_t pixels = small.rows * small.cols;
    for (int64_t c = 0; c < small.channels; c++)
        for (int64_t i = 0; i < pixels; i++)
            dst[c * pixels + i] = set->value[c][small.pixels[i * small.channels + c]];
    image_free(&small);
    return STATUS_OK;
}

/* AugmentSource.read. */
static Status view_read(const void *self, int64_t sample, uint64_t key, const Box *box,
                        float *dst, Diag *diag) {
    const ImageSet *set = self;
    Image image;
    (void)key;
    if (set->ready.buf) {
        const int64_t channels = set->view.channels;
        const int64_t pixels = set->view.rows * set->view.cols;
        const uint8_t *src = tensor_data(&set->ready);
        src += sample * channels * pixels;
        for (int64_t c = 0; c < channels; c++)
            for (int64_t i = 0; i < pixels; i++)
                dst[c * pixels + i] = set->value[c][src[c * pixels + i]];
        return STATUS_OK;
    }
    if (set->originals)
        return original_values(set, sample, &set->originals[sample], box, dst, diag);
    TRY(load(set, sample, false, &image, diag));
    Status status = original_values(set, sample, &image, box, dst, diag);
    image_free(&image);
    return status;
}

/* AugmentSource.size. */
static Status view_size(const void *self, int64_t sample, Box *out, Diag *diag) {
    const ImageSet *set = self;
    Image image;
    if (set->originals)
        image = set->originals[sample];
    else
        TRY(load(set, sample, true, &image, diag));
    *out = (Box){0, 0, image.rows, image.cols};
    return STATUS_OK;
}

static Status set_fetch(const Batches *self, const Fetch *what, void *const *dst,
                        Diag *diag) {
    const ImageSet *set = (const ImageSet *)self;
    return augment_fetch(&set->augment, &set->view, set->labels, self, what, dst, diag);
}

/* ---- names of images ---- */

static int compare_firsts(const void *a, const void *b) {
    const ClassFirst *x = a, *y = b;
    if (x->label != y->label) return x->label < y->label ? -1 : 1;
    return x->sample < y->sample ? -1 : x->sample > y->sample;
}

/* Keeps the names that messages about labels want when the source is closed. */
static void keep_firsts(ImageSet *set) {
    const int64_t count = set->base.count;
    if (!set->labels) return;
    ClassFirst *all = memory_alloc((size_t)count, sizeof *all);
    for (int64_t i = 0; i < count; i++) all[i] = (ClassFirst){set->labels[i], i, NULL};
    qsort(all, (size_t)count, sizeof *all, compare_firsts);
    for (int64_t i = 0; i < count; i++)
        if (i == 0 || all[i].label != all[i - 1].label) all[set->first_count++] = all[i];
    set->firsts = memory_grow(all, (size_t)set->first_count, sizeof *all);
    for (int64_t i = 0; i < set->first_count; i++)
        set->firsts[i].name =
            arena_strdup(set->arena, name_of(set, set->firsts[i].sample));
}

/* Batches.origin. */
static const char *set_origin(const Batches *self, int64_t index) {
    const ImageSet *set = (const ImageSet *)self;
    if (set->open) return name_of(set, index);
    const ClassFirst wanted = {set->labels ? set->labels[index] : 0, index, NULL};
    const ClassFirst *found =
        set->firsts ? bsearch(&wanted, set->firsts, (size_t)set->first_count,
                              sizeof wanted, compare_firsts)
                    : NULL;
    return found ? found->name : NULL;
}

static void close_source(ImageSet *set) {
    if (set->open && set->source.close) set->source.close(set->source.self);
    set->open = false;
}

static void set_destroy(Batches *self) {
    ImageSet *set = (ImageSet *)self;
    for (int64_t i = 0; i < set->original_count; i++) image_free(&set->originals[i]);
    free(set->originals);
    free(set->image);
    free(set->labels);
    free(set->firsts);
    tensor_release(&set->ready);
    close_source(set);
    arena_destroy(set->arena);
}

/* ---- keeping images ---- */

/* Rows and columns that an image gets. */
static Status find_sides(const ImageSet *set, int64_t sample, const Image *image,
                         int64_t *rows, int64_t *cols, Diag *diag) {
    Image none;
    *rows = image->rows;
    *cols = image->cols;
    if (preprocess_size(&set->preprocess, rows, cols)) return STATUS_OK;
    return preprocess_image(&none, image, &set->preprocess, name_of(set, sample), diag);
}

/* What all images become, from the first one whose header can be read. */
static Status find_size(ImageSet *set, Diag *diag) {
    Status status = STATUS_OK;
    for (int64_t i = 0; i < set->base.count; i++) {
        Image image;
        Diag *own = diag_create();
        status = load(set, i, true, &image, own);
        diag_destroy(own);
        if (status != STATUS_OK) {
            if (set->source.skip_damaged && status == STATUS_FORMAT) continue;
            return load(set, i, true, &image, diag);
        }
        set->view.channels = image.channels;
        return find_sides(set, i, &image, &set->view.rows, &set->view.cols, diag);
    }
    return diag_fail(diag, STATUS_FORMAT, LOC_FILE(set->base.name), NULL,
                     "every one of %" PRId64 " images is damaged", set->base.count);
}

/* Bytes of what would be kept; images that cannot be read count 0. */
static double kept_bytes(const ImageSet *set) {
    const AugmentSource *view = &set->view;
    double bytes = 0;
    if (!view->size)
        return (double)set->base.count *
               (double)(view->channels * view->rows * view->cols);
    for (int64_t i = 0; i < set->base.count; i++) {
        Image image;
        Diag *own = diag_create();
        if (load(set, i, true, &image, own) == STATUS_OK)
            bytes += (double)(image.rows * image.cols * image.channels);
        diag_destroy(own);
    }
    return bytes;
}

static Status keep_ready(ImageSet *set, int64_t sample, const Image *image, Diag *diag) {
    const AugmentSource *view = &set->view;
    Image small;
    void *data;
    TRY(tensor_writable(&set->ready, &data, diag));
    TRY(size_image(set, sample, image, &small, diag));
    /* Bytes [rows, cols, channels] to [channels, rows, cols]. */
    const int64_t channels = small.channels, pixels = small.rows * small.cols;
    uint8_t *dst = (uint8_t *)data + sample * view->channels * view->rows * view->cols;
    for (int64_t c = 0; c < channels; c++)
        for (int64_t i = 0; i < pixels; i++)
            dst[c * pixels + i] = small.pixels[i * channels + c];
    image_free(&small);
    return STATUS_OK;
}

/* Keeps a decoded image as sample `sample`, and frees what is not kept. */
static Status keep_image(ImageSet *set, int64_t sample, Image *image, Diag *diag) {
    if (set->originals) {
        int64_t rows, cols;
        set->originals[sample] = *image;
        set->original_count = sample + 1;
        TRY(find_sides(set, sample, image, &rows, &cols, diag));
        return check_size(set, sample, rows, cols, diag);
    }
    Status status = set->ready.buf ? keep_ready(set, sample, image, diag) : STATUS_OK;
    image_free(image);
    return status;
}

/* Decodes an image; a damaged one gives *skipped, named by a warning if it is one of the
 * first. */
static Status load_or_skip(const ImageSet *set, int64_t sample, int64_t skips,
                           Image *image, bool *skipped, Diag *diag) {
    *skipped = false;
    if (!set->source.skip_damaged) return load(set, sample, false, image, diag);
    Diag *own = diag_create();
    Status status = load(set, sample, false, image, own);
    diag_destroy(own);
    if (status == STATUS_OK) return STATUS_OK;
    if (status != STATUS_FORMAT) return load(set, sample, false, image, diag);
    *skipped = true;
    if (skips < NAMED_MAX)
        diag_warn(diag, LOC_FILE(name_of(set, sample)), NULL,
                  "the image is damaged and left out");
    return STATUS_OK;
}

/* Decodes every image, keeps what there is room for and leaves out what is damaged. */
static Status load_all(ImageSet *set, Diag *diag) {
    const int64_t all = set->base.count;
    int64_t count = 0;
    for (int64_t i = 0; i < all; i++) {
        Image image;
        bool skipped;
        TRY(load_or_skip(set, i, i - count, &image, &skipped, diag));
        if (skipped) continue;
        set->image[count] = set->image[i];
        if (set->labels) set->labels[count] = set->labels[i];
        TRY(keep_image(set, count, &image, diag));
        count++;
    }
    set->base.count = count;
    if (count == all) return STATUS_OK;
    if (count == 0)
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(set->base.name), NULL,
                         "every one of %" PRId64 " images is damaged", all);
    diag_warn(diag, LOC_FILE(set->base.name), NULL,
              "%" PRId64 " of %" PRId64 " images are damaged and left out", all - count,
              all);
    return STATUS_OK;
}

/* ---- opening ---- */

static void fill_values(ImageSet *set) {
    const int64_t channels = set->view.channels;
    set->value = arena_array(set->arena, (size_t)channels, sizeof *set->value);
    set->black = ARENA_ARRAY(set->arena, float, (size_t)channels);
    for (int64_t c = 0; c < channels; c++) {
        for (int v = 0; v < 256; v++)
            set->value[c][v] = preprocess_value(&set->preprocess, c, v);
        set->black[c] = set->value[c][0];
    }
    set->view.black = set->black;
}

static Status choose_samples(ImageSet *set, const ImageKeys *keys, Loc at, Diag *diag) {
    const ImageSource *source = &set->source;
    int64_t count;
    TRY(dataset_slice(&count, source->count, keys->offset, keys->limit, set->base.name,
                      at, diag));
    set->base.count = count;
    set->image = memory_alloc((size_t)count, sizeof *set->image);
    for (int64_t i = 0; i < count; i++) set->image[i] = keys->offset + i;
    if (!source->labels) return STATUS_OK;
    set->labels = memory_alloc((size_t)count, sizeof *set->labels);
    memcpy(set->labels, source->labels + keys->offset,
           (size_t)count * sizeof *set->labels);
    set->base.classes = source->classes;
    if (!source->class_names) return STATUS_OK;
    const char **names = ARENA_ARRAY(set->arena, const char *, (size_t)source->classes);
    for (int64_t i = 0; i < source->classes; i++)
        names[i] = arena_strdup(set->arena, source->class_names[i]);
    set->base.class_names = names;
    return STATUS_OK;
}

static Status set_fill(ImageSet *set, const ImageKeys *keys, Loc at, Diag *diag) {
    set->augment = keys->changes;
    set->base.augments = set->augment.on;
    set->options.color = keys->color;
    set->options.pixels = IMAGE_PIXELS_MAX;
    TRY(image_keys_preprocess(&set->preprocess, keys, set->arena, at, diag));
    set->options.background = set->preprocess.background;
    TRY(choose_samples(set, keys, at, diag));
    TRY(find_size(set, diag));
    if (set->augment.resized_crop.count > 0) set->view.size = view_size;
    fill_values(set);
    set->base.preparation =
        preprocess_text(set->arena, &set->preprocess, set->view.channels);
    const bool keep = kept_bytes(set) <= (double)keys->memory * (1 << 20);
    if (keep && set->view.size)
        set->originals = memory_alloc((size_t)set->base.count, sizeof *set->originals);
    if (keep && !set->view.size) {
        const AugmentSource *view = &set->view;
        const int64_t shape[] = {set->base.count, view->channels, view->rows, view->cols};
        TRY(tensor_create(&set->ready, DTYPE_U8, 4, shape, diag));
    }
    if (keep || set->source.skip_damaged) TRY(load_all(set, diag));
    if (keep) keep_firsts(set);
    if (keep) close_source(set);
    set->base.columns = set->columns;
    set->base.column_count = augment_columns(set->columns, "pixel_values", &set->augment,
                                             &set->view, set->labels != NULL);
    return STATUS_OK;
}

Status image_set_open(Batches **out, const ImageSource *source, const ImageKeys *keys,
                      const char *name, Loc at, Diag *diag) {
    Arena *arena = arena_create();
    ImageSet *set = ARENA_NEW(arena, ImageSet);
    set->arena = arena;
    set->source = *source;
    set->open = true;
    set->base.name = arena_strdup(arena, name);
    set->base.partial = true;
    set->base.origin = set_origin;
    set->base.fetch = set_fetch;
    set->base.destroy = set_destroy;
    set->view.self = set;
    set->view.read = view_read;
    Status status = set_fill(set, keys, at, diag);
    if (status == STATUS_OK)
        *out = &set->base;
    else
        set_destroy(&set->base);
    return status;
}
