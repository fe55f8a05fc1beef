/* Arena: chunks of zeroed memory in a list, freed together. */
#include "ir/arena.h"

#include "ir/memory_failure.h"
#include "ir/sanitized.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 16
#define CHUNK_MAX ((size_t)1 << 20)

/* Under AddressSanitizer every allocation gets a chunk of its own, so that it sees
 * accesses beyond one. */
#if SANITIZED
#define CHUNK_FIRST ((size_t)0)
#else
#define CHUNK_FIRST ((size_t)4096)
#endif

/* EXIT_OF_MEMORY: the exit code of STATUS_MEMORY. From the table itself, as diagnostics
 * live in arenas. */
enum {
#define STATUS(name, code, help) EXIT_OF_##name = code,
#include "ir/status.def"
#undef STATUS
};

typedef struct Chunk {
    struct Chunk *next;
    size_t used, capacity;
    _Alignas(ALIGNMENT) unsigned char bytes[];
} Chunk;

struct Arena {
    Chunk *chunks; /* the first one is filled; the others are full */
    size_t chunk_bytes;
};

/* The process's, as memory is. */
static void (*failure_handler)(void *self);
static void *failure_self;

void memory_on_failure(void (*handler)(void *self), void *self) {
    failure_self = self;
    failure_handler = handler;
}

static void fail_memory(void) __attribute__((noreturn));
static void fail_memory(void) {
    if (failure_handler)
        failure_handler(failure_self);
    else
        fputs("error: out of memory\n", stderr);
    exit(EXIT_OF_MEMORY);
}

static size_t multiply_sizes(size_t a, size_t b) {
    size_t product;
    if (__builtin_mul_overflow(a, b, &product) || product > PTRDIFF_MAX) fail_memory();
    return product;
}

void *memory_alloc(size_t count, size_t size) {
    size_t bytes = multiply_sizes(count, size);
    void *memory = calloc(1, bytes > 0 ? bytes : 1);
    if (!memory) fail_memory();
    return memory;
}

void *memory_grow(void *old, size_t count, size_t size) {
    size_t bytes = multiply_sizes(count, size);
    void *memory = realloc(old, bytes > 0 ? bytes : 1);
    if (!memory) fail_memory();
    return memory;
}

Arena *arena_create(void) {
    Arena *arena = memory_alloc(1, sizeof *arena);
    arena->chunk_bytes = CHUNK_FIRST;
    return arena;
}

void arena_destroy(Arena *arena) {
    if (!arena) return;
    for (Chunk *chunk = arena->chunks; chunk;) {
        Chunk *next = chunk->next;
        free(chunk);
        chunk = next;
    }
    free(arena);
}

size_t arena_bytes(const Arena *arena) {
    size_t bytes = sizeof *arena;
    for (const Chunk *chunk = arena->chunks; chunk; chunk = chunk->next)
        bytes += sizeof *chunk + chunk->capacity;
    return bytes;
}

static Chunk *chunk_create(size_t capacity) {
    Chunk *chunk = memory_alloc(1, sizeof *chunk + capacity);
    chunk->capacity = capacity;
    return chunk;
}

/* A chunk of its own for a large piece; it goes behind the one being filled. */
static void *arena_alloc_large(Arena *arena, size_t bytes) {
    Chunk *chunk = chunk_create(bytes);
    chunk->used = bytes;
    if (arena->chunks) {
        chunk->next = arena->chunks->next;
        arena->chunks->next = chunk;
    } else {
        arena->chunks = chunk;
    }
    return chunk->bytes;
}

void *arena_alloc(Arena *arena, size_t bytes) {
    if (bytes > PTRDIFF_MAX - sizeof(Chunk) - ALIGNMENT) fail_memory();
    if (bytes == 0) bytes = 1;
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (bytes > arena->chunk_bytes / 4) return arena_alloc_large(arena, bytes);
    Chunk *chunk = arena->chunks;
    if (!chunk || chunk->capacity - chunk->used < bytes) {
        chunk = chunk_create(arena->chunk_bytes);
        chunk->next = arena->chunks;
        arena->chunks = chunk;
        if (arena->chunk_bytes < CHUNK_MAX) arena->chunk_bytes *= 2;
    }
    void *memory = chunk->bytes + chunk->used;
    chunk->used += bytes;
    return memory;
}

void *arena_array(Arena *arena, size_t count, size_t size) {
    return arena_alloc(arena, multiply_sizes(count, size));
}

char *arena_strdup(Arena *arena, const char *text) {
    return text ? arena_strndup(arena, text, strlen(text)) : NULL;
}

char *arena_strndup(Arena *arena, const char *text, size_t length) {
    if (length >= PTRDIFF_MAX) fail_memory();
    char *copy = arena_alloc(arena, length + 1);
    if (length > 0) memcpy(copy, text, length);
    return copy;
}

char *arena_vprintf(Arena *arena, const char *fmt, va_list args) {
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    if (length < 0) return arena_strdup(arena, fmt);
    char *text = arena_alloc(arena, (size_t)length + 1);
    vsnprintf(text, (size_t)length + 1, fmt, args);
    return text;
}

char *arena_printf(Arena *arena, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    char *text = arena_vprintf(arena, fmt, args);
    va_end(args);
    return text;
}
