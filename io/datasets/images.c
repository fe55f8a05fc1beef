/* Folders of images: a sub-folder for each class, image files in it.
 *
 * Classes are numbered in the order of their names' bytes, unless names are given. Files
 * stand in a fixed random order, so that `offset` and `limit` choose among all classes.
 */
#include "io/datasets/class_names.h"
#include "io/datasets/image_set.h"
#include "io/files/file.h"
#include "io/files/folder.h"
#include "ir/random.h"
#include "ir/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct ImagesOptions {
    ImageKeys keys; /* first: see IMAGE_FIELDS */
    const char *path, *config;
    StringList labels;
    int on_error; /* ERROR_ */
} ImagesOptions;

enum { ERROR_STOP, ERROR_SKIP };

/* A growing list of names in an arena. */
typedef struct Names {
    const char **items;
    int64_t count, room;
} Names;

/* The files and their labels; the source's self. */
typedef struct ImageFolder {
    Arena *arena; /* holds this struct */
    Names files;
    int32_t *labels;
    StringList classes;
    int64_t others; /* files that are no images */
} ImageFolder;

static void names_add(Names *names, const char *name) {
    if (names->count == names->room) {
        names->room = names->room ? 2 * names->room : 64;
        names->items =
            memory_grow(names->items, (size_t)names->room, sizeof *names->items);
    }
    names->items[names->count++] = name;
}

static bool is_image(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot && (strcasecmp(dot, ".png") == 0 || strcasecmp(dot, ".jpg") == 0 ||
                   strcasecmp(dot, ".jpeg") == 0);
}

/* ---- classes ---- */

static Status classes_given(ImageFolder *f, const ImagesOptions *options, Diag *diag) {
    f->classes = options->labels;
    if (f->classes.count > 0 || !options->config) return STATUS_OK;
    TRY(class_names_read(&f->classes, options->config, f->arena, diag));
    if (f->classes.count > 0) return STATUS_OK;
    Status status = diag_fail(
        diag, STATUS_FORMAT, LOC_FILE(options->config), "id2label",
        "expected names of the classes, found none (LABEL_0 and the like are none)");
    diag_hint(diag, "give `labels: [...]`, the names in the order of the labels");
    return status;
}

/* Adds a class's files. */
static Status add_class(ImageFolder *f, const char *path, const char *name, Diag *diag) {
    const int64_t label = class_names_find(&f->classes, name), before = f->files.count;
    const char *folder = path_join(f->arena, path, name);
    const char **names;
    int64_t count;
    if (label < 0) {
        const char *near = name_nearest(name, f->classes.items, f->classes.count);
        diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
                  "class folder '%.64s' is none of the %d classes", name,
                  f->classes.count);
        if (near) diag_hint(diag, "did you mean '%.64s'?", near);
        return STATUS_FORMAT;
    }
    TRY(folder_names(&names, &count, f->arena, folder, diag));
    for (int64_t i = 0; i < count; i++) {
        f->others += !is_image(names[i]);
        if (!is_image(names[i])) continue;
        names_add(&f->files, path_join(f->arena, folder, names[i]));
    }
    if (f->files.count == before)
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(folder), NULL,
                         "expected PNG or JPEG files, found none");
    f->labels = memory_grow(f->labels, (size_t)f->files.count, sizeof *f->labels);
    for (int64_t i = before; i < f->files.count; i++) f->labels[i] = (int32_t)label;
    return STATUS_OK;
}

static Status add_classes(ImageFolder *f, const char **found, int64_t count,
                          const char *path, Diag *diag) {
    if (count == 0 || count > INT32_MAX)
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
                         "expected a sub-folder for each class, found none");
    if (f->classes.count == 0) {
        f->classes.items = found;
        f->classes.count = (int)count;
    }
    for (int64_t i = 0; i < count; i++) TRY(add_class(f, path, found[i], diag));
    if (count < f->classes.count)
        diag_warn(diag, LOC_FILE(path), NULL, "%d of %d classes have no folder",
                  f->classes.count - (int)count, f->classes.count);
    if (f->others > 0)
        diag_warn(diag, LOC_FILE(path), NULL,
                  "%" PRId64 " files that are not PNG or JPEG by name are left out",
                  f->others);
    return STATUS_OK;
}

/* A fixed order in which classes are mixed. */
static void shuffle(ImageFolder *f) {
    const size_t count = (size_t)f->files.count;
    int64_t *order = memory_alloc(count, sizeof *order);
    const char **files = memory_alloc(count, sizeof *files);
    int32_t *labels = memory_alloc(count, sizeof *labels);
    random_permutation(random_key_name(0, "images"), order, f->files.count);
    for (size_t i = 0; i < count; i++) {
        files[i] = f->files.items[order[i]];
        labels[i] = f->labels[order[i]];
    }
    free(order);
    free(f->files.items);
    free(f->labels);
    f->files.items = files;
    f->labels = labels;
}

static Status read_folder(ImageFolder *f, const ImagesOptions *options, Diag *diag) {
    const char **found;
    int64_t count, folders = 0;
    TRY(classes_given(f, options, diag));
    TRY(folder_names(&found, &count, f->arena, options->path, diag));
    for (int64_t i = 0; i < count; i++)
        if (path_is_folder(path_join(f->arena, options->path, found[i])))
            found[folders++] = found[i];
    TRY(add_classes(f, found, folders, options->path, diag));
    shuffle(f);
    return STATUS_OK;
}

/* ---- the source ---- */

static Status source_load(void *self, int64_t i, const ImageOptions *options, bool header,
                          Image *out, Diag *diag) {
    const ImageFolder *f = self;
    return (header ? image_measure : image_read)(out, f->files.items[i], options, diag);
}

static const char *source_name(void *self, int64_t i) {
    return ((const ImageFolder *)self)->files.items[i];
}

static void folder_destroy(void *self) {
    ImageFolder *f = self;
    free(f->files.items);
    free(f->labels);
    arena_destroy(f->arena);
}

static Status images_open(Batches **out, const void *opaque, Loc at, Diag *diag) {
    const ImagesOptions *options = opaque;
    Arena *arena = arena_create();
    ImageFolder *f = ARENA_NEW(arena, ImageFolder);
    f->arena = arena;
    Status status = read_folder(f, options, diag);
    if (status != STATUS_OK) {
        folder_destroy(f);
        return status;
    }
    const ImageSource source = {.self = f,
                                .count = f->files.count,
                                .classes = f->classes.count,
                                .labels = f->labels,
                                .class_names = f->classes.items,
                                .skip_damaged = options->on_error == ERROR_SKIP,
                                .load = source_load,
                                .name = source_name,
                                .close = folder_destroy};
    return image_set_open(out, &source, &options->keys, options->path, at, diag);
}

static Status images_check(void *opaque, Arena *arena, Loc at, Diag *diag) {
    ImagesOptions *options = opaque;
    TRY(image_keys_check(&options->keys, arena, at, diag));
    if (!options->path)
        return diag_fail(diag, STATUS_RECIPE, at, "path", "expected a path, found null");
    return class_names_check(&options->labels, at, "labels", diag);
}

static const Field IMAGES_FIELDS[] = {
    {.name = "path",
     .kind = FIELD_STRING,
     .offset = FIELD_AT(ImagesOptions, path, const char *),
     .required = true,
     .help = "folder with a sub-folder of PNG and JPEG files for each class"},
    F_STRINGS(ImagesOptions, labels,
              "names of the classes, in order; left out: those of `config`, or all "
              "sub-folders, sorted"),
    F_STRING(ImagesOptions, config,
             "config.json, or a Hugging Face folder with one, whose id2label names the "
             "classes",
             .nullable = true),
    F_CHOICE(ImagesOptions, on_error, "stop|skip",
             "damaged images end the run, or are left out and counted"),
    IMAGE_FIELDS,
    F_END};

static const ImagesOptions IMAGES_DEFAULTS = {.keys = IMAGE_KEYS_DEFAULTS};

const DataFormat format_images = {
    .name = "images",
    .summary = "PNG and JPEG files in a folder for each class",
    .fields = IMAGES_FIELDS,
    .paths = "path|config|preprocessor",
    .options_size = sizeof(ImagesOptions),
    .defaults = &IMAGES_DEFAULTS,
    .check = images_check,
    .open = images_open,
};
