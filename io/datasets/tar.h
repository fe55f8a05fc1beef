/* Tar: the regular files of an archive, found by their headers, in place.
 *
 * What is read: POSIX ustar and pax (path, size), GNU's long names and large sizes, and
 * the older form without any of them. Headers are hostile until checked: their sums,
 * numbers, lengths of names and that every file lies inside the archive. Sparse files
 * are refused, as are compressed archives, in which nothing can be read in place. An
 * archive that does not end in zeros is considered truncated.
 *
 * IEEE Std 1003.1-2017, pax, "pax Interchange Format" and "ustar Interchange Format";
 * GNU tar's manual, "Basic Tar Format". */
#ifndef COMPRESS_IO_DATASETS_TAR_H
#define COMPRESS_IO_DATASETS_TAR_H

#include "ir/tensor.h"

/* A regular file in an archive. */
typedef struct TarFile {
    const char *name;     /* whole, without "./" at the start; valid during the visit */
    size_t offset, bytes; /* of its bytes in the archive */
} TarFile;

typedef Status TarVisit(void *self, const TarFile *file, Diag *diag);

/* Whether a file's name ends in .tar; in .tar.gz, .tgz and the like. */
bool tar_is_named(const char *name);
bool tar_is_packed(const char *name);

/* Visits the regular files of a mapped archive in order; folders, links and devices are
 * skipped. Gives pages back as it goes. `path` is for messages. Stops at the first visit
 * that fails. Fails with STATUS_FORMAT, naming the place of a damaged header.
 */
Status tar_visit(const Buf *archive, const char *path, TarVisit *visit, void *self,
                 Diag *diag);

#endif
