/* Decoder: from nodes to steps. See exec/generate/decode_internal.h. */
#include "exec/generate/decode_internal.h"
#include "exec/plan/plan.h"

#include <string.h>

static Status fail_node(const Node *node, Diag *diag, const char *what) {
    Text type = {0};
    type_print(&type, &node->type);
    const Status status = diag_fail(diag, STATUS_MODEL, node->loc, NULL,
                                    "%s: %s, found %s", node->op->name, what, type.data);
    text_free(&type);
    return status;
}

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

static Status check_input(const Decoder *decoder, const Node *node, Diag *diag) {
    const char *mask = decoder->has_source ? "decoder_attention_mask" : "attention_mask";
    const bool known = node == decoder->ids || strcmp(node->name, mask) == 0;
    const Type want = {.dtype = DTYPE_I32, .rank = 2, .dim = {DIM_N, DIM_T}};
    if (known && type_equal(&node->type, &want)) return STATUS_OK;
    Text type = {0};
    type_print(&type, &node->type);
    const Status status =
        diag_fail(diag, STATUS_MODEL, node->loc, node->name,
                  "expected a model whose only %s is %s i32[N, T], found %s",
                  decoder->has_source ? "input of the target" : "input",
                  decoder->has_source ? "decoder_input_ids" : "input_ids", type.data);
    text_free(&type);
    return status;
}

/* ---- the source ---- */

/* Whether a value is computed before the target's tokens are known. */
static bool is_of_source(const Decoder *decoder, const Node *node) {
    return decoder->has_source && !node->storage && !decoder->of_target[node->id];
}

static bool reads_source(const Decoder *decoder, const Node *node) {
    for (int i = 0; i < node->in_count; i++)
        if (node->in[i] && is_of_source(decoder, node->in[i])) return true;
    return false;
}

static void mark_target(Decoder *decoder) {
    bool *mark = decoder->of_target;
    for (const Node *node = decoder->graph->first; node; node = node->next) {
        mark[node->id] =
            node == decoder->ids ||
            (node->name && strcmp(node->name, "decoder_attention_mask") == 0);
        for (int i = 0; i < node->in_count; i++)
            if (node->in[i] && mark[node->in[i]->id]) mark[node->id] = true;
    }
}

/* Index of a value of the source, in the order of first use. */
static int need_source(Decoder *decoder, const Node *node) {
    for (int i = 0; i < decoder->source_count; i++)
        if (decoder->source_values[i] == node) return i;
    decoder->source_values[decoder->source_count] = (Node *)(uintptr_t)node;
    return decoder->source_count++;
}

/* Whether operand `i` is what the kernel takes it for: a value of the source with rows
 * [N, S], or none of the source. */
static bool operand_fits(const Decoder *decoder, const StepKernel *kernel, const Node *in,
                         int i) {
    const bool source = (kernel->sources & READS_IN(i)) != 0;
    if (!in || in->storage) return true;
    if (is_of_source(decoder, in) != source) return false;
    return !source ||
           (in->type.rank >= 2 && in->type.dim[0] == DIM_N && in->type.dim[1] == DIM_S);
}

/* The kernel of a node; NULL = it cannot run token by token. */
static const StepKernel *find_kernel(const Decoder *decoder, const Node *node) {
    const StepKernel *kernel = kernel_of(kernels_for(PRECISION_F32), node->op)->step;
    if (!kernel) return NULL;
    if (kernel->source && reads_source(decoder, node)) kernel = kernel->source;
    for (int i = 0; i < node->in_count; i++)
        if (!operand_fits(decoder, kernel, node->in[i], i)) return NULL;
    return kernel;
}

/* ---- operands ---- */

static DecodeWeight *find_weight(const Decoder *decoder, const Storage *storage,
                                 bool packed, bool transposed) {
    for (DecodeWeight *w = decoder->first_weight; w; w = w->next)
        if (w->storage == storage && w->packed == packed && w->transposed == transposed)
            return w;
    return NULL;
}

/* The weight of a storage, in the order of first use. */
static DecodeWeight *need_weight(Decoder *decoder, const Storage *storage, bool packed,
                                 bool transposed) {
    DecodeWeight *weight = find_weight(decoder, storage, packed, transposed);
    if (weight) return weight;
    weight = ARENA_ARRAY(decoder->arena, DecodeWeight, 1);
    *weight =
        (DecodeWeight){.storage = storage, .packed = packed, .transposed = transposed};
    if (decoder->last_weight)
        decoder->last_weight->next = weight;
    else
        decoder->first_weight = weight;
    decoder->last_weight = weight;
    return weight;
}

/* All dimensions but the last are rows; transposed there are two. */
static void shape_matrix(DecodeWeight *weight, StepWeights kind) {
    const Tensor *tensor = &weight->storage->tensor;
    const int64_t columns = tensor->dim[weight->transposed ? 0 : tensor->rank - 1];
    weight->matrix = (Matrix){.rows = columns > 0 ? tensor_count(tensor) / columns : 0,
                              .columns = columns,
                              .kind = kind};
}

static Status fail_weights(const Node *node, Diag *diag, const char *found) {
    return diag_fail(diag, STATUS_MODEL, LOC_NONE,
                     node->storage ? node->storage->name : NULL,
                     "expected weights to run the model, found %s", found);
}

static Status bind_param(Decoder *decoder, DecodeStep *step, int i, Diag *diag) {
    const Node *param = step->node->in[i];
    const Tensor *tensor = &param->storage->tensor;
    DecodeOperand *in = &step->in[i];
    if (!tensor_data(tensor)) return fail_weights(param, diag, "a shape only");
    if (!dtype_is_real(tensor->dtype)) return fail_weights(param, diag, "integers");
    if (step->kernel->tables & READS_IN(i)) {
        in->fixed = tensor;
        decoder->row_bytes +=
            (size_t)tensor->dim[tensor->rank - 1] * dtype_bytes(tensor->dtype);
        return STATUS_OK;
    }
    const bool packed = (step->kernel->matrices & READS_IN(i)) != 0;
    const bool transposed =
        packed && step->kernel->is_transposed && step->kernel->is_transposed(step->node);
    in->weight = need_weight(decoder, param->storage, packed, transposed);
    if (packed) shape_matrix(in->weight, decoder->options.weights);
    return STATUS_OK;
}

static Status bind_operand(Decoder *decoder, DecodeStep *step, int i, const int *value_of,
                           Diag *diag) {
    const Node *node = step->node->in[i];
    DecodeOperand *in = &step->in[i];
    *in = (DecodeOperand){.value = -1, .source = -1};
    if (!node) return STATUS_OK;
    if (node->storage) return bind_param(decoder, step, i, diag);
    if (is_of_source(decoder, node)) {
        in->source = need_source(decoder, node);
        return STATUS_OK;
    }
    if ((step->kernel->matrices | step->kernel->tables) & READS_IN(i))
        return diag_fail(diag, STATUS_MODEL, step->node->loc, NULL,
                         "%s: operand '%s': expected weights, found a computed value",
                         step->node->op->name, step->node->op->operands[i].name);
    in->width = 1;
    if (node->name) {
        in->fixed = node == decoder->ids ? decoder->token : decoder->ones;
        return STATUS_OK;
    }
    in->value = value_of[node->id];
    in->width = decoder->values[in->value].width;
    decoder->values[in->value].last = decoder->step_count;
    return STATUS_OK;
}

/* ---- steps ---- */

static Status fail_op(const Node *node, Diag *diag) {
    Status status =
        diag_fail(diag, STATUS_MODEL, node->loc, NULL,
                  "%s: expected an op that can run token by token", node->op->name);
    diag_hint(diag, "generation needs a causal language model");
    return status;
}

static Status add_step(Decoder *decoder, const Node *node, const int *value_of,
                       Diag *diag) {
    DecodeStep *step = &decoder->steps[decoder->step_count];
    *step = (DecodeStep){.node = node, .kernel = find_kernel(decoder, node)};
    if (node->in_count > DECODE_OPERANDS_MAX) return fail_op(node, diag);
    for (int i = 0; i < node->in_count; i++)
        TRY(bind_operand(decoder, step, i, value_of, diag));
    if (step->kernel->units) step->units = step->kernel->units(node);
    step->value = decoder->value_count++;
    decoder->values[step->value] =
        (DecodeValue){.width = step_width(&node->type), .last = decoder->step_count};
    decoder->step_count++;
    return STATUS_OK;
}

static Status add_node(Decoder *decoder, const Node *node, int *value_of, Diag *diag) {
    if (node->storage || is_of_source(decoder, node)) return STATUS_OK;
    if (node_is_leaf(node)) return check_input(decoder, node, diag);
    const StepKernel *kernel = find_kernel(decoder, node);
    if (!kernel) return fail_op(node, diag);
    TRY(check_value(node, diag));
    if (kernel->check) TRY(kernel->check(node, diag));
    if (kernel->share == STEP_ALIAS) {
        value_of[node->id] = value_of[node->in[0]->id];
        return STATUS_OK;
    }
    TRY(add_step(decoder, node, value_of, diag));
    value_of[node->id] = decoder->step_count - 1;
    return STATUS_OK;
}

/* Which steps the tokens before a prompt's last one need: those with a state, and what
 * they depend on. */
static void mark_block(Decoder *decoder) {
    for (int s = decoder->step_count - 1; s >= 0; s--) {
        DecodeStep *step = &decoder->steps[s];
        step->block = step->kernel->state_bytes || decoder->values[step->value].wanted;
        for (int i = 0; step->block && i < step->node->in_count; i++)
            if (step->in[i].value >= 0) decoder->values[step->in[i].value].wanted = true;
    }
}

static void mark_needed(const Graph *graph, bool *needed) {
    for (const Node *node = graph->last; node; node = node->prev)
        for (int i = 0; needed[node->id] && i < node->in_count; i++)
            if (node->in[i]) needed[node->in[i]->id] = true;
}

/* The graph at full length: position tables, sizes; and what ids may be. */
static Status check_plan(Decoder *decoder, Diag *diag) {
    Plan *plan = NULL;
    Node *logits = (Node *)(uintptr_t)decoder->logits;
    const PlanOptions options = {.sizes = {[DIM_INDEX(DIM_N)] = 1,
                                           [DIM_INDEX(DIM_T)] = decoder->options.capacity,
                                           [DIM_INDEX(DIM_S)] = 1},
                                 .results = &logits,
                                 .result_count = 1};
    TRY(plan_create(&plan, decoder->graph, &options, diag));
    decoder->index_limit = plan_index_limit(plan, decoder->ids);
    plan_destroy(plan);
    return STATUS_OK;
}

Status decode_collect(Decoder *decoder, Diag *diag) {
    Graph *graph = decoder->graph;
    decoder->logits = graph_output(graph, OUTPUT_LOGITS);
    const char *ids = decoder->has_source ? "decoder_input_ids" : "input_ids";
    decoder->ids = graph_find_input(graph, ids);
    if (!decoder->logits || !decoder->ids)
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                         "expected a model with input %s and output logits to generate, "
                         "found none called %s",
                         ids, decoder->ids ? OUTPUT_LOGITS : ids);
    const size_t count = (size_t)graph_number(graph);
    bool *needed = ARENA_ARRAY(decoder->arena, bool, count);
    int *value_of = ARENA_ARRAY(decoder->arena, int, count);
    decoder->of_target = ARENA_ARRAY(decoder->arena, bool, count);
    decoder->source_values = ARENA_ARRAY(decoder->arena, Node *, count);
    mark_target(decoder);
    needed[decoder->logits->id] = true;
    mark_needed(graph, needed);
    decoder->steps = ARENA_ARRAY(decoder->arena, DecodeStep, count);
    decoder->values = ARENA_ARRAY(decoder->arena, DecodeValue, count);
    for (const Node *node = graph->first; node; node = node->next)
        if (needed[node->id]) TRY(add_node(decoder, node, value_of, diag));
    decoder->logits_value = value_of[decoder->logits->id];
    if (decoder->step_count == 0 || node_is_leaf(decoder->logits))
        return fail_node(decoder->logits, diag, "expected logits that are computed");
    decoder->values[decoder->logits_value].last = decoder->step_count;
    mark_block(decoder);
    return check_plan(decoder, diag);
}
