/* Image shards: see image_shards.h. */
#include "io/datasets/image_shards.h"

#include "io/datasets/tar.h"
#include "io/files/file.h"
#include "ir/mapped.h"
#include "ir/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Longest content of a .cls file. */
#define CLASS_BYTES 256

/* A picture or a .cls file, in the order of the archives. */
typedef struct Found {
    ShardImage image;
    size_t key, folder, folder_end; /* in its name: the length of the key; its folder */
    bool is_class;                  /* label: its content */
} Found;

/* A class by its name. */
typedef struct ClassEntry {
    const char *name;
    int32_t label;
} ClassEntry;

/* An index being made. */
typedef struct Indexing {
    Arena *arena;
    ImageShards *shards;
    const char *path; /* of the archive that is visited */
    Found *found;
    int64_t count, room, classes_found, others;
    ClassEntry *classes; /* by name */
    int class_count;
    bool classes_given;
} Indexing;

bool image_is_named(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot && (strcasecmp(dot, ".png") == 0 || strcasecmp(dot, ".jpg") == 0 ||
                   strcasecmp(dot, ".jpeg") == 0);
}

/* ---- classes ---- */

static int class_order(const void *a, const void *b) {
    return strcmp(((const ClassEntry *)a)->name, ((const ClassEntry *)b)->name);
}

static void index_classes(Indexing *index, const StringList *classes) {
    index->class_count = classes->count;
    index->classes = ARENA_ARRAY(index->arena, ClassEntry, (size_t)classes->count + 1);
    for (int i = 0; i < classes->count; i++)
        index->classes[i] = (ClassEntry){classes->items[i], i};
    qsort(index->classes, (size_t)classes->count, sizeof *index->classes, class_order);
}

/* Label of a name, -1 where there is none. */
static int32_t find_class(const Indexing *index, const char *name) {
    const ClassEntry wanted = {.name = name};
    const ClassEntry *entry =
        index->class_count == 0
            ? NULL
            : bsearch(&wanted, index->classes, (size_t)index->class_count, sizeof wanted,
                      class_order);
    return entry ? entry->label : -1;
}

static Status no_class(const Indexing *index, const char *at, const char *name,
                       Diag *diag) {
    diag_fail(diag, STATUS_FORMAT, LOC_FILE(at), NULL,
              index->classes_given ? "class '%.64s' is none of the %d classes"
                                   : "expected the number of a class, found '%.64s'",
              name, index->class_count);
    diag_hint(diag,
              "`labels: [...]` lists the names of the classes in the order of their "
              "numbers");
    return STATUS_FORMAT;
}

/* Label that a .cls file holds: a number in digits or the name of a class. */
static Status read_class(int32_t *label, const Indexing *index, const char *name,
                         const uint8_t *data, size_t bytes, Diag *diag) {
    char text[CLASS_BYTES + 1], *end;
    const size_t kept = bytes < CLASS_BYTES ? bytes : CLASS_BYTES;
    memcpy(text, data, kept);
    text[kept] = 0;
    text[strcspn(text, "\r\n")] = 0;
    const size_t digits = strspn(text, "0123456789");
    const long long number = strtoll(text, &end, 10);
    if (digits > 0 && digits < 10 && *end == 0 && number < INT32_MAX) {
        *label = (int32_t)number;
        if (!index->classes_given || number < index->class_count) return STATUS_OK;
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(name), NULL,
                         "expected a class below %d, found %lld", index->class_count,
                         number);
    }
    *label = find_class(index, text);
    return *label >= 0 ? STATUS_OK : no_class(index, name, text, diag);
}

/* ---- visiting archives ---- */

static void add_found(Indexing *index, const Found *found) {
    if (index->count == index->room) {
        index->room = index->room ? 2 * index->room : 256;
        index->found =
            memory_grow(index->found, (size_t)index->room, sizeof *index->found);
    }
    index->found[index->count++] = *found;
    index->classes_found += found->is_class;
}

static Status visit_file(void *self, const TarFile *file, Diag *diag) {
    Indexing *index = self;
    ImageShards *shards = index->shards;
    const char *slash = strrchr(file->name, '/');
    const char *base = slash ? slash + 1 : file->name, *dot = strchr(base, '.');
    const bool is_class = dot && strcasecmp(dot, ".cls") == 0;
    if (base[0] == '.' || !(is_class || image_is_named(base))) {
        index->others++;
        return STATUS_OK;
    }
    const int shard = shards->archive_count - 1;
    const char *name = arena_printf(index->arena, "%s/%s", index->path, file->name);
    const size_t before = strlen(index->path) + 1;
    Found found = {.image = {name, file->offset, file->bytes, shard, -1},
                   .is_class = is_class,
                   .key = before + (size_t)(dot - file->name),
                   .folder = before,
                   .folder_end = before + (size_t)(slash ? slash - file->name : 0)};
    for (size_t i = before; i < found.folder_end; i++)
        if (name[i] == '/') found.folder = i + 1;
    const uint8_t *data = buf_data(shards->archives[shard]);
    if (is_class)
        TRY(read_class(&found.image.label, index, name, data + file->offset, file->bytes,
                       diag));
    add_found(index, &found);
    return STATUS_OK;
}

/* Warns of files of the archive visited last that have the name of another one, which
 * programs that add to archives leave: found[first .. count) are its files. */
static void warn_repeated(const Indexing *index, int64_t first, Diag *diag) {
    const int64_t count = index->count - first;
    const char *repeated = NULL;
    int64_t more = 0;
    const char **names = memory_alloc((size_t)count + 1, sizeof *names);
    for (int64_t i = 0; i < count; i++) names[i] = index->found[first + i].image.name;
    qsort(names, (size_t)count, sizeof *names, text_order);
    for (int64_t i = 1; i < count; i++) {
        if (strcmp(names[i], names[i - 1]) != 0) continue;
        if (!repeated) repeated = names[i];
        more++;
    }
    free(names);
    if (repeated)
        diag_warn(diag, LOC_FILE(index->path), NULL,
                  "%" PRId64 " of its files have the name of another one, as %s: all of "
                  "them count",
                  more, repeated + strlen(index->path) + 1);
}

static Status visit_archives(Indexing *index, const StringList *paths, Diag *diag) {
    ImageShards *shards = index->shards;
    shards->archives = memory_alloc((size_t)paths->count, sizeof *shards->archives);
    for (int i = 0; i < paths->count; i++) {
        index->path = paths->items[i];
        TRY(file_map(&shards->archives[i], index->path, diag));
        shards->archive_count++;
        const int64_t first = index->count;
        TRY(tar_visit(shards->archives[i], index->path, visit_file, index, diag));
        warn_repeated(index, first, diag);
    }
    return STATUS_OK;
}

/* ---- samples ---- */

static void keep_image(ImageShards *shards, const Found *found, int32_t label) {
    shards->images[shards->count] = found->image;
    shards->images[shards->count++].label = label;
}

static bool same_sample(const Found *a, const Found *b) {
    return a->image.shard == b->image.shard && a->key == b->key &&
           memcmp(a->image.name, b->image.name, a->key) == 0;
}

/* Whether the name is KEY.ending of a picture, and not KEY.mask.png. */
static bool is_whole(const Found *found) {
    return !strchr(found->image.name + found->key + 1, '.');
}

/* Files [first, end) of one key: a picture and its class. */
static Status keep_sample(const Indexing *index, int64_t first, int64_t end, Diag *diag) {
    const Found *image = NULL, *class = NULL;
    for (int64_t i = first; i < end; i++) {
        const Found *found = &index->found[i];
        if (!found->is_class && !is_whole(found)) continue;
        const Found **place = found->is_class ? &class : &image;
        if (*place)
            return diag_fail(
                diag, STATUS_FORMAT, LOC_FILE(found->image.name), NULL,
                "expected one image and one .cls of each key, found another");
        *place = found;
    }
    if (image && class) {
        keep_image(index->shards, image, class->image.label);
        return STATUS_OK;
    }
    if (!image && !class) return STATUS_OK;
    diag_fail(diag, STATUS_FORMAT, LOC_FILE((image ? image : class)->image.name), NULL,
              image ? "expected a .cls file of the same key beside the image"
                    : "expected an image of the same key beside the .cls file");
    diag_hint(diag, "files of a key stand one after another in an archive");
    return STATUS_FORMAT;
}

/* Labels from .cls files. */
static Status pair_samples(const Indexing *index, Diag *diag) {
    for (int64_t first = 0, end; first < index->count; first = end) {
        end = first + 1;
        while (end < index->count &&
               same_sample(&index->found[first], &index->found[end]))
            end++;
        TRY(keep_sample(index, first, end, diag));
    }
    return STATUS_OK;
}

static const char *folder_of(Arena *arena, const Found *found) {
    return arena_strndup(arena, found->image.name + found->folder,
                         found->folder_end - found->folder);
}

/* Names of all folders, sorted, each once. */
static Status list_folders(Indexing *index, StringList *classes, Diag *diag) {
    const char **names = memory_alloc((size_t)index->count, sizeof *names);
    int64_t count = 0;
    for (int64_t i = 0; i < index->count; i++)
        names[i] = folder_of(index->arena, &index->found[i]);
    qsort(names, (size_t)index->count, sizeof *names, text_order);
    for (int64_t i = 0; i < index->count; i++)
        if (i == 0 || strcmp(names[i], names[i - 1]) != 0) names[count++] = names[i];
    classes->items = ARENA_ARRAY(index->arena, const char *, (size_t)count);
    memcpy(classes->items, names, (size_t)count * sizeof *names);
    free(names);
    if (count >= INT32_MAX)
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(index->path), NULL,
                         "more classes than a label can tell");
    classes->count = (int)count;
    return STATUS_OK;
}

/* Labels from folders. */
static Status label_by_folders(Indexing *index, StringList *classes, Diag *diag) {
    index->shards->others = index->others;
    for (int64_t i = 0; i < index->count; i++) {
        const Found *found = &index->found[i];
        if (found->folder < found->folder_end) continue;
        diag_fail(diag, STATUS_FORMAT, LOC_FILE(found->image.name), NULL,
                  "expected a class for the image, found neither .cls nor folder");
        diag_hint(diag, "KEY.cls beside KEY.jpg holds the number of the class, or "
                        "CLASS/KEY.jpg names it");
        return STATUS_FORMAT;
    }
    if (!index->classes_given) {
        TRY(list_folders(index, classes, diag));
        index_classes(index, classes);
    }
    index->classes_given = true;
    for (int64_t i = 0; i < index->count; i++) {
        const Found *found = &index->found[i];
        const char *folder = folder_of(index->arena, found);
        const int32_t label = find_class(index, folder);
        if (label < 0) return no_class(index, found->image.name, folder, diag);
        keep_image(index->shards, found, label);
    }
    return STATUS_OK;
}

static Status make_index(Indexing *index, const StringList *paths, StringList *classes,
                         Diag *diag) {
    index->classes_given = classes->count > 0;
    index_classes(index, classes);
    TRY(visit_archives(index, paths, diag));
    if (index->count - index->classes_found == 0)
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(paths->items[0]), NULL,
                         "expected PNG or JPEG files in the archive%s, found none",
                         paths->count > 1 ? "s" : "");
    index->shards->images =
        memory_alloc((size_t)index->count, sizeof *index->shards->images);
    return index->classes_found > 0 ? pair_samples(index, diag)
                                    : label_by_folders(index, classes, diag);
}

Status image_shards_open(ImageShards *out, Arena *arena, const StringList *paths,
                         StringList *classes, Diag *diag) {
    Indexing index = {.arena = arena, .shards = out};
    *out = (ImageShards){0};
    Status status = make_index(&index, paths, classes, diag);
    free(index.found);
    if (status != STATUS_OK) image_shards_close(out);
    return status;
}

Status image_shards_load(const ImageShards *shards, int64_t i,
                         const ImageOptions *options, bool header, Image *out,
                         Diag *diag) {
    const ShardImage *image = &shards->images[i];
    const Buf *archive = shards->archives[image->shard];
    const uint8_t *data = buf_data(archive);
    TRY(image_decode(out, image->name, data + image->offset, image->bytes, options,
                     header, diag));
    buf_drop_pages(archive, image->offset, image->bytes);
    return STATUS_OK;
}

void image_shards_close(ImageShards *shards) {
    for (int i = 0; i < shards->archive_count; i++) buf_release(shards->archives[i]);
    free(shards->archives);
    free(shards->images);
    *shards = (ImageShards){0};
}
