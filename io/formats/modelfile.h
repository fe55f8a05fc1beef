/* The native model file: HDF5, laid out so that it can be mapped, hashed and trusted.
 *
 *     /format      int32: version, 1
 *     /ir          uint8[n]: IR text of the graph (ir/irtext.h)
 *     /config      uint8[n]: JSON, the architecture's configuration, sizes as they are
 *     /config_original  uint8[n]: JSON, the configuration that the graph was first built
 *                               from, where that one has other sizes; Model.config
 *     /provenance  uint8[n]: JSON, recipe and one record per pass
 *     /index       uint8[n]: JSON, for every storage its dtype, shape and hash
 *     /weights/<storage>  one contiguous data set per storage; bf16 as uint16
 *     /scales/<storage>, /zeros/<storage>  beside /weights of a quantised storage
 *                               (io/formats/modelfile_quantised.h)
 *     /assets/<name>      uint8[n]: tokenizer and other small files (ModelAsset), where
 *                         there are some; their hashes in the index
 *     /priors/<storage>:<part>  parts of the storages' Gaussians (ir/gaussian.h), where
 *                               there are some; their rows and hashes in the index
 *
 * No attributes, no variable-length types, no time stamps: equal models are equal bytes.
 * Metadata is read by HDF5 in a child process with limits on time and memory, because
 * the library is not safe with damaged files; the weights are mapped from the file by
 * offset.
 */
#ifndef COMPRESS_IO_FORMATS_MODELFILE_H
#define COMPRESS_IO_FORMATS_MODELFILE_H

#include "ir/model.h"

/* Whether the file starts like an HDF5 file. */
bool modelfile_probe(const char *path);

/* Reads a model. With `check_hashes` the weights' hashes are verified (reads every byte);
 * without, nothing but metadata is touched. Fails with STATUS_FORMAT or STATUS_IO. */
Status modelfile_read(Model **out, const char *path, const OpTable *ops,
                      bool check_hashes, Diag *diag);

/* Writes a model: temporary file, read back and compared, fsync, rename. Every storage
 * must have weights. `file_bytes` (may be NULL) receives the size. Fails with STATUS_IO,
 * STATUS_MODEL. */
Status modelfile_write(Model *model, const char *path, size_t *file_bytes, Diag *diag);

#endif
