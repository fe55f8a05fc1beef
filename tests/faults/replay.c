/* Replays the log of the shim as a loss of power may leave it, behind every record, and
 * says whether the output is then the old one or the new one, byte by byte:
 *
 *   replay COUNTS NOW KEPT BEFORE NEW OUTPUT
 *
 * COUNTS: the shim's file. NOW: the folder that the program ran in; KEPT: links to what
 * it held before the run. BEFORE and NEW: the same, and what an undisturbed run leaves.
 * OUTPUT: a file or folder in it.
 *
 * What a disk holds after a loss of power, of what was asked for: contents that were
 * synced, names whose folder was, and of all else any part. Six parts are tried:
 *
 *   all        everything, in order
 *   synced     nothing that was not synced
 *   names      all names, but contents only as they were synced
 *   contents   all contents, but names only as they were synced
 *   torn       everything, of the last write that was not synced the first half
 *   but one    everything but one record that was not synced, each in turn
 *
 * A change of names counts as one, whichever folders it changes, and stands on its own: a
 * rename puts its file in place even where the name that it had is lost. Behind the last
 * record the output must be the new one. */
#include "tests/faults/shim.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OBJECTS_MAX = 4096, ENTRIES_MAX = 8192, RECORDS_MAX = 1 << 20, NONE = -1 };

/* A file or folder. */
typedef struct Object {
    bool is_folder, is_old; /* is_old: there before the run, never to be written */
    uint64_t inode;         /* in the log, of those that the run made */
    unsigned char *data;    /* as replayed */
    size_t bytes;
} Object;

/* A name in a folder. */
typedef struct Entry {
    int folder, object; /* object NONE: there is no such name */
    char name[NAME_MAX + 1];
} Entry;

/* What a record of names does: at most two names change. */
typedef struct Change {
    int folder[2], object[2];
    char name[2][NAME_MAX + 1];
} Change;

typedef struct Step {
    const LogRecord *record;
    const unsigned char *bytes;
    int object;    /* of contents and syncs, NONE = not of ours */
    Change change; /* of names */
    int synced;    /* the first later step that makes it durable, INT_MAX = none */
    bool is_name;
} Step;

static Object objects[OBJECTS_MAX];
static int object_count;
static Entry entries[ENTRIES_MAX];
static int entry_count;
static Step *steps;
static int step_count;
static const char *root; /* NOW, as the log has it */

_Noreturn static void stop(const char *what, const char *which) {
    fprintf(stderr, "replay: %s%s\n", what, which);
    exit(2);
}

/* ---- folders as they are replayed ---- */

static Entry *entry_find(int folder, const char *name) {
    for (int i = 0; i < entry_count; i++)
        if (entries[i].folder == folder && strcmp(entries[i].name, name) == 0)
            return &entries[i];
    return NULL;
}

static void entry_set(int folder, const char *name, int object) {
    Entry *entry = entry_find(folder, name);
    if (!entry) {
        if (entry_count == ENTRIES_MAX) stop("too many names", "");
        entry = &entries[entry_count++];
        entry->folder = folder;
        snprintf(entry->name, sizeof entry->name, "%s", name);
    }
    entry->object = object;
}

static int object_new(bool is_folder, uint64_t inode) {
    if (object_count == OBJECTS_MAX) stop("too many files", "");
    objects[object_count] = (Object){.is_folder = is_folder, .inode = inode};
    return object_count++;
}

/* The newest object of an inode: numbers are used again. */
static int object_of(uint64_t inode) {
    for (int i = object_count - 1; i >= 0; i--)
        if (objects[i].inode == inode) return i;
    return NONE;
}

static unsigned char *read_whole(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    if (!file) stop("cannot read ", path);
    unsigned char *data = NULL;
    size_t got, room = 0;
    *bytes = 0;
    do {
        room = 2 * room + 4096;
        data = realloc(data, room);
        got = fread(data + *bytes, 1, room - *bytes, file);
        *bytes += got;
    } while (got > 0);
    fclose(file);
    return data;
}

/* Takes a folder of the disk in, with all that is in it; `inodes` is where the log knows
 * the same files by their numbers. */
static void take_folder(int folder, const char *path, const char *inodes) {
    DIR *list = opendir(path);
    if (!list) stop("cannot open ", path);
    for (struct dirent *at; (at = readdir(list));) {
        char inner[PATH_MAX], same[PATH_MAX];
        struct stat info;
        if (strcmp(at->d_name, ".") == 0 || strcmp(at->d_name, "..") == 0) continue;
        snprintf(inner, sizeof inner, "%s/%s", path, at->d_name);
        snprintf(same, sizeof same, "%s/%s", inodes, at->d_name);
        if (stat(same, &info) != 0 && stat(inner, &info) != 0) stop("cannot find ", same);
        const int object = object_new(S_ISDIR(info.st_mode), info.st_ino);
        objects[object].is_old = true;
        entry_set(folder, at->d_name, object);
        if (objects[object].is_folder)
            take_folder(object, inner, same);
        else
            objects[object].data = read_whole(inner, &objects[object].bytes);
    }
    closedir(list);
}

/* ---- records as steps ---- */

/* The folder that a path leads to and the name in it; false for paths that lead out of
 * NOW. Names are those of the program: all changes so far are made. */
static bool resolve(const char *path, int *folder, char name[NAME_MAX + 1]) {
    char rest[PATH_MAX];
    const size_t length = strlen(root);
    if (path[0] == '/') {
        if (strncmp(path, root, length) != 0 || path[length] != '/') return false;
        path += length + 1;
    }
    snprintf(rest, sizeof rest, "%s", path);
    int at = 0;
    char *keep = NULL, *next;
    for (char *part = strtok_r(rest, "/", &keep); part; part = next) {
        next = strtok_r(NULL, "/", &keep);
        if (strcmp(part, ".") == 0 && next) continue;
        if (!next) {
            *folder = at;
            snprintf(name, NAME_MAX + 1, "%s", part);
            return strcmp(part, "..") != 0;
        }
        const Entry *entry = entry_find(at, part);
        if (!entry || entry->object == NONE) return false;
        at = entry->object;
    }
    return false;
}

static int object_at(int folder, const char *name) {
    const Entry *entry = entry_find(folder, name);
    return entry ? entry->object : NONE;
}

static void change_make(const Change *change) {
    for (int i = 0; i < 2; i++)
        if (change->folder[i] != NONE)
            entry_set(change->folder[i], change->name[i], change->object[i]);
}

/* What a record of names changes; false where it is none of ours. */
static bool change_of(Change *c, const LogRecord *record, const char *path,
                      const char *path2) {
    *c = (Change){.folder = {NONE, NONE}, .object = {NONE, NONE}};
    if (!resolve(path, &c->folder[0], c->name[0])) return false;
    if (record->kind == LOG_CREATE) {
        c->object[0] = object_new(record->is_folder, record->inode);
        return true;
    }
    if (record->kind == LOG_REMOVE) return true;
    if (!resolve(path2, &c->folder[1], c->name[1])) return false;
    c->object[1] = object_at(c->folder[0], c->name[0]);
    if (record->kind == LOG_EXCHANGE) c->object[0] = object_at(c->folder[1], c->name[1]);
    return true;
}

static bool step_take(Step *step, const LogRecord *record) {
    const char *path = (const char *)(record + 1);
    const char *path2 = path + record->path;
    *step = (Step){.record = record,
                   .bytes = (const unsigned char *)path2 + record->path2,
                   .object = NONE,
                   .synced = INT_MAX};
    if (record->path > 0) {
        step->is_name = true;
        if (!change_of(&step->change, record, path, path2)) return false;
        change_make(&step->change);
        return true;
    }
    step->object = object_of(record->inode);
    if (step->object == NONE) return false;
    if (record->kind != LOG_SYNC && objects[step->object].is_old)
        stop("a file that was there before the run is written in place", "");
    return true;
}

/* Which step makes each one durable. */
static void find_syncs(void) {
    for (int s = 0; s < step_count; s++) {
        if (steps[s].record->kind != LOG_SYNC || steps[s].is_name) continue;
        const int object = steps[s].object;
        for (int i = 0; i < s; i++) {
            const Change *c = &steps[i].change;
            const bool its = steps[i].is_name
                                 ? c->folder[0] == object || c->folder[1] == object
                                 : steps[i].object == object;
            if (its && steps[i].synced > s) steps[i].synced = s;
        }
    }
}

static void take_log(const char *counts) {
    const int fd = open(counts, O_RDONLY);
    const char *data = mmap(NULL, FAULT_FILE_BYTES, PROT_READ, MAP_PRIVATE, fd, 0);
    if (fd < 0 || data == MAP_FAILED) stop("cannot map ", counts);
    const uint64_t used = ((const FaultFile *)(const void *)data)->used;
    const char *log = data + sizeof(FaultFile);
    steps = calloc(RECORDS_MAX, sizeof *steps);
    for (uint64_t at = 0; at < used;) {
        const LogRecord *record = (const LogRecord *)(const void *)(log + at);
        if (step_count == RECORDS_MAX) stop("too many records", "");
        step_count += step_take(&steps[step_count], record);
        at += (sizeof *record + record->path + record->path2 + record->bytes + 7) &
              ~(uint64_t)7;
    }
    find_syncs();
}

/* ---- what is left ---- */

typedef enum Part {
    PART_ALL,
    PART_SYNCED,
    PART_NAMES,
    PART_CONTENTS,
    PART_TORN,
    PART_BUT_ONE,
    PART_COUNT
} Part;

static const char *const PARTS[] = {"all", "synced", "names", "contents", "torn", "all"};

static void object_room(Object *object, size_t bytes) {
    if (bytes <= object->bytes) return;
    object->data = realloc(object->data, bytes);
    memset(object->data + object->bytes, 0, bytes - object->bytes);
    object->bytes = bytes;
}

static void content_make(const Step *step, size_t bytes) {
    Object *object = &objects[step->object];
    const LogRecord *record = step->record;
    if (record->kind == LOG_TRUNCATE) {
        object_room(object, record->at);
        object->bytes = record->at;
    } else if (record->kind == LOG_WRITE) {
        object_room(object, record->at + bytes);
        memcpy(object->data + record->at, step->bytes, bytes);
    }
}

/* Whether step i is on the disk when the power goes behind step `last`. */
static bool is_kept(int i, int last, Part part, int dropped) {
    const Step *step = &steps[i];
    const bool is_synced = step->synced <= last;
    switch (part) {
    case PART_SYNCED: return is_synced;
    case PART_NAMES: return step->is_name || is_synced;
    case PART_CONTENTS: return !step->is_name || is_synced;
    case PART_BUT_ONE: return i != dropped;
    default: return true;
    }
}

/* The state before the run, kept apart so that every replay begins with it. */
static Entry *first_entries;
static int first_entry_count;

static void replay(int last, Part part, int dropped) {
    memcpy(entries, first_entries, (size_t)first_entry_count * sizeof *entries);
    entry_count = first_entry_count;
    for (int i = 0; i < object_count; i++)
        if (!objects[i].is_old) objects[i].bytes = 0;
    int last_write = NONE;
    for (int i = 0; i <= last; i++)
        if (!steps[i].is_name && steps[i].record->kind == LOG_WRITE &&
            steps[i].synced > last)
            last_write = i;
    for (int i = 0; i <= last; i++) {
        if (!is_kept(i, last, part, dropped)) continue;
        const size_t bytes = steps[i].record->bytes;
        if (steps[i].is_name)
            change_make(&steps[i].change);
        else
            content_make(&steps[i],
                         part == PART_TORN && i == last_write ? bytes / 2 : bytes);
    }
}

/* Whether an object is what lies at `path`, all of a folder's names included. */
static bool is_same(int object, const char *path) {
    struct stat info;
    if (object == NONE || stat(path, &info) != 0) return false;
    const Object *o = &objects[object];
    if (!o->is_folder) {
        size_t bytes;
        if (!S_ISREG(info.st_mode) || (size_t)info.st_size != o->bytes) return false;
        unsigned char *data = read_whole(path, &bytes);
        const bool same = bytes == o->bytes && memcmp(data, o->data, bytes) == 0;
        free(data);
        return same;
    }
    DIR *list = opendir(path);
    bool same = list != NULL;
    int names = 0, ours = 0;
    for (struct dirent *at; same && (at = readdir(list));) {
        char inner[PATH_MAX];
        if (strcmp(at->d_name, ".") == 0 || strcmp(at->d_name, "..") == 0) continue;
        snprintf(inner, sizeof inner, "%s/%s", path, at->d_name);
        same = is_same(object_at(object, at->d_name), inner);
        names++;
    }
    if (list) closedir(list);
    for (int i = 0; i < entry_count; i++)
        ours += entries[i].folder == object && entries[i].object != NONE;
    return same && names == ours;
}

static long states, found_old, found_new, wrong;

static void check(int last, Part part, int dropped, const char *before, const char *new,
                  const char *output) {
    char path[PATH_MAX];
    replay(last, part, dropped);
    const int object = object_at(0, output);
    snprintf(path, sizeof path, "%s/%s", before, output);
    const bool is_old = is_same(object, path);
    snprintf(path, sizeof path, "%s/%s", new, output);
    const bool is_new = is_same(object, path);
    const bool must_be_new = last == step_count - 1;
    states++;
    found_old += is_old;
    found_new += is_new;
    if (is_new || (is_old && !must_be_new)) return;
    wrong++;
    printf("behind record %d of %d, %s%s", last + 1, step_count, PARTS[part],
           part == PART_BUT_ONE ? ", " : "");
    if (part == PART_BUT_ONE) printf("without record %d", dropped + 1);
    printf(": %s\n", is_old ? "the old output, and the program has ended" : "neither");
}

int main(int argc, char **argv) {
    if (argc != 7) stop("COUNTS NOW KEPT BEFORE NEW OUTPUT", "");
    root = argv[2];
    object_new(true, 0);
    struct stat info;
    if (stat(root, &info) != 0) stop("cannot find ", root);
    objects[0].inode = info.st_ino;
    objects[0].is_old = true;
    take_folder(0, argv[4], argv[3]);
    first_entries = malloc(sizeof entries);
    first_entry_count = entry_count;
    memcpy(first_entries, entries, (size_t)entry_count * sizeof *entries);
    take_log(argv[1]);
    for (int last = -1; last < step_count; last++) {
        for (Part part = PART_ALL; part < PART_BUT_ONE; part++)
            check(last, part, NONE, argv[4], argv[5], argv[6]);
        for (int i = 0; i <= last; i++)
            if (steps[i].synced > last && steps[i].record->kind != LOG_SYNC)
                check(last, PART_BUT_ONE, i, argv[4], argv[5], argv[6]);
    }
    printf("%d records, %ld states: %ld old, %ld new, %ld wrong\n", step_count, states,
           found_old, found_new, wrong);
    return wrong > 0 || found_new == 0 || found_old == 0;
}
