/* Arrays that memory may not be there for: see memory_array.h. */
#include "ir/memory_array.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

Status memory_array(void *out, size_t count, size_t size, const char *what, Diag *diag) {
    size_t bytes;
    void *memory = NULL;
    if (!__builtin_mul_overflow(count, size, &bytes) && bytes <= PTRDIFF_MAX)
        memory = calloc(1, bytes > 0 ? bytes : 1);
    memcpy(out, &memory, sizeof memory); /* whatever it points to */
    if (memory) return STATUS_OK;
    return diag_fail(diag, STATUS_MEMORY, LOC_NONE, what,
                     "no memory for %zu times %zu bytes", count, size);
}
