/* Tensor: hashes, and what is found while the bytes are read for one. Bytes are taken a
 * piece at a time, so that of a mapped file little is in memory. */
#define XXH_STATIC_LINKING_ONLY /* what is in a state, to have one without allocating */
#include "ir/arena.h"
#include "ir/mapped.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* A hash as bytes that are the same on every processor. */
static void write_digest(XXH128_hash_t hash, unsigned char digest[HASH_BYTES]) {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, hash);
    memcpy(digest, canonical.digest, HASH_BYTES);
}

void bytes_hash(const void *data, size_t bytes, char out[HASH_TEXT_BYTES]) {
    static const char DIGITS[] = "0123456789abcdef";
    unsigned char digest[HASH_BYTES];
    write_digest(XXH3_128bits(bytes > 0 ? data : "", bytes), digest);
    for (size_t i = 0; i < HASH_BYTES; i++) {
        out[2 * i] = DIGITS[digest[i] >> 4];
        out[2 * i + 1] = DIGITS[digest[i] & 15];
    }
    out[HASH_TEXT_BYTES - 1] = 0;
}

static size_t piece_at(size_t at, size_t bytes) {
    return bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
}

/* Whether the bytes are those of a file that is mapped to be read alone: nobody writes
 * them, and what is known of them stays true. */
static bool is_read_only(const Tensor *tensor) {
    return buf_is_file(tensor->buf) && !buf_is_owned(tensor->buf);
}

/* Hash of a tensor's bytes. With `finite`, whether all elements are finite, too; then the
 * hash is of no use where they are not. */
static void read_digest(const Tensor *tensor, unsigned char digest[HASH_BYTES],
                        bool *finite) {
    const size_t bytes = tensor->buf ? tensor_bytes(tensor) : 0;
    const size_t size = dtype_bytes(tensor->dtype);
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    for (size_t at = 0; at < bytes && (!finite || *finite); at += PIECE_BYTES) {
        const size_t n = piece_at(at, bytes);
        const void *piece = tensor_piece(tensor, at, n);
        if (finite) *finite = elements_finite(tensor->dtype, piece, (int64_t)(n / size));
        XXH3_128bits_update(&state, piece, n);
    }
    write_digest(XXH3_128bits_digest(&state), digest);
}

/* Hash of a tensor's bytes: the one that its buffer keeps, unless `fresh`. */
static void data_digest(const Tensor *tensor, bool fresh,
                        unsigned char digest[HASH_BYTES]) {
    const size_t bytes = tensor->buf ? tensor_bytes(tensor) : 0;
    const unsigned char *kept =
        bytes > 0 && !fresh ? buf_digest(tensor->buf, tensor->offset, bytes) : NULL;
    if (kept) {
        memcpy(digest, kept, HASH_BYTES);
        return;
    }
    read_digest(tensor, digest, NULL);
    if (bytes > 0 && !fresh) buf_keep_digest(tensor->buf, tensor->offset, bytes, digest);
}

/* Hash of the type and groups, the shape and the hash of the data. */
static void hash_tensor(const Tensor *tensor, bool fresh, char out[HASH_TEXT_BYTES]) {
    char form[FORM_TEXT_BYTES] = "";
    struct {
        char dtype[8]; /* the longest is "q4z_128" */
        int64_t rank, dim[RANK_MAX];
        unsigned char data[HASH_BYTES];
    } head;
    memset(&head, 0, sizeof head);
    tensor_form_text(form, tensor);
    memcpy(head.dtype, form, sizeof head.dtype);
    head.rank = tensor->rank;
    memcpy(head.dim, tensor->dim, (size_t)tensor->rank * sizeof head.dim[0]);
    data_digest(tensor, fresh, head.data);
    bytes_hash(&head, sizeof head, out);
}

void tensor_hash(const Tensor *tensor, char out[HASH_TEXT_BYTES]) {
    hash_tensor(tensor, false, out);
}

void tensor_hash_fresh(const Tensor *tensor, char out[HASH_TEXT_BYTES]) {
    hash_tensor(tensor, true, out);
}

bool tensor_same_bytes(const Tensor *a, const Tensor *b) {
    const size_t bytes = tensor_bytes(a);
    const unsigned char *kept =
        bytes > 0 && is_read_only(a) ? buf_digest(a->buf, a->offset, bytes) : NULL;
    if (kept) {
        unsigned char digest[HASH_BYTES];
        data_digest(b, !is_read_only(b), digest);
        return memcmp(kept, digest, sizeof digest) == 0;
    }
    for (size_t at = 0; at < bytes; at += PIECE_BYTES) {
        const size_t n = piece_at(at, bytes);
        if (memcmp(tensor_piece(a, at, n), tensor_piece(b, at, n), n) != 0) return false;
    }
    return true;
}

/* A tensor of a mapped file, and what was found in it. */
typedef struct Found {
    const Tensor *tensor;
    bool finite;
    unsigned char digest[HASH_BYTES];
} Found;

/* Reads a mapped tensor once for its hash and for whether it is finite. */
static void read_found(Found *found) {
    found->finite = true;
    read_digest(found->tensor, found->digest, &found->finite);
}

static void keep_found(const Found *found) {
    const Tensor *tensor = found->tensor;
    const size_t bytes = tensor_bytes(tensor);
    if (!found->finite) return;
    buf_keep_digest(tensor->buf, tensor->offset, bytes, found->digest);
    buf_keep_finite(tensor->buf, tensor->offset, bytes, tensor->dtype);
}

/* Whether a tensor lies in a mapped file, and nothing of it is kept. */
static bool is_unread(const Tensor *tensor) {
    if (!is_read_only(tensor) || dtype_is_quantised(tensor->dtype)) return false;
    const size_t bytes = tensor_bytes(tensor);
    return bytes > 0 && !buf_digest(tensor->buf, tensor->offset, bytes);
}

typedef struct Reading {
    Found *items;
    int count;
    atomic_int next;
} Reading;

static void *read_items(void *self) {
    Reading *reading = self;
    int i;
    while ((i = atomic_fetch_add(&reading->next, 1)) < reading->count)
        read_found(&reading->items[i]);
    return NULL;
}

void tensors_read_mapped(const Tensor *const *tensors, int count) {
    Reading reading = {.items = memory_alloc((size_t)count, sizeof(Found))};
    size_t bytes = 0;
    for (int i = 0; i < count; i++) {
        if (!is_unread(tensors[i])) continue;
        reading.items[reading.count++].tensor = tensors[i];
        bytes += tensor_bytes(tensors[i]);
    }
    pthread_t thread;
    const bool both =
        bytes > PIECE_BYTES && pthread_create(&thread, NULL, read_items, &reading) == 0;
    if (bytes > PIECE_BYTES) read_items(&reading);
    if (both) pthread_join(thread, NULL);
    for (int i = 0; i < reading.count && bytes > PIECE_BYTES; i++) {
        const Tensor *tensor = reading.items[i].tensor; /* two may be views of the same */
        if (is_unread(tensor)) keep_found(&reading.items[i]);
    }
    free(reading.items);
}

int64_t tensor_check_finite(const Tensor *tensor) {
    const size_t bytes = tensor->buf ? tensor_bytes(tensor) : 0;
    if (bytes == 0 || dtype_is_quantised(tensor->dtype))
        return tensor_find_nonfinite(tensor);
    if (is_unread(tensor)) {
        Found found = {.tensor = tensor};
        read_found(&found);
        keep_found(&found);
    }
    if (buf_known_finite(tensor->buf, tensor->offset, bytes, tensor->dtype)) return -1;
    const int64_t at = tensor_find_nonfinite(tensor);
    if (at < 0) buf_keep_finite(tensor->buf, tensor->offset, bytes, tensor->dtype);
    return at;
}
