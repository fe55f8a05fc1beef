/* HDF5 data sets: arrays x[n, ...] and y[n], of values y[n, ...], of one file, as h5py
 * writes them.
 *
 * The library runs in a child twice: once for shapes, then to read into memory shared
 * with the parent, whose size the parent has checked. Bytes stay bytes in memory, other
 * numbers become f32; fetch() multiplies by `scale` and augments what are images,
 * x[n, channels, rows, cols]. */
#include "io/datasets/augment.h"
#include "io/datasets/dataset.h"
#include "io/files/file.h"
#include "io/files/sandbox.h"
#include "io/formats/hdf5.h"

#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

typedef struct Hdf5Options {
    const char *path, *x, *y, *input;
    int64_t limit, offset, classes;
    int targets; /* TARGETS_ */
    double scale;
    const Tree *augment;
    Augment changes; /* bound from `augment` */
} Hdf5Options;

enum { TARGETS_CLASS, TARGETS_VALUES };

typedef struct Hdf5Data {
    Batches base;
    Column columns[IMAGE_COLUMNS];
    Augment augment;
    AugmentSource view; /* images, where there is something to augment */
    Arena *arena;       /* holds this struct */
    Tensor x;           /* u8 or f32 [n, ...] */
    Tensor labels;      /* i32[n], of values f32[n, width] */
    int64_t width;      /* values of a sample; 0 = it has a class */
    float scale;
} Hdf5Data;

/* What is being opened. */
typedef struct Opening {
    const Hdf5Options *options;
    Buf *map; /* of the file */
    uint64_t file_bytes;
    Loc at;
    Diag *diag;
} Opening;

/* --- fetching --- */

static void sample_copy(const Hdf5Data *data, int64_t sample, int64_t each, float *dst) {
    if (data->x.dtype == DTYPE_U8) {
        const uint8_t *src = (const uint8_t *)tensor_data(&data->x) + sample * each;
        for (int64_t i = 0; i < each; i++) dst[i] = (float)src[i] * data->scale;
    } else {
        const float *src = (const float *)tensor_data(&data->x) + sample * each;
        for (int64_t i = 0; i < each; i++) dst[i] = src[i] * data->scale;
    }
}

/* AugmentSource.read. */
static Status view_read(const void *self, int64_t sample, uint64_t key, const Box *box,
                        float *dst, Diag *diag) {
    const Hdf5Data *data = self;
    (void)key, (void)box, (void)diag;
    sample_copy(data, sample, tensor_count(&data->x) / data->base.count, dst);
    return STATUS_OK;
}

static Status values_copy(const Hdf5Data *data, const Fetch *what, float *dst,
                          Diag *diag) {
    const float *values = tensor_data(&data->labels);
    for (int64_t i = 0; i < what->n; i++) {
        TRY(dataset_check_sample(&data->base, what->index[i], diag));
        memcpy(dst + i * data->width, values + what->index[i] * data->width,
               (size_t)data->width * sizeof *dst);
    }
    return STATUS_OK;
}

static Status hdf5_fetch(const Batches *self, const Fetch *what, void *const *dst,
                         Diag *diag) {
    const int64_t *index = what->index;
    const int64_t n = what->n;
    const Hdf5Data *data = (const Hdf5Data *)self;
    const int32_t *labels = data->width ? NULL : tensor_data(&data->labels);
    if (data->width && dst[1]) TRY(values_copy(data, what, dst[1], diag));
    void *const pixels[2] = {dst[0]}; /* values are there already */
    if (data->augment.on)
        return augment_fetch(&data->augment, &data->view, labels, self, what,
                             data->width ? pixels : dst, diag);
    int64_t each = tensor_count(&data->x) / self->count;
    for (int64_t i = 0; i < n; i++) {
        TRY(dataset_check_sample(self, index[i], diag));
        if (dst[0]) sample_copy(data, index[i], each, (float *)dst[0] + i * each);
        if (labels && dst[1]) ((int32_t *)dst[1])[i] = labels[index[i]];
    }
    return STATUS_OK;
}

static void hdf5_destroy(Batches *self) {
    Hdf5Data *data = (Hdf5Data *)self;
    tensor_release(&data->x);
    tensor_release(&data->labels);
    arena_destroy(data->arena);
}

/* --- the two passes --- */

static Status sandbox_status(const Opening *o, SandboxEnd end, const Text *reply) {
    Loc at = LOC_FILE(o->options->path);
    const char *text = reply->data ? reply->data : "unknown fault";
    switch (end) {
    case SANDBOX_DONE: return STATUS_OK;
    case SANDBOX_FAULT: return diag_fail(o->diag, STATUS_FORMAT, at, NULL, "%s", text);
    case SANDBOX_DIED: return sandbox_died(reply, STATUS_FORMAT, at, "read", o->diag);
    default: return sandbox_fail(end, at, "read", o->diag);
    }
}

/* Work of either pass, on one data set. */
typedef struct Job {
    Hdf5Source source;
    const char *name;
    Hdf5Array array;
    int64_t first, count;
    DType as;
    void *data;
} Job;

static Hdf5Source source_of(const Opening *o) {
    return (Hdf5Source){buf_data(o->map), buf_bytes(o->map)};
}

static bool describe_work(void *state, Text *reply) {
    Job *job = state;
    Hdf5Array array = {0};
    if (!hdf5_describe(&job->source, job->name, &array, reply)) return false;
    text_bytes(reply, (const char *)&array, sizeof array);
    return true;
}

static bool read_work(void *state, Text *reply) {
    Job *job = state;
    return hdf5_read(&job->source, job->name, &job->array, job->first, job->count,
                     job->as, job->data, reply);
}

static Status array_describe(const Opening *o, Job *job) {
    const SandboxLimits limits = {1, 10, (size_t)256 << 20, 1 << 16, true};
    Text reply = {0};
    SandboxEnd end = sandbox_run(&reply, describe_work, job, &limits);
    if (end == SANDBOX_DONE && reply.length != sizeof job->array) {
        end = SANDBOX_DIED;
        text_free(&reply);
    }
    if (end == SANDBOX_DONE) memcpy(&job->array, reply.data, sizeof job->array);
    Status status = sandbox_status(o, end, &reply);
    text_free(&reply);
    return status;
}

/* Whether a shape from the child can be that of so large a file: data that is not
 * compressed fits into it, compressed data shrank to no less than 1 / 128 of itself. */
static Status array_check(const Opening *o, const Job *job, int rank_min, int rank_max) {
    const Hdf5Array *array = &job->array;
    size_t bytes = 0;
    char text[SHAPE_TEXT_BYTES];
    Loc at = LOC_FILE(o->options->path);
    if (array->rank < rank_min || array->rank > rank_max)
        return diag_fail(o->diag, STATUS_FORMAT, at, job->name,
                         "expected %d to %d dimensions, samples first, found %d",
                         rank_min, rank_max, array->rank);
    bool fits = shape_size(job->as, array->rank, array->dim, NULL, &bytes) &&
                bytes <= ((uint64_t)64 << 20) + 128 * o->file_bytes;
    if (!fits || bytes == 0)
        return diag_fail(o->diag, STATUS_FORMAT, at, job->name,
                         "the shape %s cannot be that of a file of %" PRIu64 " bytes",
                         shape_text(text, array->rank, array->dim), o->file_bytes);
    return STATUS_OK;
}

static void shared_release(void *data, size_t bytes) {
    munmap(data, bytes);
}

/* Reads the job's rows into memory shared with the child. */
static Status array_read(const Opening *o, Job *job, Tensor *out) {
    int64_t dim[RANK_MAX];
    size_t bytes = 0;
    memcpy(dim, job->array.dim, sizeof dim);
    dim[0] = job->count;
    shape_size(job->as, job->array.rank, dim, NULL, &bytes);
    job->data =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (job->data == MAP_FAILED)
        return diag_fail(o->diag, STATUS_MEMORY, LOC_FILE(o->options->path), job->name,
                         "no memory for %zu bytes", bytes);
    *out = tensor_shape(job->as, job->array.rank, dim);
    out->buf = buf_wrap(job->data, bytes, shared_release);
    int seconds = 10 + (int)(bytes >> 24); /* 16 MiB a second is slow for deflate */
    const SandboxLimits limits = {seconds, 6 * seconds, 3 * bytes + ((size_t)256 << 20),
                                  1 << 16, true};
    Text reply = {0};
    SandboxEnd end = sandbox_run(&reply, read_work, job, &limits);
    Status status = sandbox_status(o, end, &reply);
    text_free(&reply);
    return status;
}

/* --- opening --- */

static Status x_read(const Opening *o, Hdf5Data *data, int64_t *total) {
    const Hdf5Options *options = o->options;
    Job job = {.source = source_of(o), .name = options->x, .first = options->offset};
    TRY(array_describe(o, &job));
    job.as = job.array.is_u8 ? DTYPE_U8 : DTYPE_F32;
    TRY(array_check(o, &job, 1, RANK_MAX));
    *total = job.array.dim[0];
    TRY(dataset_slice(&job.count, *total, options->offset, options->limit, options->path,
                      o->at, o->diag));
    TRY(array_read(o, &job, &data->x));
    data->base.count = job.count;
    int64_t bad = tensor_find_nonfinite(&data->x);
    if (bad < 0) return STATUS_OK;
    return diag_fail(o->diag, STATUS_FORMAT, LOC_FILE(options->path), options->x,
                     "sample %" PRId64 " holds a value that is not finite",
                     options->offset + bad / (tensor_count(&data->x) / job.count));
}

/* Narrows labels to 32 bits. */
static Status labels_narrow(const Opening *o, Hdf5Data *data, const Tensor *wide) {
    void *labels;
    const int64_t *from = tensor_data(wide);
    int64_t count = wide->dim[0];
    TRY(tensor_create(&data->labels, DTYPE_I32, 1, &count, o->diag));
    TRY(tensor_writable(&data->labels, &labels, o->diag));
    for (int64_t i = 0; i < count; i++) {
        if (from[i] < 0 || from[i] >= INT32_MAX)
            return diag_fail(o->diag, STATUS_FORMAT, LOC_FILE(o->options->path),
                             o->options->y,
                             "label %" PRId64 " of sample %" PRId64 " is out of range",
                             from[i], o->options->offset + i);
        ((int32_t *)labels)[i] = (int32_t)from[i];
    }
    return STATUS_OK;
}

static Status values_read(const Opening *o, Job *job, Hdf5Data *data) {
    const Hdf5Options *options = o->options;
    TRY(array_read(o, job, &data->labels));
    data->width = tensor_count(&data->labels) / job->count;
    data->base.classes = data->width;
    if (options->classes && options->classes != data->width)
        return diag_fail(o->diag, STATUS_RECIPE, o->at, "classes",
                         "expected %" PRId64 ", the values of a sample in '%s', found "
                         "%" PRId64,
                         data->width, options->y, options->classes);
    const int64_t bad = tensor_find_nonfinite(&data->labels);
    if (bad < 0) return STATUS_OK;
    return diag_fail(o->diag, STATUS_FORMAT, LOC_FILE(options->path), options->y,
                     "sample %" PRId64 " holds a value that is not finite",
                     options->offset + bad / data->width);
}

static Status y_read(const Opening *o, Hdf5Data *data, int64_t total) {
    const Hdf5Options *options = o->options;
    const bool values = options->targets == TARGETS_VALUES;
    Job job = {.source = source_of(o),
               .name = options->y,
               .first = options->offset,
               .count = data->base.count,
               .as = values ? DTYPE_F32 : DTYPE_I64};
    TRY(array_describe(o, &job));
    TRY(array_check(o, &job, 1, values ? 2 : 1));
    Loc at = LOC_FILE(options->path);
    if (!values && !job.array.integer)
        return diag_fail(o->diag, STATUS_FORMAT, at, options->y,
                         "expected integer labels, found floating-point numbers");
    if (job.array.dim[0] != total)
        return diag_fail(o->diag, STATUS_FORMAT, at, options->y,
                         "expected %" PRId64
                         " labels, one for each sample of '%s', found %" PRId64,
                         total, options->x, job.array.dim[0]);
    if (values) return values_read(o, &job, data);
    Tensor wide = {0};
    Status status = array_read(o, &job, &wide);
    if (status == STATUS_OK) status = labels_narrow(o, data, &wide);
    tensor_release(&wide);
    TRY(status);
    data->base.classes = options->classes;
    return dataset_classes(&data->base.classes, tensor_data(&data->labels),
                           data->base.count, options->offset, options->path, o->diag);
}

/* Columns and the view of data whose samples are images that are augmented. */
static Status images_fill(const Opening *o, Hdf5Data *data, const char *input,
                          bool labels) {
    if (data->x.rank != 4)
        return diag_fail(o->diag, STATUS_RECIPE, o->at, "augment",
                         "expected images, x[n, channels, rows, cols], found %d "
                         "dimensions",
                         data->x.rank);
    data->view = (AugmentSource){.self = data,
                                 .channels = data->x.dim[1],
                                 .rows = data->x.dim[2],
                                 .cols = data->x.dim[3],
                                 .read = view_read};
    if (data->width && augment_mixes(&data->augment))
        return diag_fail(
            o->diag, STATUS_RECIPE, o->at, "augment",
            "expected no mixup and cutmix, which mix classes, beside values");
    const Column values = data->columns[1];
    data->base.column_count =
        augment_columns(data->columns, input, &data->augment, &data->view, labels);
    if (data->width) data->columns[1] = values;
    return STATUS_OK;
}

static Status hdf5_fill(Opening *o, Hdf5Data *data) {
    int64_t total = 0;
    bool labels = o->options->y && *o->options->y;
    /* Opened the ordinary way first: missing, unreadable and special files are told apart
     * there. */
    TRY(file_map(&o->map, o->options->path, o->diag));
    o->file_bytes = buf_bytes(o->map);
    TRY(x_read(o, data, &total));
    if (labels) TRY(y_read(o, data, total));
    data->scale = (float)o->options->scale;
    Type type = {.dtype = DTYPE_F32, .rank = data->x.rank - 1};
    memcpy(type.dim, data->x.dim + 1, (size_t)type.rank * sizeof *type.dim);
    const char *input = arena_strdup(data->arena, o->options->input);
    data->columns[0] = (Column){input, type};
    data->columns[1] = data->width ? (Column){DATA_LABELS, {DTYPE_F32, 1, {data->width}}}
                                   : (Column){DATA_LABELS, {DTYPE_I32, 0, {0}}};
    data->base.columns = data->columns;
    data->base.column_count = labels ? 2 : 1;
    data->augment = o->options->changes;
    data->base.augments = data->augment.on;
    return data->augment.on ? images_fill(o, data, input, labels) : STATUS_OK;
}

static Status hdf5_open(Batches **out, const void *options, Loc at, Diag *diag) {
    Opening opening = {.options = options, .at = at, .diag = diag};
    Arena *arena = arena_create();
    Hdf5Data *data = ARENA_NEW(arena, Hdf5Data);
    data->arena = arena;
    data->base.name = arena_strdup(arena, opening.options->path);
    data->base.partial = true;
    data->base.fetch = hdf5_fetch;
    data->base.destroy = hdf5_destroy;
    Status status = hdf5_fill(&opening, data);
    buf_release(opening.map);
    if (status == STATUS_OK)
        *out = &data->base;
    else
        hdf5_destroy(&data->base);
    return status;
}

static Status hdf5_check(void *opaque, Arena *arena, Loc at, Diag *diag) {
    Hdf5Options *options = opaque;
    (void)at;
    return augment_bind(&options->changes, options->augment, arena, diag);
}

static const Field HDF5_FIELDS[] = {
    {.name = "path",
     .kind = FIELD_STRING,
     .offset = FIELD_AT(Hdf5Options, path, const char *),
     .required = true,
     .help = "HDF5 file"},
    F_STRING(Hdf5Options, x, "data set of samples, numbers [n, ...]", .expect = "a name"),
    F_STRING(Hdf5Options, y, "data set of labels, integers [n]; null or \"\": no labels",
             .nullable = true, .empty = true),
    F_CHOICE(Hdf5Options, targets, "class|values",
             "what labels are: one class a sample, or numbers [n] or [n, values]; of "
             "several labels 1 for those that are there, else 0"),
    F_STRING(Hdf5Options, input, "input of the model that x is for", .expect = "a name"),
    F_INT(Hdf5Options, limit, 0, 1e12, "use this many samples; 0 = all"),
    F_INT(Hdf5Options, offset, 0, 1e12, "leave out this many samples at the start"),
    F_INT(Hdf5Options, classes, 0, 1e9, "number of classes; 0 = 1 + the largest label"),
    F_REAL(Hdf5Options, scale, -1e6, 1e6, "every value is multiplied by it"),
    F_TREE(Hdf5Options, augment, "map", "training: changes of images, drawn at random",
           .nullable = true),
    F_END};

static const Hdf5Options HDF5_DEFAULTS = {
    .x = "x", .y = "y", .input = "pixel_values", .scale = 1.0};

const DataFormat format_hdf5 = {
    .name = "hdf5",
    .summary = "arrays of samples and labels in an HDF5 file, as h5py writes them",
    .fields = HDF5_FIELDS,
    .paths = "path",
    .options_size = sizeof(Hdf5Options),
    .defaults = &HDF5_DEFAULTS,
    .check = hdf5_check,
    .open = hdf5_open,
};
