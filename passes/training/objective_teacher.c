/* The teacher of an objective: imported and frozen, and asked once where that is enough.
 * See objective.h. */
#include "ir/rewrite.h"
#include "passes/training/objective.h"

#include <stdlib.h>
#include <string.h>

/* The teacher runs as in inference: what draws in training (dropout) is passed by. */
static void still_teacher(Objective *o) {
    for (const Node *node = o->teacher_graph->first; node; node = node->next) {
        if (!(node->op->flags & OP_PASS_VALUE)) continue;
        Node *copy = o->teacher[node->id];
        graph_replace_uses(o->graph, copy, copy->in[0]);
        o->teacher[node->id] = copy->in[0];
    }
}

Status objective_add_teacher(Objective *o, Model *teacher, Diag *diag) {
    o->teacher_graph = teacher->graph;
    const int count = graph_number(teacher->graph);
    o->teacher = ARENA_ARRAY(o->arena, Node *, (size_t)count);
    const int before = o->graph->storage_count;
    TRY(graph_import(o->graph, teacher->graph, "teacher.", o->teacher, diag));
    for (int i = before; i < o->graph->storage_count; i++)
        o->graph->storages[i]->frozen = true;
    still_teacher(o);
    return STATUS_OK;
}

Node *objective_teacher_node(const Objective *o, const Node *node) {
    return o->teacher[node->id];
}

/* ---- asked once ---- */

/* Most numbers of a sample: 1 KiB of memory. */
enum { REMEMBERED_NUMBERS = 256 };

/* What the parts read of the teacher: its nodes with a user that is not the teacher's. */
static void find_read(Objective *o) {
    const int count = graph_number(o->graph);
    bool *teacher = memory_alloc((size_t)count, sizeof *teacher);
    bool *needed = memory_alloc((size_t)count, sizeof *needed);
    const int theirs = o->teacher_graph->node_count;
    for (int i = 0; i < theirs; i++)
        teacher[o->teacher[i]->id] = o->teacher[i]->in_count > 0;
    for (int i = 0; i < o->part_count; i++) needed[o->part[i]->id] = true;
    o->remembered = ARENA_ARRAY(o->arena, Node *, (size_t)count);
    for (Node *node = o->graph->last; node; node = node->prev) {
        if (!needed[node->id]) continue;
        if (teacher[node->id]) {
            o->remembered[o->remembered_count++] = node;
            continue;
        }
        for (int i = 0; i < node->in_count; i++)
            if (node->in[i]) needed[node->in[i]->id] = true;
    }
    free(needed);
    free(teacher);
}

/* A sample's share of a value; false when it has none of a known size. */
static bool sample_type(Type *out, const Type *type) {
    if (type->rank < 1 || type->dim[0] != DIM_N || !dtype_is_real(type->dtype))
        return false;
    *out = (Type){.dtype = DTYPE_F32, .rank = type->rank - 1};
    for (int i = 0; i < out->rank; i++) {
        out->dim[i] = type->dim[i + 1];
        if (out->dim[i] < 1 || out->dim[i] > REMEMBERED_NUMBERS) return false;
    }
    return true;
}

/* Names the columns; numbers of a sample, 0 when they are too many. */
static int64_t count_numbers(Objective *o) {
    int64_t numbers = 0;
    o->remembered_column = ARENA_ARRAY(o->arena, Column, (size_t)o->remembered_count);
    for (int i = 0; i < o->remembered_count; i++) {
        Column *column = &o->remembered_column[i];
        column->name = arena_printf(o->arena, "teacher.%d", i);
        if (!sample_type(&column->type, &o->remembered[i]->type)) return 0;
        numbers += type_count(&column->type);
        if (numbers > REMEMBERED_NUMBERS) return 0;
    }
    return numbers;
}

void objective_remember(Objective *o, const Batches *data, const TrainOptions *options) {
    const bool again = options->steps == 0 && options->epochs > 1;
    const bool alike = !options->augment && !(data && data->masked);
    if (!o->teacher || !again || !alike) return;
    find_read(o);
    const int64_t numbers = count_numbers(o);
    if (numbers == 0) o->remembered_count = 0;
    if (numbers > 0) tree_put_int(o->ctx->arena, o->ctx->record, "remembered", numbers);
    for (int i = 0; i < o->remembered_count; i++) {
        Node *read = o->remembered[i];
        const Column *column = &o->remembered_column[i];
        graph_replace_uses(o->graph, read,
                           graph_input(o->graph, column->name, &read->type));
    }
}

/* ForwardSink: puts the results of some samples in their places. */
static Status keep_values(void *self, const Fetch *what, const float *const *values,
                          const void *const *columns, Diag *diag) {
    (void)columns;
    (void)diag;
    const Objective *o = self;
    for (int c = 0; c < o->remembered_count; c++) {
        const int64_t size = type_count(&o->remembered_column[c].type);
        for (int64_t i = 0; i < what->n; i++)
            memcpy(o->remembered_value[c] + what->index[i] * size, values[c] + i * size,
                   (size_t)size * sizeof(float));
    }
    return STATUS_OK;
}

Status objective_ask_teacher(Batches **out, Objective *o, const Batches *data,
                             const TrainOptions *options, Diag *diag) {
    const int count = o->remembered_count;
    *out = NULL;
    if (count == 0) return STATUS_OK;
    o->remembered_value = ARENA_ARRAY(o->arena, float *, (size_t)count);
    for (int i = 0; i < count; i++)
        o->remembered_value[i] =
            memory_alloc((size_t)data->count * sizeof(float),
                         (size_t)type_count(&o->remembered_column[i].type));
    TRY(forward_batches(o->graph, o->remembered, count, data, 0, options->batch_size,
                        o->ctx->threads, o->ctx->watch, keep_values, o, diag));
    *out = batches_extend(data, o->remembered_column,
                          (const float *const *)o->remembered_value, count);
    return STATUS_OK;
}
