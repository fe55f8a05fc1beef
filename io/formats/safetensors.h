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

/* Writes tensors, in the order given, atomically: what was written is read back and
 * compared before it is put in place. Fails with STATUS_IO, STATUS_MODEL for a tensor
 * without data, STATUS_FORMAT for names that are not unique or not UTF-8. */
Status safetensors_write(const char *path, const NamedTensor *tensors, int count,
                         Diag *diag);

/* The same with metadata, a map of strings, in front; NULL = none. Fails with
 * STATUS_MODEL, too, where the header is larger than the format allows. */
Status safetensors_write_with(const char *path, const NamedTensor *tensors, int count,
                              const Tree *metadata, Diag *diag);

#endif
