/* Output folders: written beside their target and renamed into place, so that a folder
 * holds all of its new files or none. */
#ifndef COMPRESS_IO_FILES_OUTFOLDER_H
#define COMPRESS_IO_FILES_OUTFOLDER_H

#include "ir/status.h"

#include <stdint.h>

typedef struct OutFolder OutFolder;

/* Starts writing the folder `path`: makes a temporary one beside it, and first removes
 * stale ones that were left there for the same target (io/files/unfinished.h); one that
 * somebody else is writing is told as a warning. A folder that is there
 * already will be replaced, if it holds nothing but files whose names `is_ours` knows;
 * anything else in it, and a target that is no folder, is refused. A folder in it is
 * asked for as "onnx/", a file of that as "onnx/model.onnx". `temporary` receives the
 * folder to write into (valid until the end). Fails with STATUS_IO. */
Status outfolder_open(OutFolder **out, const char **temporary, const char *path,
                      bool (*is_ours)(const char *name), Diag *diag);

/* Whether outfolder_open would replace the folder `path`, or make it: to be asked before
 * work whose result it is to hold. Fails with STATUS_IO. */
Status outfolder_check(const char *path, bool (*is_ours)(const char *name), Diag *diag);

/* Bytes and number of the files that are in the temporary folder by now, those of folders
 * in it included. */
void outfolder_measure(const OutFolder *folder, int64_t *bytes, int *files);

/* Puts the folder in place, in one step with what it replaces, which is then removed.
 * Files are durable already (io/files/outfile.h). Frees `folder` either way; on failure
 * the target is as it was, and where it is the renaming that fails what was written stays
 * beside it, as a hint says; what goes wrong after the rename is a warning. A folder has
 * the mode of the one that it replaces. Fails with STATUS_IO. */
Status outfolder_commit(OutFolder *folder, Diag *diag);

/* Gives up: removes the temporary folder. NULL is allowed. */
void outfolder_abandon(OutFolder *folder);

/* Commits what was written with STATUS_OK; else gives up and returns that status. Errors
 * of files in the temporary folder are told as of those in the target. */
Status outfolder_end(OutFolder *folder, Status status, Diag *diag);

#endif
