/* Tables for people: aligned columns. */
#ifndef COMPRESS_CLI_TEXT_TABLE_H
#define COMPRESS_CLI_TEXT_TABLE_H

#include "ir/arena.h"
#include "session/units.h"

#include <stdint.h>
#include <stdio.h>

#define TABLE_COLUMNS 48

/* Cells in rows. `align` has one letter a column: 'l' or 'r'. */
typedef struct TextTable {
    Arena *arena;
    const char *align;
    const char **cells;
    int count, capacity; /* cells */
    int columns;
} TextTable;

/* A new table with one column per letter of `align`. */
TextTable table_create(Arena *arena, const char *align);

/* Adds the next cell, row by row. */
void table_add(TextTable *table, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Prints the rows, each after `indent` spaces; unfinished rows are left out. */
void table_print(const TextTable *table, int indent, FILE *out);

/* Replaces control characters, which may come from a damaged file. Returns `text`. */
char *text_clean(char *text);

#endif
