/* Labelled rows: see labelled_rows.h. */
#include "session/labelled_rows.h"

#include "exec/ops.h"
#include "ir/model_parts.h"
#include "ir/rewrite.h"
#include "passes/nodes.h"

#include <stdlib.h>
#include <string.h>

enum { COLUMN_IDS, COLUMN_MASK, COLUMN_LABELS, COLUMN_POSITIONS, COLUMNS };

static const Column ROW_COLUMNS[COLUMNS] = {
    {INPUT_IDS, {DTYPE_I32, 1, {DIM_T}}},
    {INPUT_MASK, {DTYPE_I32, 1, {DIM_T}}},
    {DATA_LABELS, {DTYPE_I32, 1, {DIM_M}}},
    {LABELLED_POSITIONS, {DTYPE_I32, 1, {DIM_M}}},
};

typedef struct LabelledRows {
    Batches base;
    Arena *arena; /* holds this struct */
    const Batches *data;
    int64_t first;
    int ids, mask, labels; /* columns of `data` */
    int64_t
        *most; /* by tokens up to max_tokens: labels of a sample with no more of them */
} LabelledRows;

static int64_t rows_length(const Batches *self, int64_t index) {
    const LabelledRows *rows = (const LabelledRows *)self;
    return rows->data->length(rows->data, rows->first + index);
}

static int64_t rows_masked(const Batches *self, int64_t tokens) {
    const LabelledRows *rows = (const LabelledRows *)self;
    return rows->most[tokens < self->max_tokens ? tokens : self->max_tokens];
}

/* ---- fetching ---- */

/* Puts the labels of one sample and their positions behind each other. */
static void compact(const int32_t *labels, int64_t tokens, int32_t *out, int32_t *at,
                    int64_t room) {
    int64_t count = 0;
    for (int64_t t = 0; t < tokens && count < room; t++) {
        if (labels[t] == INDEX_SKIP) continue;
        out[count] = labels[t];
        at[count++] = (int32_t)t;
    }
    for (; count < room; count++) {
        out[count] = INDEX_SKIP;
        at[count] = 0;
    }
}

/* Fetches samples of `data`, of every column: for each memory of its own, to be freed. */
static Status fetch_all(const LabelledRows *rows, const Fetch *what, void **columns,
                        Diag *diag) {
    for (int c = 0; c < rows->data->column_count; c++)
        columns[c] = memory_alloc((size_t)(what->n * what->tokens) + 1, sizeof(int32_t));
    return rows->data->fetch(rows->data, what, columns, diag);
}

static Status rows_fetch(const Batches *self, const Fetch *what, void *const *dst,
                         Diag *diag) {
    const LabelledRows *rows = (const LabelledRows *)self;
    const int64_t tokens = what->tokens, room = rows_masked(self, tokens);
    const size_t bytes = (size_t)(what->n * tokens) * sizeof(int32_t);
    const int count = rows->data->column_count;
    void **columns = memory_alloc((size_t)count, sizeof *columns);
    int64_t *index = memory_alloc((size_t)what->n, sizeof *index);
    Fetch inner = *what;
    for (int64_t i = 0; i < what->n; i++) index[i] = rows->first + what->index[i];
    inner.index = index;
    const Status status = fetch_all(rows, &inner, columns, diag);
    if (status == STATUS_OK) {
        memcpy(dst[COLUMN_IDS], columns[rows->ids], bytes);
        memcpy(dst[COLUMN_MASK], columns[rows->mask], bytes);
        for (int64_t i = 0; i < what->n; i++)
            compact((const int32_t *)columns[rows->labels] + i * tokens, tokens,
                    (int32_t *)dst[COLUMN_LABELS] + i * room,
                    (int32_t *)dst[COLUMN_POSITIONS] + i * room, room);
    }
    for (int c = 0; c < count; c++) free(columns[c]);
    free(columns);
    free(index);
    return status;
}

static void rows_destroy(Batches *self) {
    arena_destroy(((LabelledRows *)self)->arena);
}

/* ---- opening ---- */

/* Finds how many labels samples have. */
static Status count_labels(LabelledRows *rows, Diag *diag) {
    const Batches *data = rows->data;
    void **columns = ARENA_ARRAY(rows->arena, void *, (size_t)data->column_count);
    Status status = STATUS_OK;
    for (int64_t i = 0; i < rows->base.count && status == STATUS_OK; i++) {
        const int64_t sample = rows->first + i, length = data->length(data, sample);
        const Fetch what = {.index = &sample, .n = 1, .tokens = length};
        int64_t count = 0;
        status = fetch_all(rows, &what, columns, diag);
        const int32_t *labels = columns[rows->labels];
        for (int64_t t = 0; t < length && status == STATUS_OK; t++)
            count += labels[t] != INDEX_SKIP;
        if (count > rows->most[length]) rows->most[length] = count;
        for (int c = 0; c < data->column_count; c++) free(columns[c]);
    }
    rows->most[0] = 1; /* there is a row in any case */
    for (int64_t t = 1; t <= rows->base.max_tokens; t++)
        if (rows->most[t] < rows->most[t - 1]) rows->most[t] = rows->most[t - 1];
    return status;
}

Status labelled_rows_create(Batches **out, const Batches *data, int64_t first,
                            int64_t count, Diag *diag) {
    Arena *arena = arena_create();
    LabelledRows *rows = ARENA_NEW(arena, LabelledRows);
    *rows = (LabelledRows){.arena = arena,
                           .data = data,
                           .first = first,
                           .ids = batches_column(data, INPUT_IDS),
                           .mask = batches_column(data, INPUT_MASK),
                           .labels = batches_column(data, DATA_LABELS)};
    rows->base = (Batches){.name = data->name,
                           .count = count,
                           .columns = ROW_COLUMNS,
                           .column_count = COLUMNS,
                           .vocabulary = data->vocabulary,
                           .classes = data->classes,
                           .length = rows_length,
                           .max_tokens = data->max_tokens,
                           .masked = rows_masked,
                           .fetch = rows_fetch,
                           .destroy = rows_destroy};
    rows->most = ARENA_ARRAY(arena, int64_t, (size_t)data->max_tokens + 1);
    const Status status = count_labels(rows, diag);
    if (status == STATUS_OK)
        *out = &rows->base;
    else
        rows_destroy(&rows->base);
    return status;
}

/* ---- the head ---- */

/* Whether each row of [N, T, ...] is made of the same row of operand 0 and of weights,
 * wherever it stands. */
static bool is_by_row(const Node *node) {
    const bool row = node_is(node, &op_linear) || node_has_trait(node, OP_NORM) ||
                     node_maps_elements(node);
    for (int i = 1; i < node->in_count && row; i++)
        if (node->in[i] && !node->in[i]->storage) return false;
    return row && !node_is_leaf(node->in[0]) && node->in[0]->type.rank == 3;
}

Status labelled_rows_gather(bool *done, Graph *graph, Node *logits, Diag *diag) {
    const Type type = {.dtype = DTYPE_I32, .rank = 2, .dim = {DIM_N, DIM_M}};
    Node *lowest = NULL, *gathered;
    *done = false;
    for (Node *node = logits; is_by_row(node); node = node->in[0]) {
        lowest = node;
        *done |= node_is(node, &op_linear);
        if (graph_use_count(graph, node->in[0]) > 1) break;
    }
    if (!*done) return STATUS_OK;
    TRY(node_add(&gathered, graph, lowest, &op_gather_tokens,
                 (Node *[]){lowest->in[0], graph_input(graph, LABELLED_POSITIONS, &type)},
                 2, diag, NULL));
    lowest->in[0] = gathered;
    return graph_infer(graph, diag);
}
