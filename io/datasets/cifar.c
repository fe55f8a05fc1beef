/* CIFAR-10 and CIFAR-100 in their binary form (Krizhevsky, Learning multiple layers of
 * features from tiny images, 2009): records of one label byte (CIFAR-100: the coarse and
 * the fine one) and 32 x 32 bytes of red, of green and of blue. */
#include "io/datasets/image_set.h"
#include "io/files/file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SIDE        32
#define PIXELS      (SIDE * SIDE)
#define PIXEL_BYTES (3 * PIXELS)

typedef struct CifarOptions {
    ImageKeys keys; /* first: see IMAGE_FIELDS */
    StringList files;
    int labels; /* CIFAR_ */
} CifarOptions;

enum { CIFAR_10, CIFAR_FINE, CIFAR_COARSE };

/* By CIFAR_: classes, label bytes of a record, and which of them is read. */
static const struct {
    int64_t classes;
    int bytes, at;
} KINDS[] = {{10, 1, 0}, {100, 2, 1}, {20, 2, 0}};

typedef struct CifarFile {
    const char *path;
    Buf *map;
    int64_t first; /* number of its first image */
} CifarFile;

/* The files; the source's self. */
typedef struct Cifar {
    Arena *arena; /* holds this struct */
    CifarFile *files;
    int file_count, kind;
    int64_t count;
    int32_t *labels;
} Cifar;

static int64_t record_bytes(const Cifar *c) {
    return KINDS[c->kind].bytes + PIXEL_BYTES;
}

static const CifarFile *file_of(const Cifar *c, int64_t i) {
    int at = c->file_count - 1;
    while (c->files[at].first > i) at--;
    return &c->files[at];
}

static Status source_load(void *self, int64_t i, const ImageOptions *options, bool header,
                          Image *out, Diag *diag) {
    const Cifar *c = self;
    const CifarFile *file = file_of(c, i);
    const uint8_t *record =
        (const uint8_t *)buf_data(file->map) + (i - file->first) * record_bytes(c);
    const uint8_t *pixels = record + KINDS[c->kind].bytes;
    *out = (Image){
        .rows = SIDE, .cols = SIDE, .channels = options->color == IMAGE_GRAY ? 1 : 3};
    if (header) return STATUS_OK;
    TRY(image_create(out, SIDE, SIDE, 3, diag));
    for (int at = 0; at < PIXEL_BYTES; at++)
        out->pixels[at % PIXELS * 3 + at / PIXELS] = pixels[at];
    return image_convert(out, options->color, diag);
}

static const char *source_name(void *self, int64_t i) {
    return file_of(self, i)->path;
}

static void cifar_destroy(void *self) {
    Cifar *c = self;
    for (int i = 0; i < c->file_count; i++) buf_release(c->files[i].map);
    free(c->labels);
    arena_destroy(c->arena);
}

static Status map_file(Cifar *c, const char *path, Diag *diag) {
    CifarFile *file = &c->files[c->file_count];
    const int64_t each = record_bytes(c);
    TRY(file_map(&file->map, path, diag));
    file->path = path;
    file->first = c->count;
    c->file_count++;
    const int64_t bytes = (int64_t)buf_bytes(file->map);
    c->count += bytes / each;
    if (bytes > 0 && bytes % each == 0) return STATUS_OK;
    Status status = diag_fail(
        diag, STATUS_FORMAT, LOC_FILE(path), NULL,
        "expected records of %" PRId64 " bytes, found %" PRId64 " bytes", each, bytes);
    diag_hint(diag, "labels: cifar10 has records of 3073 bytes, fine and coarse (of "
                    "CIFAR-100) of 3074");
    return status;
}

static Status read_labels(Cifar *c, Diag *diag) {
    int64_t classes = KINDS[c->kind].classes;
    c->labels = memory_alloc((size_t)c->count, sizeof *c->labels);
    for (int f = 0; f < c->file_count; f++) {
        const CifarFile *file = &c->files[f];
        const uint8_t *data = buf_data(file->map);
        const int64_t count = (int64_t)buf_bytes(file->map) / record_bytes(c);
        for (int64_t i = 0; i < count; i++)
            c->labels[file->first + i] = data[i * record_bytes(c) + KINDS[c->kind].at];
        TRY(dataset_classes(&classes, c->labels + file->first, count, 0, file->path,
                            diag));
    }
    return STATUS_OK;
}

static Status cifar_open(Batches **out, const void *opaque, Loc at, Diag *diag) {
    const CifarOptions *options = opaque;
    Arena *arena = arena_create();
    Cifar *c = ARENA_NEW(arena, Cifar);
    c->arena = arena;
    c->kind = options->labels;
    c->files = ARENA_ARRAY(arena, CifarFile, (size_t)options->files.count);
    Status status = STATUS_OK;
    for (int i = 0; i < options->files.count && status == STATUS_OK; i++)
        status = map_file(c, arena_strdup(arena, options->files.items[i]), diag);
    if (status == STATUS_OK) status = read_labels(c, diag);
    if (status != STATUS_OK) {
        cifar_destroy(c);
        return status;
    }
    const ImageSource source = {.self = c,
                                .count = c->count,
                                .classes = KINDS[c->kind].classes,
                                .labels = c->labels,
                                .load = source_load,
                                .name = source_name,
                                .close = cifar_destroy};
    return image_set_open(out, &source, &options->keys, options->files.items[0], at,
                          diag);
}

static const Field CIFAR_FIELDS[] = {
    {.name = "files",
     .kind = FIELD_STRINGS,
     .offset = FIELD_AT(CifarOptions, files, StringList),
     .required = true,
     .help = "files of records, as data_batch_1.bin"},
    F_CHOICE(CifarOptions, labels, "cifar10|fine|coarse",
             "the labels of CIFAR-10, or the 100 or 20 classes of CIFAR-100"),
    IMAGE_FIELDS,
    F_END};

static const CifarOptions CIFAR_DEFAULTS = {.keys = IMAGE_KEYS_DEFAULTS};

const DataFormat format_cifar = {
    .name = "cifar",
    .summary = "the binary files of CIFAR-10 and CIFAR-100",
    .fields = CIFAR_FIELDS,
    .paths = "files|preprocessor",
    .options_size = sizeof(CifarOptions),
    .defaults = &CIFAR_DEFAULTS,
    .check = image_keys_check,
    .open = cifar_open,
};
