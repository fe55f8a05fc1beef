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

/* Hash of a tensor's bytes: the one that its buffer keeps, unless `fresh`. */
static XXH128_canonical_t data_hash(const Tensor *tensor, bool fresh) {
    XXH128_canonical_t hash;
    const void *data = tensor_data(tensor);
    const size_t bytes = data ? tensor_bytes(tensor) : 0;
    const unsigned char *kept =
        bytes > 0 && !fresh ? buf_digest(tensor->buf, tensor->offset, bytes) : NULL;
    if (kept) {
        memcpy(hash.digest, kept, sizeof hash.digest);
        return hash;
    }
    XXH128_canonicalFromHash(&hash, XXH3_128bits(bytes > 0 ? data : "", bytes));
    if (bytes > 0 && !fresh)
        buf_keep_digest(tensor->buf, tensor->offset, bytes, hash.digest);
    return hash;
}

/* Hash of the type's name, the shape and the hash of the data. */
static void hash_tensor(const Tensor *tensor, bool fresh, char out[HASH_TEXT_BYTES]) {
    struct {
        char dtype[8];
        int64_t rank, dim[RANK_MAX];
        XXH128_canonical_t data;
    } head;
    memset(&head, 0, sizeof head);
    strncpy(head.dtype, dtype_name(tensor->dtype), sizeof head.dtype - 1);
    head.rank = tensor->rank;
    memcpy(head.dim, tensor->dim, (size_t)tensor->rank * sizeof head.dim[0]);
    head.data = data_hash(tensor, fresh);
    bytes_hash(&head, sizeof head, out);
}

void tensor_hash(const Tensor *tensor, char out[HASH_TEXT_BYTES]) {
    hash_tensor(tensor, false, out);
}

void tensor_hash_fresh(const Tensor *tensor, char out[HASH_TEXT_BYTES]) {
    hash_tensor(tensor, true, out);
}
