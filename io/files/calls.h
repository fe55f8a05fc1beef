/* Filters of system calls (seccomp): what a process can ask of the system from then on,
 * for good; its children and threads to come inherit them. */
#ifndef COMPRESS_IO_FILES_CALLS_H
#define COMPRESS_IO_FILES_CALLS_H

#include <stdbool.h>

/* Lets through what memory, locks and time need, and writing to the descriptor `reply`;
 * all else fails with EPERM, which a library reports as it would a missing file. Returns
 * false where there is no such filter: an old kernel, an emulator of user programs, a
 * build without libseccomp. Sanitizers make calls of their own and are left alone. */
bool calls_keep_reply(int reply);

/* Lets through what the program, its libraries, threads and children need: memory, time,
 * files, locks, signals, limits of its own. What is known to reach beyond files and the
 * process itself fails with EPERM: sockets, other programs, other processes' memory and
 * limits, mounts, keys, kernel programs, owners, modes and times of files. All else fails
 * with ENOSYS, as on a kernel that does not have it: libraries then do without. Returns
 * false as above; under sanitizers, which trace themselves, tracing stays. */
bool calls_drop_reach(void);

#endif
