/* Aligned tables and numbers with units. */
#include "cli/text_table.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

TextTable table_create(Arena *arena, const char *align) {
    return (TextTable){.arena = arena, .align = align, .columns = (int)strlen(align)};
}

char *text_clean(char *text) {
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
    return text;
}

void table_add(TextTable *table, const char *fmt, ...) {
    char text[1024];
    va_list list;
    va_start(list, fmt);
    vsnprintf(text, sizeof text, fmt, list);
    va_end(list);
    text_clean(text);
    if (table->count == table->capacity) {
        int capacity = table->capacity ? 2 * table->capacity : 64;
        const char **cells = ARENA_ARRAY(table->arena, const char *, (size_t)capacity);
        for (int i = 0; i < table->count; i++) cells[i] = table->cells[i];
        table->cells = cells;
        table->capacity = capacity;
    }
    table->cells[table->count++] = arena_strdup(table->arena, text);
}

/* Columns on the screen: bytes that do not continue a UTF-8 character. */
static int text_width(const char *text) {
    int width = 0;
    for (; *text; text++) width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

static void print_row(const TextTable *table, int row, const int *width, FILE *out) {
    int pending = 0; /* spaces owed, so that no row ends in spaces */
    for (int c = 0; c < table->columns; c++) {
        const char *cell = table->cells[row * table->columns + c];
        int space = width[c] - text_width(cell);
        bool right = table->align[c] == 'r';
        if (c > 0) pending += 2;
        if (right) pending += space;
        if (*cell) {
            fprintf(out, "%*s%s", pending, "", cell);
            pending = 0;
        }
        if (!right) pending += space;
    }
    fprintf(out, "\n");
}

void table_print(const TextTable *table, int indent, FILE *out) {
    int width[TABLE_COLUMNS] = {0};
    int rows = table->columns ? table->count / table->columns : 0;
    for (int i = 0; i < rows * table->columns; i++) {
        int used = text_width(table->cells[i]);
        if (used > width[i % table->columns]) width[i % table->columns] = used;
    }
    for (int row = 0; row < rows; row++) {
        fprintf(out, "%*s", indent, "");
        print_row(table, row, width, out);
    }
}
