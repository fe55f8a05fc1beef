/* The manual against the program: README.md, docs/ and docs/passes/ are read, and
 *   - every ```yaml block binds: a whole recipe as it is, a block that starts with
 *     `passes:` with the data sets train and test around it, one that starts with
 *     `rules:` as a name map;
 *   - every ```c block is a file that compiles without a warning, where there is a `cc`;
 *   - every command line (`compress ...`, as code or in the text, and every example of
 * the program's help) has a sub-command and flags that `compress --help` lists;
 *   - on the page of a pass, the first column of a table of options names options, and
 *     `option: value` in the text has a value that the option takes and no misspelling;
 *   - every relative link and every file of the project named in the text exists. */
#include "io/datasets/dataset.h"
#include "io/families/family.h"
#include "io/files/file.h"
#include "io/files/yaml.h"
#include "io/formats/load.h"
#include "io/formats/name_rules.h"
#include "passes/pipeline/recipe.h"
#include "tests/support/check.h"

#include <ctype.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OPTIONS_MAX    256
#define TEXT_BYTES_MAX ((size_t)1 << 20)

/* One reading of the manual. */
typedef struct Reader {
    Arena *arena;
    const char *path, *folder; /* of the page */
    const Pass *pass;          /* that the page is about, NULL = none */
    bool quiet;                /* faults are counted only */
    int faults, blocks, commands, links, options;
} Reader;

static void fault(Reader *reader, const char *what, const char *where) {
    if (!reader->quiet) print_error("%s: %s: %s\n", reader->path, what, where);
    reader->faults++;
}

/* ---- blocks of YAML ---- */

static bool starts_with(const char *text, const char *start) {
    return strncmp(text, start, strlen(start)) == 0;
}

static Status bind_data(Arena *arena, const Tree *document, Diag *diag) {
    const Tree *data = tree_get(document, "data");
    for (const Tree *entry = data ? data->first : NULL; entry; entry = entry->next) {
        const DataFormat *format;
        void *options;
        TRY(dataset_bind(&format, &options, arena, entry, ".", diag));
    }
    return STATUS_OK;
}

/* Binds a whole recipe, or steps with what they need around them. */
static Status bind_block(Arena *arena, const char *path, const char *block, Diag *diag) {
    static const char around[] =
        "version: 1\n"
        "data:\n"
        "  train: {format: idx, images: images, labels: labels}\n"
        "  dev: {format: idx, images: images, labels: labels}\n"
        "  test: {format: idx, images: images, labels: labels}\n";
    if (starts_with(block, "passes:")) block = arena_printf(arena, "%s%s", around, block);
    Tree *document = NULL;
    Recipe recipe;
    NameRules *rules = NULL;
    if (starts_with(block, "rules:")) {
        TRY(name_rules_parse(&rules, path, block, strlen(block), diag));
        name_rules_destroy(rules);
        return STATUS_OK;
    }
    TRY(yaml_parse(&document, arena, path, block, strlen(block), diag));
    TRY(bind_data(arena, document, diag));
    return recipe_bind(&recipe, arena, document, path, ".", diag);
}

static void check_block(Reader *reader, const char *block) {
    if (!starts_with(block, "passes:") && !starts_with(block, "version:") &&
        !starts_with(block, "rules:")) {
        fault(reader, "neither a recipe nor `passes:` nor `rules:`", block);
        return;
    }
    Diag *diag = diag_create();
    if (bind_block(reader->arena, reader->path, block, diag) != STATUS_OK) {
        if (!reader->quiet) diag_print(diag, stderr);
        fault(reader, "does not bind", block);
    }
    diag_destroy(diag);
    reader->blocks++;
}

/* ---- blocks of C ---- */

static void check_source(Reader *reader, const char *block) {
    if (system("command -v cc >/dev/null") != 0) return;
    fflush(stdout);
    FILE *pipe = popen("cc -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Wshadow -Werror "
                       "-Wno-missing-field-initializers -fopenmp-simd -fsyntax-only "
                       "-I. -x c -",
                       "w");
    assert_non_null(pipe);
    fputs(block, pipe);
    if (pclose(pipe) != 0) fault(reader, "does not compile", block);
    reader->blocks++;
}

/* ---- command lines ---- */

/* What the program prints for `compress COMMAND --help`; "" when it refuses. */
static const char *help_text(Arena *arena, const char *command) {
    const char *line = arena_printf(arena, "'%s' %s --help 2>/dev/null",
                                    getenv("COMPRESS_BIN"), command);
    Text text = {0};
    char chunk[4096];
    FILE *pipe = popen(line, "r");
    assert_non_null(pipe);
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, pipe)) > 0;)
        text_bytes(&text, chunk, n);
    const bool good = pclose(pipe) == 0 && text.data;
    const char *copy = arena_strdup(arena, good ? text.data : "");
    text_free(&text);
    return copy;
}

/* Whether the help has a row of the flag `--name` or `--name=value`. */
static bool help_has(Arena *arena, const char *help, const char *flag) {
    const char *name = arena_strndup(arena, flag, strcspn(flag, "="));
    return strstr(help, arena_printf(arena, " %s ", name)) != NULL;
}

static bool is_word(const char *text) {
    return *text && !text[strspn(text, "abcdefghijklmnopqrstuvwxyz")];
}

/* Checks one command line that starts behind the program's name. */
static void check_command(Reader *reader, const char *line) {
    Arena *arena = reader->arena;
    char *rest = arena_strndup(arena, line, strcspn(line, "#\n"));
    const char *command = "", *help = NULL;
    int count = 0;
    for (char *word; (word = strsep(&rest, " \t;|"));) {
        if (!*word || strcmp(word, "...") == 0) continue;
        if (count++ == 0 && is_word(word)) command = word;
        if (!help) help = help_text(arena, command);
        if (starts_with(word, "--") && !help_has(arena, help, word) &&
            !help_has(arena, help_text(arena, ""), word))
            fault(reader, "unknown flag in a command line", line);
    }
    if (help && !*help) fault(reader, "unknown sub-command", line);
    reader->commands += count > 0;
}

/* Behind the program's name when the line runs the program, else NULL. */
static const char *command_arguments(const char *line) {
    static const char *const names[] = {"compress ", "build/compress "};
    line += strspn(line, " $");
    for (int i = 0; i < 2; i++)
        if (starts_with(line, names[i])) return line + strlen(names[i]);
    return NULL;
}

static void check_code_line(Reader *reader, const char *line) {
    const char *arguments = command_arguments(line);
    if (arguments) check_command(reader, arguments);
}

/* ---- the text ---- */

static void check_exists(Reader *reader, const char *folder, const char *name) {
    const char *path = path_join(reader->arena, folder, name);
    if (access(path, F_OK) != 0) fault(reader, "no such file", name);
    reader->links++;
}

/* Nothing, or one letter that stands for a value. */
static bool is_placeholder(const Tree *value) {
    return value->kind == TREE_NULL ||
           (value->kind == TREE_STRING && strlen(value->string) == 1);
}

/* Whether a name is nearly that of an option: misspelt, or one that was renamed. */
static bool is_near_option(const Reader *reader, const char *name) {
    const char *names[OPTIONS_MAX];
    int count = 0;
    for (const Field *f = reader->pass->fields; f->name && count < OPTIONS_MAX; f++)
        names[count++] = f->name;
    return name_nearest(name, names, count) != NULL;
}

/* Checks one `key: value` on the page of a pass: an option, or something else that is
 * told (a key of recipes, steps or records). */
static void check_option(Reader *reader, const Tree *entry, const char *span) {
    const Field *field = field_find(reader->pass->fields, entry->key);
    Diag *diag = diag_create();
    void *options = arena_alloc(reader->arena, reader->pass->options_size + 1);
    if (!field && is_near_option(reader, entry->key))
        fault(reader, "the pass has no such option", span);
    if (field && !is_placeholder(entry) &&
        field_set(field, entry, options, reader->arena, STATUS_RECIPE, diag) != STATUS_OK)
        fault(reader, "the option does not take this", span);
    reader->options += field != NULL;
    diag_destroy(diag);
}

/* Checks `key: value, ...` on the page of a pass. */
static void check_options(Reader *reader, const char *span) {
    Diag *diag = diag_create();
    Tree *map = NULL;
    const char *text = arena_printf(reader->arena, "{%s }", span);
    Status status =
        yaml_parse(&map, reader->arena, reader->path, text, strlen(text), diag);
    for (const Tree *entry = status == STATUS_OK ? map->first : NULL; entry;
         entry = entry->next)
        check_option(reader, entry, span);
    diag_destroy(diag);
}

/* Whether the text names a file of the project: `room/...` without placeholders. */
static bool names_file(const char *span) {
    static const char *const rooms[] = {"ir/",    "exec/",  "io/",      "passes/",
                                        "cli/",   "tests/", "recipes/", "scripts/",
                                        "bench/", "docs/"};
    if (strpbrk(span, " *<") || strstr(span, "NAME")) return false;
    for (size_t i = 0; i < sizeof rooms / sizeof rooms[0]; i++)
        if (starts_with(span, rooms[i])) return true;
    return false;
}

static void check_span(Reader *reader, const char *span) {
    const size_t key = strspn(span, "abcdefghijklmnopqrstuvwxyz_0123456789");
    const char *arguments = command_arguments(span);
    if (arguments) check_command(reader, arguments);
    if (names_file(span)) check_exists(reader, ".", span);
    if (reader->pass && key > 0 && span[key] == ':' && strchr(" ", span[key + 1]))
        check_options(reader, span);
}

/* Checks what stands in backquotes and the targets of links. */
static void check_prose(Reader *reader, const char *text) {
    Arena *arena = reader->arena;
    for (const char *at = text; *at; at++) {
        if (*at == '`') {
            const size_t length = strcspn(at + 1, "`\n");
            if (at[1 + length] != '`') fault(reader, "a backquote is not closed", at);
            check_span(reader, arena_strndup(arena, at + 1, length));
            at += length + (at[1 + length] == '`');
        }
        if (!starts_with(at, "](") || starts_with(at, "](http")) continue;
        const size_t length = strcspn(at + 2, "#)");
        if (length > 0)
            check_exists(reader, reader->folder, arena_strndup(arena, at + 2, length));
    }
}

/* A row of a table of options: the first cell names one. */
static void check_row(Reader *reader, const char *line) {
    const size_t length = strcspn(line + 3, "`");
    const char *name = arena_strndup(reader->arena, line + 3, length);
    if (!field_find(reader->pass->fields, name))
        fault(reader, "the pass has no such option", name);
    reader->options++;
}

/* ---- pages ---- */

/* Takes a page apart: blocks, lines of code, and text with its paragraphs joined. */
static void read_lines(Reader *reader, char *rest) {
    Text block = {0}, prose = {0};
    bool fenced = false, yaml = false, source = false, table = false;
    for (char *line; (line = strsep(&rest, "\n"));) {
        if (starts_with(line, "```")) {
            if (yaml) check_block(reader, block.data ? block.data : "");
            if (source) check_source(reader, block.data ? block.data : "");
            text_free(&block);
            fenced = !fenced;
            yaml = fenced && strcmp(line, "```yaml") == 0;
            source = fenced && strcmp(line, "```c") == 0;
        } else if (yaml || source) {
            text_add(&block, "%s\n", line);
        } else if (fenced || starts_with(line, "    ")) {
            check_code_line(reader, line);
        } else {
            table = starts_with(line, "| option") || (table && *line == '|');
            if (table && reader->pass && starts_with(line, "| `"))
                check_row(reader, line);
            text_add(&prose, "%s%s", line, *line && *line != '|' ? " " : "\n");
        }
    }
    if (fenced) fault(reader, "a block is not closed", "```");
    check_prose(reader, prose.data ? prose.data : "");
    text_free(&prose);
}

static void read_page(Reader *reader, const char *path) {
    Diag *diag = diag_create();
    char *text = NULL;
    size_t length = 0;
    assert_ok(file_read(&text, &length, reader->arena, path, TEXT_BYTES_MAX, diag), diag);
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    reader->path = path;
    reader->folder = path_folder(reader->arena, path);
    reader->pass = NULL;
    if (starts_with(path, "docs/passes/")) {
        reader->pass = pass_find(arena_strndup(reader->arena, base, strcspn(base, ".")));
        if (!reader->pass) fault(reader, "a page for a pass that does not exist", base);
    }
    read_lines(reader, text);
    diag_destroy(diag);
}

static void test_manual(void **state) {
    (void)state;
    glob_t pages;
    Reader reader = {.arena = arena_create()};
    assert_int_equal(glob("README.md", 0, NULL, &pages), 0);
    assert_int_equal(glob("docs/*.md", GLOB_APPEND, NULL, &pages), 0);
    assert_int_equal(glob("docs/passes/*.md", GLOB_APPEND, NULL, &pages), 0);
    for (size_t i = 0; i < pages.gl_pathc; i++) read_page(&reader, pages.gl_pathv[i]);
    reader.path = "cli/examples.def";
#define EXAMPLE(command, line) check_code_line(&reader, line);
#include "cli/examples.def"
#undef EXAMPLE
    print_message("%d blocks, %d command lines, %d links and files, %d options\n",
                  reader.blocks, reader.commands, reader.links, reader.options);
    assert_true(reader.blocks >= 5 && reader.commands >= 10 && reader.links >= 30);
    assert_true(reader.options >= 10);
    assert_int_equal(reader.faults, 0);
    globfree(&pages);
    arena_destroy(reader.arena);
}

/* ---- the checks themselves ---- */

/* Faults that a page of this text has, without their messages. */
static int faults_of(const char *page, const char *pass) {
    Reader reader = {
        .arena = arena_create(), .path = "page", .folder = ".", .quiet = true};
    reader.pass = pass ? pass_find(pass) : NULL;
    read_lines(&reader, arena_strdup(reader.arena, page));
    arena_destroy(reader.arena);
    return reader.faults;
}

static void test_faults_are_found(void **state) {
    (void)state;
    static const struct {
        const char *page, *pass;
        int faults;
    } pages[] = {
        {"```yaml\npasses:\n  - evaluate: {data: test, min: 80}\n```\n", NULL, 0},
        {"```yaml\npasses:\n  - evaluate: {data: test, mim: 80}\n```\n", NULL, 1},
        {"```yaml\nversion: 1\npasses: [evaluat]\n```\n", NULL, 1},
        {"```yaml\nversion: 1\ndata: {a: {format: ixd}}\npasses:\n"
         "  - weight_multiplex\n```\n",
         NULL, 1},
        {"```yaml\nmodel: x\n```\n", NULL, 1},
        {"```c\n#include \"ir/op.h\"\nint a(void) { return OP_LEAF; }\n```\n", NULL, 0},
        {"text\n\n    compress plan --recipe R   # comment\n", NULL, 0},
        {"text\n\n    compress plann --recipe R\n", NULL, 1},
        {"text\n\n    build/compress --recipe R --colour\n", NULL, 1},
        {"say `compress run\nM --input I --report R`", NULL, 0},
        {"say `compress ops --input x`", NULL, 1},
        {"[here](docs/recipes.md#data), [there](docs/recipe.md)", NULL, 1},
        {"in `tests/docs/test_docs.c` and `ir/graf.h`", NULL, 1},
        {"with `min:` and `limit: 3`", "evaluate", 0},
        {"with `mini:` and `limit: -3`", "evaluate", 2},
        {"| option | what |\n|---|---|\n| `min` | a |\n| `mini` | b |\n", "evaluate", 1},
    };
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++)
        if (faults_of(pages[i].page, pages[i].pass) != pages[i].faults)
            fail_msg("expected %d faults in:\n%s", pages[i].faults, pages[i].page);
}

/* ---- completeness ---- */

/* Whether a line of the page holds all parts; the first is what it starts with. */
static bool has_line(const char *page, const char *start, const char *part) {
    for (const char *line = page; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *end = strchr(line, '\n'), *found = strstr(line, part);
        if (starts_with(line, start) && found && (!end || found < end)) return true;
        if (!end) break;
    }
    return false;
}

static int count_missing;

static void expect_line(const char *page, const char *path, const char *start,
                        const char *kind, const char *name, const char *part) {
    if (has_line(page, start, part)) return;
    print_error("%s: no line that starts with '%s' has %s, for the %s %s\n", path, start,
                part, kind, name);
    count_missing++;
}

static const char *page_text(Arena *arena, const char *path, Diag *diag) {
    char *text;
    size_t length;
    assert_ok(file_read(&text, &length, arena, path, TEXT_BYTES_MAX, diag), diag);
    return text;
}

/* Every family has its row of docs/models.md, every format of models its name there, and
 * every format of data sets its point in docs/recipes.md. */
static void test_complete(void **state) {
    (void)state;
    static const char MODELS[] = "docs/models.md", RECIPES[] = "docs/recipes.md";
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    const char *models = page_text(arena, MODELS, diag);
    const char *recipes = page_text(arena, RECIPES, diag);
    for (const Family *const *f = family_list(); *f; f++)
        expect_line(models, MODELS, "| `", "family", (*f)->model_type,
                    arena_printf(arena, "`%s`", (*f)->model_type));
    for (const ModelFormat *const *f = model_format_list(); *f; f++)
        expect_line(models, MODELS, "", "format", (*f)->name, (*f)->name);
    for (const DataFormat *const *f = dataformat_list(); *f; f++)
        expect_line(recipes, RECIPES, "- `", "format", (*f)->name,
                    arena_printf(arena, "`%s`", (*f)->name));
    assert_int_equal(count_missing, 0);
    assert_false(has_line(models, "| `", "`no_such_family`"));
    diag_destroy(diag);
    arena_destroy(arena);
}

int main(void) {
    if (!getenv("COMPRESS_BIN")) {
        fprintf(stderr, "expected COMPRESS_BIN to name the program\n");
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_manual),
        cmocka_unit_test(test_faults_are_found),
        cmocka_unit_test(test_complete),
    };
    return cmocka_run_group_tests_name("the manual", tests, NULL, NULL);
}
