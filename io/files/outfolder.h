/* Output folders: written beside their target and renamed into place, so that a folder
 * holds all of its new files or none. */
#ifndef COMPRESS_IO_FILES_OUTFOLDER_H
#define COMPRESS_IO_FILES_OUTFOLDER_H

#include "ir/status.h"

#include <stdint.h>

typedef struct OutFolder OutFolder;

/* Starts writing the folder `path`: first removes stale temporary folders for the same
 * target (io/files/unfinished.h), then makes one beside it; a warning reports one that
 * another process is writing. An existing folder will be replaced if it holds only files
 * whose names `is_ours` knows; anything else in it, or a target that is not a folder, is
 * refused. `is_ours` is asked about a folder in it as "onnx/", about a file in that as
 * "onnx/model.onnx". `temporary` receives the folder to write into (valid until the
 * end). Fails with STATUS_IO. */
Status outfolder_open(OutFolder **out, const char **temporary, const char *path,
                      bool (*is_ours)(const char *name), Diag *diag);

/* Whether outfolder_open would replace or make the folder `path`: call before the work
 * whose result it will hold. Fails with STATUS_IO. */
Status outfolder_check(const char *path, bool (*is_ours)(const char *name), Diag *diag);

/* Bytes and number of the files now in the temporary folder, including those in its
 * folders. */
void outfolder_measure(const OutFolder *folder, int64_t *bytes, int *files);

/* Puts the folder in place, exchanging it in one step with what it replaces, which is
 * then removed. Files are durable already (io/files/outfile.h). It takes over the mode of
 * the folder that it replaces. Frees `folder` either way; on failure the target is
 * unchanged, and if the renaming itself fails, what was written stays beside it, as a
 * hint says; errors after the rename are only warnings. Fails with STATUS_IO. */
Status outfolder_commit(OutFolder *folder, Diag *diag);

/* Gives up: removes the temporary folder. NULL is allowed. */
void outfolder_abandon(OutFolder *folder);

/* Commits if `status` is STATUS_OK; else gives up and returns that status. Errors about
 * files in the temporary folder are reported as if they were in the target. */
Status outfolder_end(OutFolder *folder, Status status, Diag *diag);

#endif
