/* Images in folders, a sub-folder for each class, or in tar shards.
 *
 * Classes are numbered in the order of their names' bytes, unless names are given. Files
 * stand in a fixed random order, so that `offset` and `limit` choose among all classes.
 */
#include "io/datasets/class_names.h"
#include "io/datasets/image_set.h"
#include "io/datasets/image_shards.h"
#include "io/datasets/tar.h"
#include "io/files/file.h"
#include "io/files/folder.h"
#include "ir/random.h"
#include "ir/text.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct ImagesOptions {
    ImageKeys keys; /* first: see IMAGE_FIELDS */
    const char *path, *config, *shards;
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

/* ---- classes ---- */

static Status classes_given(StringList *classes, Arena *arena,
                            const ImagesOptions *options, Diag *diag) {
    *classes = options->labels;
    if (classes->count > 0 || !options->config) return STATUS_OK;
    TRY(class_names_read(classes, options->config, arena, diag));
    if (classes->count > 0) return STATUS_OK;
    Status status = diag_fail(
        diag, STATUS_FORMAT, LOC_FILE(options->config), "id2label",
        "expected names of the classes, found none (LABEL_0 and the like are none)");
    diag_hint(diag, "give `labels: [...]`, the names in the order of the labels");
    return status;
}

/* A class's folder without images, which may lie deeper. */
static Status fail_empty(const ImageFolder *f, const char *folder,
                         const char *const *names, int64_t count, Diag *diag) {
    diag_fail(diag, STATUS_FORMAT, LOC_FILE(folder), NULL,
              "expected PNG or JPEG files, found none");
    for (int64_t i = 0; i < count; i++)
        if (path_is_folder(path_join(f->arena, folder, names[i]))) {
            diag_hint(diag,
                      "images lie in the class's folder itself: folders in it, like "
                      "'%.64s', are not read; `path` is the folder of the classes",
                      names[i]);
            break;
        }
    return STATUS_FORMAT;
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
        f->others += !image_is_named(names[i]);
        if (!image_is_named(names[i])) continue;
        names_add(&f->files, path_join(f->arena, folder, names[i]));
    }
    if (f->files.count == before) return fail_empty(f, folder, names, count, diag);
    f->labels = memory_grow(f->labels, (size_t)f->files.count, sizeof *f->labels);
    for (int64_t i = before; i < f->files.count; i++) f->labels[i] = (int32_t)label;
    return STATUS_OK;
}

static void warn_others(const char *path, int64_t count, Diag *diag) {
    diag_warn(diag, LOC_FILE(path), NULL,
              "%" PRId64 " files that are not PNG or JPEG by name are left out", count);
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
    if (f->others > 0) warn_others(path, f->others, diag);
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

static Status open_folder(Batches **out, Arena *arena, const ImagesOptions *options,
                          Loc at, Diag *diag) {
    ImageFolder *f = ARENA_NEW(arena, ImageFolder);
    f->arena = arena;
    Status status = classes_given(&f->classes, arena, options, diag);
    if (status == STATUS_OK) status = read_folder(f, options, diag);
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

/* ---- shards ---- */

/* Archives and the order in which their images stand; the source's self. */
typedef struct ShardFolder {
    Arena *arena; /* holds this struct */
    ImageShards shards;
    int64_t *order;
    int32_t *labels;
    StringList classes;
} ShardFolder;

/* The archives that `path` names: itself, or those in the folder. None where the folder's
 * sub-folders are meant. */
static Status find_shards(StringList *out, Arena *arena, const ImagesOptions *options,
                          Diag *diag) {
    const char *path = options->path, *pattern = options->shards;
    const char **names;
    int64_t count;
    int folders = 0;
    *out = (StringList){ARENA_ARRAY(arena, const char *, 1), 1};
    out->items[0] = path;
    if (path_is_file(path)) return STATUS_OK;
    TRY(folder_names(&names, &count, arena, path, diag));
    *out = (StringList){ARENA_ARRAY(arena, const char *, (size_t)count + 1), 0};
    for (int64_t i = 0; i < count; i++) {
        const char *whole = path_join(arena, path, names[i]);
        const bool is_folder = path_is_folder(whole);
        folders += is_folder;
        if (pattern ? !is_folder && fnmatch(pattern, names[i], 0) == 0
                    : !is_folder && (tar_is_named(names[i]) || tar_is_packed(names[i])))
            out->items[out->count++] = whole;
    }
    if (pattern && out->count == 0)
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
                         "expected files whose names match '%.64s', found none", pattern);
    if (!pattern && folders > 0) out->count = 0;
    return STATUS_OK;
}

static Status shards_load(void *self, int64_t i, const ImageOptions *options, bool header,
                          Image *out, Diag *diag) {
    const ShardFolder *f = self;
    return image_shards_load(&f->shards, f->order[i], options, header, out, diag);
}

static const char *shards_name(void *self, int64_t i) {
    const ShardFolder *f = self;
    return f->shards.images[f->order[i]].name;
}

static void shards_destroy(void *self) {
    ShardFolder *f = self;
    image_shards_close(&f->shards);
    free(f->order);
    free(f->labels);
    arena_destroy(f->arena);
}

static Status read_shards(ShardFolder *f, const StringList *paths, int64_t *classes,
                          const ImagesOptions *options, Diag *diag) {
    TRY(classes_given(&f->classes, f->arena, options, diag));
    TRY(image_shards_open(&f->shards, f->arena, paths, &f->classes, diag));
    const size_t count = (size_t)f->shards.count;
    f->order = memory_alloc(count, sizeof *f->order);
    f->labels = memory_alloc(count, sizeof *f->labels);
    random_permutation(random_key_name(0, "images"), f->order, f->shards.count);
    for (size_t i = 0; i < count; i++) f->labels[i] = f->shards.images[f->order[i]].label;
    if (f->shards.others > 0) warn_others(options->path, f->shards.others, diag);
    *classes = f->classes.count;
    return dataset_classes(classes, f->labels, f->shards.count, 0, options->path, diag);
}

static Status open_shards(Batches **out, Arena *arena, const StringList *paths,
                          const ImagesOptions *options, Loc at, Diag *diag) {
    ShardFolder *f = ARENA_NEW(arena, ShardFolder);
    int64_t classes = 0;
    f->arena = arena;
    Status status = read_shards(f, paths, &classes, options, diag);
    if (status != STATUS_OK) {
        shards_destroy(f);
        return status;
    }
    const ImageSource source = {.self = f,
                                .count = f->shards.count,
                                .classes = classes,
                                .labels = f->labels,
                                .class_names =
                                    f->classes.count > 0 ? f->classes.items : NULL,
                                .skip_damaged = options->on_error == ERROR_SKIP,
                                .load = shards_load,
                                .name = shards_name,
                                .close = shards_destroy};
    return image_set_open(out, &source, &options->keys, options->path, at, diag);
}

static Status images_open(Batches **out, const void *opaque, Loc at, Diag *diag) {
    const ImagesOptions *options = opaque;
    Arena *arena = arena_create();
    StringList shards;
    Status status = find_shards(&shards, arena, options, diag);
    if (status != STATUS_OK) {
        arena_destroy(arena);
        return status;
    }
    return shards.count > 0 ? open_shards(out, arena, &shards, options, at, diag)
                            : open_folder(out, arena, options, at, diag);
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
     .help = "folder with a sub-folder of PNG and JPEG files for each class; a tar "
             "archive of images, or a folder of such"},
    F_STRING(ImagesOptions, shards,
             "which archives of the folder, as a pattern: `train-*.tar`; left out: all "
             "that end in .tar",
             .nullable = true),
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
    .summary = "PNG and JPEG files in a folder for each class, or in tar shards",
    .fields = IMAGES_FIELDS,
    .paths = "path|config|preprocessor",
    .options_size = sizeof(ImagesOptions),
    .defaults = &IMAGES_DEFAULTS,
    .check = images_check,
    .open = images_open,
};
