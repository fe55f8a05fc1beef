/* Checks of outputs before long work starts. */
#include "session/output_files.h"

#include "io/files/file.h"
#include "io/files/outfolder.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static Status check_writable(const char *what, const char *folder, Diag *diag) {
    if (!path_is_folder(folder))
        return diag_fail(diag, STATUS_IO, LOC_FILE(folder), what,
                         "expected an existing folder, found %s",
                         access(folder, F_OK) == 0 ? "something else" : "nothing");
    if (access(folder, W_OK | X_OK) != 0)
        return diag_fail(diag, STATUS_IO, LOC_FILE(folder), what,
                         "the folder is not writable: %s", strerror(errno));
    return STATUS_OK;
}

Status output_check(Arena *arena, const char *what, const char *path, Diag *diag) {
    if (!path) return STATUS_OK;
    struct stat info;
    if (!*path)
        return diag_fail(diag, STATUS_IO, LOC_NONE, what,
                         "expected a file name, found an empty one");
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return diag_fail(diag, STATUS_IO, LOC_FILE(path), what,
                         "expected a regular file or none, found a %s",
                         S_ISDIR(info.st_mode) ? "folder" : "device or pipe");
    if (path[strlen(path) - 1] == '/')
        return diag_fail(diag, STATUS_IO, LOC_FILE(path), what,
                         "expected a file name, found the name of a folder");
    return check_writable(what, path_folder(arena, path), diag);
}

Status output_path_check(Arena *arena, const char *what, const ModelOutput *output,
                         Diag *diag) {
    const char *path = output->path, *ending = output->format->ending;
    struct stat info;
    size_t length = strlen(path);
    if (ending[strlen(ending) - 1] != '/') return output_check(arena, what, path, diag);
    while (length > 1 && path[length - 1] == '/') length--;
    path = arena_strndup(arena, path, length);
    if (stat(path, &info) == 0 && !S_ISDIR(info.st_mode))
        return diag_fail(diag, STATUS_IO, LOC_FILE(path), what,
                         "expected a folder or none, found a file");
    if (output->format->is_ours)
        TRY(outfolder_check(path, output->format->is_ours, diag));
    return check_writable(what, path_folder(arena, path), diag);
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
