/* Pickle: Python's serialised objects of protocols 2 to 5, read without running anything
 * (the opcodes are those of Lib/pickletools.py).
 *
 * A pickle is a program for a stack machine that may import and call whatever it names.
 * Here it can make containers, numbers, text, and the few objects of torch_objects.h;
 * reading stops at any other name and reports it. Opcodes that make instances (INST,
 * OBJ, NEWOBJ), that use a registry (EXT), and those of protocols 0 and 1 are refused.
 * The work a pickle can cause is proportional to its length: values are shared, never
 * copied. */
#ifndef COMPRESS_IO_PYTORCH_PICKLE_H
#define COMPRESS_IO_PYTORCH_PICKLE_H

#include "io/pytorch/pickle_value.h"

/* Longest pickle that is read, in bytes. */
#define PICKLE_BYTES_MAX ((size_t)64 << 20)

/* Reads the pickle that begins at source->data; `*used` (may be NULL) is its length,
 * after which another one may follow. The value lives in source->arena and refers to the
 * data. Containers may contain themselves. Fails with STATUS_FORMAT at the opcode's
 * byte. */
Status pickle_read(const PickleValue **out, PickleSource *source, size_t *used);

#endif
