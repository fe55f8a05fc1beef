/* Numbers with units: see units.h. */
#include "session/units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *text_grouped(Arena *arena, int64_t value) {
    char digits[32], out[48];
    snprintf(digits, sizeof digits, "%" PRIu64,
             value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
    size_t length = strlen(digits), n = 0;
    if (value < 0) out[n++] = '-';
    for (size_t i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) out[n++] = ',';
        out[n++] = digits[i];
    }
    return arena_strndup(arena, out, n);
}

/* Value with three significant digits and the largest unit that leaves at least 1. */
static const char *text_scaled(Arena *arena, double value, double base,
                               const char *const *units, int count) {
    int unit = 0;
    while (unit + 1 < count && value >= base * 0.9995) {
        value /= base;
        unit++;
    }
    int decimals = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    return arena_printf(arena, "%.*f %s", decimals, value, units[unit]);
}

const char *text_size(Arena *arena, int64_t bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    return text_scaled(arena, (double)bytes, 1024, units, 5);
}

const char *text_flops(Arena *arena, double flops) {
    static const char *const units[] = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"};
    return text_scaled(arena, flops, 1000, units, 5);
}

const char *text_seconds(Arena *arena, double seconds) {
    long whole = (long)(seconds + 0.5);
    if (seconds < 99.95) return arena_printf(arena, "%.2f s", seconds);
    if (whole < 3600) return arena_printf(arena, "%ld:%02ld", whole / 60, whole % 60);
    return arena_printf(arena, "%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60,
                        whole % 60);
}

bool size_parse(const char *text, int64_t *out) {
    static const char UNITS[] = "KMGT";
    char *end;
    errno = 0;
    double number = strtod(text, &end);
    if (end == text || errno != 0 || !(number >= 0)) return false;
    const char *unit = *end ? strchr(UNITS, *end) : NULL;
    const bool thousands = unit && strcmp(end + 1, "B") == 0;
    for (int i = 0; unit && i <= unit - UNITS; i++) number *= thousands ? 1000 : 1024;
    if (unit) end += thousands ? 2 : 1;
    if (unit && strcmp(end, "iB") == 0) end += 2;
    if (*end || number > 9e18) return false;
    *out = (int64_t)number;
    return true;
}
