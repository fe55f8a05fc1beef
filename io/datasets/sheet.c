/* Sheets: PNG files that hold one small image a row, and labels as JSON lists.
 *
 * A row is the image's pixels, row after row: rows x cols pixels wide in grey or colour.
 * In a grey sheet a row of 3 x rows x cols values is an image in colour, its three planes
 * one after another or its pixels' values side by side. */
#include "io/datasets/image_set.h"
#include "io/files/file.h"
#include "io/files/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Pixels of one sheet, bytes of one file of labels. */
#define SHEET_PIXELS_MAX ((int64_t)1 << 28)
#define LABEL_BYTES_MAX  ((size_t)256 << 20)

typedef struct SheetOptions {
    ImageKeys keys; /* first: see IMAGE_FIELDS */
    StringList images, labels;
    int64_t rows, cols, classes;
    int layout; /* LAYOUT_ */
} SheetOptions;

enum { LAYOUT_PLANES, LAYOUT_PIXELS };

/* The sheets; the source's self. */
typedef struct Sheets {
    Arena *arena; /* holds this struct */
    Image *sheets;
    const char **paths;
    int sheet_count;
    int64_t count, rows, cols, channels; /* of images */
    int64_t classes;
    int32_t *labels;
    bool planes; /* three planes in a grey row */
} Sheets;

/* ---- the source ---- */

/* The sheet that holds image i, which becomes its row. */
static int sheet_of(const Sheets *s, int64_t *i) {
    int at = 0;
    for (; *i >= s->sheets[at].rows; at++) *i -= s->sheets[at].rows;
    return at;
}

static Status source_load(void *self, int64_t i, const ImageOptions *options, bool header,
                          Image *out, Diag *diag) {
    const Sheets *s = self;
    *out = (Image){.rows = s->rows,
                   .cols = s->cols,
                   .channels = options->color == IMAGE_GRAY ? 1 : 3};
    if (header) return STATUS_OK;
    const int64_t pixels = s->rows * s->cols, values = pixels * s->channels;
    const Image *sheet = &s->sheets[sheet_of(s, &i)];
    const uint8_t *row = sheet->pixels + i * sheet->cols * sheet->channels;
    TRY(image_create(out, s->rows, s->cols, s->channels, diag));
    if (s->planes)
        for (int64_t at = 0; at < values; at++)
            out->pixels[at % pixels * s->channels + at / pixels] = row[at];
    else
        memcpy(out->pixels, row, (size_t)values);
    return image_convert(out, options->color, diag);
}

static const char *source_name(void *self, int64_t i) {
    const Sheets *s = self;
    return s->paths[sheet_of(s, &i)];
}

static void sheets_destroy(void *self) {
    Sheets *s = self;
    for (int i = 0; i < s->sheet_count; i++) image_free(&s->sheets[i]);
    free(s->labels);
    arena_destroy(s->arena);
}

/* ---- sizes ---- */

/* Whether a sheet's rows hold images of the given size; one that is not given is found
 * when images are square. */
static bool fit_size(Sheets *s, const Image *sheet, const SheetOptions *options) {
    const int64_t values = sheet->cols * sheet->channels;
    for (s->channels = sheet->channels; s->channels <= 3; s->channels += 2) {
        const int64_t pixels = values / s->channels;
        if (values % s->channels != 0) continue;
        const int64_t side = (int64_t)round(sqrt((double)pixels));
        const int64_t square = side * side == pixels ? side : 0;
        s->rows = options->rows ? options->rows : square;
        s->cols = options->cols ? options->cols : s->rows;
        if (s->rows > 0 && s->rows * s->cols == pixels) return true;
    }
    return false;
}

/* Reads the sheets and finds the size of their images. */
static Status read_sheets(Sheets *s, const SheetOptions *options, Loc at, Diag *diag) {
    Preprocess how;
    TRY(image_keys_preprocess(&how, &options->keys, s->arena, at, diag));
    const ImageOptions as = {IMAGE_ANY, how.background, SHEET_PIXELS_MAX};
    for (int i = 0; i < options->images.count; i++) {
        s->paths[i] = arena_strdup(s->arena, options->images.items[i]);
        TRY(image_read(&s->sheets[i], s->paths[i], &as, diag));
        s->sheet_count++;
        s->count += s->sheets[i].rows;
    }
    const Image *first = &s->sheets[0];
    const int64_t channels = first->channels;
    if (!fit_size(s, first, options)) {
        Status status = diag_fail(diag, STATUS_FORMAT, LOC_FILE(s->paths[0]), NULL,
                                  "rows of %" PRId64 " %s pixels are not images%s",
                                  first->cols, channels == 1 ? "grey" : "colour",
                                  options->rows ? " of this size" : " that are square");
        diag_hint(diag, "give `rows` and `cols` of an image");
        return status;
    }
    s->planes = channels == 1 && s->channels == 3 && options->layout == LAYOUT_PLANES;
    for (int i = 1; i < s->sheet_count; i++) {
        const Image *sheet = &s->sheets[i];
        if (sheet->cols != first->cols || sheet->channels != channels)
            return diag_fail(diag, STATUS_FORMAT, LOC_FILE(s->paths[i]), NULL,
                             "expected rows as in %s", s->paths[0]);
    }
    return STATUS_OK;
}

/* ---- labels ---- */

/* Appends a file's labels; `count` is how many there are so far. */
static Status add_labels(Sheets *s, const char *path, int64_t *count, Diag *diag) {
    Tree *list;
    TRY(json_read(&list, s->arena, path, LABEL_BYTES_MAX, diag));
    if (list->kind != TREE_LIST)
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
                         "expected a list of labels, found %s",
                         tree_kind_name(list->kind));
    const int64_t all = *count + list->count;
    if (list->count == 0) return STATUS_OK;
    s->labels = memory_grow(s->labels, (size_t)all, sizeof *s->labels);
    for (const Tree *label = list->first; label; label = label->next) {
        if (label->kind != TREE_INT || label->integer < 0 || label->integer >= INT32_MAX)
            return diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
                             "label %" PRId64 ": expected a number from 0, found %s",
                             *count, tree_kind_name(label->kind));
        s->labels[(*count)++] = (int32_t)label->integer;
    }
    return STATUS_OK;
}

static Status read_labels(Sheets *s, const SheetOptions *options, Diag *diag) {
    int64_t count = 0;
    if (options->labels.count == 0) return STATUS_OK;
    for (int i = 0; i < options->labels.count; i++)
        TRY(add_labels(s, options->labels.items[i], &count, diag));
    const char *path = options->labels.items[0];
    if (count != s->count)
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
                         "expected %" PRId64
                         " labels, one for each row of the sheets, found %" PRId64,
                         s->count, count);
    s->classes = options->classes;
    return dataset_classes(&s->classes, s->labels, count, 0, path, diag);
}

/* ---- opening ---- */

static Status sheet_open(Batches **out, const void *opaque, Loc at, Diag *diag) {
    const SheetOptions *options = opaque;
    const size_t files = (size_t)options->images.count;
    Arena *arena = arena_create();
    Sheets *s = ARENA_NEW(arena, Sheets);
    s->arena = arena;
    s->sheets = ARENA_ARRAY(arena, Image, files);
    s->paths = ARENA_ARRAY(arena, const char *, files);
    Status status = read_sheets(s, options, at, diag);
    if (status == STATUS_OK) status = read_labels(s, options, diag);
    if (status != STATUS_OK) {
        sheets_destroy(s);
        return status;
    }
    const ImageSource source = {.self = s,
                                .count = s->count,
                                .classes = s->classes,
                                .labels = s->labels,
                                .load = source_load,
                                .name = source_name,
                                .close = sheets_destroy};
    return image_set_open(out, &source, &options->keys, options->images.items[0], at,
                          diag);
}

static Status sheet_check(void *opaque, Arena *arena, Loc at, Diag *diag) {
    SheetOptions *options = opaque;
    TRY(image_keys_check(&options->keys, arena, at, diag));
    if (!options->cols || options->rows) return STATUS_OK;
    return diag_fail(diag, STATUS_RECIPE, at, "cols", "expected rows beside cols");
}

static const Field SHEET_FIELDS[] = {
    {.name = "images",
     .kind = FIELD_STRINGS,
     .offset = FIELD_AT(SheetOptions, images, StringList),
     .required = true,
     .help = "PNG files, one image a row"},
    F_STRINGS(SheetOptions, labels,
              "JSON files, each a list of numbers; left out: no labels"),
    F_INT(SheetOptions, rows, 0, 8192, "rows of an image; 0 = images are square"),
    F_INT(SheetOptions, cols, 0, 8192, "its columns; 0 = as many as rows"),
    F_CHOICE(SheetOptions, layout, "planes|pixels",
             "grey sheets with images in colour: red, green, blue one after another, or "
             "pixel by pixel"),
    F_INT(SheetOptions, classes, 0, 1e9, "number of classes; 0 = 1 + the largest label"),
    IMAGE_FIELDS,
    F_END};

static const SheetOptions SHEET_DEFAULTS = {.keys = IMAGE_KEYS_DEFAULTS};

const DataFormat format_sheet = {
    .name = "sheet",
    .summary = "PNG files that hold one small image a row, with labels as JSON",
    .fields = SHEET_FIELDS,
    .paths = "images|labels|preprocessor",
    .options_size = sizeof(SheetOptions),
    .defaults = &SHEET_DEFAULTS,
    .check = sheet_check,
    .open = sheet_open,
};
