/* Checks of outputs before long work starts. */
#include "session/output_files.h"

#include "exec/ops.h"
#include "io/files/file.h"
#include "io/files/folder.h"
#include "io/files/outfolder.h"
#include "io/files/path.h"
#include "io/formats/load.h"
#include "io/formats/modelfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether a file can be made in a folder: tried without a name, where the file system has
 * such files, since permissions do not tell what --untrusted keeps from the process. Sets
 * errno. */
static bool may_write(const char *folder) {
    const int fd = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0) close(fd);
    if (fd < 0 && (errno == EACCES || errno == EPERM || errno == EROFS)) return false;
    return access(folder, W_OK | X_OK) == 0;
}

/* Whether a folder that can be looked at is in no other any more, as a working directory
 * that was removed. */
static bool is_removed(const char *folder) {
    char *real = realpath(folder, NULL);
    const bool removed = !real && errno == ENOENT;
    free(real);
    return removed;
}

static Status check_writable(const char *what, const char *folder, Diag *diag) {
    if (!path_is_folder(folder))
        return diag_fail(diag, STATUS_IO, LOC_FILE(folder), what,
                         "expected an existing folder, found %s",
                         access(folder, F_OK) == 0 ? "something else" : "nothing");
    if (is_removed(folder))
        return diag_fail(diag, STATUS_IO, LOC_FILE(folder), what,
                         "expected an existing folder, found one that was removed");
    if (!may_write(folder))
        return diag_fail(diag, STATUS_IO, LOC_FILE(folder), what,
                         "the folder is not writable: %s", strerror(errno));
    return STATUS_OK;
}

/* Whether there can be something at a path: by its folder, and the length of its name. */
static Status check_place(Arena *arena, const char *what, const char *path, Diag *diag) {
    const char *folder = path_folder(arena, path), *slash = strrchr(path, '/');
    TRY(check_writable(what, folder, diag));
    if (access(path, F_OK) == 0 || errno != ENAMETOOLONG) return STATUS_OK;
    return diag_fail(diag, STATUS_IO, LOC_FILE(folder), what,
                     "expected a name that the folder can hold, found one of %zu bytes",
                     strlen(slash ? slash + 1 : path));
}

Status output_check(Arena *arena, const char *what, const char *path, Diag *diag) {
    if (!path) return STATUS_OK;
    struct stat info;
    if (!*path)
        return diag_fail(diag, STATUS_IO, LOC_NONE, what,
                         "expected a file name, found an empty one");
    if (strcmp(path, "-") == 0)
        return diag_fail(diag, STATUS_IO, LOC_NONE, what,
                         "expected a file, which standard output is not; ./- is one");
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return diag_fail(diag, STATUS_IO, LOC_FILE(path), what,
                         "expected a regular file or none, found a %s",
                         S_ISDIR(info.st_mode) ? "folder" : "device or pipe");
    if (path[strlen(path) - 1] == '/')
        return diag_fail(diag, STATUS_IO, LOC_FILE(path), what,
                         "expected a file name, found the name of a folder");
    return check_place(arena, what, path, diag);
}

const char *output_folder(Arena *arena, const ModelOutput *output) {
    return path_folder(arena, path_trim(arena, output->path));
}

Status output_path_check(Arena *arena, const char *what, const ModelOutput *output,
                         Diag *diag) {
    const char *path = output->path, *ending = output->format->ending;
    struct stat info;
    if (ending[strlen(ending) - 1] != '/') return output_check(arena, what, path, diag);
    path = path_trim(arena, path);
    if (stat(path, &info) == 0 && !S_ISDIR(info.st_mode))
        return diag_fail(diag, STATUS_IO, LOC_FILE(path), what,
                         "expected a folder or none, found a file");
    if (output->format->is_ours)
        TRY(outfolder_check(path, output->format->is_ours, diag));
    return check_place(arena, what, path, diag);
}

/* ---- what may be replaced ---- */

static bool same_place(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

bool same_file(const char *a, const char *b) {
    if (same_place(a, b)) return true;
    const char *last = strrchr(a, '/'), *other = strrchr(b, '/');
    if (strcmp(last ? last + 1 : a, other ? other + 1 : b) != 0) return false;
    Arena *arena = arena_create();
    const bool same = same_place(path_folder(arena, a), path_folder(arena, b));
    arena_destroy(arena);
    return same;
}

/* A path without links and dots, as far as its folders are there. */
static const char *resolved(Arena *arena, const char *path) {
    path = path_trim(arena, path);
    const char *last = strrchr(path, '/');
    char *real = realpath(path, NULL);
    const char *found = real ? arena_strdup(arena, real) : NULL;
    free(real);
    if (found) return found;
    const char *folder = path_folder(arena, path);
    if (strcmp(folder, path) == 0) return path;
    return arena_printf(arena, "%s/%s", resolved(arena, folder), last ? last + 1 : path);
}

bool output_overlaps(Arena *arena, const char *path, const char *other) {
    const char *inner = resolved(arena, path), *outer = resolved(arena, other);
    size_t length = strlen(outer);
    if (strncmp(inner, outer, length) != 0) return false;
    length -= outer[length - 1] == '/'; /* all lies in "/" */
    return inner[length] == 0 || inner[length] == '/';
}

/* Whether both are there, and writing `path` would replace `read`: it is the same file or
 * folder, or one in it. */
static bool would_replace(const char *path, const char *read) {
    if (access(path, F_OK) != 0 || access(read, F_OK) != 0) return false;
    Arena *arena = arena_create();
    const bool replaces = output_overlaps(arena, read, path) || same_file(path, read);
    arena_destroy(arena);
    return replaces;
}

/* Whether a file is text: formats of models have control characters at their start. */
static bool begins_as_text(const char *path) {
    unsigned char start[64];
    const size_t count = file_start(start, sizeof start, path);
    for (size_t i = 0; i < count; i++)
        if ((start[i] < ' ' && !strchr("\t\n\r\f", start[i])) || start[i] == 0)
            return false;
    return true;
}

/* An HDF5 file may be anything, a data set say: it is a model if it reads as one. */
static Status check_model(bool *is_model, const char *path, Diag *diag) {
    const ModelFormat *format = model_format_of(path);
    *is_model = false;
    if (!format && errno != 0) return file_fail(path, "read", errno, diag);
    if (!format) return STATUS_OK;
    const bool is_file = modelfile_probe(path);
    if (!is_file && errno == 0) *is_model = !begins_as_text(path);
    if (!is_file && errno != 0) return file_fail(path, "read", errno, diag);
    if (!is_file) return STATUS_OK;
    Model *model = NULL;
    Diag *own = diag_create();
    const Status status = model_load(&model, path, ops_table(), false, own);
    *is_model = status == STATUS_OK;
    model_destroy(model);
    if (status == STATUS_IO || status == STATUS_MEMORY) diag_take(diag, own);
    diag_destroy(own);
    return status == STATUS_IO || status == STATUS_MEMORY ? status : STATUS_OK;
}

/* A length, the header's, and the header, which is JSON. */
static bool is_tensors(const char *path) {
    unsigned char start[9];
    return file_start(start, sizeof start, path) == sizeof start && start[7] == 0 &&
           start[8] == '{';
}

static bool is_empty(const char *path) {
    DIR *folder = opendir(path);
    bool found = false;
    for (struct dirent *entry; folder && !found && (entry = readdir(folder));)
        found = strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    if (folder) closedir(folder);
    return folder && !found;
}

/* Whether a folder holds weights in a .safetensors or .onnx file. */
static bool holds_weights(Arena *arena, const char *path) {
    const char **names;
    int64_t count;
    bool found = false;
    Diag *none = diag_create();
    if (folder_names(&names, &count, arena, path, none) != STATUS_OK) count = 0;
    for (int64_t i = 0; i < count && !found; i++) {
        const char *file = path_join(arena, path, names[i]);
        found = (text_ends_with(file, ".safetensors") && is_tensors(file)) ||
                (text_ends_with(file, ".onnx") && !begins_as_text(file));
    }
    diag_destroy(none);
    return found;
}

/* A folder is a model's where its config.json says which, and has weights, unless it is
 * empty. */
static bool folder_is_model(const char *path) {
    enum { CONFIG_BYTES_MAX = 1 << 20 };
    Arena *arena = arena_create();
    Diag *none = diag_create();
    const Folder folder = {.path = path};
    Tree *config = NULL;
    bool is_model = is_empty(path);
    if (!is_model && folder_read_json(&config, &folder, arena, "config.json",
                                      CONFIG_BYTES_MAX, none) == STATUS_OK)
        is_model =
            (tree_get(config, "model_type") || tree_get(config, "architectures")) &&
            (holds_weights(arena, path) ||
             holds_weights(arena, path_join(arena, path, "onnx")));
    diag_destroy(none);
    arena_destroy(arena);
    return is_model;
}

/* Kinds that are told by how a file begins: with one of these characters, and with one of
 * these words among its first bytes. */
typedef struct KindRow {
    const char *name, *first, *words[2];
} KindRow;

static const KindRow KINDS[] = {
    [OUTPUT_MODEL] = {"a model", NULL, {NULL}},
    [OUTPUT_TENSORS] = {"outputs of a model in safetensors", NULL, {NULL}},
    [OUTPUT_REPORT] = {"a report or events of a run",
                       "{",
                       {"\"name\": \"compress\"", "{\"event\":"}},
    [OUTPUT_GENERATED] = {"generated texts in JSON Lines", "{", {"\"text\":", NULL}},
    [OUTPUT_VOCABULARY] = {"a tokenizer of words", "{", {"\"WordLevel\"", NULL}},
    [OUTPUT_ISSUES] = {"a list of issues", "[", {"[]", "\"fingerprint\""}},
    [OUTPUT_PAGE] = {"a page of `compress report`",
                     "<#",
                     {"compress</title>", "### compress"}},
    [OUTPUT_DRAWING] = {"a drawing in SVG", "<", {"<svg", NULL}},
    [OUTPUT_TEXT] = {"an empty file", "", {NULL}},
};

/* Whether a word is among a file's first bytes. */
static bool begins_with(const char *path, const char *first, const char *const words[2]) {
    char start[8192 + 1];
    const size_t count = file_start(start, sizeof start - 1, path);
    size_t i = 0;
    while (i < count && strchr(" \t\r\n", start[i]) && start[i]) i++;
    if (i == count || !start[i] || !strchr(first, start[i])) return false;
    for (int w = 0; w < 2; w++)
        if (words[w] && memmem(start, count, words[w], strlen(words[w]))) return true;
    return false;
}

/* Models have metadata in their header, which outputs have not. */
static bool is_outputs(const char *path) {
    static const char KEY[] = "\"__metadata__\"";
    char start[8192];
    const size_t count = file_start(start, sizeof start, path);
    return is_tensors(path) && !memmem(start, count, KEY, sizeof KEY - 1);
}

/* Whether a file is of a kind, as far as it can be read. */
static Status check_kind(bool *is_of_kind, const char *path, OutputKind kind,
                         Diag *diag) {
    const KindRow *row = &KINDS[kind];
    if (kind == OUTPUT_MODEL) return check_model(is_of_kind, path, diag);
    errno = 0;
    *is_of_kind = kind == OUTPUT_TENSORS ? is_outputs(path)
                                         : begins_with(path, row->first, row->words);
    return errno != 0 ? file_fail(path, "read", errno, diag) : STATUS_OK;
}

static const char REPLACE_HINT[] =
    "name another file; --force of `compress` replaces what is there";

/* Whether nothing that is read would be replaced. */
static Status check_unread(const char *what, const char *path, const StringList *read,
                           Diag *diag) {
    for (int i = 0; i < read->count; i++) {
        if (!read->items[i] || !would_replace(path, read->items[i])) continue;
        diag_fail(diag, STATUS_IO, LOC_FILE(path), what,
                  "expected another place than that of '%s', which is read",
                  read->items[i]);
        diag_hint(diag, REPLACE_HINT);
        return STATUS_IO;
    }
    return STATUS_OK;
}

Status output_replace_check(const char *what, const char *path, OutputKind kind,
                            const StringList *read, Diag *diag) {
    struct stat info;
    if (!path || stat(path, &info) != 0) return STATUS_OK;
    TRY(check_unread(what, path, read, diag));
    bool is_of_kind = true;
    if (S_ISDIR(info.st_mode) && kind == OUTPUT_MODEL)
        is_of_kind = folder_is_model(path);
    else if (S_ISREG(info.st_mode) && info.st_size > 0)
        TRY(check_kind(&is_of_kind, path, kind, diag));
    if (is_of_kind) return STATUS_OK;
    diag_fail(diag, STATUS_IO, LOC_FILE(path), what,
              "expected %s to replace, or none, found something else", KINDS[kind].name);
    diag_hint(diag, REPLACE_HINT);
    return STATUS_IO;
}

ModelOutput output_of_failed(Arena *arena, const ModelOutput *output) {
    ModelOutput failed = *output;
    const char *ending = output->format->ending;
    size_t name = strlen(output->path) - strlen(ending);
    while (name > 1 && output->path[name - 1] == '/') name--;
    failed.path = arena_printf(arena, "%.*s.failed%s", (int)name, output->path, ending);
    failed.written = (Written){0};
    return failed;
}

Status folder_check(const char *what, const char *path, Diag *diag) {
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return diag_fail(diag, STATUS_IO, LOC_FILE(path), what,
                         "cannot make the folder: %s", strerror(errno));
    return check_writable(what, path, diag);
}
