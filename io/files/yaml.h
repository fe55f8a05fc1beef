/* YAML: recipes. A safe subset of YAML 1.1 through libyaml, as a located tree.
 *
 * Accepted: block and flow maps and lists, plain and quoted scalars. Plain scalars follow
 * the core schema (null, booleans true/false, integers, floats). Refused with a located
 * error: duplicate keys, anchors and aliases, tags, several documents, depth above 32,
 * keys that are not strings, numbers that are not finite or do not fit, files above 1 MiB
 * or 100,000 values, NUL and invalid UTF-8. */
#ifndef COMPRESS_IO_FILES_YAML_H
#define COMPRESS_IO_FILES_YAML_H

#include "ir/tree.h"

#define YAML_BYTES_MAX ((size_t)1 << 20)

/* Reads a file. Fails with STATUS_IO or STATUS_RECIPE. */
Status yaml_read(Tree **out, Arena *arena, const char *path, Diag *diag);

/* Parses text; `file` names it in messages. An empty text is null. */
Status yaml_parse(Tree **out, Arena *arena, const char *file, const char *text,
                  size_t length, Diag *diag);

/* Appends a tree as YAML in block form, short maps and lists in one line. Reads back
 * equal, but for NaN and infinities, which YAML here does not know. */
void yaml_print(Text *out, const Tree *value);

#endif
