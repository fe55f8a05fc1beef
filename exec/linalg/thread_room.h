/* Room of a thread: memory that kernels work in and that is too large for the stacks
 * which threads of a host may have. */
#ifndef COMPRESS_EXEC_LINALG_THREAD_ROOM_H
#define COMPRESS_EXEC_LINALG_THREAD_ROOM_H

#include <stddef.h>

/* At least so many bytes, aligned to 64, of the calling thread's own; what is in them is
 * not kept from one call of this function to the next, which may move them. They stay as
 * large as the largest that was asked for, until the thread ends. Without memory the
 * program ends as it does for an arena (ir/arena.h). */
void *thread_room(size_t bytes);

#endif
