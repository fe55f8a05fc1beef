/* Tar archives that tests write, header by header. */
#ifndef COMPRESS_TESTS_IO_TAR_FIXTURE_H
#define COMPRESS_TESTS_IO_TAR_FIXTURE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An archive being written. */
typedef struct TarFixture {
    uint8_t *data;
    size_t bytes;
} TarFixture;

static inline uint8_t *tar_grow(TarFixture *tar, size_t bytes) {
    tar->data = realloc(tar->data, tar->bytes + bytes);
    uint8_t *at = tar->data + tar->bytes;
    memset(at, 0, bytes);
    tar->bytes += bytes;
    return at;
}

/* Sets a header's sum. */
static inline void tar_seal(uint8_t *header) {
    unsigned sum = 0;
    memset(header + 148, ' ', 8);
    for (int i = 0; i < 512; i++) sum += header[i];
    snprintf((char *)header + 148, 8, "%06o", sum);
}

/* Adds a member of a kind and its data; returns where its header stands. */
static inline size_t tar_add(TarFixture *tar, const char *name, char kind,
                             const void *data, size_t bytes) {
    const size_t at = tar->bytes;
    uint8_t *header = tar_grow(tar, 512 + (bytes + 511) / 512 * 512);
    memcpy(header, name, strlen(name) < 100 ? strlen(name) : 100);
    snprintf((char *)header + 124, 12, "%011o", (unsigned)bytes);
    memcpy(header + 257,
           "ustar\0"
           "00",
           8);
    header[156] = (uint8_t)kind;
    if (bytes) memcpy(header + 512, data, bytes);
    tar_seal(header);
    return at;
}

static inline void tar_finish(TarFixture *tar) {
    tar_grow(tar, 1024);
}

#endif
