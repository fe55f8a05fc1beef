/* Folder: see folder.h. */
#include "io/files/folder.h"

#include "io/files/file.h"
#include "io/files/json.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Whether it is the file that the user named. */
static bool is_given(const Folder *folder, const char *name) {
    const char *slash = folder->given ? strrchr(folder->given, '/') : NULL;
    return folder->given && strcmp(slash ? slash + 1 : folder->given, name) == 0;
}

static const ModelAsset *find_file(const Folder *folder, const char *name) {
    for (int i = 0; folder->files && i < folder->file_count; i++)
        if (strcmp(folder->files[i].name, name) == 0) return &folder->files[i];
    return NULL;
}

const char *folder_file(const Folder *folder, Arena *arena, const char *name) {
    return is_given(folder, name) ? arena_strdup(arena, folder->given)
                                  : path_join(arena, folder->path, name);
}

bool folder_has(const Folder *folder, const char *name) {
    if (folder->files) return find_file(folder, name) != NULL;
    Arena *arena = arena_create();
    const bool found = path_is_file(folder_file(folder, arena, name));
    arena_destroy(arena);
    return found;
}

Status folder_read(char **text, size_t *length, const Folder *folder, Arena *arena,
                   const char *name, size_t limit, Diag *diag) {
    const char *path = folder_file(folder, arena, name);
    const ModelAsset *file = find_file(folder, name);
    if (!folder->files) {
        if (!is_given(folder, name)) TRY(path_check_inside(folder->path, path, diag));
        return file_read(text, length, arena, path, limit, diag);
    }
    if (!file)
        return diag_fail(diag, STATUS_IO, LOC_FILE(path), NULL, "there is no such file");
    if (file->length > limit)
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
                         "expected at most %zu bytes, found %zu", limit, file->length);
    *text = arena_strndup(arena, file->data, file->length);
    *length = file->length;
    return STATUS_OK;
}

Status folder_read_json(Tree **out, const Folder *folder, Arena *arena, const char *name,
                        size_t limit, Diag *diag) {
    char *text;
    size_t length;
    TRY(folder_read(&text, &length, folder, arena, name, limit, diag));
    return json_parse(out, arena, folder_file(folder, arena, name), text, length, diag);
}

Status folder_names(const char ***names, int64_t *count, Arena *arena, const char *path,
                    Diag *diag) {
    const char **found = NULL;
    size_t room = 0, have = 0;
    DIR *folder = opendir(path);
    if (!folder)
        return diag_fail(diag, STATUS_IO, LOC_FILE(path), NULL, "cannot open: %s",
                         strerror(errno));
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (entry->d_name[0] == '.') continue;
        if (have == room) {
            room = room ? 2 * room : 64;
            found = memory_grow(found, room, sizeof *found);
        }
        found[have++] = arena_strdup(arena, entry->d_name);
    }
    closedir(folder);
    if (have > 0) qsort(found, have, sizeof *found, text_order);
    *names = ARENA_ARRAY(arena, const char *, have + 1);
    if (have > 0) memcpy(*names, found, have * sizeof *found);
    *count = (int64_t)have;
    free(found);
    return STATUS_OK;
}
