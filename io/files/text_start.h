/* Text starts: recognises, by its first bytes, a file that was expected to be text. */
#ifndef COMPRESS_IO_FILES_TEXT_START_H
#define COMPRESS_IO_FILES_TEXT_START_H

#include "ir/status.h"

#include <stddef.h>

/* Files written by compression programs: their name in messages, and the command that
 * unpacks one. */
typedef struct Packing {
    const char *name, *unpack;
} Packing;

/* The program that packed a file that begins with these bytes: gzip, zstd, xz, bzip2 or
 * zip; NULL = none of them. */
const Packing *packing_of(const void *bytes, size_t length);

/* Fails with STATUS_FORMAT if a file's bytes are not text in UTF-8 but a compressed
 * file, or text in UTF-16 with a byte order mark, and says what to do. */
Status text_start_check(const char *path, const char *text, size_t length, Diag *diag);

#endif
