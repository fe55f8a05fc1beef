/* What reader and writer of the native model file share: names within the file, and the
 * table of data sets found in one. */
#ifndef COMPRESS_IO_FORMATS_MODELFILE_SETS_H
#define COMPRESS_IO_FORMATS_MODELFILE_SETS_H

#include "io/formats/hdf5.h"
#include "ir/arena.h"

#define MODELFILE_VERSION 1
#define MODELFILE_WEIGHTS "weights"
#define MODELFILE_ROOT_SETS                                                              \
    5 /* format, ir, config, provenance, index; and optionally                           \
       */
#define MODELFILE_ORIGINAL "config_original"
#define MODELFILE_ASSETS   "assets" /* the group, and the key of the index */

/* The eight bytes that every HDF5 file starts with. */
#define HDF5_SIGNATURE "\211HDF\r\n\032\n"

/* Fails with STATUS_FORMAT: what is wrong with the model file at `path`. */
__attribute__((format(printf, 3, 4))) Status
modelfile_damaged(const char *path, Diag *diag, const char *fmt, ...);

/* The same for a reader's state, which has both. */
#define DAMAGED(reader, ...)                                                             \
    modelfile_damaged((reader)->path, (reader)->diag, __VA_ARGS__)

/* Link name of a storage: its name with '%', '/' and a lone "." as %25, %2F and %2E. */
const char *modelfile_link(Arena *arena, const char *storage);

/* Data sets of a file, sorted by group (root first), then by name. */
typedef struct SetTable {
    Hdf5Set *sets;
    int count;
} SetTable;

/* Walks a model file in a child process and checks everything it declares against `map`,
 * the parent's own mapping of the file: every data set has a possible shape, lies within
 * the file, is aligned to its elements and overlaps no other. The table lives in the
 * arena. Fails with STATUS_FORMAT, or STATUS_IO when no process can be started. */
Status modelfile_sets(SetTable *out, Arena *arena, const char *path, const Buf *map,
                      Diag *diag);

/* Data set by group (NULL = the root) and name, NULL when there is none. */
const Hdf5Set *sets_find(const SetTable *table, const char *group, const char *name);

#endif
