/* Files of test cases: see case_file.h. */
#include "tests/support/case_file.h"

#include "ir/text.h"
#include "tests/support/check.h"

#include <dirent.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#define NO_NEWLINE "\\ no newline\n"

bool case_rewrites(void) {
    return getenv("COMPRESS_REWRITE") != NULL;
}

/* ---- reading ---- */

static const char *read_whole(Arena *arena, const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    Text text = {0};
    char block[4096];
    for (size_t n; (n = fread(block, 1, sizeof block, file)) > 0;)
        text_bytes(&text, block, n);
    fclose(file);
    const char *copy = arena_printf(arena, "%s", text.data ? text.data : "");
    text_free(&text);
    return copy;
}

static Case *add_case(CaseFile *file, const char *folder, const char *heading) {
    Case *one = arena_alloc(file->arena, sizeof *one), **at = &file->first;
    const char *base = strrchr(file->path, '/') + 1;
    const int length = (int)strcspn(base, ".");
    one->file = file;
    one->heading = heading;
    one->name =
        arena_printf(file->arena, "%s%s%.*s", folder, *folder ? "/" : "",
                     heading ? (int)strlen(heading) : length, heading ? heading : base);
    while (*at) at = &(*at)->next;
    return *at = one;
}

/* Text of a section between two places of a file. */
static const char *section_text(Arena *arena, const char *begin, const char *end) {
    const size_t mark = strlen(NO_NEWLINE);
    size_t length = (size_t)(end - begin);
    if (strncmp(end, "-- case ", 8) == 0 && length > 0 && end[-1] == '\n' &&
        (length == 1 || end[-2] == '\n'))
        length--; /* the empty line above a case */
    const bool cut =
        length > mark && memcmp(begin + length - mark, NO_NEWLINE, mark) == 0;
    return arena_printf(arena, "%.*s", (int)(cut ? length - mark - 1 : length), begin);
}

/* Place of the next line that begins a section, or the end. */
static const char *next_section(const char *text) {
    if (strncmp(text, "-- ", 3) == 0) return text;
    const char *at = strstr(text, "\n-- ");
    return at ? at + 1 : text + strlen(text);
}

CaseFile *case_file_open(const char *path, const char *folder) {
    Arena *arena = arena_create();
    CaseFile *file = arena_alloc(arena, sizeof *file);
    const char *text = read_whole(arena, path);
    *file = (CaseFile){.arena = arena, .path = arena_printf(arena, "%s", path)};
    if (!text) {
        print_error("cannot read %s\n", path);
        arena_destroy(arena);
        return NULL;
    }
    const char *at = next_section(text);
    file->comment = section_text(arena, text, at);
    for (Case *one = NULL; *at;) {
        const char *line = at + 3, *body = line + strcspn(line, "\n");
        const int kind = (int)strcspn(line, " \n");
        const char *argument = line + kind + strspn(line + kind, " ");
        const Section section = {
            .kind = arena_printf(arena, "%.*s", kind, line),
            .argument = arena_printf(arena, "%.*s", (int)(body - argument), argument)};
        body += *body == '\n';
        at = next_section(body);
        if (strcmp(section.kind, "case") == 0) {
            one = add_case(file, folder, section.argument);
            one->comment = section_text(arena, body, at);
            continue;
        }
        if (!one) one = add_case(file, folder, NULL);
        if (one->section_count == SECTIONS_MAX) {
            print_error("%s: too many sections\n", path);
            break;
        }
        one->sections[one->section_count] = section;
        one->sections[one->section_count++].text = section_text(arena, body, at);
    }
    return file;
}

/* ---- writing ---- */

static void write_case(FILE *out, const Case *one) {
    const bool first = one == one->file->first && !*one->file->comment;
    if (one->heading)
        fprintf(out, "%s-- case %s\n%s", first ? "" : "\n", one->heading, one->comment);
    for (int i = 0; i < one->section_count; i++) {
        const Section *section = &one->sections[i];
        const size_t length = strlen(section->text);
        fprintf(out, "-- %s%s%s\n%s", section->kind, *section->argument ? " " : "",
                section->argument, section->text);
        if (length > 0 && section->text[length - 1] != '\n') fputs("\n" NO_NEWLINE, out);
    }
}

void case_file_close(CaseFile *file) {
    if (!file) return;
    FILE *out = file->changed ? fopen(file->path, "wb") : NULL;
    if (out) {
        fputs(file->comment, out);
        for (const Case *one = file->first; one; one = one->next) write_case(out, one);
        fclose(out);
    }
    arena_destroy(file->arena);
}

/* ---- sections ---- */

int case_find(const Case *one, const char *kind, int from) {
    for (int i = from; i < one->section_count; i++)
        if (strcmp(one->sections[i].kind, kind) == 0) return i;
    return -1;
}

const char *case_text(const Case *one, const char *kind) {
    const int index = case_find(one, kind, 0);
    return index < 0 ? NULL : one->sections[index].text;
}

static void rewrite(Case *one, int index, const char *kind, const char *text,
                    const char *absent, int after) {
    Section *sections = one->sections;
    const bool gone = absent && strcmp(text, absent) == 0;
    one->file->changed = true;
    if (index >= 0 && gone) {
        one->section_count--;
        memmove(&sections[index], &sections[index + 1],
                (size_t)(one->section_count - index) * sizeof *sections);
    } else if (index >= 0) {
        sections[index].text = arena_printf(one->file->arena, "%s", text);
    } else if (!gone) {
        assert_true(one->section_count < SECTIONS_MAX);
        memmove(&sections[after + 2], &sections[after + 1],
                (size_t)(one->section_count - after - 1) * sizeof *sections);
        one->section_count++;
        sections[after + 1] =
            (Section){kind, "", arena_printf(one->file->arena, "%s", text)};
    }
}

bool case_compare(Case *one, int index, const char *kind, const char *got,
                  const char *absent, int after) {
    const char *want = index >= 0 ? one->sections[index].text : absent;
    if (want && strcmp(want, got) == 0) return true;
    if (case_rewrites()) {
        rewrite(one, index, kind, got, absent, after);
        return true;
    }
    print_error("%s: %s: section %s\n--- expected\n%s--- found\n%s---\n", one->file->path,
                one->name, kind, want ? want : "", got);
    return false;
}

/* ---- running ---- */

enum { CASES_MAX = 2000, FILES_MAX = 1000 };

typedef struct CaseRunner {
    void (*run)(Case *one);
    char **patterns; /* NULL at the end; none = all */
    CaseFile *files[FILES_MAX];
    struct CMUnitTest tests[CASES_MAX];
    int file_count, test_count, faults;
} CaseRunner;

static CaseRunner runner;

static void run_one(void **state) {
    runner.run(*state);
}

static bool is_chosen(const Case *one, const char *folder) {
    const char *base = strrchr(one->file->path, '/') + 1;
    const char *file = arena_printf(one->file->arena, "%s%s%.*s", folder,
                                    *folder ? "/" : "", (int)strcspn(base, "."), base);
    for (char **pattern = runner.patterns; *pattern; pattern++)
        if (fnmatch(*pattern, one->name, 0) == 0 || fnmatch(*pattern, file, 0) == 0)
            return true;
    return !*runner.patterns;
}

static void add_file(const char *path, const char *folder) {
    CaseFile *file = case_file_open(path, folder);
    if (!file || !file->first || runner.file_count == FILES_MAX) {
        print_error("%s has no cases\n", path);
        runner.faults++;
        case_file_close(file);
        return;
    }
    runner.files[runner.file_count++] = file;
    for (Case *one = file->first; one; one = one->next) {
        for (int i = 0; i < runner.test_count; i++)
            if (strcmp(runner.tests[i].name, one->name) == 0 && ++runner.faults)
                print_error("%s: there is another case %s\n", path, one->name);
        if (!is_chosen(one, folder) || runner.test_count == CASES_MAX) continue;
        runner.tests[runner.test_count++] = (struct CMUnitTest){
            .name = one->name, .test_func = run_one, .initial_state = one};
    }
}

/* Adds the files of a folder, and of those in it when it is the root. */
static void add_folder(const char *path, const char *folder, bool root) {
    struct dirent **entries = NULL;
    const int count = scandir(path, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name, *dot = strrchr(name, '.');
        char inner[600];
        snprintf(inner, sizeof inner, "%s/%s", path, name);
        if (dot && strcmp(dot, ".case") == 0)
            add_file(inner, folder);
        else if (root && name[0] != '.' && entries[i]->d_type == DT_DIR)
            add_folder(inner, name, false);
        free(entries[i]);
    }
    free(entries);
}

int case_main(int argc, char **argv, const char *root, void (*run)(Case *one)) {
    (void)argc;
    runner.run = run;
    runner.patterns = argv + 1;
    add_folder(root, "", true);
    if (runner.test_count == 0) {
        print_error("%s has no such cases\n", root);
        return 1;
    }
    int failed = _cmocka_run_group_tests(root, runner.tests, (size_t)runner.test_count,
                                         NULL, NULL);
    for (int i = 0; i < runner.file_count; i++) case_file_close(runner.files[i]);
    return failed + runner.faults != 0;
}
