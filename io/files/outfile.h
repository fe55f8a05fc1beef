/* Output files: written beside their target and renamed into place, so that nothing is
 * ever half written. */
#ifndef COMPRESS_IO_FILES_OUTFILE_H
#define COMPRESS_IO_FILES_OUTFILE_H

#include "ir/status.h"

#include <stddef.h>

/* Output: a file being written under a temporary name beside its target. */
typedef struct OutFile OutFile;

/* Starts writing `path`: first removes stale temporary files for the same target
 * (io/files/unfinished.h), then makes one in the same folder, with the mode of the file
 * that it is to replace. A warning reports one that another process is writing: both can
 * be put in place. `temporary` (may be NULL) receives its name (valid until the end).
 * Fails with STATUS_IO. */
Status outfile_open(OutFile **out, const char **temporary, const char *path, Diag *diag);

/* Appends bytes; for writers that do not open the temporary file themselves. Fails with
 * STATUS_IO. */
Status outfile_write(OutFile *file, const void *data, size_t length, Diag *diag);

/* Overwrites bytes written before, from `offset` on. Fails with STATUS_IO. */
Status outfile_rewrite(OutFile *file, size_t offset, const void *data, size_t length,
                       Diag *diag);

/* Makes the data durable and puts it in place: fsync, rename, fsync of the folder. The
 * target holds either its old content or all of the new. Frees `file` either way; on
 * failure the temporary file is removed and the target is unchanged: errors after the
 * rename are only warnings. Fails with STATUS_IO, also if the temporary file is no
 * longer the one that was made. */
Status outfile_commit(OutFile *file, Diag *diag);

/* The same for a file and the one beside it that it names, whose `name` tells its
 * content, so that a file that has it already is equal. Both are durable before either is
 * put in place, `beside` first: readers find the old pair or the new one, also after a
 * kill. Then the files beside it that the replaced file names are removed: those called
 * `stem`, or `stem`, '-' and BESIDE_DIGITS digits of a hash. Programs that do this in one
 * folder wait for each other. `beside` and `name` may be NULL: there is none. */
#define BESIDE_DIGITS 16
Status outfile_commit_pair(OutFile *beside, const char *name, OutFile *file,
                           const char *stem, Diag *diag);

/* Gives up: removes the temporary file. NULL is allowed. */
void outfile_abandon(OutFile *file);

/* Removes the temporary files and folders of every OutFile and OutFolder still open;
 * async-signal-safe, for signal handlers that are about to end the process. */
void outfile_abandon_all(void);

/* Writes a whole small file through an OutFile. */
Status file_write(const char *path, const void *data, size_t length, Diag *diag);

#endif
