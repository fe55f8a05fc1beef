/* --untrusted: the paths of the command line, and the limits. */
#include "cli/untrusted.h"

#include "exec/run/ranks.h"
#include "exec/run/reserve.h"
#include "io/files/confine.h"
#include "io/files/path.h"
#include "session/output_files.h"

#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Flags whose values are paths: of what is read, of what is written, of folders that are
 * written to. */
#define READ                                                                             \
    "recipe|model|input|jsonl|image|preprocessor|tokenizer|target-tokenizer|prompts|"    \
    "config|names"
#define WRITTEN "output|report|events|svg|annotate-file"
#define FOLDERS "cache|dump-dir"

static void add(StringList *list, Arena *arena, const char *path) {
    const char **items = ARENA_ARRAY(arena, const char *, (size_t)list->count + 1);
    for (int i = 0; i < list->count; i++) items[i] = list->items[i];
    items[list->count++] = path;
    list->items = items;
}

/* A folder is read with all below it, a file with all that is beside it: shards,
 * configurations, tokenizers, and what a recipe names. */
static void add_read(Confinement *all, Arena *arena, const char *path) {
    struct stat info;
    const bool folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    add(&all->reads, arena, folder ? path : path_folder(arena, path));
}

/* Files are made beside those that they replace. */
static void add_written(Confinement *all, Arena *arena, const char *path) {
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    add(&all->writes, arena, path_folder(arena, arena_strndup(arena, path, length)));
}

static void add_flag(Confinement *all, Arena *arena, const Flag *flag,
                     const char *value) {
    if (strcmp(value, "-") == 0 || strncmp(value, "/dev/", 5) == 0) return;
    if (flag_is_one_of(flag, WRITTEN))
        add_written(all, arena, value);
    else if (flag_is_one_of(flag, FOLDERS))
        add(&all->writes, arena, value);
    else
        add_read(all, arena, value);
}

/* Adds the paths of flags of these names. */
static void add_flags(Confinement *all, const Cli *cli, const char *names) {
    for (const Flag *flag = flag_list(); flag->name; flag++) {
        const void *at = (const char *)&cli->flags + flag->field.offset;
        if (!flag->value || !flag_is_one_of(flag, names)) continue;
        if (flag->field.kind == FIELD_STRINGS) {
            const StringList *list = at;
            for (int i = 0; i < list->count; i++)
                add_flag(all, cli->arena, flag, list->items[i]);
        } else if (*(const char *const *)at) {
            add_flag(all, cli->arena, flag, *(const char *const *)at);
        }
    }
}

static void add_arguments(Confinement *all, const Cli *cli) {
    const bool writes = strstr(cli->command->args, "OUTPUT") != NULL; /* the last one */
    for (int i = 0; i < cli->arg_count; i++)
        if (writes && i == cli->arg_count - 1)
            add_written(all, cli->arena, cli->args[i]);
        else
            add_read(all, cli->arena, cli->args[i]);
}

/* Whether a folder holds the user's home, as the environment or the system names it. */
static bool holds_home(const char *folder, Arena *arena) {
    const struct passwd *user = getpwuid(getuid());
    const char *homes[] = {getenv("HOME"), user ? user->pw_dir : NULL};
    for (int i = 0; i < 2; i++)
        if (homes[i] && *homes[i] && output_overlaps(arena, homes[i], folder))
            return true;
    return false;
}

/* Folders are open with all below them: a home has what no stranger's recipe should
 * read; a user who wants that must say so. */
static Status check_homes(const StringList *folders, const Cli *cli, Diag *diag) {
    const StringList *allowed = &cli->flags.allow;
    for (int i = 0; i < folders->count; i++) {
        const char *folder = folders->items[i];
        bool open = !holds_home(folder, cli->arena);
        for (int k = 0; k < allowed->count; k++)
            open |= output_overlaps(cli->arena, folder, allowed->items[k]);
        if (open) continue;
        diag_fail(diag, STATUS_USAGE, LOC_FILE(folder), "--untrusted",
                  "expected files in a folder of their own, found your home folder, all "
                  "of which could be read");
        diag_hint(diag, "--allow %s says that it may", folder);
        return STATUS_USAGE;
    }
    return STATUS_OK;
}

Status untrusted_confine(const Cli *cli, char **arguments, Diag *diag) {
    if (ranks_launched() > 1)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         "--untrusted: expected one process, found %ld ranks",
                         ranks_launched());
    if (!confine_can()) threads_hold_library(arguments);
    if (!confine_can())
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         "--untrusted: threads that run already cannot be confined");
    const int64_t memory = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    Confinement wanted = {.memory = memory / 2, .file = memory};
    add_flags(&wanted, cli, READ "|" WRITTEN "|" FOLDERS);
    add_arguments(&wanted, cli);
    TRY(check_homes(&wanted.reads, cli, diag));
    TRY(check_homes(&wanted.writes, cli, diag));
    /* made now: nothing is, later, above a folder that may be written to */
    if (cli->flags.cache) TRY(path_make_folder(cli->flags.cache, diag));
    if (cli->flags.dump_dir) TRY(path_make_folder(cli->flags.dump_dir, diag));
    add_flags(&wanted, cli, "allow");
    char program[4096];
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length > 0) {
        program[length] = '\0';
        add(&wanted.reads, cli->arena, program); /* its hash is part of steps' keys */
    }
    return confine(&wanted, diag);
}
