/* Rooms of threads: see exec/linalg/thread_room.h. */
#include "exec/linalg/thread_room.h"

#include "ir/arena.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

enum { ALIGNMENT = 64 };

typedef struct Room {
    void *block; /* what is freed; NULL = nothing */
    void *start; /* aligned, in the block */
    size_t bytes;
} Room;

static _Thread_local Room room;
static pthread_key_t ends; /* its value is the block, so that it is freed */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_key(void) {
    pthread_key_create(&ends, free);
}

void *thread_room(size_t bytes) {
    if (bytes <= room.bytes) return room.start;
    pthread_once(&once, make_key);
    free(room.block);
    char *block = memory_alloc(bytes + ALIGNMENT, 1);
    const size_t over = (size_t)((uintptr_t)block % ALIGNMENT);
    room = (Room){block, block + (over ? ALIGNMENT - over : 0), bytes};
    pthread_setspecific(ends, block);
    return room.start;
}
