/* IDX: the format of MNIST and its relatives (http://yann.lecun.com/exdb/mnist), plain or
 * gzip-compressed. Big-endian: a magic number 0, 0, type 8 (unsigned byte), rank; then
 * one 32-bit size per dimension; then the data.
 *
 * Pixels stay bytes in memory. fetch() maps them to (byte / 255 - mean) / std through one
 * table per channel; `flip` and `shift` move an image on the way, then comes what
 * `augment` asks for (io/datasets/augment.h). */
#include "io/datasets/augment.h"
#include "io/datasets/dataset.h"
#include "io/datasets/gzip.h"
#include "io/datasets/preprocess.h"
#include "ir/random.h"

#include <inttypes.h>
#include <string.h>

/* Larger images, or more samples, are taken for damage. */
#define SIDE_MAX     16384
#define CHANNELS_MAX 64
#define SAMPLES_MAX  ((int64_t)1 << 31)

typedef struct IdxOptions {
    const char *images, *labels;
    RealList mean, std;
    int64_t limit, offset, classes, shift;
    bool flip;
    const Tree *augment;
    Augment changes; /* bound from `augment` */
} IdxOptions;

typedef struct IdxData {
    Batches base;
    Column columns[IMAGE_COLUMNS];
    Arena *arena; /* holds this struct */
    Augment augment;
    AugmentSource view;
    float *black;  /* per channel */
    Tensor pixels; /* u8[n, channels, rows, cols] */
    Tensor labels; /* i32[n] */
    int64_t channels, rows, cols;
    int64_t shift;
    bool flip;
    float (*table)[256]; /* per channel: byte -> value */
} IdxData;

/* --- fetching --- */

/* How one sample is moved. */
typedef struct Move {
    bool flip;
    int64_t down, right;
} Move;

static int64_t draw_shift(uint64_t key, uint64_t index, int64_t most) {
    return (int64_t)(random_u64(key, index) % (uint64_t)(2 * most + 1)) - most;
}

/* Pixel (y, x) comes from (y - down, x - right), mirrored when flipped; black outside. */
static void sample_copy(const IdxData *data, const uint8_t *src, float *dst, Move move) {
    int64_t rows = data->rows, cols = data->cols;
    for (int64_t c = 0; c < data->channels; c++, src += rows * cols)
        for (int64_t y = 0; y < rows; y++, dst += cols) {
            int64_t down = y - move.down;
            const uint8_t *row = down >= 0 && down < rows ? src + down * cols : NULL;
            for (int64_t x = 0; x < cols; x++) {
                int64_t from = x - move.right;
                bool inside = row && from >= 0 && from < cols;
                if (move.flip) from = cols - 1 - from;
                dst[x] = data->table[c][inside ? row[from] : 0];
            }
        }
}

/* AugmentSource.read. */
static Status view_read(const void *self, int64_t sample, uint64_t key, const Box *box,
                        float *dst, Diag *diag) {
    const IdxData *data = self;
    const int64_t pixels = data->channels * data->rows * data->cols;
    const uint8_t *src = tensor_data(&data->pixels);
    Move move = {0};
    (void)box, (void)diag;
    if (key != 0) {
        key = random_key(key, (uint64_t)sample);
        if (data->flip) move.flip = random_u64(key, 0) & 1;
        if (data->shift != 0) move.down = draw_shift(key, 1, data->shift);
        if (data->shift != 0) move.right = draw_shift(key, 2, data->shift);
    }
    sample_copy(data, src + sample * pixels, dst, move);
    return STATUS_OK;
}

static Status idx_fetch(const Batches *self, const Fetch *what, void *const *dst,
                        Diag *diag) {
    const IdxData *data = (const IdxData *)self;
    return augment_fetch(&data->augment, &data->view, tensor_data(&data->labels), self,
                         what, dst, diag);
}

static void idx_destroy(Batches *self) {
    IdxData *data = (IdxData *)self;
    tensor_release(&data->pixels);
    tensor_release(&data->labels);
    arena_destroy(data->arena);
}

/* --- opening --- */

/* Reads a header: rank between the two given, dimensions outermost first. */
static Status header_read(GzipFile *file, const char *path, int rank_min, int rank_max,
                          int *rank, int64_t dim[4], Diag *diag) {
    uint8_t word[4];
    TRY(gzip_read(file, word, 4, "the IDX header", diag));
    *rank = word[3];
    if (word[0] || word[1] || word[2] != 8 || *rank < rank_min || *rank > rank_max)
        return diag_fail(
            diag, STATUS_FORMAT, LOC_FILE(path), NULL,
            "expected IDX magic number 0x0000080%d, found 0x%02x%02x%02x%02x", rank_min,
            word[0], word[1], word[2], word[3]);
    for (int i = 0; i < *rank; i++) {
        TRY(gzip_read(file, word, 4, "the IDX header", diag));
        dim[i] = (int64_t)word[0] << 24 | word[1] << 16 | word[2] << 8 | word[3];
        int64_t most = i == 0 ? SAMPLES_MAX : i == *rank - 3 ? CHANNELS_MAX : SIDE_MAX;
        if (dim[i] < 1 || dim[i] > most)
            return diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
                             "dimension %d of the IDX header is %" PRId64
                             ", expected 1 to %" PRId64,
                             i, dim[i], most);
    }
    return STATUS_OK;
}

/* Refuses sizes that the file cannot hold, before anything is allocated. */
static Status size_check(const GzipFile *file, const char *path, int64_t samples,
                         int64_t bytes_each, Diag *diag) {
    uint64_t wanted = (uint64_t)samples * (uint64_t)bytes_each; /* below 2^31 * 2^34 */
    if (samples > INT64_MAX / bytes_each || wanted > gzip_limit(file))
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
                         "the header declares %" PRId64 " samples of %" PRId64
                         " bytes, at most %" PRIu64 " can follow",
                         samples, bytes_each, gzip_limit(file));
    return STATUS_OK;
}

/* Reads samples [first, first + count) of `total`, skips the others, expects the end. */
static Status slice_read(GzipFile *file, uint8_t *data, int64_t first, int64_t count,
                         int64_t total, int64_t bytes_each, Diag *diag) {
    uint64_t each = (uint64_t)bytes_each;
    uint64_t before = (uint64_t)first * each, wanted = (uint64_t)count * each;
    TRY(gzip_read(file, NULL, before, "samples", diag));
    TRY(gzip_read(file, data, wanted, "samples", diag));
    TRY(gzip_read(file, NULL, (uint64_t)total * each - before - wanted, "samples", diag));
    return gzip_finish(file, diag);
}

static Status images_read(IdxData *data, GzipFile *file, const IdxOptions *options,
                          int64_t *total, Loc at, Diag *diag) {
    int rank;
    int64_t dim[4] = {0}, count = 0;
    TRY(header_read(file, options->images, 3, 4, &rank, dim, diag));
    *total = dim[0];
    data->channels = rank == 4 ? dim[1] : 1;
    data->rows = dim[rank - 2];
    data->cols = dim[rank - 1];
    int64_t each = data->channels * data->rows * data->cols;
    TRY(size_check(file, options->images, dim[0], each, diag));
    TRY(dataset_slice(&count, dim[0], options->offset, options->limit, options->images,
                      at, diag));
    const int64_t shape[] = {count, data->channels, data->rows, data->cols};
    void *pixels;
    TRY(tensor_create(&data->pixels, DTYPE_U8, 4, shape, diag));
    TRY(tensor_writable(&data->pixels, &pixels, diag));
    data->base.count = count;
    return slice_read(file, pixels, options->offset, count, dim[0], each, diag);
}

static Status labels_read(IdxData *data, GzipFile *file, const IdxOptions *options,
                          int64_t total, Diag *diag) {
    int rank;
    int64_t dim[4] = {0}, count = data->base.count;
    TRY(header_read(file, options->labels, 1, 1, &rank, dim, diag));
    TRY(size_check(file, options->labels, dim[0], 1, diag));
    if (dim[0] != total)
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(options->labels), NULL,
                         "expected %" PRId64
                         " labels, one for each image in %s, found %" PRId64,
                         total, options->images, dim[0]);
    void *labels;
    TRY(tensor_create(&data->labels, DTYPE_I32, 1, &count, diag));
    TRY(tensor_writable(&data->labels, &labels, diag));
    /* Bytes first, at the end of the room they are widened into. */
    int32_t *wide = labels;
    uint8_t *bytes = (uint8_t *)labels + 3 * count;
    TRY(slice_read(file, bytes, options->offset, count, total, 1, diag));
    for (int64_t i = 0; i < count; i++) wide[i] = bytes[i];
    data->base.classes = options->classes;
    return dataset_classes(&data->base.classes, wide, count, options->offset,
                           options->labels, diag);
}

static Status list_check(const RealList *list, const char *key, int64_t channels, Loc at,
                         Diag *diag) {
    if (list->count == 0 || list->count == 1 || list->count == channels) return STATUS_OK;
    return diag_fail(diag, STATUS_RECIPE, at, key,
                     "expected one value, or one for each of the %" PRId64
                     " channels, found %d",
                     channels, list->count);
}

static double list_value(const RealList *list, int64_t channel, double fallback) {
    if (list->count == 0) return fallback;
    return list->items[list->count == 1 ? 0 : channel];
}

/* How to prepare an image alike, where it has as many channels as pictures have. */
static void set_preparation(IdxData *data, const IdxOptions *options) {
    Preprocess preprocess = preprocess_default;
    if (data->channels != 1 && data->channels != 3) return;
    for (int c = 0; c < 3; c++) {
        const int64_t channel = data->channels == 1 ? 0 : c;
        preprocess.mean[c] = list_value(&options->mean, channel, 0.0);
        preprocess.std[c] = list_value(&options->std, channel, 1.0);
    }
    data->base.preparation = preprocess_text(data->arena, &preprocess, data->channels);
}

static Status table_fill(IdxData *data, const IdxOptions *options, Loc at, Diag *diag) {
    TRY(list_check(&options->mean, "mean", data->channels, at, diag));
    TRY(list_check(&options->std, "std", data->channels, at, diag));
    set_preparation(data, options);
    data->table = arena_array(data->arena, (size_t)data->channels, sizeof *data->table);
    for (int64_t c = 0; c < data->channels; c++) {
        double mean = list_value(&options->mean, c, 0.0);
        double std = list_value(&options->std, c, 1.0);
        for (int v = 0; v < 256; v++)
            data->table[c][v] = (float)((v / 255.0 - mean) / std);
    }
    return STATUS_OK;
}

/* What augmentation and the columns need to know. */
static void view_fill(IdxData *data, const IdxOptions *options) {
    data->augment = options->changes;
    data->base.augments = data->augment.on || options->flip || options->shift > 0;
    data->black = ARENA_ARRAY(data->arena, float, (size_t)data->channels);
    for (int64_t c = 0; c < data->channels; c++) data->black[c] = data->table[c][0];
    data->view = (AugmentSource){.self = data,
                                 .channels = data->channels,
                                 .rows = data->rows,
                                 .cols = data->cols,
                                 .black = data->black,
                                 .read = view_read};
    data->base.columns = data->columns;
    data->base.column_count =
        augment_columns(data->columns, "pixel_values", &data->augment, &data->view,
                        options->labels != NULL);
}

static Status idx_fill(IdxData *data, const IdxOptions *options, Loc at, Diag *diag) {
    GzipFile *file;
    int64_t total = 0;
    TRY(gzip_open(&file, options->images, diag));
    Status status = images_read(data, file, options, &total, at, diag);
    gzip_close(file);
    TRY(status);
    if (options->labels) {
        TRY(gzip_open(&file, options->labels, diag));
        status = labels_read(data, file, options, total, diag);
        gzip_close(file);
        TRY(status);
    }
    TRY(table_fill(data, options, at, diag));
    data->flip = options->flip;
    data->shift = options->shift;
    view_fill(data, options);
    return STATUS_OK;
}

static Status idx_open(Batches **out, const void *options, Loc at, Diag *diag) {
    const IdxOptions *chosen = options;
    Arena *arena = arena_create();
    IdxData *data = ARENA_NEW(arena, IdxData);
    data->arena = arena;
    data->base.name = arena_strdup(arena, chosen->images);
    data->base.partial = true;
    data->base.fetch = idx_fetch;
    data->base.destroy = idx_destroy;
    Status status = idx_fill(data, chosen, at, diag);
    if (status == STATUS_OK)
        *out = &data->base;
    else
        idx_destroy(&data->base);
    return status;
}

static Status idx_check(void *opaque, Arena *arena, Loc at, Diag *diag) {
    IdxOptions *options = opaque;
    (void)at;
    return augment_bind(&options->changes, options->augment, arena, diag);
}

static const Field IDX_FIELDS[] = {
    {.name = "images",
     .kind = FIELD_STRING,
     .offset = FIELD_AT(IdxOptions, images, const char *),
     .required = true,
     .help = "file of images, u8[n, rows, cols] or u8[n, channels, rows, cols]"},
    F_STRING(IdxOptions, labels, "file of labels, u8[n]; left out: no labels",
             .nullable = true),
    F_REALS(IdxOptions, mean, -1e6, 1e6,
            "subtracted from pixels in [0, 1]: one number, or one per channel"),
    F_REALS(IdxOptions, std, 1e-6, 1e6,
            "pixels are then divided by it: one number, or one per channel"),
    F_INT(IdxOptions, limit, 0, 1e12, "use this many samples; 0 = all"),
    F_INT(IdxOptions, offset, 0, 1e12, "leave out this many samples at the start"),
    F_INT(IdxOptions, classes, 0, 256, "number of classes; 0 = 1 + the largest label"),
    F_BOOL(IdxOptions, flip, "training: mirror every other sample, at random"),
    F_INT(IdxOptions, shift, 0, SIDE_MAX,
          "training: move by up to this many pixels each way, black at the border"),
    F_TREE(IdxOptions, augment, "map", "training: changes of the images, drawn at random",
           .nullable = true),
    F_END};

const DataFormat format_idx = {
    .name = "idx",
    .summary = "images and labels in IDX files (MNIST), plain or gzip-compressed",
    .fields = IDX_FIELDS,
    .paths = "images|labels",
    .options_size = sizeof(IdxOptions),
    .check = idx_check,
    .open = idx_open,
};
