/* YAML: recipes. A safe subset of YAML 1.1 through libyaml, as a located tree.
 *
 * Accepted: block and flow maps and lists, plain and quoted scalars, anchors, aliases and
 * merge keys (`<<: *name`, `<<: [*a, *b]`). Plain scalars follow the core schema (null,
 * booleans true/false, integers, floats). An alias is a copy, so errors in it are
 * reported at the place of its anchor. Refused with a located error: duplicate keys,
 * tags, several documents, depth above 32, keys that are not strings, numbers that are
 * not finite or do not fit, files above 1 MiB or 100,000 values (aliases count as what
 * they stand for, and for at most 4 MiB of text), aliases within what they name, NUL and
 * invalid UTF-8. */
#ifndef COMPRESS_IO_FILES_YAML_H
#define COMPRESS_IO_FILES_YAML_H

#include "ir/tree.h"

#define YAML_BYTES_MAX    ((size_t)1 << 20)
#define YAML_EXPANDED_MAX (4 << 20)

/* Where a value stands. */
typedef struct YamlPlace {
    Loc at;
    const char *key; /* its path, NULL at the root */
} YamlPlace;

/* What ${NAME} stands for in scalars that are not keys; $${ is ${. A scalar consisting
 * of a single variable is read as if its value stood there plain, quoted or not: as a
 * number if it looks like one. */
typedef struct YamlVariables {
    void *self;
    /* Value of a variable, borrowed until the next call. Fails with STATUS_RECIPE at
     * `place`. */
    Status (*find)(void *self, const char *name, YamlPlace place, const char **value,
                   Diag *diag);
} YamlVariables;

/* Whether this is a valid variable name: letters, digits and _, not starting with a
 * digit. */
bool yaml_is_variable(const char *name, size_t length);

/* Reads a file without variables: ${NAME} is text like any other. Fails with STATUS_IO or
 * STATUS_RECIPE. */
Status yaml_read(Tree **out, Arena *arena, const char *path, Diag *diag);

/* Reads a file with variables. Fails with STATUS_IO or STATUS_RECIPE. */
Status yaml_read_with(Tree **out, Arena *arena, const char *path,
                      const YamlVariables *variables, Diag *diag);

/* Parses text without variables; `file` names it in messages. An empty text is null. */
Status yaml_parse(Tree **out, Arena *arena, const char *file, const char *text,
                  size_t length, Diag *diag);

/* The same for a text that may be a list, which will be placed under the key `list` of a
 * map: messages name it that way, "passes[0].prune: duplicate key". */
Status yaml_parse_under(Tree **out, Arena *arena, const char *file, const char *list,
                        const char *text, size_t length, Diag *diag);

/* Appends a tree as YAML in block form, with short maps and lists on one line. Reads
 * back equal (yaml_parse), except for NaN and infinities, which YAML here does not
 * support. */
void yaml_print(Text *out, const Tree *value);

/* Appends a value on one line, as messages show it; a map of one key without
 * brackets. */
void yaml_print_line(Text *out, const Tree *value);

#endif
