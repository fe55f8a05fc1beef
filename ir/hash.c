/* Hash: content hashes with XXH3 (128 bits). */
#include "ir/tensor.h"

#include <string.h>
#include <xxhash.h>

static void hash_text(XXH128_hash_t hash, char out[HASH_TEXT_BYTES]) {
    static const char DIGITS[] = "0123456789abcdef";
    XXH128_canonical_t bytes;
    XXH128_canonicalFromHash(&bytes, hash);
    for (size_t i = 0; i < sizeof bytes.digest; i++) {
        out[2 * i] = DIGITS[bytes.digest[i] >> 4];
        out[2 * i + 1] = DIGITS[bytes.digest[i] & 15];
    }
    out[HASH_TEXT_BYTES - 1] = 0;
}

void bytes_hash(const void *data, size_t bytes, char out[HASH_TEXT_BYTES]) {
    hash_text(XXH3_128bits(bytes > 0 ? data : "", bytes), out);
}

/* Hash of the type's name, the shape and the hash of the data. */
void tensor_hash(const Tensor *tensor, char out[HASH_TEXT_BYTES]) {
    struct {
        char dtype[8];
        int64_t rank, dim[RANK_MAX];
        XXH128_canonical_t data;
    } head;
    memset(&head, 0, sizeof head);
    strncpy(head.dtype, dtype_name(tensor->dtype), sizeof head.dtype - 1);
    head.rank = tensor->rank;
    memcpy(head.dim, tensor->dim, (size_t)tensor->rank * sizeof head.dim[0]);
    const void *data = tensor_data(tensor);
    size_t bytes = data ? tensor_bytes(tensor) : 0;
    XXH128_canonicalFromHash(&head.data, XXH3_128bits(bytes > 0 ? data : "", bytes));
    bytes_hash(&head, sizeof head, out);
}
