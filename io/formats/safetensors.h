/* safetensors: named tensors behind a JSON header (https://github.com/huggingface/
 * safetensors, format section). Files are mapped; every rule of the format is checked
 * before a byte of data is believed. */
#ifndef COMPRESS_IO_FORMATS_SAFETENSORS_H
#define COMPRESS_IO_FORMATS_SAFETENSORS_H

#include "io/formats/checkpoint.h"

/* Maps one file and checks its header: length at most 100,000,000 bytes and within the
 * file, a JSON object, known dtypes, rank <= 6, sizes without overflow, offsets that
 * cover the data exactly without holes, overlaps or trailing bytes, no duplicates.
 * Fails with STATUS_FORMAT (naming the tensor) or STATUS_IO. */
Status safetensors_read(Checkpoint **out, const char *path, Diag *diag);

/* Writes tensors, in the order given, atomically: the file is read back and compared, a
 * stretch at a time, before it is put in place. Fails with STATUS_IO, STATUS_MODEL for a
 * tensor without data, STATUS_FORMAT for names that are not unique or not UTF-8. */
Status safetensors_write(const char *path, const NamedTensor *tensors, int count,
                         Diag *diag);

/* The same with metadata, a map of strings, before the tensors; NULL = none. Also fails
 * with STATUS_MODEL if the header is larger than the format allows. */
Status safetensors_write_with(const char *path, const NamedTensor *tensors, int count,
                              const Tree *metadata, Diag *diag);

/* What is known about the tensors only when all are written, so that a large file is
 * read once: their hashes, and whether they are finite (tensor_give_pieces). */
typedef struct SafetensorsSeal {
    /* Gives strings of the metadata their final values, of the same length as before; a
     * failure ends the writing. */
    Status (*put)(void *self, Diag *diag);
    void *self;
} SafetensorsSeal;

/* safetensors_write_with, sealed before the file is put in place. */
Status safetensors_write_sealed(const char *path, const NamedTensor *tensors, int count,
                                const Tree *metadata, const SafetensorsSeal *seal,
                                Diag *diag);

#endif
