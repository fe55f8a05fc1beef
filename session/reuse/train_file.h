/* Files of training states: safetensors, with the state's numbers and a hash over all of
 * it among the metadata. */
#ifndef COMPRESS_SESSION_REUSE_TRAIN_FILE_H
#define COMPRESS_SESSION_REUSE_TRAIN_FILE_H

#include "exec/train/train_state.h"

/* Writes a state; the file holds its old content or all of the new. Fails with
 * STATUS_IO. */
Status train_file_write(const char *path, const TrainState *state, Diag *diag);

/* Reads a state, to be destroyed by the caller; its tensors are views of the file. Fails
 * with STATUS_FORMAT if anything was changed, STATUS_IO. */
Status train_file_read(TrainState **out, const char *path, Diag *diag);

#endif
