/* Text windows: see text_windows.h. */
#include "io/datasets/text_windows.h"

#include "io/datasets/dataset.h"

enum { COLUMN_IDS, COLUMN_MASK, COLUMN_LABELS, COLUMNS };

static const Column WINDOW_COLUMNS[COLUMNS] = {
    {"input_ids", {DTYPE_I32, 1, {DIM_T}}},
    {"attention_mask", {DTYPE_I32, 1, {DIM_T}}},
    {DATA_LABELS, {DTYPE_I32, 1, {DIM_T}}},
};

typedef struct TextWindows {
    Batches base;
    Arena *arena; /* holds this struct */
    const int32_t *tokens;
    int64_t count, length, stride;
} TextWindows;

/* A last window of one token predicts nothing, so there is none. */
static int64_t window_count(int64_t count, int64_t length, int64_t stride) {
    const int64_t more = count > length ? (count - length + stride - 1) / stride : 0;
    return more + 1 - (count - more * stride < 2);
}

/* Tokens of a window that are read: all but its last. */
static int64_t window_length(const Batches *self, int64_t index) {
    const TextWindows *w = (const TextWindows *)self;
    const int64_t left = w->count - index * w->stride;
    return (left < w->length ? left : w->length) - 1;
}

/* Of a window's tokens, the first that is predicted. */
static int64_t first_predicted(const TextWindows *w, int64_t index) {
    const int64_t known = w->length - w->stride;
    return index > 0 && known > 1 ? known : 1;
}

static Status window_fetch(const Batches *self, const Fetch *what, void *const *dst,
                           Diag *diag) {
    const TextWindows *w = (const TextWindows *)self;
    for (int64_t i = 0; i < what->n; i++) {
        const int64_t sample = what->index[i];
        TRY(dataset_check_tokens(self, sample, what->tokens, diag));
        const int32_t *from = w->tokens + sample * w->stride;
        const int64_t length = window_length(self, sample);
        const int64_t first = first_predicted(w, sample);
        int32_t *row[COLUMNS];
        for (int c = 0; c < COLUMNS; c++) row[c] = (int32_t *)dst[c] + i * what->tokens;
        for (int64_t t = 0; t < what->tokens; t++) {
            const bool inside = t < length;
            row[COLUMN_IDS][t] = inside ? from[t] : 0;
            row[COLUMN_MASK][t] = inside;
            row[COLUMN_LABELS][t] = inside && t + 1 >= first ? from[t + 1] : INDEX_SKIP;
        }
    }
    return STATUS_OK;
}

static void windows_destroy(Batches *self) {
    arena_destroy(((TextWindows *)self)->arena);
}

Batches *text_windows_create(const char *name, const int32_t *tokens, int64_t count,
                             int64_t length, int64_t stride) {
    Arena *arena = arena_create();
    TextWindows *w = ARENA_NEW(arena, TextWindows);
    *w = (TextWindows){.arena = arena,
                       .tokens = tokens,
                       .count = count,
                       .length = length,
                       .stride = stride};
    w->base = (Batches){.name = name,
                        .count = window_count(count, length, stride),
                        .columns = WINDOW_COLUMNS,
                        .column_count = COLUMNS,
                        .length = window_length,
                        .fetch = window_fetch,
                        .destroy = windows_destroy};
    w->base.max_tokens = window_length(&w->base, 0);
    return &w->base;
}
