/* Offsets of a plan's buffers: greedy best fit over lifetimes.
 *
 * Buffers are placed one after the other, each into the smallest gap between those that
 * are alive at the same time. Two orders are tried, by size and by start, and the smaller
 * workspace wins. */
#include "exec/plan/plan_internal.h"

#include <stdlib.h>
#include <string.h>

/* A buffer to place; `key` orders the work, larger first. */
typedef struct Item {
    size_t key;
    int buffer;
} Item;

static int compare_items(const void *a, const void *b) {
    const Item *x = a, *y = b;
    if (x->key != y->key) return x->key > y->key ? -1 : 1;
    return x->buffer - y->buffer;
}

static bool overlap(const Buffer *a, const Buffer *b) {
    return a->first <= b->last && b->first <= a->last;
}

/* Offset of the smallest gap that holds `buffer`, else the end of what is in its way.
 * `placed` is sorted by offset. */
static size_t find_gap(const Buffer *buffers, const Buffer *buffer, const int *placed,
                       int count) {
    size_t end = 0, best = 0, best_gap = SIZE_MAX;
    for (int i = 0; i < count; i++) {
        const Buffer *other = &buffers[placed[i]];
        if (!overlap(buffer, other)) continue;
        if (other->offset > end) {
            size_t gap = other->offset - end;
            if (gap >= buffer->bytes && gap < best_gap) best = end, best_gap = gap;
        }
        if (other->offset + other->bytes > end) end = other->offset + other->bytes;
    }
    return best_gap < SIZE_MAX ? best : end;
}

static void insert_sorted(const Buffer *buffers, int *placed, int count, int buffer) {
    int at = count;
    while (at > 0 && buffers[placed[at - 1]].offset > buffers[buffer].offset) {
        placed[at] = placed[at - 1];
        at--;
    }
    placed[at] = buffer;
}

/* Places all items in order; false when the total does not fit into an address. */
static bool place_items(Buffer *buffers, Item *items, int count, int *placed,
                        size_t *total) {
    qsort(items, (size_t)count, sizeof *items, compare_items);
    *total = 0;
    for (int i = 0; i < count; i++) {
        Buffer *buffer = &buffers[items[i].buffer];
        buffer->offset = find_gap(buffers, buffer, placed, i);
        size_t end = buffer->offset + buffer->bytes;
        if (end > PTRDIFF_MAX / 2) return false;
        if (end > *total) *total = end;
        insert_sorted(buffers, placed, i, items[i].buffer);
    }
    return true;
}

Status plan_place(Plan *plan, Diag *diag) {
    size_t count = (size_t)plan->buffer_count, by_size, by_start;
    Item *items = ARENA_ARRAY(plan->arena, Item, count);
    int *placed = ARENA_ARRAY(plan->arena, int, count);
    Buffer *other = ARENA_ARRAY(plan->arena, Buffer, count);
    if (count > 0) memcpy(other, plan->buffers, count * sizeof *other);
    for (size_t i = 0; i < count; i++) items[i] = (Item){plan->buffers[i].bytes, (int)i};
    bool fits = place_items(plan->buffers, items, (int)count, placed, &by_size);
    for (size_t i = 0; i < count; i++)
        items[i] = (Item){(size_t)(plan->end - other[i].first), (int)i};
    fits = place_items(other, items, (int)count, placed, &by_start) && fits;
    if (!fits)
        return diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL,
                         "the plan for %lld samples needs more memory than there can be",
                         (long long)plan->samples);
    if (by_start < by_size) plan->buffers = other;
    plan->bytes = by_start < by_size ? by_start : by_size;
    return STATUS_OK;
}
