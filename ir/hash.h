/* Hash: XXH3 of 128 bits of bytes that come in pieces; the same as of all at once
 * (bytes_hash, ir/tensor.h). */
#ifndef COMPRESS_IR_HASH_H
#define COMPRESS_IR_HASH_H

#include <stddef.h>

enum { HASH_BYTES = 16 };

typedef struct Hasher Hasher;

/* A hasher of no bytes yet; never NULL. Owned by the caller. */
Hasher *hasher_create(void);

/* Frees it. NULL is allowed. */
void hasher_destroy(Hasher *hasher);

/* Adds the next bytes. */
void hasher_add(Hasher *hasher, const void *data, size_t bytes);

/* The hash of all bytes that were added. */
void hasher_take(const Hasher *hasher, unsigned char digest[HASH_BYTES]);

#endif
