/* Numbers for people: digits in groups of three, and units. Each is put into the arena.
 */
#ifndef COMPRESS_SESSION_UNITS_H
#define COMPRESS_SESSION_UNITS_H

#include "ir/arena.h"

#include <stdint.h>

/* "79,114". */
const char *text_grouped(Arena *arena, int64_t value);

/* "1.21 MiB", three digits. */
const char *text_size(Arena *arena, int64_t bytes);

/* "12.3 MFLOP", three digits. */
const char *text_flops(Arena *arena, double flops);

/* "0.42 s", from 100 seconds "3:07", from an hour "1:02:03". */
const char *text_seconds(Arena *arena, double seconds);

#endif
