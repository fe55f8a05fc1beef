/* Gaussians of weights in the native model file: their rows of the index and their data
 * sets.
 *
 *     index: "priors": {"model": hash of IR, weights, origins, "storages": [
 *         {"name", "form", "dtype", "samples", "origin", "hashes": {part: hash}}]}
 *     /priors/<storage>:<part>     one data set per part (gaussian_parts)
 *
 * A file without them has neither. */
#ifndef COMPRESS_IO_FORMATS_MODELFILE_GAUSSIANS_H
#define COMPRESS_IO_FORMATS_MODELFILE_GAUSSIANS_H

#include "io/formats/modelfile_sets.h"
#include "ir/model.h"

#define MODELFILE_PRIORS "priors"

/* Link name of a part of a storage's Gaussian, in the arena. */
const char *modelfile_part_link(Arena *arena, const char *storage, const char *part);

/* Adds "priors" to an index that has "texts" and "storages"; does nothing when no
 * storage in `sorted` has a Gaussian. */
void modelfile_put_gaussians(Tree *index, Arena *arena, const Storage *const *sorted,
                             int count);

/* What reading needs. */
typedef struct GaussianReader {
    const char *path;
    Arena *scratch;
    const Buf *map;
    const SetTable *table;
    const Tree *index;
    Model *model; /* its weights are bound */
    bool check_hashes;
    Diag *diag;
} GaussianReader;

/* Gives the model's storages the Gaussians of the file, as views of the mapping: every
 * row, part and data set is checked against the others and used once, and the whole must
 * belong to this file's graph and weights. With check_hashes, numbers are also read and
 * checked. Fails with STATUS_FORMAT. */
Status modelfile_read_gaussians(const GaussianReader *reader);

#endif
