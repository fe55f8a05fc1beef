/* Room of a thread: working memory of kernels that is too large for the stacks that a
 * host's threads may have. */
#ifndef COMPRESS_EXEC_LINALG_THREAD_ROOM_H
#define COMPRESS_EXEC_LINALG_THREAD_ROOM_H

#include <stddef.h>

/* At least `bytes` bytes, aligned to 64, owned by the calling thread; their content is
 * not kept from one call of this function to the next, which may move them. They keep
 * the largest size requested so far until the thread ends. If memory runs out, the
 * program ends as it does for an arena (ir/arena.h). */
void *thread_room(size_t bytes);

#endif
