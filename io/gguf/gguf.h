/* GGUF: the container, version 3 (https://github.com/ggml-org/ggml/blob/master/docs/
 * gguf.md): typed pairs of key and value, then tensors of block types, aligned.
 *
 * Knows nothing about models: io/gguf/outline.h says what keys and tensors mean. Files
 * are little-endian; they are mapped, and every count, length, offset and product of
 * dimensions is checked before any byte it refers to is trusted. */
#ifndef COMPRESS_IO_GGUF_GGUF_H
#define COMPRESS_IO_GGUF_GGUF_H

#include "io/gguf/blocks.h"
#include "ir/arena.h"
#include "ir/tensor.h"
#include "ir/text.h"

/* Kinds of values, by their numbers in a file. */
typedef enum GgufKind {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_KIND_COUNT
} GgufKind;

enum { GGUF_RANK_MAX = 4 };

/* ---- reading ---- */

/* A value, or an array of values of one kind. Arrays of arrays are refused. */
typedef struct GgufPair {
    const char *key;
    GgufKind kind; /* of the value, or of each element */
    bool array;
    int64_t count;             /* of elements; 1 if it is not an array */
    const unsigned char *data; /* in the file; for numbers */
    const TextSpan *strings;   /* GGUF_STRING: count of them, in the file */
} GgufPair;

typedef struct GgufTensor {
    const char *name;
    const BlockType *type;
    int rank;                   /* at least 1 */
    int64_t dim[GGUF_RANK_MAX]; /* slowest first, as everywhere else here */
    size_t offset, bytes;       /* within the file */
} GgufTensor;

typedef struct GgufFile {
    Arena *arena;
    const char *path;
    Buf *buf; /* the mapped file */
    GgufPair *pairs;
    int64_t pair_count;
    GgufTensor *tensors; /* sorted by name */
    int64_t tensor_count;
} GgufFile;

/* Whether a file begins as GGUF files do. */
bool gguf_probe(const char *path);

/* Maps a file and checks it: magic and version (2 or 3), counts that its size allows,
 * keys and names that are UTF-8 and unique, known kinds and types, ranks of 1 to 4, rows
 * of whole blocks, tensors that are aligned, lie within the file and do not overlap.
 * Fails with STATUS_FORMAT, naming the key or tensor, or STATUS_IO. */
Status gguf_read(GgufFile **out, const char *path, Diag *diag);

/* Frees the file; buffers retained elsewhere keep the mapping. NULL is allowed. */
void gguf_destroy(GgufFile *file);

/* Pair by key, tensor by name; NULL when absent. */
const GgufPair *gguf_find(const GgufFile *file, const char *key);
const GgufTensor *gguf_find_tensor(const GgufFile *file, const char *name);

/* Element `i` of a pair of numbers or flags, as an integer or a real. False if the pair
 * holds strings or, for integers, a value that is not an integer or does not fit. */
bool gguf_integer(const GgufPair *pair, int64_t i, int64_t *out);
bool gguf_real(const GgufPair *pair, int64_t i, double *out);

/* Numbers of rows [first, first + count) of the last dimension, decoded; `out` has room
 * for them. The type must have a decoder. */
void gguf_rows(const GgufFile *file, const GgufTensor *tensor, int64_t first,
               int64_t count, float *out);

/* ---- writing ---- */

typedef struct GgufWriter GgufWriter;

/* A new, empty file to be written; never NULL. Freed by gguf_write or gguf_abandon. */
GgufWriter *gguf_create(void);
void gguf_abandon(GgufWriter *writer);

/* Appends a pair. Keys must be new. */
void gguf_put_integer(GgufWriter *writer, const char *key, int64_t value); /* u32 */
void gguf_put_real(GgufWriter *writer, const char *key, double value);     /* f32 */
void gguf_put_flag(GgufWriter *writer, const char *key, bool value);
void gguf_put_text(GgufWriter *writer, const char *key, const char *value);

/* The same with arrays: i32, f32, strings. */
void gguf_put_integers(GgufWriter *writer, const char *key, const int64_t *values,
                       int64_t count);
void gguf_put_reals(GgufWriter *writer, const char *key, const double *values,
                    int64_t count);
void gguf_put_texts(GgufWriter *writer, const char *key, const char *const *values,
                    int64_t count);

/* Fills `out` with the numbers of row `row` of a tensor that is being written. */
typedef void GgufRow(const void *source, int64_t row, float *out);

/* Appends a tensor of rank 1 or 2 whose rows come from `row`; `source` must last until
 * the file is written. The last dimension is whole blocks of the type. The name is
 * borrowed. */
void gguf_put_tensor(GgufWriter *writer, const char *name, const BlockType *type,
                     int rank, const int64_t *dim, GgufRow *row, const void *source);

/* Fills `out` with row `row` of a tensor that is being written, as blocks of its type. */
typedef void GgufBlocks(const void *source, int64_t row, unsigned char *out);

/* Appends a tensor of rank 2 whose rows come as blocks. */
void gguf_put_blocks(GgufWriter *writer, const char *name, const BlockType *type,
                     const int64_t *dim, GgufBlocks *row, const void *source);

/* Writes the file, puts it in place, and frees the writer either way. `bytes` (may be
 * NULL) is the length. Fails with STATUS_IO; with STATUS_MODEL for a number that is not
 * finite or that the tensor's type cannot hold. */
Status gguf_write(GgufWriter *writer, const char *path, int64_t *bytes, Diag *diag);

#endif
