/* Unfinished outputs: what this process is writing beside its targets, so that an end by
 * a signal leaves nothing of it behind. */
#ifndef COMPRESS_IO_FILES_UNFINISHED_H
#define COMPRESS_IO_FILES_UNFINISHED_H

#include <stdbool.h>
#include <sys/types.h>

/* Notes a temporary file or folder; returns its slot, -1 when all are taken (it is then
 * left behind by a signal, and removed by the next process that writes there). */
int unfinished_add(const char *path);

/* Forgets the path of a slot; -1 is allowed. */
void unfinished_drop(int slot);

/* Whether this process is writing a path. */
bool unfinished_holds(const char *path);

/* Removes everything that is noted; async-signal-safe. */
void unfinished_remove_all(void);

/* Removes a file, or a folder with all that is in it, as far as that can be done;
 * async-signal-safe. */
void path_remove(const char *path);

/* Process number in the name of a temporary file or folder, `.<base>.<pid>.tmp`; 0 for
 * any other name. */
pid_t unfinished_owner(const char *name, const char *base);

#endif
