/* Block types: how GGUF files store numbers, several of them with a common scale.
 *
 * Layouts and rounding are those of llama.cpp (ggml/src/ggml-common.h and
 * ggml-quants.c, the functions that end in _ref). Pure functions on arrays; bytes are
 * little-endian on every processor. */
#ifndef COMPRESS_IO_GGUF_BLOCKS_H
#define COMPRESS_IO_GGUF_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

typedef struct BlockType {
    const char *name; /* "q8_0" */
    uint32_t id;      /* in a file's list of tensors, and in `general.file_type` */
    int file_type; /* of a file whose matrices have this type; -1 = not written by us */
    int values;    /* of a block; a row of a tensor is whole blocks */
    int bytes;     /* of a block */
    double most;   /* largest size of a number that can be written */
    /* Decodes one block. NULL: for types known only by name, and not read. */
    void (*decode)(const unsigned char *block, float *values);
    /* The block nearest to `values`, none of which is larger than `most`, rounded like
     * llama.cpp's reference. NULL: not written. */
    void (*encode)(const float *values, unsigned char *block);
} BlockType;

/* Type by number or by name, NULL when there is none. */
const BlockType *block_type_by_id(uint32_t id);
const BlockType *block_type_by_name(const char *name);

/* Decodes or encodes `count` numbers, a multiple of type->values. */
void blocks_decode(const BlockType *type, const unsigned char *blocks, float *values,
                   int64_t count);
void blocks_encode(const BlockType *type, const float *values, unsigned char *blocks,
                   int64_t count);

#endif
