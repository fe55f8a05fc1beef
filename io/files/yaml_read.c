/* YAML: events of libyaml, checked one by one and made into a located tree.
 *
 * libyaml takes quadratic time on runs of open brackets; because depth is checked at
 * every event, it never gets that far. */
#include "io/files/yaml.h"

#include "io/files/file.h"
#include "io/files/yaml_expand.h"
#include "io/tokenizers/unicode.h"
#include "ir/name_map.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

typedef struct YamlReader {
    Arena *arena;
    const char *file;
    Diag *diag;
    const char *list;       /* key of the whole, where it is a list; NULL = none */
    Tree *root, *container; /* container: the open list or map, NULL at the root */
    const char *key;        /* of the value to come, NULL when none was read */
    Loc key_loc;
    int depth, documents;
    int values;      /* aliases as what they stand for */
    NameMap anchors; /* name -> Tree, in the arena */
    const YamlVariables *variables;
    size_t expanded; /* bytes that aliases and variables stood for so far */
} YamlReader;

static Loc mark_loc(const YamlReader *reader, yaml_mark_t mark) {
    return (Loc){reader->file, (int)mark.line + 1, (int)mark.column + 1};
}

/* Path of the value about to be added, for messages. */
static const char *reader_path(const YamlReader *reader) {
    if (!reader->container) return NULL;
    const char *path = tree_path(reader->arena, reader->container);
    if (reader->list && reader->root->kind == TREE_LIST)
        path = arena_printf(reader->arena, "%s%s", reader->list, path);
    if (!reader->key) return path;
    return arena_printf(reader->arena, "%s%s%s", path, *path ? "." : "", reader->key);
}

#define FAIL(reader, at, ...)                                                            \
    diag_fail((reader)->diag, STATUS_RECIPE, at, reader_path(reader), __VA_ARGS__)

static bool is_one_of(const char *text, const char *const *words) {
    while (*words && strcmp(text, *words) != 0) words++;
    return *words != NULL;
}

static const char *skip_digits(const char *text) {
    while (*text >= '0' && *text <= '9') text++;
    return text;
}

static bool looks_integer(const char *text) {
    if (*text == '-' || *text == '+') text++;
    return *text && !*skip_digits(text);
}

/* [-+]? (digits [. digits?] | . digits) ([eE] [-+]? digits)? */
static bool looks_float(const char *text) {
    if (*text == '-' || *text == '+') text++;
    const char *dot = skip_digits(text);
    const char *end = *dot == '.' ? skip_digits(dot + 1) : dot;
    bool digits = dot > text || end > dot + 1;
    if (!digits) return false;
    if (*end != 'e' && *end != 'E') return !*end;
    end++;
    if (*end == '-' || *end == '+') end++;
    return *end && !*skip_digits(end);
}

/* Core schema of a plain scalar. */
static Status resolve_plain(YamlReader *reader, Tree *tree, const char *text) {
    static const char *const NULLS[] = {"", "~", "null", "Null", "NULL", NULL};
    static const char *const TRUES[] = {"true", "True", "TRUE", NULL};
    static const char *const FALSES[] = {"false", "False", "FALSE", NULL};
    static const char *const NOT_FINITE[] = {".inf",  ".Inf",  ".INF",  "+.inf", "+.Inf",
                                             "+.INF", "-.inf", "-.Inf", "-.INF", ".nan",
                                             ".NaN",  ".NAN",  NULL};
    if (is_one_of(text, NULLS)) {
        tree->kind = TREE_NULL;
    } else if (is_one_of(text, TRUES) || is_one_of(text, FALSES)) {
        tree->kind = TREE_BOOL;
        tree->boolean = is_one_of(text, TRUES);
    } else if (looks_integer(text)) {
        tree->kind = TREE_INT;
        errno = 0;
        tree->integer = strtoll(text, NULL, 10);
        if (errno)
            return FAIL(reader, tree->loc, "expected an integer of 64 bits, found %.60s",
                        text);
    } else if (looks_float(text) || is_one_of(text, NOT_FINITE)) {
        tree->kind = TREE_FLOAT;
        tree->real = is_one_of(text, NOT_FINITE) ? HUGE_VAL : strtod(text, NULL);
        if (!isfinite(tree->real))
            return FAIL(reader, tree->loc, "number must be finite, found %.60s", text);
    }
    return STATUS_OK;
}

/* Adds a value where it belongs. */
static Status add_value(YamlReader *reader, Tree *tree) {
    Tree *parent = reader->container;
    if (++reader->values > YAML_VALUES_MAX)
        return FAIL(reader, tree->loc, "expected at most %d values", YAML_VALUES_MAX);
    if (!parent) {
        reader->root = tree;
        return STATUS_OK;
    }
    tree_append(reader->arena, parent, reader->key, reader->key_loc, tree);
    reader->key = NULL;
    return STATUS_OK;
}

static Status check_key(YamlReader *reader, const Tree *key) {
    if (key->kind != TREE_STRING)
        return FAIL(reader, key->loc, "expected a string as key, found %s",
                    tree_kind_name(key->kind));
    const Tree *old = tree_get(reader->container, key->string);
    reader->key = key->string;
    reader->key_loc = key->loc;
    if (old)
        return FAIL(reader, key->loc, "duplicate key, first given in line %d",
                    old->key_loc.line);
    return STATUS_OK;
}

static bool wants_key(const YamlReader *reader) {
    return reader->container && reader->container->kind == TREE_MAP && !reader->key;
}

/* Lets aliases find a value; a later anchor of the same name takes the place of it. */
static void note_anchor(YamlReader *reader, const yaml_char_t *anchor, Tree *tree) {
    if (!anchor) return;
    const char *name = arena_strdup(reader->arena, (const char *)anchor);
    reader->anchors.arena = reader->arena;
    if (!name_map_add(&reader->anchors, name, tree))
        name_map_replace(&reader->anchors, name, tree);
}

static Status count_expanded(YamlReader *reader, Loc at, size_t bytes) {
    reader->expanded += bytes;
    if (reader->expanded <= YAML_EXPANDED_MAX) return STATUS_OK;
    return FAIL(reader, at,
                "expected variables and aliases that stand for at most %d bytes",
                YAML_EXPANDED_MAX);
}

/* Replaces the variables of a scalar's text. */
static Status expand_scalar(YamlReader *reader, Tree *tree, bool *plain) {
    if (!reader->variables || !strstr(tree->string, "${")) return STATUS_OK;
    Text text = {0};
    VariableText in = {.text = tree->string, .place = {tree->loc, reader_path(reader)}};
    Status status =
        variables_expand(&text, &in, reader->variables, YAML_EXPANDED_MAX, reader->diag);
    if (status == STATUS_OK) status = count_expanded(reader, tree->loc, text.length);
    tree->string = arena_strndup(reader->arena, text.data ? text.data : "", text.length);
    text_free(&text);
    *plain |= in.alone;
    return status;
}

static Status on_scalar(YamlReader *reader, const yaml_event_t *event) {
    const char *text = (const char *)event->data.scalar.value;
    Tree *tree =
        tree_new(reader->arena, TREE_STRING, mark_loc(reader, event->start_mark));
    if (strlen(text) != event->data.scalar.length)
        return FAIL(reader, tree->loc, "expected text, found a NUL character");
    tree->string = arena_strdup(reader->arena, text);
    bool plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (!wants_key(reader)) TRY(expand_scalar(reader, tree, &plain));
    if (plain) TRY(resolve_plain(reader, tree, tree->string));
    note_anchor(reader, event->data.scalar.anchor, tree);
    return wants_key(reader) ? check_key(reader, tree) : add_value(reader, tree);
}

static Status on_start(YamlReader *reader, const yaml_event_t *event) {
    const bool map = event->type == YAML_MAPPING_START_EVENT;
    Tree *tree = tree_new(reader->arena, map ? TREE_MAP : TREE_LIST,
                          mark_loc(reader, event->start_mark));
    if (++reader->depth > YAML_DEPTH_MAX)
        return FAIL(reader, tree->loc, "nested deeper than %d levels", YAML_DEPTH_MAX);
    if (wants_key(reader))
        return FAIL(reader, tree->loc, "expected a string as key, found %s",
                    tree_kind_name(tree->kind));
    note_anchor(
        reader,
        map ? event->data.mapping_start.anchor : event->data.sequence_start.anchor, tree);
    TRY(add_value(reader, tree));
    reader->container = tree;
    return STATUS_OK;
}

static Status on_end(YamlReader *reader) {
    Tree *ended = reader->container;
    reader->depth--;
    reader->container = ended->parent;
    return ended->kind == TREE_MAP ? merge_key_expand(reader->arena, ended, reader->diag)
                                   : STATUS_OK;
}

/* Whether a value is not complete yet. */
static bool is_open(const YamlReader *reader, const Tree *tree) {
    const Tree *open = reader->container;
    while (open && open != tree) open = open->parent;
    return open != NULL;
}

/* Adds a copy of the value that an alias names. */
static Status on_alias(YamlReader *reader, const yaml_event_t *event) {
    const char *name = (const char *)event->data.alias.anchor;
    const Loc at = mark_loc(reader, event->start_mark);
    const Tree *named = name_map_get(&reader->anchors, name);
    if (!named) return FAIL(reader, at, "expected an anchor &%.40s before this", name);
    if (is_open(reader, named))
        return FAIL(reader, at, "the alias *%.40s stands within its own anchor", name);
    const ValueSize size = value_size(named);
    if (reader->depth + size.depth > YAML_DEPTH_MAX)
        return FAIL(reader, at, "nested deeper than %d levels", YAML_DEPTH_MAX);
    if (reader->values + size.values > YAML_VALUES_MAX)
        return FAIL(reader, at, "expected at most %d values, aliases written out",
                    YAML_VALUES_MAX);
    TRY(count_expanded(reader, at, size.bytes));
    Tree *copy = value_copy(reader->arena, named);
    if (wants_key(reader)) return check_key(reader, copy);
    reader->values += size.values - 1; /* add_value counts one */
    return add_value(reader, copy);
}

/* Refuses tags. */
static Status check_plainness(YamlReader *reader, const yaml_event_t *event) {
    const yaml_char_t *tag = NULL;
    if (event->type == YAML_SCALAR_EVENT) tag = event->data.scalar.tag;
    if (event->type == YAML_SEQUENCE_START_EVENT) tag = event->data.sequence_start.tag;
    if (event->type == YAML_MAPPING_START_EVENT) tag = event->data.mapping_start.tag;
    if (!tag) return STATUS_OK;
    return FAIL(reader, mark_loc(reader, event->start_mark), "tags are not supported");
}

static Status on_event(YamlReader *reader, const yaml_event_t *event) {
    Loc at = mark_loc(reader, event->start_mark);
    TRY(check_plainness(reader, event));
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (++reader->documents > 1)
            return FAIL(reader, at, "expected one document, found a second");
        if (event->data.document_start.tag_directives.start !=
            event->data.document_start.tag_directives.end)
            return FAIL(reader, at, "tags are not supported");
        return STATUS_OK;
    case YAML_SCALAR_EVENT: return on_scalar(reader, event);
    case YAML_ALIAS_EVENT: return on_alias(reader, event);
    case YAML_SEQUENCE_START_EVENT:
    case YAML_MAPPING_START_EVENT: return on_start(reader, event);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT: return on_end(reader);
    default: return STATUS_OK;
    }
}

/* Says what is likely where a line, counted from 0, that cannot be read holds a variable.
 */
static void hint_quotes(const YamlReader *reader, const char *text, size_t length,
                        size_t line) {
    const char *end = text + length;
    for (; line > 0 && text < end; line--) {
        const char *next = memchr(text, '\n', (size_t)(end - text));
        text = next ? next + 1 : end;
    }
    if (!reader->variables || text == end) return;
    const char *over = memchr(text, '\n', (size_t)(end - text));
    if (memmem(text, (size_t)((over ? over : end) - text), "${", 2))
        diag_hint(reader->diag, "in [...] and {...}, \"${NAME}\" stands in quotes");
}

static Status parser_fault(YamlReader *reader, const yaml_parser_t *parser,
                           const char *text, size_t length) {
    const char *problem = parser->problem ? parser->problem : "not readable";
    if (parser->error == YAML_MEMORY_ERROR)
        return diag_fail(reader->diag, STATUS_MEMORY, LOC_FILE(reader->file), NULL,
                         "out of memory");
    if (parser->error == YAML_READER_ERROR) {
        /* libyaml places these faults by offset */
        size_t offset = parser->problem_offset < length ? parser->problem_offset : length;
        Loc at = {reader->file, 1, 1};
        for (size_t i = 0; i < offset; i++) {
            at.column = text[i] == '\n' ? 1 : at.column + 1;
            if (text[i] == '\n') at.line++;
        }
        return diag_fail(reader->diag, STATUS_RECIPE, at, NULL, "invalid YAML: %s",
                         problem);
    }
    const char *context = parser->context ? parser->context : "";
    diag_fail(reader->diag, STATUS_RECIPE, mark_loc(reader, parser->problem_mark), NULL,
              "invalid YAML: %s%s%s", problem, *context ? ", " : "", context);
    hint_quotes(reader, text, length, parser->problem_mark.line);
    return STATUS_RECIPE;
}

static Status read_events(YamlReader *reader, yaml_parser_t *parser, const char *text,
                          size_t length) {
    for (bool more = true; more;) {
        yaml_event_t event;
        if (!yaml_parser_parse(parser, &event))
            return parser_fault(reader, parser, text, length);
        Status status = on_event(reader, &event);
        more = event.type != YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
        if (status != STATUS_OK) return status;
    }
    return STATUS_OK;
}

/* Reads the text by a reader that has what it is told, and nothing yet. */
static Status read_text(Tree **out, YamlReader *reader, TextSpan text) {
    Diag *diag = reader->diag;
    reader->file = arena_strdup(reader->arena, reader->file);
    if (text.length > YAML_BYTES_MAX)
        return diag_fail(diag, STATUS_RECIPE, LOC_FILE(reader->file), NULL,
                         "expected at most %zu bytes, found %zu", YAML_BYTES_MAX,
                         text.length);
    const size_t mark = utf8_mark_length(text.text, text.length);
    text.text += mark, text.length -= mark; /* libyaml would count it as a column */
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        return diag_fail(diag, STATUS_MEMORY, LOC_FILE(reader->file), NULL,
                         "out of memory");
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text.text, text.length);
    Status status = read_events(reader, &parser, text.text, text.length);
    yaml_parser_delete(&parser);
    if (status != STATUS_OK) return status;
    *out = reader->root;
    if (!*out) *out = tree_new(reader->arena, TREE_NULL, (Loc){reader->file, 1, 1});
    return STATUS_OK;
}

Status yaml_parse(Tree **out, Arena *arena, const char *file, const char *text,
                  size_t length, Diag *diag) {
    return yaml_parse_under(out, arena, file, NULL, text, length, diag);
}

Status yaml_parse_under(Tree **out, Arena *arena, const char *file, const char *list,
                        const char *text, size_t length, Diag *diag) {
    YamlReader reader = {.arena = arena, .file = file, .diag = diag, .list = list};
    return read_text(out, &reader, (TextSpan){text, length});
}

Status yaml_read(Tree **out, Arena *arena, const char *path, Diag *diag) {
    return yaml_read_with(out, arena, path, NULL, diag);
}

Status yaml_read_with(Tree **out, Arena *arena, const char *path,
                      const YamlVariables *variables, Diag *diag) {
    char *text;
    size_t length;
    Diag *quiet = diag_create(); /* a recipe that is too large is a recipe error */
    const Status status = file_read(&text, &length, arena, path, YAML_BYTES_MAX, quiet);
    if (status == STATUS_FORMAT)
        diag_fail(diag, STATUS_RECIPE, LOC_FILE(path), NULL, "expected at most %zu bytes",
                  YAML_BYTES_MAX);
    else if (status != STATUS_OK)
        diag_take(diag, quiet);
    diag_destroy(quiet);
    if (status != STATUS_OK) return status == STATUS_FORMAT ? STATUS_RECIPE : status;
    YamlReader reader = {
        .arena = arena, .file = path, .diag = diag, .variables = variables};
    return read_text(out, &reader, (TextSpan){text, length});
}
