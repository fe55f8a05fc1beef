/* Text starts: what a file is that was expected to be text, by its first bytes. */
#ifndef COMPRESS_IO_FILES_TEXT_START_H
#define COMPRESS_IO_FILES_TEXT_START_H

#include "ir/status.h"

#include <stddef.h>

/* Files that a program of compression has written: as messages call them, and the command
 * that unpacks one. */
typedef struct Packing {
    const char *name, *unpack;
} Packing;

/* What has packed a file that begins with these bytes: gzip, zstd, xz, bzip2 or zip; NULL
 * = none of them. */
const Packing *packing_of(const void *bytes, size_t length);

/* Fails with STATUS_FORMAT where a file's bytes are not text in UTF-8 but a compressed
 * file, or text in UTF-16 with its mark, and says what to do. */
Status text_start_check(const char *path, const char *text, size_t length, Diag *diag);

#endif
