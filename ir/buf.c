/* Buf: reference-counted bytes, allocated here or wrapped. */
#include "ir/arena.h"
#include "ir/tensor.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BUF_ALIGNMENT ((size_t)64)
/* Buffers from this size on are mapped in whole huge pages. */
#define HUGE_LEAST ((size_t)4 << 20)
#define HUGE_PAGE  ((size_t)2 << 20)

/* A hash of some of a buffer's bytes. */
typedef struct Digest {
    size_t offset, bytes;
    unsigned char digest[16];
} Digest;

struct Buf {
    atomic_int references;
    bool owned;
    void *data;
    size_t bytes;
    void (*release)(void *data, size_t bytes);
    Digest *digests; /* a mapped file has one for each storage in it */
    int digest_count, digest_capacity;
};

static size_t round_up(size_t bytes, size_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

static void release_heap(void *data, size_t bytes) {
    (void)bytes;
    free(data);
}

static void release_mapping(void *data, size_t bytes) {
    munmap(data, round_up(bytes, HUGE_PAGE));
}

static void *alloc_heap(size_t bytes) {
    size_t rounded = round_up(bytes > 0 ? bytes : 1, BUF_ALIGNMENT);
    void *data = aligned_alloc(BUF_ALIGNMENT, rounded);
    if (data) memset(data, 0, rounded);
    return data;
}

/* Fresh zero pages that start at a huge page: maps one more and cuts the ends off. */
static void *alloc_mapping(size_t bytes) {
    size_t rounded = round_up(bytes, HUGE_PAGE);
    char *start = mmap(NULL, rounded + HUGE_PAGE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return NULL;
    size_t head = (HUGE_PAGE - (uintptr_t)start % HUGE_PAGE) % HUGE_PAGE;
    if (head > 0) munmap(start, head);
    if (head < HUGE_PAGE) munmap(start + head + rounded, HUGE_PAGE - head);
    madvise(start + head, rounded, MADV_HUGEPAGE); /* a wish: refusal is fine */
    return start + head;
}

static Buf *buf_new(void *data, size_t bytes, bool owned,
                    void (*release)(void *data, size_t bytes)) {
    Buf *buf = memory_alloc(1, sizeof *buf);
    atomic_init(&buf->references, 1);
    buf->owned = owned;
    buf->data = data;
    buf->bytes = bytes;
    buf->release = release;
    return buf;
}

Status buf_create(Buf **out, size_t bytes, Diag *diag) {
    bool large = bytes >= HUGE_LEAST;
    void *data = NULL;
    if (bytes <= PTRDIFF_MAX - 2 * HUGE_PAGE) {
        data = large ? alloc_mapping(bytes) : alloc_heap(bytes);
    }
    if (!data) {
        return diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL,
                         "cannot allocate %zu bytes (%.1f MiB)", bytes,
                         (double)bytes / (1 << 20));
    }
    *out = buf_new(data, bytes, true, large ? release_mapping : release_heap);
    return STATUS_OK;
}

Buf *buf_wrap(const void *data, size_t bytes, void (*release)(void *data, size_t bytes)) {
    return buf_new((void *)(uintptr_t)data, bytes, false, release);
}

Buf *buf_retain(Buf *buf) {
    if (buf) atomic_fetch_add_explicit(&buf->references, 1, memory_order_relaxed);
    return buf;
}

void buf_release(Buf *buf) {
    if (!buf) return;
    if (atomic_fetch_sub_explicit(&buf->references, 1, memory_order_acq_rel) > 1) return;
    if (buf->release) buf->release(buf->data, buf->bytes);
    free(buf->digests);
    free(buf);
}

const unsigned char *buf_digest(const Buf *buf, size_t offset, size_t bytes) {
    for (int i = 0; i < buf->digest_count; i++)
        if (buf->digests[i].offset == offset && buf->digests[i].bytes == bytes)
            return buf->digests[i].digest;
    return NULL;
}

void buf_keep_digest(Buf *buf, size_t offset, size_t bytes,
                     const unsigned char digest[16]) {
    if (buf->digest_count == buf->digest_capacity) {
        const int capacity = buf->digest_capacity ? 2 * buf->digest_capacity : 1;
        Digest *grown = memory_alloc((size_t)capacity, sizeof *grown);
        if (buf->digest_count > 0)
            memcpy(grown, buf->digests, (size_t)buf->digest_count * sizeof *grown);
        free(buf->digests);
        buf->digests = grown;
        buf->digest_capacity = capacity;
    }
    Digest *kept = &buf->digests[buf->digest_count++];
    *kept = (Digest){.offset = offset, .bytes = bytes};
    memcpy(kept->digest, digest, sizeof kept->digest);
}

void buf_drop_digests(Buf *buf) {
    buf->digest_count = 0;
}

const void *buf_data(const Buf *buf) {
    return buf->data;
}

size_t buf_bytes(const Buf *buf) {
    return buf->bytes;
}

bool buf_is_owned(const Buf *buf) {
    return buf->owned;
}

bool buf_is_exclusive(const Buf *buf) {
    return buf->owned &&
           atomic_load_explicit(&buf->references, memory_order_acquire) == 1;
}
