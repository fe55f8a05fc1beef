/* Human-readable numbers: digits in groups of three, and units. Texts are put into the
 * arena.
 */
#ifndef COMPRESS_SESSION_UNITS_H
#define COMPRESS_SESSION_UNITS_H

#include "ir/arena.h"

#include <stdbool.h>
#include <stdint.h>

/* "79,114". */
const char *text_grouped(Arena *arena, int64_t value);

/* "1.21 MiB", three digits. */
const char *text_size(Arena *arena, int64_t bytes);

/* "12.3 MFLOP", three digits. */
const char *text_flops(Arena *arena, double flops);

/* "0.42 s", from 100 seconds "3:07", from an hour "1:02:03". */
const char *text_seconds(Arena *arena, double seconds);

/* Reads a size: "500M", "10G", "1.5T", units of 1024, also "MiB"; "60MB", units of 1000;
 * or bytes. False if it is not a size. */
bool size_parse(const char *text, int64_t *out);

#endif
