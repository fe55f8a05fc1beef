/* PyTorch checkpoints: the weights in pytorch_model.bin, .pt and .pth files.
 *
 * A file holds what its author saved: a state dict, or an enclosing dict with the state
 * of the training, or lists. The weights are the tensors found there; their names are
 * the keys on the way to them, joined by dots. Nothing in the file is run (pickle.h). */
#ifndef COMPRESS_IO_PYTORCH_PYTORCH_H
#define COMPRESS_IO_PYTORCH_PYTORCH_H

#include "io/formats/checkpoint.h"

/* Whether a file begins like one written by torch.save. */
bool pytorch_probe(const char *path);

/* Reads the tensors of a file: of the dict under `model`, `state_dict` and the like if
 * the author saved it with other things, with the prefix of wrapped models (`module.`)
 * removed; warnings report both, and values that are not tensors. Tensors that are
 * contiguous in their storage are views of the mapped file, so tied ones share their
 * bytes; others are gathered by their strides. f64 becomes f32, with a warning. Fails
 * with STATUS_FORMAT or STATUS_IO. */
Status pytorch_read(Checkpoint **out, const char *path, Diag *diag);

/* The same from the dict under the key `from`, which must be there; dots lead to inner
 * ones. NULL = pytorch_read. */
Status pytorch_read_from(Checkpoint **out, const char *path, const char *from,
                         Diag *diag);

#endif
