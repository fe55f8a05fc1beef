/* JSON through jansson, checked first and copied into a tree. */
#include "io/files/json.h"

#include "io/files/file.h"
#include "io/files/text_start.h"
#include "io/tokenizers/unicode.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
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

/* Steps over one character, or over the rest of a string that it opens. */
static size_t scan_skip(const char *text, size_t length, size_t i) {
    if (text[i] != '"') return i + 1;
    for (i++; i < length && text[i] != '"'; i++)
        if (text[i] == '\\') i++;
    return i + 1;
}

/* Limits depth and memory before jansson sees the text. */
static Status json_scan(const char *file, int line, const char *text, size_t length,
                        Diag *diag) {
    const size_t most = JSON_BUDGET + JSON_COST_BYTE * length;
    size_t start = 0, cost = 0;
    int depth = 0;
    for (size_t i = 0; i < length; i = scan_skip(text, length, i)) {
        const char c = text[i];
        if (c == '\n') {
            line++;
            start = i + 1;
        }
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        if (c == '{') cost += JSON_COST_MAP;
        if (c == '[') cost += JSON_COST_LIST;
        if (c == ',') cost += JSON_COST_ITEM;
        if (c == ':') cost += JSON_COST_ITEM / 2;
        Loc at = {file, line, (int)(i - start) + 1};
        if (depth > JSON_DEPTH_MAX)
            return diag_fail(diag, STATUS_FORMAT, at, NULL,
                             "nested deeper than %d levels", JSON_DEPTH_MAX);
        if (cost > most)
            return diag_fail(diag, STATUS_FORMAT, at, NULL,
                             "too many values: reading them would take more than %zu MiB",
                             most >> 20);
    }
    return STATUS_OK;
}

/* Recursion is limited by JSON_DEPTH_MAX. */
static Tree *json_convert(Arena *arena, Loc at, const json_t *value) {
    Tree *tree = tree_new(arena, TREE_NULL, at);
    json_t *object = (json_t *)value; /* jansson's iterators are not const */
    if (json_is_object(value)) {
        tree->kind = TREE_MAP;
        for (void *it = json_object_iter(object); it;
             it = json_object_iter_next(object, it))
            tree_append(arena, tree, json_object_iter_key(it), at,
                        json_convert(arena, at, json_object_iter_value(it)));
    } else if (json_is_array(value)) {
        tree->kind = TREE_LIST;
        for (size_t i = 0; i < json_array_size(value); i++)
            tree_append(arena, tree, NULL, LOC_NONE,
                        json_convert(arena, at, json_array_get(value, i)));
    } else if (json_is_boolean(value)) {
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
    errno = 0; /* jansson reports some failures of memory as faults of the text */
    json_t *value =
        json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (!value &&
        (errno == ENOMEM || json_error_code(&error) == json_error_out_of_memory))
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
    const size_t mark = utf8_mark_length(text, length);
    return json_load(out, arena, at, 1, text + mark, length - mark, diag);
}

/* Whether digits are more than an integer of 64 bits holds. */
static bool is_wide(const char *digits, size_t count) {
    static const char MOST[] = "9223372036854775807";
    const size_t most = sizeof MOST - 1;
    return count > most || (count == most && memcmp(digits, MOST, most) > 0);
}

Status json_parse_wide(Tree **out, Arena *arena, const char *file, const char *text,
                       size_t length, Diag *diag) {
    Text wide = {0};
    size_t done = 0;
    for (size_t i = 0, end; i < length; i = end) {
        end = scan_skip(text, length, i);
        if (text[i] < '0' || text[i] > '9') continue;
        size_t digits = i;
        while (digits < length && text[digits] >= '0' && text[digits] <= '9') digits++;
        for (end = digits; end < length && text[end]; end++)
            if (!strchr("0123456789.eE+-", text[end])) break;
        if (end > digits || !is_wide(text + i, digits - i)) continue;
        text_bytes(&wide, text + done, end - done);
        text_add(&wide, ".0");
        done = end;
    }
    if (done == 0) return json_parse(out, arena, file, text, length, diag);
    if (length > done) text_bytes(&wide, text + done, length - done);
    const Status status = json_parse(out, arena, file, wide.data, wide.length, diag);
    text_free(&wide);
    return status;
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
    TRY(text_start_check(path, text, length, diag));
    return json_parse(out, arena, path, text, length, diag);
}

Status json_write(const Tree *tree, const char *path, Diag *diag) {
    Text text = {0};
    tree_print_json(&text, tree, 2);
    text_add(&text, "\n");
    const Status status = file_write(path, text.data, text.length, diag);
    text_free(&text);
    return status;
}
