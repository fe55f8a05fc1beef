/* Step graph: see exec/generate/step_graph.h.
 *
 *     collect_steps   nodes to steps, in graph order; what cannot be generated with
 *     mark_block      which of them a prompt's earlier tokens need
 *     check_plan      position tables and sizes at full length; what ids may be
 *     pack_weights    the weights, in the order of the steps */
#include "exec/generate/step_graph.h"

#include "exec/linalg/packed.h"
#include "exec/plan/plan_build.h"

#include <stdlib.h>
#include <string.h>

/* Bytes that packed weights are aligned to, and floats that values are. */
enum { WEIGHT_ALIGNMENT = 64, VALUE_ALIGNMENT = 16 };

struct PackedWeight {
    PackedWeight *next;
    const Storage *storage;
    bool packed, transposed; /* not packed: plain float */
    StepWeights kind;        /* packed */
    Matrix matrix;           /* packed */
    size_t at, bytes;        /* in StepGraph.weights */
};

/* What is known while nodes become steps. */
typedef struct StepBuilder {
    StepGraph *g;
    bool *of_target; /* by Node.id: depends on the target's tokens */
    int *value_of;   /* by Node.id: index of the value of a node that was computed */
} StepBuilder;

static Status fail_node(const Node *node, Diag *diag, const char *what) {
    Text type = {0};
    type_print(&type, &node->type);
    const Status status = diag_fail(diag, STATUS_MODEL, node->loc, NULL,
                                    "%s: %s, found %s", node->op->name, what, type.data);
    text_free(&type);
    return status;
}

static Status fail_op(const Node *node, Diag *diag) {
    Status status =
        diag_fail(diag, STATUS_MODEL, node->loc, NULL,
                  "%s: expected an op that can run token by token", node->op->name);
    diag_hint(diag, "generation needs a causal language model");
    return status;
}

/* ---- what can be a step ---- */

/* Everything generation computes is one row for each token: [N, T, ...]. */
static Status check_value(const Node *node, Diag *diag) {
    const Type *type = &node->type;
    const bool rows = type->rank >= 3 && type->dim[0] == DIM_N && type->dim[1] == DIM_T;
    if (rows && dtype_is_real(type->dtype) && step_width(type) > 0) {
        for (int i = 2; i < type->rank; i++)
            if (type->dim[i] < 0) return fail_node(node, diag, "expected known widths");
        return STATUS_OK;
    }
    return fail_node(node, diag, "expected values of tokens [N, T, ...] to generate");
}

static Status check_input(const StepGraph *g, const Node *node, Diag *diag) {
    const bool source = g->options.has_source;
    const char *mask = source ? "decoder_attention_mask" : "attention_mask";
    const bool known = node == g->ids || strcmp(node->name, mask) == 0;
    const Type want = {.dtype = DTYPE_I32, .rank = 2, .dim = {DIM_N, DIM_T}};
    if (known && type_equal(&node->type, &want)) return STATUS_OK;
    Text type = {0};
    type_print(&type, &node->type);
    const Status status =
        diag_fail(diag, STATUS_MODEL, node->loc, node->name,
                  "expected a model whose only %s is %s i32[N, T], found %s",
                  source ? "input of the target" : "input",
                  source ? "decoder_input_ids" : "input_ids", type.data);
    text_free(&type);
    return status;
}

/* Whether a value is computed before the target's tokens are known. */
static bool is_of_source(const StepBuilder *c, const Node *node) {
    return c->g->options.has_source && !node->storage && !c->of_target[node->id];
}

/* The kernel of a node: of those for a source, where an operand is of it. NULL = it
 * cannot run token by token: it has none, or takes another operand for a value of the
 * source than is one. */
static const StepKernel *find_kernel(const StepBuilder *c, const Node *node) {
    const StepKernel *kernel = kernel_of(kernels_for(PRECISION_F32), node->op)->step;
    if (!kernel) return NULL;
    bool reads_source = false;
    for (int i = 0; i < node->in_count; i++)
        reads_source |= node->in[i] && is_of_source(c, node->in[i]);
    if (kernel->source && reads_source) kernel = kernel->source;
    for (int i = 0; i < node->in_count; i++) {
        const Node *in = node->in[i];
        const bool source = (kernel->sources & READS_IN(i)) != 0;
        if (!in || in->storage) continue;
        if (is_of_source(c, in) != source) return NULL;
        if (source &&
            (in->type.rank < 2 || in->type.dim[0] != DIM_N || in->type.dim[1] != DIM_S))
            return NULL;
    }
    return kernel;
}

/* ---- operands ---- */

/* How a node's packed operand is kept: as it is stored, where that is quantised and the
 * node can read it so. */
static StepWeights kind_of(const StepGraph *g, const Node *node, int operand) {
    const Tensor *tensor = &node->in[operand]->storage->tensor;
    const int form = packed_form_of(node, operand);
    return form >= 0 && dtype_is_quantised(tensor->dtype) ? packed_kind(tensor, form)
                                                          : g->options.weights;
}

/* The weight of a storage, read in the way of `like`; they are listed in the order of
 * first use, which is the order they lie in. */
static PackedWeight *need_weight(StepGraph *g, const PackedWeight *like) {
    for (PackedWeight *w = g->first_weight; w; w = w->next)
        if (w->storage == like->storage && w->packed == like->packed &&
            w->transposed == like->transposed && w->kind == like->kind)
            return w;
    PackedWeight *weight = ARENA_NEW(g->arena, PackedWeight);
    *weight = *like;
    if (g->last_weight)
        g->last_weight->next = weight;
    else
        g->first_weight = weight;
    g->last_weight = weight;
    if (weight->packed)
        weight->matrix =
            matrix_of(&weight->storage->tensor, weight->transposed, weight->kind);
    return weight;
}

static Status bind_param(StepGraph *g, TokenStep *step, int i, Diag *diag) {
    const Storage *storage = step->node->in[i]->storage;
    const Tensor *tensor = &storage->tensor;
    if (!dtype_is_real(tensor->dtype))
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, storage->name,
                         "expected weights to run the model, found integers");
    step->in[i].from = FROM_WEIGHT;
    if (step->kernel->tables & READS_IN(i)) {
        step->in[i].data = tensor;
        const int64_t width = tensor->dim[tensor->rank - 1];
        const int64_t rows = width > 0 ? tensor_count(tensor) / width : 0;
        g->row_bytes += tensor_bytes(tensor) / (size_t)(rows > 0 ? rows : 1);
        return STATUS_OK;
    }
    PackedWeight weight = {.storage = storage,
                           .packed = (step->kernel->matrices & READS_IN(i)) != 0};
    if (weight.packed) {
        weight.transposed =
            step->kernel->is_transposed && step->kernel->is_transposed(step->node);
        weight.kind = kind_of(g, step->node, i);
    }
    step->in[i].weight = need_weight(g, &weight);
    return STATUS_OK;
}

static Status bind_operand(const StepBuilder *c, TokenStep *step, int i, Diag *diag) {
    StepGraph *g = c->g;
    const Node *node = step->node->in[i];
    TokenOperand *in = &step->in[i];
    *in = (TokenOperand){.from = FROM_NOTHING};
    if (!node) return STATUS_OK;
    if (node->storage) return bind_param(g, step, i, diag);
    if (is_of_source(c, node)) {
        in->from = FROM_SOURCE;
        while (in->index < g->source_count && g->source_values[in->index] != node)
            in->index++; /* they are listed in the order of first use */
        if (in->index == g->source_count)
            g->source_values[g->source_count++] = (Node *)(uintptr_t)node;
        return STATUS_OK;
    }
    if ((step->kernel->matrices | step->kernel->tables) & READS_IN(i))
        return diag_fail(diag, STATUS_MODEL, step->node->loc, NULL,
                         "%s: operand '%s': expected weights, found a computed value",
                         step->node->op->name, step->node->op->operands[i].name);
    in->width = 1;
    if (node->name) {
        in->from = node == g->ids ? FROM_IDS : FROM_MASK;
        return STATUS_OK;
    }
    in->from = FROM_VALUE;
    in->index = c->value_of[node->id];
    in->width = g->values[in->index].width;
    g->values[in->index].last = g->step_count;
    return STATUS_OK;
}

/* ---- steps ---- */

static Status add_step(const StepBuilder *c, const Node *node, const StepKernel *kernel,
                       Diag *diag) {
    StepGraph *g = c->g;
    TokenStep *step = &g->steps[g->step_count];
    *step = (TokenStep){.node = node, .kernel = kernel};
    if (node->in_count > STEP_OPERANDS_MAX) return fail_op(node, diag);
    for (int i = 0; i < node->in_count; i++) TRY(bind_operand(c, step, i, diag));
    if (kernel->units) step->units = kernel->units(node);
    g->values[g->step_count] =
        (TokenValue){.width = step_width(&node->type), .last = g->step_count};
    c->value_of[node->id] = g->step_count++;
    return STATUS_OK;
}

static Status add_node(const StepBuilder *c, const Node *node, Diag *diag) {
    if (node->storage || is_of_source(c, node)) return STATUS_OK;
    if (node_is_leaf(node)) return check_input(c->g, node, diag);
    const StepKernel *kernel = find_kernel(c, node);
    if (!kernel) return fail_op(node, diag);
    TRY(check_value(node, diag));
    if (kernel->check) TRY(kernel->check(node, diag));
    if (kernel->share != STEP_ALIAS) return add_step(c, node, kernel, diag);
    c->value_of[node->id] = c->value_of[node->in[0]->id];
    return STATUS_OK;
}

/* A node's value belongs to the step that made it, but for an alias to that of its
 * operand: value s is step s's. */
static Status collect_steps(StepGraph *g, Diag *diag) {
    Graph *graph = g->graph;
    const size_t count = (size_t)graph_number(graph);
    const StepBuilder c = {.g = g,
                           .of_target = ARENA_ARRAY(g->arena, bool, count),
                           .value_of = ARENA_ARRAY(g->arena, int, count)};
    bool *needed = ARENA_ARRAY(g->arena, bool, count);
    g->source_values = ARENA_ARRAY(g->arena, Node *, count);
    g->steps = ARENA_ARRAY(g->arena, TokenStep, count);
    g->values = ARENA_ARRAY(g->arena, TokenValue, count);
    for (const Node *node = graph->first; node; node = node->next) {
        bool *mark = &c.of_target[node->id];
        *mark = node == g->ids ||
                (node->name && strcmp(node->name, "decoder_attention_mask") == 0);
        for (int i = 0; i < node->in_count; i++)
            if (node->in[i] && c.of_target[node->in[i]->id]) *mark = true;
    }
    needed[g->logits->id] = true;
    for (const Node *node = graph->last; node; node = node->prev)
        for (int i = 0; needed[node->id] && i < node->in_count; i++)
            if (node->in[i]) needed[node->in[i]->id] = true;
    for (const Node *node = graph->first; node; node = node->next)
        if (needed[node->id]) TRY(add_node(&c, node, diag));
    if (g->step_count == 0 || node_is_leaf(g->logits))
        return fail_node(g->logits, diag, "expected logits that are computed");
    g->logits_value = c.value_of[g->logits->id];
    g->values[g->logits_value].last = g->step_count;
    return STATUS_OK;
}

/* From the end: a state, or an operand of something that is needed. */
static void mark_block(StepGraph *g) {
    for (int s = g->step_count - 1; s >= 0; s--) {
        TokenStep *step = &g->steps[s];
        step->block = step->kernel->state_bytes || g->values[s].wanted;
        for (int i = 0; step->block && i < step->node->in_count; i++)
            if (step->in[i].from == FROM_VALUE)
                g->values[step->in[i].index].wanted = true;
    }
}

static Status check_plan(StepGraph *g, Diag *diag) {
    Plan *plan = NULL;
    Node *logits = (Node *)(uintptr_t)g->logits;
    const PlanOptions options = {.sizes = {[DIM_INDEX(DIM_N)] = 1,
                                           [DIM_INDEX(DIM_T)] = g->options.capacity,
                                           [DIM_INDEX(DIM_S)] = 1},
                                 .results = &logits,
                                 .result_count = 1};
    TRY(plan_create(&plan, g->graph, &options, diag));
    g->index_limit = plan_index_limit(plan, g->ids);
    plan_destroy(plan);
    return STATUS_OK;
}

/* ---- weights ---- */

static Status check_weights(const StepGraph *g, Diag *diag) {
    for (int s = 0; s < g->step_count; s++)
        for (int i = 0; i < g->steps[s].node->in_count; i++) {
            const Node *in = g->steps[s].node->in[i];
            if (in && in->storage && !tensor_data(&in->storage->tensor))
                return diag_fail(diag, STATUS_MODEL, LOC_NONE, in->storage->name,
                                 "expected weights to run the model, found a shape only");
        }
    return STATUS_OK;
}

/* One after the other, as steps read them: a token streams all of them once, so that the
 * processor's prefetcher runs through one piece of memory. */
static Status pack_weights(StepGraph *g, Diag *diag) {
    size_t total = WEIGHT_ALIGNMENT;
    for (PackedWeight *w = g->first_weight; w; w = w->next) {
        w->at = total;
        w->bytes = w->packed ? matrix_bytes(&w->matrix)
                             : (size_t)tensor_count(&w->storage->tensor) * sizeof(float);
        total += (w->bytes + WEIGHT_ALIGNMENT - 1) / WEIGHT_ALIGNMENT * WEIGHT_ALIGNMENT;
    }
    TRY(buf_create(&g->weights, total, diag));
    char *base = (char *)(uintptr_t)buf_data(g->weights);
    for (PackedWeight *w = g->first_weight; w; w = w->next) {
        const Tensor *tensor = &w->storage->tensor;
        void *data = base + w->at;
        if (w->packed) {
            matrix_pack(&w->matrix, tensor, w->transposed, data);
            w->matrix.data = data;
        } else {
            tensor_read_f32(tensor, 0, tensor_count(tensor), data);
        }
    }
    for (int s = 0; s < g->step_count; s++)
        for (int i = 0; i < g->steps[s].node->in_count; i++) {
            TokenOperand *in = &g->steps[s].in[i];
            if (in->weight)
                in->data = in->weight->packed ? (const void *)&in->weight->matrix
                                              : base + in->weight->at;
        }
    return STATUS_OK;
}

/* ---- making ---- */

/* Cuts the graph into steps, all but their weights. */
static Status cut(StepGraph *g, Diag *diag) {
    const char *ids = g->options.has_source ? "decoder_input_ids" : "input_ids";
    g->logits = graph_output(g->graph, OUTPUT_LOGITS);
    g->ids = graph_find_input(g->graph, ids);
    if (!g->logits || !g->ids)
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                         "expected a model with input %s and output logits to generate, "
                         "found none called %s",
                         ids, g->ids ? OUTPUT_LOGITS : ids);
    TRY(collect_steps(g, diag));
    mark_block(g);
    return check_plan(g, diag);
}

/* A graph that is not cut yet. */
static StepGraph *begin(Graph *graph, const StepGraphOptions *options) {
    StepGraph *g = memory_alloc(1, sizeof *g);
    *g = (StepGraph){.arena = arena_create(), .graph = graph, .options = *options};
    atomic_init(&g->references, 1);
    return g;
}

Status step_graph_check(Graph *graph, const StepGraphOptions *options, Diag *diag) {
    StepGraph *g = begin(graph, options);
    const Status status = cut(g, diag);
    step_graph_destroy(g);
    return status;
}

Status step_graph_create(StepGraph **out, Graph *graph, const StepGraphOptions *options,
                         Diag *diag) {
    StepGraph *g = begin(graph, options);
    Status status = cut(g, diag);
    if (status == STATUS_OK) status = check_weights(g, diag);
    if (status == STATUS_OK) status = pack_weights(g, diag);
    if (status == STATUS_OK)
        *out = g;
    else
        step_graph_destroy(g);
    return status;
}

StepGraph *step_graph_retain(StepGraph *graph) {
    atomic_fetch_add_explicit(&graph->references, 1, memory_order_relaxed);
    return graph;
}

void step_graph_destroy(StepGraph *graph) {
    if (!graph ||
        atomic_fetch_sub_explicit(&graph->references, 1, memory_order_acq_rel) > 1)
        return;
    buf_release(graph->weights);
    arena_destroy(graph->arena);
    free(graph);
}

/* ---- questions ---- */

int64_t step_graph_vocabulary(const StepGraph *graph) {
    return graph->values[graph->logits_value].width;
}

size_t step_graph_weight_bytes(const StepGraph *graph) {
    size_t bytes = graph->row_bytes;
    for (const PackedWeight *w = graph->first_weight; w; w = w->next) bytes += w->bytes;
    return bytes;
}

int64_t step_graph_scratch(const StepGraph *graph, int64_t count) {
    int64_t most = 0;
    for (int s = 0; s < graph->step_count; s++) {
        const TokenStep *step = &graph->steps[s];
        if (!step->kernel->scratch_floats) continue;
        const int64_t floats =
            step->kernel->scratch_floats(step->node, graph->options.capacity, count);
        if (floats > most) most = floats;
    }
    return most;
}

/* ---- memory for values ---- */

ValuePool value_pool_open(Arena *arena, const StepGraph *graph) {
    return (ValuePool){.slots =
                           ARENA_ARRAY(arena, ValueSlot, (size_t)graph->step_count + 1)};
}

int64_t value_pool_take(ValuePool *pool, int64_t floats, int now, int until) {
    ValueSlot *best = NULL;
    for (int i = 0; i < pool->count; i++) {
        ValueSlot *slot = &pool->slots[i];
        if (slot->free <= now && slot->floats >= floats &&
            (!best || slot->floats < best->floats))
            best = slot;
    }
    if (!best) {
        best = &pool->slots[pool->count++];
        *best = (ValueSlot){.at = pool->floats,
                            .floats = (floats + VALUE_ALIGNMENT - 1) / VALUE_ALIGNMENT *
                                      VALUE_ALIGNMENT};
        pool->floats += best->floats;
    }
    best->free = until;
    return best->at;
}
