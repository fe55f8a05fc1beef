/* Hash: see ir/hash.h. */
#define XXH_STATIC_LINKING_ONLY    /* the size of a state, which the library keeps since \
                                      0.8 */
#include "ir/hash.h"

#include "ir/arena.h"
#include "ir/tensor.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct Hasher {
    void *memory; /* which the state lies in, aligned as it wants to be */
    XXH3_state_t *state;
};

Hasher *hasher_create(void) {
    const size_t unit = alignof(XXH3_state_t);
    Hasher *hasher = memory_alloc(1, sizeof *hasher);
    hasher->memory = memory_alloc(1, sizeof *hasher->state + unit);
    hasher->state = (void *)(((uintptr_t)hasher->memory + unit - 1) / unit * unit);
    XXH3_128bits_reset(hasher->state);
    return hasher;
}

void hasher_destroy(Hasher *hasher) {
    if (!hasher) return;
    free(hasher->memory);
    free(hasher);
}

void hasher_add(Hasher *hasher, const void *data, size_t bytes) {
    if (bytes > 0) XXH3_128bits_update(hasher->state, data, bytes);
}

void hasher_take(const Hasher *hasher, unsigned char digest[HASH_BYTES]) {
    XXH128_canonical_t hash;
    XXH128_canonicalFromHash(&hash, XXH3_128bits_digest(hasher->state));
    memcpy(digest, hash.digest, HASH_BYTES);
}

void bytes_hash(const void *data, size_t bytes, char out[HASH_TEXT_BYTES]) {
    static const char DIGITS[] = "0123456789abcdef";
    XXH128_canonical_t hash;
    XXH128_canonicalFromHash(&hash, XXH3_128bits(bytes > 0 ? data : "", bytes));
    for (size_t i = 0; i < sizeof hash.digest; i++) {
        out[2 * i] = DIGITS[hash.digest[i] >> 4];
        out[2 * i + 1] = DIGITS[hash.digest[i] & 15];
    }
    out[HASH_TEXT_BYTES - 1] = 0;
}
