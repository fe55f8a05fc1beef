/* Data sets: what a recipe's `data:` entries open.
 *
 *     data:
 *       train: {format: idx, images: train-images.gz, labels: train-labels.gz}
 *       test:  {format: hdf5, path: digits.h5}
 *
 * Each format is one file in io/ with one row in io/datasets/formats.def. */
#ifndef COMPRESS_IO_DATASETS_DATASET_H
#define COMPRESS_IO_DATASETS_DATASET_H

#include "ir/batches.h"
#include "ir/field.h"

/* One format of data sets. `open` receives the bound options; paths in them are already
 * relative to the working directory. */
typedef struct DataFormat {
    const char *name, *summary;
    const Field *fields;
    const char
        *paths; /* names of the fields that are paths, one or a list, joined by '|' */
    const char
        *tolerances; /* names of fields that only decide what ends a run, and do not
                        change what it reads before, joined by '|'; NULL = none */
    size_t options_size;
    const void *defaults;
    /* Checks bound options against each other and binds maps in them; NULL = nothing to
     * do. Fails with STATUS_RECIPE. */
    Status (*check)(void *options, Arena *arena, Loc at, Diag *diag);
    Status (*open)(Batches **out, const void *options, Loc at, Diag *diag);
} DataFormat;

/* Format by name, NULL when unknown; all formats, ended by NULL. */
const DataFormat *dataformat_find(const char *name);
const DataFormat *const *dataformat_list(void);

/* Whether an option of the format is a path, or a list of them; a tolerance. */
bool dataset_is_path(const DataFormat *format, const char *name);
bool dataset_is_tolerance(const DataFormat *format, const char *name);

/* Checks one `data:` entry (a map with `format`) without opening anything; errors are
 * STATUS_RECIPE at their place. String fields whose name is in the format's `paths` are
 * resolved against `folder` (the recipe's). `*options` lives in the arena. */
Status dataset_bind(const DataFormat **format, void **options, Arena *arena,
                    const Tree *spec, const char *folder, Diag *diag);

/* Opens a bound data set. Files are read immediately and checked: sizes, counts, labels.
 * Fails with STATUS_IO, STATUS_FORMAT. */
Status dataset_open(Batches **out, const DataFormat *format, const void *options, Loc at,
                    Diag *diag);

/* For formats: the samples that `offset` and `limit` (0 = all) select from `total`.
 * Fails with STATUS_RECIPE when the file `path` has fewer. */
Status dataset_slice(int64_t *count, int64_t total, int64_t offset, int64_t limit,
                     const char *path, Loc at, Diag *diag);

/* For formats: fails with STATUS_INTERNAL when there is no such sample. */
Status dataset_check_sample(const Batches *data, int64_t sample, Diag *diag);

/* For formats with lengths: the same, and also when the sample has more tokens than
 * that. */
Status dataset_check_tokens(const Batches *data, int64_t sample, int64_t tokens,
                            Diag *diag);

/* For formats: number of classes, `classes` or 1 + the largest label when that is 0. A
 * label outside [0, classes) fails with STATUS_FORMAT, naming file and sample; `first`
 * is the sample of labels[0]. */
Status dataset_classes(int64_t *classes, const int32_t *labels, int64_t count,
                       int64_t first, const char *path, Diag *diag);

#endif
