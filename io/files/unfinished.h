/* Unfinished outputs: temporary files and folders beside their targets, how other
 * processes see whether they are still being written, and what a signal has to remove.
 *
 * A temporary is called `.<base>.<16 random hexadecimal digits>.tmp`, so that no two
 * programs ever share one, whatever machines, containers or accounts they run in. The
 * writer holds a lock on it (of its open file description, fcntl(2)): the lock ends with
 * the last process that has the file open, and is seen by containers that share a
 * volume, and by other hosts if the file system passes locks on. A folder's lock is that
 * of the file `.lock` in it; without that file, the folder is removed when it is empty,
 * or nothing in it has changed for an hour. What is locked is never removed; neither is
 * anything if locks do not work. If only their own host sees locks, another host may
 * take a temporary for dead: its writer detects that before it renames (path_same), and
 * fails.
 *
 * Unnamed files (O_TMPFILE) are not used: linkat puts them in place only if there is no
 * file yet; to replace one, they need a name and a rename like any other.
 *
 * Earlier versions used their process number instead of the random digits, and held no
 * lock. Such a file is removed when the system grants a lease on it (F_SETLEASE in
 * fcntl(2)), which it does when no process has the file open; such a folder is never
 * removed, but a warning names it. */
#ifndef COMPRESS_IO_FILES_UNFINISHED_H
#define COMPRESS_IO_FILES_UNFINISHED_H

#include "io/files/path.h"

#include <sys/types.h>

/* The lock's file in a temporary folder. */
#define UNFINISHED_LOCK ".lock"

/* Makes a temporary file, or with `is_folder` a temporary folder with its lock, in
 * `folder` for a target named `base`. `path` receives its path, in the arena; `fd` the
 * descriptor that holds the lock, to be closed when done: open for reading and writing,
 * for a folder that of the lock file. `mode` is what it is made with, less the
 * process's umask. Fails with errno's value, 0 = made. */
int unfinished_make(const char **path, int *fd, FileIdentity *identity, Arena *arena,
                    const char *folder, const char *base, bool is_folder, mode_t mode);

/* Removes the temporaries in `folder` for a target named `base` that are no longer being
 * written. A warning about `path`, the target, reports one that is being written, or
 * might be; of several, the first. */
void unfinished_remove_stale(const char *folder, const char *base, const char *path,
                             Diag *diag);

/* Registers a temporary file or folder for signals; returns its slot, -1 when all are
 * taken (a signal then leaves it behind, and the next program that writes there removes
 * it). */
int unfinished_add(const char *path);

/* Forgets the path of a slot; -1 is allowed. */
void unfinished_drop(int slot);

/* Removes everything registered; async-signal-safe. */
void unfinished_remove_all(void);

/* Removes a file, or a folder with everything in it, as far as possible;
 * async-signal-safe. */
void path_remove(const char *path);

#endif
