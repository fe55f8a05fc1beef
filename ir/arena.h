/* Arena: memory for metadata (nodes, names, trees) that is freed all at once.
 *
 * Metadata is small, so running out of memory here ends the program with one message and
 * the exit code of STATUS_MEMORY (outputs are renamed into place last, so nothing is
 * lost). Weights and activations never live in an arena: see ir/tensor.h; for arrays
 * whose size a user or a file determines, ir/memory_array.h. */
#ifndef COMPRESS_IR_ARENA_H
#define COMPRESS_IR_ARENA_H

#include <stdarg.h>
#include <stddef.h>

typedef struct Arena Arena;

/* Creates an empty arena; never NULL. */
Arena *arena_create(void);

/* Frees the arena and everything allocated from it. NULL is allowed. */
void arena_destroy(Arena *arena);

/* Bytes that the arena has taken from the system for its allocations. */
size_t arena_bytes(const Arena *arena);

/* `bytes` zeroed bytes aligned to 16; never NULL. */
void *arena_alloc(Arena *arena, size_t bytes);

/* `count * size` zeroed bytes with a checked multiplication; never NULL. */
void *arena_array(Arena *arena, size_t count, size_t size);

/* Copy of a string, or NULL for NULL. */
char *arena_strdup(Arena *arena, const char *text);

/* Copy of the first `length` bytes, terminated. */
char *arena_strndup(Arena *arena, const char *text, size_t length);

/* Formatted string in the arena. */
char *arena_printf(Arena *arena, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
char *arena_vprintf(Arena *arena, const char *fmt, va_list args)
    __attribute__((format(printf, 2, 0)));

#define ARENA_NEW(arena, T)          ((T *)arena_alloc((arena), sizeof(T)))
#define ARENA_ARRAY(arena, T, count) ((T *)arena_array((arena), (count), sizeof(T)))

/* malloc, calloc and realloc of small metadata that end the program with the message and
 * exit code of STATUS_MEMORY instead of returning NULL. Free with free(). */
void *memory_alloc(size_t count, size_t size);
void *memory_grow(void *old, size_t count, size_t size);

#endif
