/* System call filters (seccomp): they permanently restrict what a process can ask of the
 * system; its future children and threads inherit them. */
#ifndef COMPRESS_IO_FILES_CALLS_H
#define COMPRESS_IO_FILES_CALLS_H

#include <stdbool.h>

/* Allows what memory, locks and time need, and writing to the descriptor `reply`;
 * everything else fails with EPERM, which a library reports as it would a missing file.
 * Returns false if there is no such filter: an old kernel, an emulator of user programs,
 * a build without libseccomp. Sanitizers make their own calls and are not restricted. */
bool calls_keep_reply(int reply);

/* Lets through what the program, its libraries, threads and children need: memory, time,
 * files, locks, signals, limits of its own. Calls that are known to reach beyond files
 * and the process itself fail with EPERM: sockets, other programs, other processes'
 * memory and limits, mounts, keys, kernel programs, owners, modes and times of files. All
 * others fail with ENOSYS, as on a kernel that does not have them: libraries then do
 * without. Returns false as above; under sanitizers, which trace themselves, tracing
 * stays allowed. */
bool calls_drop_reach(void);

#endif
