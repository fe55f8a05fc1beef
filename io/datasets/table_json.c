/* Table: JSON Lines, one object a line. */
#include "io/datasets/table_parts.h"

#include "io/files/json.h"

#include <inttypes.h>
#include <string.h>

/* Appends a value as a cell. */
static Status cell_add(Text *out, const Tree *value, const char *key, Diag *diag) {
    switch (value->kind) {
    case TREE_STRING: text_bytes(out, value->string, strlen(value->string)); break;
    case TREE_INT: text_add(out, "%" PRId64, value->integer); break;
    case TREE_FLOAT: text_real(out, value->real); break;
    case TREE_BOOL: text_add(out, "%s", value->boolean ? "true" : "false"); break;
    default:
        return diag_fail(diag, STATUS_FORMAT, value->loc, key,
                         "expected a string or a number, found %s",
                         tree_kind_name(value->kind));
    }
    text_bytes(out, "", 1);
    return STATUS_OK;
}

/* The keys of the first object name the columns. */
static Status take_keys(Table *table, const Tree *object, int64_t line, Diag *diag) {
    int count = 0;
    if (object->count > TABLE_COLUMNS_MAX)
        return diag_fail(diag, STATUS_FORMAT, object->loc, NULL,
                         "expected at most %d keys, found %d", TABLE_COLUMNS_MAX,
                         object->count);
    const char **names =
        ARENA_ARRAY(table->arena, const char *, (size_t)object->count + 1);
    for (const Tree *value = object->first; value; value = value->next)
        names[count++] = arena_strdup(table->arena, value->key);
    return table_set_names(table, names, count, line, diag);
}

/* First column that an object lacks, NULL when it has all. */
static const char *find_missing(const Table *table, const Tree *object) {
    for (int i = 0; i < table->columns; i++)
        if (!tree_get(object, table->names[i])) return table->names[i];
    return NULL;
}

static Status row_add(Table *table, const Tree *object, int64_t line, Diag *diag) {
    if (object->kind != TREE_MAP || object->count == 0)
        return diag_fail(diag, STATUS_FORMAT, object->loc, NULL,
                         "expected an object with keys, found %s",
                         object->kind == TREE_MAP ? "an empty one"
                                                  : tree_kind_name(object->kind));
    if (table->columns == 0) TRY(take_keys(table, object, line, diag));
    const char *missing = find_missing(table, object);
    if (missing && !table->options.skip_bad)
        return diag_fail(diag, STATUS_FORMAT, object->loc, missing, "missing");
    if (missing) {
        table->skipped++;
        return STATUS_OK;
    }
    table_row_add(table, table->owned.length, line);
    for (int i = 0; i < table->columns; i++)
        TRY(cell_add(&table->owned, tree_get(object, table->names[i]), table->names[i],
                     diag));
    if (table->owned.length <= UINT32_MAX) return STATUS_OK;
    return diag_fail(diag, STATUS_FORMAT, LOC_FILE(table->path), NULL,
                     "expected cells of at most 4 GiB together");
}

static Status line_read(Table *table, const char *text, size_t length, int64_t line,
                        Diag *diag) {
    Arena *scratch = arena_create();
    Tree *object;
    Loc at = table_place(table, line);
    Status status =
        json_parse_line(&object, scratch, table->path, at.line, text, length, diag);
    if (status == STATUS_OK) status = row_add(table, object, line, diag);
    arena_destroy(scratch);
    return status;
}

Status table_parse_json(Table *table, const char *text, size_t length, Diag *diag) {
    const char *end = text + length;
    for (int64_t line = 1; text < end; line++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        size_t bytes = (size_t)((newline ? newline : end) - text);
        if (strspn(text, " \t\r") < bytes) TRY(line_read(table, text, bytes, line, diag));
        text += bytes + 1;
    }
    table->data = table->owned.data;
    return STATUS_OK;
}
