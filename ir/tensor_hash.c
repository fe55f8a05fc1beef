/* Tensor: hashes, and what is found while the bytes are read for one. Bytes are taken a
 * piece at a time, so that of a mapped file little is in memory. */
#define XXH_STATIC_LINKING_ONLY /* what is in a state, to have one without allocating */
#include "ir/arena.h"
#include "ir/mapped.h"
#include "ir/thread.h"

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

/* What is found in a tensor's bytes, piece by piece. */
typedef struct Finding {
    XXH3_state_t hash;
    bool finite;
} Finding;

static void finding_begin(Finding *finding) {
    XXH3_128bits_reset(&finding->hash);
    finding->finite = true;
}

static void finding_add(Finding *finding, DType dtype, const void *piece, size_t bytes) {
    XXH3_128bits_update(&finding->hash, piece, bytes);
    if (finding->finite)
        finding->finite =
            elements_finite(dtype, piece, (int64_t)(bytes / dtype_bytes(dtype)));
}

/* Hash of a tensor's bytes. */
static void read_digest(const Tensor *tensor, unsigned char digest[HASH_BYTES]) {
    const size_t bytes = tensor->buf ? tensor_bytes(tensor) : 0;
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    for (size_t at = 0; at < bytes; at += PIECE_BYTES) {
        const size_t n = piece_at(at, bytes);
        XXH3_128bits_update(&state, tensor_piece(tensor, at, n), n);
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
    read_digest(tensor, digest);
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

/* Keeps what was found with the tensor's buffer; a hash of what is not finite is of no
 * use. */
static void keep_finding(const Tensor *tensor, const Finding *finding) {
    const size_t bytes = tensor_bytes(tensor);
    unsigned char digest[HASH_BYTES];
    if (!finding->finite) return;
    write_digest(XXH3_128bits_digest(&finding->hash), digest);
    buf_keep_digest(tensor->buf, tensor->offset, bytes, digest);
    buf_keep_finite(tensor->buf, tensor->offset, bytes, tensor->dtype);
}

bool tensor_is_unread(const Tensor *tensor) {
    if (!is_read_only(tensor) || dtype_is_quantised(tensor->dtype)) return false;
    const size_t bytes = tensor_bytes(tensor);
    return bytes > 0 && !buf_digest(tensor->buf, tensor->offset, bytes);
}

/* Reads a mapped tensor for its hash and for whether it is finite, as far as it is. */
static void read_finding(const Tensor *tensor, Finding *finding) {
    const size_t bytes = tensor_bytes(tensor);
    finding_begin(finding);
    for (size_t at = 0; at < bytes && finding->finite; at += PIECE_BYTES) {
        const size_t n = piece_at(at, bytes);
        finding_add(finding, tensor->dtype, tensor_piece(tensor, at, n), n);
    }
}

/* A tensor of a mapped file, and what was found in it. */
typedef struct Found {
    const Tensor *tensor;
    Finding finding;
} Found;

static void *find_whole(void *self) {
    Found *found = self;
    read_finding(found->tensor, &found->finding);
    return NULL;
}

static Status give_pieces(const Tensor *tensor, PieceTaker *take, void *self,
                          Diag *diag) {
    const size_t bytes = tensor_bytes(tensor);
    for (size_t at = 0; at < bytes; at += PIECE_BYTES) {
        const size_t n = piece_at(at, bytes);
        TRY(take(self, tensor_piece(tensor, at, n), n, diag));
    }
    return STATUS_OK;
}

Status tensor_give_pieces(const Tensor *tensor, PieceTaker *take, void *self,
                          Diag *diag) {
    if (!tensor_is_unread(tensor)) return give_pieces(tensor, take, self, diag);
    pthread_t thread;
    Found found = {.tensor = tensor};
    const bool beside = tensor_bytes(tensor) > PIECE_BYTES &&
                        thread_start(&thread, find_whole, &found) == 0;
    if (!beside) find_whole(&found);
    const Status status = give_pieces(tensor, take, self, diag);
    if (beside) pthread_join(thread, NULL);
    keep_finding(tensor, &found.finding);
    return status;
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
        read_finding(reading->items[i].tensor, &reading->items[i].finding);
    return NULL;
}

void tensors_read_mapped(const Tensor *const *tensors, int count) {
    Reading reading = {.items = memory_alloc((size_t)count, sizeof(Found))};
    size_t bytes = 0;
    for (int i = 0; i < count; i++) {
        if (!tensor_is_unread(tensors[i])) continue;
        reading.items[reading.count++].tensor = tensors[i];
        bytes += tensor_bytes(tensors[i]);
    }
    pthread_t thread;
    const bool both =
        bytes > PIECE_BYTES && thread_start(&thread, read_items, &reading) == 0;
    if (bytes > PIECE_BYTES) read_items(&reading);
    if (both) pthread_join(thread, NULL);
    for (int i = 0; i < reading.count && bytes > PIECE_BYTES; i++) {
        const Tensor *tensor = reading.items[i].tensor; /* two may be views of the same */
        if (tensor_is_unread(tensor)) keep_finding(tensor, &reading.items[i].finding);
    }
    free(reading.items);
}

int64_t tensor_check_finite(const Tensor *tensor) {
    const size_t bytes = tensor->buf ? tensor_bytes(tensor) : 0;
    if (bytes == 0 || dtype_is_quantised(tensor->dtype))
        return tensor_find_nonfinite(tensor);
    if (tensor_is_unread(tensor)) {
        Finding finding;
        read_finding(tensor, &finding);
        keep_finding(tensor, &finding);
    }
    if (buf_known_finite(tensor->buf, tensor->offset, bytes, tensor->dtype)) return -1;
    const int64_t at = tensor_find_nonfinite(tensor);
    if (at < 0) buf_keep_finite(tensor->buf, tensor->offset, bytes, tensor->dtype);
    return at;
}
