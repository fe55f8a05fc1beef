/* Gzip: sequential reading of a file that may be gzip-compressed or not.
 *
 * Callers know from the data's own header how many bytes to expect and read exactly
 * that; nothing is ever inflated beyond it. */
#ifndef COMPRESS_IO_DATASETS_GZIP_H
#define COMPRESS_IO_DATASETS_GZIP_H

#include "ir/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct GzipFile GzipFile;

/* Opens a regular file; compression is detected by its first two bytes. Fails with
 * STATUS_IO, STATUS_MEMORY. */
Status gzip_open(GzipFile **out, const char *path, Diag *diag);

/* Most bytes that may be expected: the rest of a plain file, 64 MiB + 128 times the size
 * of a compressed one. Check declared sizes against it before allocating. */
uint64_t gzip_limit(const GzipFile *file);

/* Reads exactly `bytes`; `data` NULL skips them. `what` names them in messages. Fails
 * with STATUS_FORMAT when the file ends early or its compressed data is damaged. */
Status gzip_read(GzipFile *file, void *data, uint64_t bytes, const char *what,
                 Diag *diag);

/* Checks that the file ends here, compressed or not. Fails with STATUS_FORMAT. */
Status gzip_finish(GzipFile *file, Diag *diag);

/* Inflates raw deflate data (RFC 1951) to exactly `bytes`, and no more; `name` is the
 * name of the item in the file `path`. Fails with STATUS_FORMAT when the data is damaged
 * or has another length, STATUS_MEMORY. */
Status deflate_read(void *to, size_t bytes, const void *from, size_t packed,
                    const char *path, const char *name, Diag *diag);

/* Closes the file. NULL is allowed. */
void gzip_close(GzipFile *file);

#endif
