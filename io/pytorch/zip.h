/* Zip: the archives that torch.save writes
 * (https://pkware.cachefly.net/webdocs/casestudies /APPNOTE.TXT, sections 4.3 to 4.5;
 * ZIP64, data descriptors, padding in extra fields).
 *
 * Entries are stored, so that each is a range of the mapped file. An archive that
 * another tool has compressed is inflated into memory as a whole, within limits, so that
 * no small file takes much; encrypted entries are refused. The central directory is
 * trusted only if the local headers agree, entries do not overlap, and names are plain
 * relative paths that occur once. */
#ifndef COMPRESS_IO_PYTORCH_ZIP_H
#define COMPRESS_IO_PYTORCH_ZIP_H

#include "ir/arena.h"
#include "ir/tensor.h"

#include <stdint.h>

typedef struct ZipEntry {
    const char *name;
    size_t offset, bytes; /* of the data in the file */
    uint32_t crc;       /* CRC-32 of the data, according to the archive; checked if it was
                           compressed */
    size_t header, end; /* the whole entry, from its local header on */
    size_t packed;      /* bytes that it takes in the file */
    bool deflated;
} ZipEntry;

/* The entries of an archive, without directories, sorted by name; in an arena. */
typedef struct Zip {
    ZipEntry *entries;
    int count;
} Zip;

/* Whether a file begins as such an archive does. */
bool zip_probe(const void *data, size_t bytes);

/* Reads the directory of an archive. If entries are compressed, `*file` is released and
 * becomes a buffer with their inflated data; they may take 128 times the file's size
 * plus 64 MiB. Fails with STATUS_FORMAT, naming the entry; STATUS_MEMORY. */
Status zip_read(Zip *out, Arena *arena, Buf **file, const char *path, Diag *diag);

/* Entry by name, NULL when absent. */
const ZipEntry *zip_find(const Zip *zip, const char *name);

/* CRC-32 (ISO 3309) of bytes, as in archives. */
uint32_t zip_crc(const void *data, size_t bytes);

#endif
