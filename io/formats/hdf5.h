/* HDF5: the few functions this program needs from the library, without its types.
 *
 * The library is not safe on damaged files and keeps broken state after a full disk, so
 * every function here is meant to run inside sandbox_run. On failure they return false
 * and append one line to `fault`; handles are then left open until the process ends. */
#ifndef COMPRESS_IO_FORMATS_HDF5_H
#define COMPRESS_IO_FORMATS_HDF5_H

#include "ir/tensor.h"
#include "ir/text.h"

/* A file in memory, mapped by the caller: the library receives its bytes and opens
 * nothing, so that the process it runs in can be closed off (SandboxLimits.closed). */
typedef struct Hdf5Source {
    const void *data;
    size_t bytes;
} Hdf5Source;

/* A contiguous data set of a file with at most one level of groups. Bool is stored as u8
 * and read as U8; bf16 is stored as unsigned 16-bit integers. */
typedef struct Hdf5Set {
    const char *group; /* NULL = the root */
    const char *name;
    DType dtype;
    int rank;
    int64_t dim[RANK_MAX];
    uint64_t offset, bytes; /* place in the file; only when reading */
    const void *data;       /* written, not found */
    bool tell;              /* hdf5_write tells its place */
} Hdf5Set;

typedef void (*Hdf5Visit)(const Hdf5Set *set, void *state);

/* Walks a whole file in order of names and calls `visit` for every data set. Refuses
 * soft and external links, attributes, nested groups, named types, element types other
 * than ours, filters, chunks, external storage and user blocks. */
bool hdf5_walk(const Hdf5Source *source, Hdf5Visit visit, void *state, Text *fault);

/* Writes data sets in the order given (sets of one group together) over the file at
 * `path`: no time stamps, no attributes, contiguous, data aligned to 64 bytes. Equal
 * sets give equal bytes. Appends to `reply` the fault, or the decimal place in the file
 * of the set whose place was requested, if any. */
bool hdf5_write(const char *path, const Hdf5Set *sets, int count, Text *reply);

/* A numeric data set of a file written by another program. */
typedef struct Hdf5Array {
    int rank; /* 1..RANK_MAX */
    int64_t dim[RANK_MAX];
    bool integer;    /* 0 = floating point */
    bool is_u8;      /* unsigned bytes */
    uint64_t stored; /* bytes it takes in the file */
} Hdf5Array;

/* Describes a data set by its path in the file. Chunks, deflate, shuffle and Fletcher
 * checksums are allowed; links out of the file and other filters are refused. */
bool hdf5_describe(const Hdf5Source *source, const char *name, Hdf5Array *out,
                   Text *fault);

/* Reads rows [first, first + count) of a data set whose shape must be `expected`'s,
 * converted to U8, F32 or I64. `data` has room for them. */
bool hdf5_read(const Hdf5Source *source, const char *name, const Hdf5Array *expected,
               int64_t first, int64_t count, DType as, void *data, Text *fault);

#endif
