/* Objective: the teacher, beside the student in one graph, or asked once for what is read
 * of it. See objective.h. */
#include "passes/training/objective.h"

#include "ir/rewrite.h"
#include "passes/measure.h"

#include <stdlib.h>
#include <string.h>

Status objective_add_teacher(Objective *o, Model *teacher, Diag *diag) {
    TRY(objective_check_task(o->ctx, teacher->graph, diag));
    o->teacher_graph = teacher->graph;
    const int count = graph_number(teacher->graph);
    o->teacher = ARENA_ARRAY(o->arena, Node *, (size_t)count);
    const int before = o->graph->storage_count;
    TRY(graph_import(o->graph, teacher->graph, "teacher.", o->teacher, diag));
    for (int i = before; i < o->graph->storage_count; i++)
        o->graph->storages[i]->frozen = true;
    /* It runs as in inference: what draws in training (dropout) is passed by. */
    for (const Node *node = o->teacher_graph->first; node; node = node->next) {
        if (!node_has_trait(node, OP_PASS_VALUE)) continue;
        Node *copy = o->teacher[node->id];
        graph_replace_uses(o->graph, copy, copy->in[0]);
        o->teacher[node->id] = copy->in[0];
    }
    return STATUS_OK;
}

Node *objective_teacher_node(const Objective *o, const Node *node) {
    return o->teacher[node->id];
}

/* ---- asked once ---- */

/* Most numbers of a sample, 1 KiB of memory, and of one whose embedding is read; and
 * samples of a batch when they are asked for. */
enum { REMEMBERED_NUMBERS = 256, REMEMBERED_EMBEDDING = 4096, REMEMBERED_BATCH = 32 };

/* What the parts read of the teacher: its nodes with a user that is not the teacher's.
 * Both arrays get them, as copies in the training graph and as the teacher's own. */
static int find_read(const Objective *o, Node **copies, Node **own) {
    const int count = graph_number(o->graph);
    Node **of = memory_alloc((size_t)count, sizeof *of); /* by copy; leaves left out */
    bool *needed = memory_alloc((size_t)count, sizeof *needed);
    int found = 0;
    for (Node *node = o->teacher_graph->first; node; node = node->next)
        if (o->teacher[node->id]->in_count > 0) of[o->teacher[node->id]->id] = node;
    for (int i = 0; i < o->part_count; i++) needed[o->part[i]->id] = true;
    for (Node *node = o->graph->last; node; node = node->prev) {
        if (!needed[node->id]) continue;
        if (of[node->id]) {
            copies[found] = node;
            own[found++] = of[node->id];
            continue;
        }
        for (int i = 0; i < node->in_count; i++)
            if (node->in[i]) needed[node->in[i]->id] = true;
    }
    free(needed);
    free(of);
    return found;
}

/* A sample's share of a value; false when it has none of a known size. */
static bool sample_type(Type *out, const Type *type, int64_t most) {
    if (type->rank < 1 || type->dim[0] != DIM_N || !dtype_is_real(type->dtype))
        return false;
    *out = (Type){.dtype = DTYPE_F32, .rank = type->rank - 1};
    for (int i = 0; i < out->rank; i++) {
        out->dim[i] = type->dim[i + 1];
        if (out->dim[i] < 1 || out->dim[i] > most) return false;
    }
    return true;
}

/* Columns for values; numbers of a sample, 0 when they are too many. */
static int64_t count_numbers(Arena *arena, Column *columns, Node *const *values,
                             int count, int64_t most) {
    int64_t numbers = 0;
    for (int i = 0; i < count; i++) {
        columns[i].name = arena_printf(arena, "teacher.%d", i);
        if (!sample_type(&columns[i].type, &values[i]->type, most)) return 0;
        numbers += type_count(&columns[i].type);
        if (numbers > most) return 0;
    }
    return numbers;
}

void objective_remember(Objective *o, const Batches *data, const TrainOptions *options) {
    const bool again = options->steps == 0 && options->epochs > 1;
    const bool alike = !options->augment && !(data && data->masked);
    if (!o->teacher || !again || !alike) return;
    const size_t most = (size_t)o->graph->node_count;
    Node **copies = ARENA_ARRAY(o->arena, Node *, most);
    o->remembered = ARENA_ARRAY(o->arena, Node *, most);
    o->remembered_column = ARENA_ARRAY(o->arena, Column, most);
    const int count = find_read(o, copies, o->remembered);
    const int64_t room =
        objective_embedding(o->teacher_graph) ? REMEMBERED_EMBEDDING : REMEMBERED_NUMBERS;
    const int64_t numbers =
        count_numbers(o->arena, o->remembered_column, copies, count, room);
    if (numbers == 0) return;
    o->remembered_count = count;
    tree_put_int(o->ctx->arena, o->ctx->record, "remembered", numbers);
    for (int i = 0; i < count; i++)
        graph_replace_uses(
            o->graph, copies[i],
            graph_input(o->graph, o->remembered_column[i].name, &copies[i]->type));
}

Status objective_ask_bytes(size_t *bytes, const Objective *o, Diag *diag) {
    Plan *plan = NULL;
    PlanOptions options = {.precision = PRECISION_F32,
                           .results = o->remembered,
                           .result_count = o->remembered_count};
    *bytes = 0;
    if (o->remembered_count == 0) return STATUS_OK;
    memcpy(options.sizes, measure_sizes, sizeof options.sizes);
    options.sizes[DIM_INDEX(DIM_N)] = REMEMBERED_BATCH;
    plan_fit_sizes(o->teacher_graph, options.results, options.result_count,
                   options.sizes);
    TRY(plan_create(&plan, o->teacher_graph, &options, diag));
    *bytes = plan_workspace_bytes(plan) * (size_t)o->ctx->threads;
    plan_destroy(plan);
    return STATUS_OK;
}

static float *remembered_value(const Objective *o, int column) {
    return (float *)(uintptr_t)buf_data(o->remembered_value[column]);
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
            memcpy(remembered_value(o, c) + what->index[i] * size, values[c] + i * size,
                   (size_t)size * sizeof(float));
    }
    return STATUS_OK;
}

Status objective_ask_teacher(Batches **out, Objective *o, const Batches *data,
                             Diag *diag) {
    const int count = o->remembered_count;
    *out = NULL;
    if (count == 0) return STATUS_OK;
    o->remembered_value = ARENA_ARRAY(o->arena, Buf *, (size_t)count);
    const float **values = ARENA_ARRAY(o->arena, const float *, (size_t)count);
    for (int i = 0; i < count; i++) {
        const int64_t size = type_count(&o->remembered_column[i].type);
        TRY(buf_create(&o->remembered_value[i],
                       (size_t)data->count * (size_t)size * sizeof(float), diag));
        values[i] = remembered_value(o, i);
    }
    TRY(forward_batches(o->teacher_graph, o->remembered, count, data, 0, REMEMBERED_BATCH,
                        o->ctx->threads, o->ctx->watch, keep_values, o, diag));
    *out = batches_extend(data, o->remembered_column, values, count);
    return STATUS_OK;
}
