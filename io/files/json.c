/* JSON through jansson, checked first and copied into a tree. */
#include "io/files/json.h"

#include "io/files/file.h"

#include <jansson.h>
#include <string.h>

enum { JSON_DEPTH_MAX = 64 };

/* Memory that parsing takes, roughly, for each kind of character outside strings; what
 * a text may cost is JSON_BUDGET and JSON_COST_BYTE for each of its bytes: the tokenizer
 * of a language model, 128,000 tokens and 280,000 merges in 9 MB, takes 13 of those. */
enum {
    JSON_COST_MAP = 448,
    JSON_COST_LIST = 256,
    JSON_COST_ITEM = 272,
    JSON_COST_BYTE = 16
};
static const size_t JSON_BUDGET = (size_t)64 << 20;

typedef struct Scan {
    const char *file, *text;
    size_t length;
    Loc at;
    int depth;
    size_t cost;
} Scan;

/* Steps over one character, or over the rest of a string that it opens. */
static size_t scan_skip(Scan *scan, size_t i) {
    if (scan->text[i] != '"') return i + 1;
    for (i++; i < scan->length && scan->text[i] != '"'; i++)
        if (scan->text[i] == '\\') i++;
    return i + 1;
}

/* Takes account of one character outside strings. */
static void scan_count(Scan *scan, char c) {
    if (c == '{' || c == '[') scan->depth++;
    if (c == '}' || c == ']') scan->depth--;
    if (c == '{') scan->cost += JSON_COST_MAP;
    if (c == '[') scan->cost += JSON_COST_LIST;
    if (c == ',' || c == ':') scan->cost += JSON_COST_ITEM / (c == ':' ? 2 : 1);
}

/* Limits depth and memory before jansson sees the text. */
static Status json_scan(const char *file, int line, const char *text, size_t length,
                        Diag *diag) {
    Scan scan = {.file = file, .text = text, .length = length};
    size_t start = 0;
    for (size_t i = 0; i < length; i = scan_skip(&scan, i)) {
        if (text[i] == '\n') {
            line++;
            start = i + 1;
        }
        scan_count(&scan, text[i]);
        Loc at = {file, line, (int)(i - start) + 1};
        if (scan.depth > JSON_DEPTH_MAX)
            return diag_fail(diag, STATUS_FORMAT, at, NULL,
                             "nested deeper than %d levels", JSON_DEPTH_MAX);
        if (scan.cost > JSON_BUDGET + JSON_COST_BYTE * length)
            return diag_fail(diag, STATUS_FORMAT, at, NULL,
                             "too many values: reading them would take more than %zu MiB",
                             (JSON_BUDGET + JSON_COST_BYTE * length) >> 20);
    }
    return STATUS_OK;
}

static Tree *json_convert(Arena *arena, Loc at, const json_t *value);

static Tree *json_convert_map(Arena *arena, Loc at, const json_t *value) {
    Tree *map = tree_new(arena, TREE_MAP, at);
    json_t *object = (json_t *)value; /* jansson's iterators are not const */
    for (void *it = json_object_iter(object); it; it = json_object_iter_next(object, it))
        tree_append(arena, map, json_object_iter_key(it), at,
                    json_convert(arena, at, json_object_iter_value(it)));
    return map;
}

static Tree *json_convert_list(Arena *arena, Loc at, const json_t *value) {
    Tree *list = tree_new(arena, TREE_LIST, at);
    for (size_t i = 0; i < json_array_size(value); i++)
        tree_append(arena, list, NULL, LOC_NONE,
                    json_convert(arena, at, json_array_get(value, i)));
    return list;
}

/* Recursion is limited by JSON_DEPTH_MAX. */
static Tree *json_convert(Arena *arena, Loc at, const json_t *value) {
    if (json_is_object(value)) return json_convert_map(arena, at, value);
    if (json_is_array(value)) return json_convert_list(arena, at, value);
    Tree *tree = tree_new(arena, TREE_NULL, at);
    if (json_is_boolean(value)) {
        tree->kind = TREE_BOOL;
        tree->boolean = json_is_true(value);
    } else if (json_is_integer(value)) {
        tree->kind = TREE_INT;
        tree->integer = json_integer_value(value);
    } else if (json_is_real(value)) {
        tree->kind = TREE_FLOAT;
        tree->real = json_real_value(value);
    } else if (json_is_string(value)) {
        tree->kind = TREE_STRING;
        tree->string =
            arena_strndup(arena, json_string_value(value), json_string_length(value));
    }
    return tree;
}

/* Parses text whose first line is line `line` of the file; `at` goes into the values. */
static Status json_load(Tree **out, Arena *arena, Loc at, int line, const char *text,
                        size_t length, Diag *diag) {
    TRY(json_scan(at.file, line, text, length, diag));
    json_error_t error;
    json_t *value =
        json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (!value && json_error_code(&error) == json_error_out_of_memory)
        return diag_fail(diag, STATUS_MEMORY, LOC_FILE(at.file), NULL, "out of memory");
    if (!value) {
        Loc place = {at.file, line + (error.line > 0 ? error.line - 1 : 0), error.column};
        return diag_fail(diag, STATUS_FORMAT, place, NULL, "invalid JSON: %s",
                         error.text);
    }
    *out = json_convert(arena, at, value);
    json_decref(value);
    return STATUS_OK;
}

Status json_parse(Tree **out, Arena *arena, const char *file, const char *text,
                  size_t length, Diag *diag) {
    Loc at = LOC_FILE(arena_strdup(arena, file));
    return json_load(out, arena, at, 1, text, length, diag);
}

Status json_parse_line(Tree **out, Arena *arena, const char *file, int line,
                       const char *text, size_t length, Diag *diag) {
    Loc at = {arena_strdup(arena, file), line, 0};
    return json_load(out, arena, at, line, text, length, diag);
}

Status json_read(Tree **out, Arena *arena, const char *path, size_t limit, Diag *diag) {
    char *text;
    size_t length;
    TRY(file_read(&text, &length, arena, path, limit, diag));
    return json_parse(out, arena, path, text, length, diag);
}
