/* Torch file: the object in a file written by torch.save, and where the bytes of its
 * storages are.
 *
 * Two layouts are read: the zip archive of PyTorch 1.6 and later (data.pkl, data/KEY,
 * byteorder), and the stream before that (magic number, version, system, object, keys,
 * then the storages one after another). TorchScript archives, tar files (before 0.2) and
 * other pickles are recognised and refused. */
#ifndef COMPRESS_IO_PYTORCH_TORCH_FILE_H
#define COMPRESS_IO_PYTORCH_TORCH_FILE_H

#include "io/pytorch/pickle_value.h"

/* One storage's bytes. */
typedef struct TorchPart {
    const char *key;
    DType dtype;
    int64_t whole;  /* elements */
    size_t offset;  /* in the file */
    Tensor aligned; /* a copy of them, made when the file's are not aligned */
    bool found;
} TorchPart;

typedef struct TorchFile {
    Arena *arena; /* of everything except buffers; belongs to the caller */
    const char *path;
    Buf *buf;                /* the file, mapped */
    const PickleValue *root; /* the object */
    TorchPart *parts;        /* sorted by key */
    int part_count;
    Diag *diag;
} TorchFile;

/* Whether a file begins like one written by torch.save, or like any other pickle or zip
 * archive. */
bool torch_file_probe(const char *path);

/* Maps a file, reads its object and finds all storages. To be closed whatever it returns.
 * Fails with STATUS_FORMAT or STATUS_IO. */
Status torch_file_open(TorchFile *file, Arena *arena, const char *path, Diag *diag);

/* The bytes of a storage of the object: a buffer (borrowed) and where they begin in it,
 * aligned to the storage's type. Fails with STATUS_MEMORY. */
Status torch_file_bytes(TorchFile *file, const PickleStorage *storage, Buf **buf,
                        size_t *offset);

/* Releases the buffers; views retained elsewhere keep them. */
void torch_file_close(TorchFile *file);

#endif
