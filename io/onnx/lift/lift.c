/* Lifting: the driver, and what the matchers share. See lift.h. */
#include "io/onnx/lift/lift.h"

#include "io/onnx/net/eval.h"
#include "io/onnx/net/probe.h"
#include "ir/rewrite.h"

#include <stdarg.h>
#include <string.h>

Node *lift_stop(Lift *lift, const NetNode *node, const char *why) {
    if (!lift->stop) {
        lift->stop = node;
        lift->why = why;
    }
    return NULL;
}

Node *lift_op(Lift *lift, const NetNode *from, const char *op, Node *const *in, int count,
              const char *attrs, ...) {
    const Op *kind = op_find(lift->graph->ops, op);
    char text[256];
    if (!kind) return lift_stop(lift, from, LIFT_NO_OP);
    Node *node = graph_insert(lift->graph, NULL, kind, in, count);
    Diag *diag = diag_create();
    Status status = STATUS_OK;
    if (attrs) {
        va_list args;
        va_start(args, attrs);
        vsnprintf(text, sizeof text, attrs, args);
        va_end(args);
        status = node_set(lift->graph, node, diag, "%s", text);
    }
    if (status == STATUS_OK) status = node_infer(node, diag);
    diag_destroy(diag);
    if (status == STATUS_OK) return node;
    graph_erase(lift->graph, node);
    return lift_stop(lift, from,
                     arena_printf(lift->arena, "its shapes do not fit the op %s", op));
}

Node *lift_input(Lift *lift, const char *name, const Type *type) {
    const bool source = probe_is_source(lift->net, name);
    const Type tokens = {DTYPE_I32, 2, {DIM_N, source ? DIM_S : DIM_T}};
    Node *input = graph_find_input(lift->graph, name);
    return input ? input : graph_input(lift->graph, name, type ? type : &tokens);
}

/* ---- inputs ---- */

static Node *lift_graph_input(Lift *lift, NetValue *value) {
    const Array *shape = value->probe[0];
    const bool target = strncmp(value->name, "decoder_", 8) == 0;
    switch (probe_input_kind(value)) {
    case INPUT_TOKENS:
        return lift_input(lift, target ? INPUT_TARGET_IDS : INPUT_IDS, NULL);
    case INPUT_TYPE_IDS: return lift_input(lift, INPUT_TYPES, NULL);
    case INPUT_PADDING:
        return lift_input(lift, target ? INPUT_TARGET_MASK : INPUT_MASK, NULL);
    case INPUT_PAST:
    case INPUT_SWITCH:
    case INPUT_POSITIONS: return NULL;
    default: break;
    }
    Type type = {array_is_integer(shape) ? DTYPE_I32 : DTYPE_F32, shape->rank, {DIM_N}};
    if (shape->rank < 1 || shape->rank > RANK_MAX) return NULL;
    for (int d = 1; d < shape->rank; d++) {
        type.dim[d] = shape->dim[d];
        if (value->probe[1]->dim[d] != shape->dim[d]) type.dim[d] = DIM_T;
    }
    const bool image = probe_input_kind(value) == INPUT_IMAGE;
    return lift_input(lift, image ? INPUT_PIXELS : value->name, &type);
}

/* ---- values ---- */

static const char OTHER[] = "no op of ours does this, and nothing around it is known";

/* Whether a node has the elements of a value, rows of one width. */
static bool has_elements(const Lift *lift, const Node *node, const NetValue *value) {
    for (int p = 0; p < NET_PROBES; p++) {
        const Array *shape = value->probe[p];
        const int64_t sizes[DIM_SYMBOLS] = {
            [DIM_INDEX(DIM_N)] = probe_samples(p),
            [DIM_INDEX(DIM_T)] = probe_tokens(p),
            [DIM_INDEX(DIM_S)] =
                lift->net->translates ? probe_source_tokens(p) : probe_tokens(p),
            [DIM_INDEX(DIM_M)] = 1};
        Type bound;
        if (!shape || !type_bind(&node->type, sizes, &bound)) return false;
        if (type_count(&bound) != shape->count) return false;
        int last = shape->rank - 1; /* images of one pixel end with sizes of 1 */
        const int64_t width = bound.rank > 0 ? bound.dim[bound.rank - 1] : 1;
        while (last > 1 && shape->dim[last] == 1 && width != 1) last--;
        if (value->tokens_first && shape->rank == 2 && shape->dim[1] == probe_samples(p))
            last = 0; /* [T, N], here [N, T] */
        if (last >= 0 && bound.rank > 0 && width != shape->dim[last]) return false;
    }
    return true;
}

/* Whether matchers are asked for a value: they look for what a model learned, not for
 * what follows from sizes and masks, nor for numbers that count something. */
static bool is_for_matchers(const Lift *lift, NetValue *value) {
    if (!lift->plain || value->stored) return true;
    if (value_is_known(value)) return value_is_fixed(value);
    return !value->probe[0] || !array_is_integer(value->probe[0]) ||
           value_behind(value) != value;
}

/* The node that matchers would have had to know where what ends in a value only moves
 * elements: the one that gives them. */
static const NetNode *node_moved(const Lift *lift, NetValue *value) {
    Trace trace;
    const NetNode *node = value->producer;
    if (!trace_value(&trace, lift->net, value, false)) return node;
    if (trace.source->producer) node = trace.source->producer;
    trace_free(&trace);
    return node;
}

/* What no matcher knows, by its operator alone. */
static Node *lift_unknown(Lift *lift, NetValue *value) {
    LiftPlain plain = {.node = value->producer, .stop = lift->stop, .why = lift->why};
    const bool said = plain.stop && plain.stop == plain.node; /* of this very node */
    if (!plain.stop) {
        plain.stop = node_moved(lift, value);
        plain.why = "nothing that is known ends in it";
    }
    lift->stop = NULL;
    Node *node = lift->plain(lift, value);
    if (!node && said && strcmp(lift->why, LIFT_NO_OP) == 0) lift->why = plain.why;
    if (!node || !has_elements(lift, node, value)) return NULL;
    if (lift->plain_count == lift->plain_capacity) {
        lift->plain_capacity = lift->plain_capacity ? 2 * lift->plain_capacity : 64;
        lift->plains =
            memory_grow(lift->plains, (size_t)lift->plain_capacity, sizeof *lift->plains);
    }
    lift->plains[lift->plain_count] = plain;
    lift->plains[lift->plain_count++].made = node;
    return node;
}

Node *lift_value(Lift *lift, NetValue *value) {
    if (value->lifted) return value->lifted;
    if (value->failed) return lift_stop(lift, value->stop, value->why);
    if (!value->producer && value->input) return lift_graph_input(lift, value);
    if (!value->probe[0] || !value->probe[1])
        return lift_stop(lift, value->producer,
                         "its size follows from what the model computes");
    if ((!value->producer && !value->stored) || lift->depth >= LIFT_DEPTH_MAX)
        return lift_stop(lift, value->producer, "it is nested too deep");
    lift->depth++;
    const NetNode *stop = lift->stop;
    if (lift->plain) lift->stop = NULL; /* to hear what stops the matchers here */
    Node *node = is_for_matchers(lift, value) ? lift->match(lift, value) : NULL;
    if (node && !has_elements(lift, node, value)) node = NULL;
    if (!node && lift->plain) node = lift_unknown(lift, value);
    lift->depth--;
    value->failed = !node;
    value->lifted = node;
    if (!node) {
        lift_stop(lift, value->producer, OTHER);
        value->stop = lift->stop;
        value->why = lift->why;
        return NULL;
    }
    lift->stop = stop; /* what other matchers found in the way is none any more */
    return node;
}

/* ---- outputs ---- */

/* The name of an output in our graphs: exporters give some no name. */
static const char *output_name(const Lift *lift, const NetValue *value) {
    static const char *const KEPT[] = {OUTPUT_LOGITS, OUTPUT_STATES,
                                       OUTPUT_ENCODER_STATES, OUTPUT_POOLER};
    for (size_t i = 0; i < sizeof KEPT / sizeof *KEPT; i++)
        if (strcmp(value->name, KEPT[i]) == 0) return value->name;
    if (strcmp(value->name, ONNX_EMBEDDING) == 0) return OUTPUT_EMBEDDING;
    if (lift->net->output_count > 1 && !lift->net->translates) return value->name;
    return value->probe[0]->rank == 2 || lift->net->translates ? OUTPUT_LOGITS
                                                               : OUTPUT_STATES;
}

/* Values with several users are lifted first, in order: residual sums above all. So the
 * way from a value to one that is there already is short. */
static void lift_joints(Lift *lift) {
    for (int i = 0; i < lift->net->node_count; i++) {
        const NetNode *node = lift->net->nodes[i];
        for (int k = 0; k < node->out_count; k++) {
            NetValue *value = node->out[k];
            if (!value || value->user_count < 2 || !value->probe[0] ||
                value_is_known(value) || array_is_integer(value->probe[0]))
                continue;
            lift->stop = NULL;
            lift_value(lift, value);
        }
    }
}

static Status fail_output(Lift *lift, const NetValue *output, Diag *diag) {
    const NetNode *node = lift->stop;
    if (!node)
        return diag_fail(diag, STATUS_MODEL, LOC_FILE(lift->net->path), output->name,
                         "this output is not computed from the inputs");
    net_fail(lift->net, node, STATUS_MODEL, diag, "%s", lift->why);
    diag_note(diag, "output '%.200s' needs it", output->name);
    return STATUS_MODEL;
}

/* Inputs in the order that families have them. */
static void lift_inputs(Lift *lift) {
    static const InputKind ORDER[] = {INPUT_TOKENS, INPUT_PADDING, INPUT_TYPE_IDS};
    for (size_t k = 0; k < sizeof ORDER / sizeof *ORDER; k++)
        for (int i = 0; i < lift->net->input_count; i++)
            if (probe_input_kind(lift->net->inputs[i]) == ORDER[k] &&
                probe_is_source(lift->net, lift->net->inputs[i]->name) ==
                    lift->net->translates)
                lift_value(lift, lift->net->inputs[i]);
    if (!lift->net->translates) return;
    lift_input(lift, INPUT_TARGET_IDS, NULL);
    lift_input(lift, INPUT_TARGET_MASK, NULL); /* goes when nothing reads it */
}

/* Leaves out a mask that nothing reads: a decoder sees no padding behind a token. */
static void drop_mask(Graph *graph, const char *name) {
    Node *mask = graph_find_input(graph, name);
    if (mask && graph_use_count(graph, mask) == 0) graph_erase(graph, mask);
}

static Status lift_each_output(Lift *lift, Diag *diag) {
    Net *net = lift->net;
    lift_joints(lift);
    for (int i = 0; i < net->output_count; i++) {
        NetValue *value = net->outputs[i];
        if (strncmp(value->name, "present", 7) == 0) continue; /* keys and values */
        /* what could not be lifted before is tried again, to hear why */
        for (int k = 0; k < net->value_count; k++) net->values[k]->failed = false;
        lift->stop = NULL;
        Node *node = lift_value(lift, value);
        if (!node) return fail_output(lift, value, diag);
        graph_set_output(lift->graph, output_name(lift, value), node);
    }
    return STATUS_OK;
}

Status lift_outputs(Lift *lift, LiftMatch *plain, Diag *diag) {
    Net *net = lift->net;
    Diag *aside = diag_create();
    lift_inputs(lift);
    const bool known = lift_each_output(lift, aside) == STATUS_OK;
    diag_destroy(aside);
    lift->plain = known ? NULL : plain;
    for (int k = 0; k < net->value_count && !known; k++) net->values[k]->failed = false;
    if (!known) TRY(lift_each_output(lift, diag));
    drop_mask(lift->graph, INPUT_MASK);
    drop_mask(lift->graph, INPUT_TARGET_MASK);
    if (lift->graph->output_count == 0)
        return diag_fail(diag, STATUS_MODEL, LOC_FILE(net->path), NULL,
                         "expected an output beside keys and values of tokens");
    return STATUS_OK;
}
