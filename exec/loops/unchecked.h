/* Loops of products under sanitizers. Checking each number would take three quarters of
 * the time of a training run: a tile's loop is UNCHECKED, with what it inlines, and
 * before it `touch`, which is checked, reads the ends of everything that the loop reads
 * and writes. */
#ifndef COMPRESS_EXEC_LOOPS_UNCHECKED_H
#define COMPRESS_EXEC_LOOPS_UNCHECKED_H

#include "ir/sanitized.h"

#include <stdint.h>

#if SANITIZED
#define UNCHECKED __attribute__((no_sanitize("address"), no_sanitize("undefined")))
#else
#define UNCHECKED
#endif

/* What a tile's loop consists of. */
#define ALWAYS_INLINE UNCHECKED static inline __attribute__((always_inline))

/* The first and the last of `bytes` bytes; nothing where there are none. */
static inline void touch(const void *from, int64_t bytes) {
    const volatile char *at = from;
    if (bytes <= 0) return;
    (void)at[0];
    (void)at[bytes - 1];
}

#endif
