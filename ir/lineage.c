/* Lineage: see lineage.h. */
#include "ir/lineage.h"

#include <limits.h>
#include <string.h>

bool lineage_is_valid(const Lineage *lineage) {
    for (int i = 0; i < lineage->count; i++) {
        const IndexRange *range = &lineage->ranges[i];
        if (range->first < 0 || range->last < range->first) return false;
        if (i > 0 && range->first - range[-1].last <= 1) return false;
    }
    return !lineage->lost || lineage->count == 0;
}

int64_t lineage_size(const Lineage *lineage) {
    int64_t size = 0;
    for (int i = 0; i < lineage->count; i++) {
        const IndexRange *range = &lineage->ranges[i];
        if (__builtin_add_overflow(size, range->last - range->first, &size) ||
            __builtin_add_overflow(size, 1, &size))
            return INT64_MAX;
    }
    return size;
}

int64_t lineage_index(const Lineage *lineage, int64_t i) {
    for (int r = 0; r < lineage->count; r++) {
        const IndexRange *range = &lineage->ranges[r];
        if (i <= range->last - range->first) return range->first + i;
        i -= range->last - range->first + 1;
    }
    return i;
}

/* Writes the ranges of the kept entries to `out` (NULL: counts only). */
static int write_ranges(IndexRange *out, const Lineage *before, const int64_t *keep,
                        int64_t count) {
    int from = 0, ranges = 0;
    int64_t start = 0; /* entry that before->ranges[from] starts with: entries increase */
    int64_t previous = 0;
    for (int64_t k = 0; k < count; k++) {
        const IndexRange *range = before->ranges;
        while (from < before->count &&
               keep[k] - start > range[from].last - range[from].first) {
            start += range[from].last - range[from].first + 1;
            from++;
        }
        const int64_t index =
            from < before->count ? range[from].first + keep[k] - start : keep[k];
        if (k == 0 || index != previous + 1) {
            if (out) out[ranges].first = index;
            ranges++;
        }
        if (out) out[ranges - 1].last = index;
        previous = index;
    }
    return ranges;
}

Lineage lineage_keep(Arena *arena, const Lineage *before, const int64_t *keep,
                     int64_t count) {
    if (before->lost) return *before;
    const int ranges = write_ranges(NULL, before, keep, count);
    IndexRange *out = ARENA_ARRAY(arena, IndexRange, (size_t)ranges);
    write_ranges(out, before, keep, count);
    return (Lineage){.ranges = out, .count = ranges};
}

Lineage lineage_copy(Arena *arena, const Lineage *lineage) {
    if (lineage->count == 0) return (Lineage){.lost = lineage->lost};
    IndexRange *copy = ARENA_ARRAY(arena, IndexRange, (size_t)lineage->count);
    memcpy(copy, lineage->ranges, (size_t)lineage->count * sizeof *copy);
    return (Lineage){.ranges = copy, .count = lineage->count};
}

void lineage_print(Text *text, const Lineage *lineage) {
    text_add(text, "[");
    for (int i = 0; i < lineage->count; i++) {
        const IndexRange *range = &lineage->ranges[i];
        text_add(text, "%s%lld", i ? ", " : "", (long long)range->first);
        if (range->last > range->first) text_add(text, "-%lld", (long long)range->last);
    }
    text_add(text, "]");
}
