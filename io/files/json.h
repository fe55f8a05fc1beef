/* JSON: configs, checkpoint headers, provenance. Read by jansson, as a tree.
 *
 * Duplicate keys, depth above 64, NUL, invalid UTF-8, trailing text, and texts that would
 * take more memory than twice their length and 64 MiB are refused.
 * jansson keeps no positions, so values carry the file and line 0. */
#ifndef COMPRESS_IO_FILES_JSON_H
#define COMPRESS_IO_FILES_JSON_H

#include "ir/tree.h"

/* Parses text, which may begin with a UTF-8 byte order mark; `file` names it in
 * messages. Fails with STATUS_FORMAT, at the line and column of the fault. */
Status json_parse(Tree **out, Arena *arena, const char *file, const char *text,
                  size_t length, Diag *diag);

/* The same; integers of more than 64 bits become reals. Configurations of transformers
 * use int(1e30) for "no limit". */
Status json_parse_wide(Tree **out, Arena *arena, const char *file, const char *text,
                       size_t length, Diag *diag);

/* Parses one line of a JSON Lines file; its values carry the file and this line. */
Status json_parse_line(Tree **out, Arena *arena, const char *file, int line,
                       const char *text, size_t length, Diag *diag);

/* Reads a file of at most `limit` bytes. */
Status json_read(Tree **out, Arena *arena, const char *path, size_t limit, Diag *diag);

/* Writes a tree to a file, indented by 2. */
Status json_write(const Tree *tree, const char *path, Diag *diag);

#endif
