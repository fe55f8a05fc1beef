/* Unfinished outputs: temporary files and folders beside their targets, how others see
 * whether somebody still writes them, and what a signal has to remove.
 *
 * A temporary is called `.<base>.<16 random hexadecimal digits>.tmp`, so that no two
 * programs ever have one in common, whatever machines, containers or accounts they run
 * in. Who writes it holds a lock on it (of its open file description, fcntl(2)): a lock
 * ends with the last process that has the file open, is seen by containers that share a
 * volume, and by other hosts where the file system passes locks on. A folder's lock is
 * that of the file `.lock` in it; without that file it goes when it is empty, or nothing
 * in it has changed for an hour. What is locked is never removed; neither is anything
 * where locks do not work. Where locks are seen by their own host alone, another one may
 * take a temporary for dead: its writer finds that out before it renames
 * (path_same), and fails.
 *
 * Unnamed files (O_TMPFILE) are not used: linkat puts them in place only where there is
 * no file yet, to replace one they need a name and a rename like any other.
 *
 * Versions before this one put their process number in the place of the random digits,
 * and held no lock. Such a file is removed when the system grants a lease on it
 * (F_SETLEASE in fcntl(2)), which it does when no process has the file open; such a
 * folder never is, but a warning names it. */
#ifndef COMPRESS_IO_FILES_UNFINISHED_H
#define COMPRESS_IO_FILES_UNFINISHED_H

#include "io/files/path.h"

#include <sys/types.h>

/* The lock's file in a temporary folder. */
#define UNFINISHED_LOCK ".lock"

/* Makes a temporary file, or with `is_folder` a temporary folder with its lock, in
 * `folder` for a target named `base`. `path` receives its path, in the arena, `fd` what
 * holds the lock, to be closed when it is done: open for reading and writing, of a folder
 * the lock's file. `mode` is what it is made with, less the process's mask. Fails with
 * errno's value, 0 = made. */
int unfinished_make(const char **path, int *fd, FileIdentity *identity, Arena *arena,
                    const char *folder, const char *base, bool is_folder, mode_t mode);

/* Removes what nobody writes any more from the temporaries in `folder` for a target named
 * `base`. What somebody writes, or might, is told as a warning about `path`, the target;
 * of several that are being written the first. */
void unfinished_remove_stale(const char *folder, const char *base, const char *path,
                             Diag *diag);

/* Notes a temporary file or folder for signals; returns its slot, -1 when all are taken
 * (it is then left behind by a signal, and removed by the next program that writes
 * there). */
int unfinished_add(const char *path);

/* Forgets the path of a slot; -1 is allowed. */
void unfinished_drop(int slot);

/* Removes everything that is noted; async-signal-safe. */
void unfinished_remove_all(void);

/* Removes a file, or a folder with all that is in it, as far as that can be done;
 * async-signal-safe. */
void path_remove(const char *path);

#endif
