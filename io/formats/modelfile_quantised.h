/* Native model file, quantised storages: values, scales and zero points are data sets of
 * their own, so that other programs can read them.
 *
 *     /weights/NAME   q8: int8 with the storage's shape; q4: uint8 [M, bytes of a row]
 *     /scales/NAME    q8: float32 [M]; q4: float16 [M, groups of a row]
 *     /zeros/NAME     where groups have zero points: uint8 [M, groups of a row] */
#ifndef COMPRESS_IO_FORMATS_MODELFILE_QUANTISED_H
#define COMPRESS_IO_FORMATS_MODELFILE_QUANTISED_H

#include "io/formats/modelfile_sets.h"

#define MODELFILE_SCALES "scales"
#define MODELFILE_ZEROS  "zeros"

/* The parts as data sets with group, link, type, shape and data (NULL for shapes only):
 * values, scales and, if there are any, zero points; returns their number. */
enum { QUANTISED_SETS = 3 };
int modelfile_quantised_sets(Hdf5Set out[QUANTISED_SETS], const char *link,
                             const Tensor *tensor);

/* Assembles the content of a file's sets into a tensor of the given form, which has no
 * data yet, and checks it. `map` is the file. Fails with STATUS_FORMAT and
 * STATUS_MEMORY. */
Status modelfile_read_quantised(Tensor *tensor, const char *path, const char *storage,
                                const SetTable *table, const char *link, const Buf *map,
                                Diag *diag);

#endif
