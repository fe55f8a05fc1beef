/* Rounded: see exec/run/rounded.h. */
#include "exec/run/rounded.h"

#include "exec/linalg/bf16.h"
#include "exec/run/parallel.h"
#include "exec/run/params.h"
#include "ir/tensor.h"

#include <stdlib.h>

/* One storage that products take. */
typedef struct Entry {
    const Storage *storage;
    Bf16Matrix matrix;
    bool trained, done; /* whether it changes; whether it has been rounded */
} Entry;

struct Rounded {
    Entry *entries;
    int count;
    Buf *buf; /* of all */
};

/* The sides that a node needs of its weight, 0 = none: linears whose rows or weights
 * are rounded to fewer bits multiply those. */
static int sides_of(const PlanNode *node) {
    if (node->op != &op_linear || node->in[1].node < 0) return 0;
    const LinearAttrs *attrs = node->node->attrs;
    if (attrs->act != LINEAR_ACT_FLOAT || attrs->round) return 0;
    const bool dx = node->backward >= 0 && node->in[0].write != GRADIENT_NONE;
    const int y = attrs->transposed ? BF16_COLUMNS : BF16_ROWS;
    return dx ? BF16_ROWS | BF16_COLUMNS : y;
}

static Entry *find_entry(const Rounded *rounded, const Storage *storage) {
    for (int i = 0; i < rounded->count; i++)
        if (rounded->entries[i].storage == storage) return &rounded->entries[i];
    return NULL;
}

/* The entries that a plan needs, without memory for values; returns its bytes. */
static size_t list_entries(Rounded *rounded, const Plan *plan) {
    size_t bytes = 0;
    rounded->entries = memory_alloc((size_t)plan->node_count + 1, sizeof(Entry));
    for (int i = 0; i < plan->node_count; i++) {
        const PlanNode *node = &plan->nodes[i];
        const int sides = sides_of(node);
        if (!sides) continue;
        const PlanNode *weight = &plan->nodes[node->in[1].node];
        const Storage *storage = weight->node->storage;
        if (!storage) continue;
        Entry *entry = find_entry(rounded, storage);
        if (!entry) {
            const int64_t rows = weight->type.dim[0];
            entry = &rounded->entries[rounded->count++];
            *entry = (Entry){.storage = storage,
                             .matrix = {.rows = rows, .columns = weight->count / rows},
                             .trained = !storage->frozen};
        }
        entry->matrix.sides |= sides;
    }
    for (int i = 0; i < rounded->count; i++)
        bytes += bf16_bytes(&rounded->entries[i].matrix);
    return bytes;
}

Status rounded_create(Rounded **out, const Plan *plan, Diag *diag) {
    Rounded *rounded = memory_alloc(1, sizeof *rounded);
    const size_t bytes = list_entries(rounded, plan);
    const Status status = buf_create(&rounded->buf, bytes > 0 ? bytes : 1, diag);
    if (status != STATUS_OK) {
        rounded_destroy(rounded);
        return status;
    }
    char *at = (char *)(uintptr_t)buf_data(rounded->buf);
    for (int i = 0; i < rounded->count; i++) {
        rounded->entries[i].matrix.data = at;
        at += bf16_bytes(&rounded->entries[i].matrix);
    }
    *out = rounded;
    return STATUS_OK;
}

void rounded_destroy(Rounded *rounded) {
    if (!rounded) return;
    buf_release(rounded->buf);
    free(rounded->entries);
    free(rounded);
}

size_t rounded_bytes(const Plan *plan) {
    Rounded rounded = {0};
    const size_t bytes = list_entries(&rounded, plan);
    free(rounded.entries);
    return bytes;
}

typedef struct Update {
    const Rounded *rounded;
    const Params *params;
} Update;

static void update_entry(void *self, int64_t i, int worker) {
    const Update *update = self;
    Entry *entry = &update->rounded->entries[i];
    (void)worker;
    if (entry->done && !entry->trained) return;
    bf16_round(&entry->matrix, params_data(update->params, entry->storage));
    entry->done = true;
}

void rounded_update(Rounded *rounded, const Params *params, int threads) {
    Update update = {rounded, params};
    parallel_for(rounded->count, threads, update_entry, &update);
}

const Bf16Matrix *rounded_find(const Rounded *rounded, const Storage *storage) {
    const Entry *entry = rounded && storage ? find_entry(rounded, storage) : NULL;
    return entry ? &entry->matrix : NULL;
}
