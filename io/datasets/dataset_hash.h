/* Hash of the files behind a data set, for reports, provenance and keys of steps. */
#ifndef COMPRESS_IO_DATASETS_DATASET_HASH_H
#define COMPRESS_IO_DATASETS_DATASET_HASH_H

#include "io/datasets/dataset.h"

/* Hash over the bytes of every file that the data set of these bound options reads: its
 * data, file by file, everything in a folder of data, and what goes with a tokenizer, a
 * configuration or a preprocessor, in its folder by the names that readers know.
 * Location does not count, so a copy elsewhere has the same hash; renaming a file within
 * a folder of data changes it. Reads all of them once: keep the result. `options` are
 * those of dataset_bind. Fails with STATUS_IO if a file cannot be read. */
Status dataset_hash(char out[HASH_TEXT_BYTES], const DataFormat *format,
                    const void *options, Diag *diag);

#endif
