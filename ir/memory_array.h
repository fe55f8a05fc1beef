/* Arrays whose size a user or a file determines: memory for them may not be there, which
 * is no reason to end the program. What is small comes from ir/arena.h. */
#ifndef COMPRESS_IR_MEMORY_ARRAY_H
#define COMPRESS_IR_MEMORY_ARRAY_H

#include "ir/status.h"

#include <stddef.h>

/* Puts `count` things of `size` zeroed bytes into the pointer at `out`, to be freed with
 * free(); never NULL, also of none. Fails with STATUS_MEMORY, also where the product is
 * more than there can be, and says that it was for `what`; the pointer is NULL then. */
Status memory_array(void *out, size_t count, size_t size, const char *what, Diag *diag);

/* So many things of the type that the pointer at `out` points to. */
#define MEMORY_ARRAY(out, count, what, diag)                                             \
    memory_array((out), (count), sizeof **(out), (what), (diag))

#endif
