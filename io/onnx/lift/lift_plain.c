/* Plain ops: values, shapes, constants and the report. See lift_plain.h. */
#include "io/onnx/lift/lift_plain.h"

#include "io/onnx/lift/lift_rows.h"
#include "io/onnx/lift/lift_weights.h"
#include "io/onnx/net/eval.h"
#include "io/onnx/net/probe.h"
#include "ir/text.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const PlainRow *plain_row(const NetNode *node) {
    const PlainRow *const TABLES[] = {plain_element_rows, plain_tensor_rows};
    for (size_t t = 0; t < sizeof TABLES / sizeof *TABLES; t++)
        for (const PlainRow *row = TABLES[t]; row->op; row++)
            if (net_is(node, row->op)) return row;
    return NULL;
}

/* ---- shapes ---- */

/* Sizes of the symbols that a value's may follow from. */
static const int64_t SYMBOLS[] = {DIM_N, DIM_T, DIM_S};
enum { SYMBOL_COUNT = sizeof SYMBOLS / sizeof *SYMBOLS, POWER_MAX = 2 };

static int64_t symbol_size(int symbol, int probe) {
    return symbol == 0   ? probe_samples(probe)
           : symbol == 1 ? probe_tokens(probe)
                         : probe_source_tokens(probe);
}

/* A size that is a and b in the probes: a number, or one times powers of the numbers of
 * samples and tokens, those of a source where there is one. */
static bool size_of_probes(const Lift *lift, int64_t a, int64_t b, bool made,
                           int64_t *dim) {
    const int symbols = lift->net->translates ? SYMBOL_COUNT : SYMBOL_COUNT - 1;
    int power[SYMBOL_COUNT] = {0};
    if (a < 0 || b < 0) return false;
    if (a == b) return *dim = a, true;
    for (;;) {
        int next = 0;
        while (next < symbols && power[next] == POWER_MAX) power[next++] = 0;
        if (next == symbols) return false;
        power[next]++;
        int64_t unit[NET_PROBES] = {1, 1};
        for (int p = 0; p < NET_PROBES; p++)
            for (int s = 0; s < symbols; s++)
                for (int k = 0; k < power[s]; k++) unit[p] *= symbol_size(s, p);
        if (a == 0 || a % unit[0] || b % unit[1] || a / unit[0] != b / unit[1]) continue;
        /* twice the samples are the tokens and one in both probes */
        if (made && unit[0] == probe_samples(0) && a / unit[0] % 2 == 0) return false;
        *dim = a / unit[0];
        for (int s = 0; s < symbols; s++)
            for (int k = 0; k < power[s]; k++)
                if (!dim_times(*dim, SYMBOLS[s], dim)) return false;
        return true;
    }
}

static bool type_of_value(const Lift *lift, const NetValue *value, bool made, Type *out) {
    const Array *a = value->probe[0], *b = value->probe[1];
    if (!a || !b || a->rank != b->rank || a->rank > RANK_MAX) return false;
    *out = (Type){.dtype = DTYPE_F32, .rank = a->rank};
    for (int d = 0; d < a->rank; d++)
        if (!size_of_probes(lift, a->dim[d], b->dim[d], made, &out->dim[d])) return false;
    return true;
}

static const char *spelled(Lift *lift, const Type *type) {
    char text[DIMS_TEXT_BYTES];
    return arena_strdup(lift->arena, dims_text(text, type->rank, type->dim));
}

const char *plain_shape(Lift *lift, const NetValue *value, bool made) {
    Type type;
    if (type_of_value(lift, value, made, &type)) return spelled(lift, &type);
    lift_stop(lift, value->producer,
              "a size follows from those of samples and tokens in a way that no "
              "dimension of ours does");
    return NULL;
}

bool plain_dim(const Lift *lift, const NetValue *value, int axis, int64_t *dim) {
    return size_of_probes(lift, value->probe[0]->dim[axis], value->probe[1]->dim[axis],
                          true, dim);
}

Node *plain_shaped(Lift *lift, const NetValue *value, Node *x) {
    Type type;
    if (!x) return NULL;
    if (type_of_value(lift, value, false, &type) && type_equal(&type, &x->type)) return x;
    const char *shape = plain_shape(lift, value, false);
    return shape ? lift_op(lift, value->producer, "reshape", &x, 1, "shape=\"%s\"", shape)
                 : NULL;
}

/* ---- constants ---- */

bool plain_number(const NetNode *node, int i, double *number) {
    const NetValue *value = net_operand(node, i);
    if (!value || !value_is_fixed(value) || !array_scalar(value->probe[0], number))
        return false;
    *number = fmax(-FLT_MAX, fmin(FLT_MAX, *number)); /* stands for infinity, too */
    return value->probe[0]->rank <= 1;
}

/* Integers as they are, as far as they fit 32 bits. */
static bool integer_tensor(const Array *array, Tensor *out) {
    void *data;
    Diag *diag = diag_create();
    const bool good =
        tensor_create(out, DTYPE_I32, array->rank, array->dim, diag) == STATUS_OK &&
        tensor_writable(out, &data, diag) == STATUS_OK;
    diag_destroy(diag);
    for (int64_t i = 0; good && i < array->count; i++)
        ((int32_t *)data)[i] = (int32_t)fmax(-INT32_MAX, fmin(INT32_MAX, array->data[i]));
    return good;
}

static bool is_finite(const Array *array) {
    for (int64_t i = 0; array->data && i < array->count; i++)
        if (!isfinite(array->data[i])) return false;
    return true;
}

/* What is stored, or follows from that: integers become storages of integers, infinities
 * the largest numbers. */
static Node *lift_constant(Lift *lift, NetValue *value) {
    const Array *array = value->probe[0];
    const NetNode *from = value->producer;
    if (!array || array->rank > RANK_MAX || array->count == 0)
        return lift_stop(lift, from, "it is empty, or has too many dimensions");
    if (array_is_integer(array)) {
        if (!array->data) return lift_stop(lift, from, "too many integers");
        Tensor tensor = {0};
        if (!integer_tensor(array, &tensor)) return NULL;
        Node *leaf = lift_leaf(lift, value, &tensor);
        return leaf ? lift_op(lift, from, "to_real", &leaf, 1, NULL) : NULL;
    }
    if (is_finite(array)) return lift_stored(lift, value, -1, NULL);
    Array *clamped = array_create(lift->pool, ONNX_F32, array->rank, array->dim, true);
    if (!clamped || !clamped->data) return lift_stop(lift, from, "too many numbers");
    for (int64_t i = 0; i < array->count; i++)
        clamped->data[i] = fmax(-FLT_MAX, fmin(FLT_MAX, array->data[i]));
    NetValue *alone = ARENA_NEW(lift->net->arena, NetValue);
    *alone = (NetValue){.name = value->name, .producer = value->producer};
    alone->probe[0] = alone->probe[1] = clamped;
    return lift_stored(lift, alone, -1, NULL);
}

/* A number as a storage, one for each number. */
static Node *lift_number(Lift *lift, const NetNode *node, double number) {
    for (int i = 0; i < lift->leaf_count; i++) {
        Node *leaf = lift->leaves[i].leaf;
        const Array *other = lift->leaves[i].source->probe[0];
        if (leaf->type.rank == 0 && other->data && other->data[0] == number &&
            leaf->storage->frozen)
            return leaf;
    }
    Array *array = array_create(lift->pool, ONNX_F32, 0, NULL, true);
    if (!array || !array->data) return lift_stop(lift, node, "too many numbers");
    array->data[0] = number;
    NetValue *value = ARENA_NEW(lift->net->arena, NetValue);
    *value = (NetValue){.name = "constant"};
    value->probe[0] = value->probe[1] = array;
    Node *leaf = lift_stored(lift, value, 0, NULL);
    if (leaf) leaf->storage->frozen = true;
    return leaf;
}

Node *plain_fill(Lift *lift, const NetNode *node, double number, const char *shape) {
    Node *leaf = lift_number(lift, node, number);
    return leaf ? lift_op(lift, node, "expand", &leaf, 1, "shape=\"%s\"", shape) : NULL;
}

/* A number that follows from sizes: how many elements a tensor of that shape has. */
static Node *lift_size(Lift *lift, const NetValue *value) {
    const Array *a = value->probe[0], *b = value->probe[1];
    Type type = {.dtype = DTYPE_F32, .rank = 1};
    if (!value_is_known(value) || a->depends || b->depends || a->count != 1 ||
        b->count != 1 || !array_is_integer(a) ||
        !size_of_probes(lift, eval_integer(a->data[0]), eval_integer(b->data[0]), true,
                        &type.dim[0]))
        return NULL;
    Node *ones = plain_fill(lift, value->producer, 1, spelled(lift, &type));
    return ones ? lift_op(lift, value->producer, "reduce", &ones, 1,
                          "fn=sum axes=[0] keep=%s", a->rank ? "true" : "false")
                : NULL;
}

/* ---- values ---- */

/* Places of the tokens: 0, 1, 2, ... */
static Node *lift_places(Lift *lift, const NetValue *input) {
    const char *shape = plain_shape(lift, input, true);
    Node *ones = shape ? plain_fill(lift, NULL, 1, shape) : NULL;
    return ones ? lift_op(lift, NULL, "cumsum", &ones, 1, "axis=%d exclusive=true",
                          ones->type.rank - 1)
                : NULL;
}

/* ---- tokens before samples ---- */

/* `x` with its first two dimensions in each other's place. */
static Node *swap_rows(Lift *lift, const NetNode *node, Node *x) {
    const char *axes = x->type.rank == 2   ? "1, 0"
                       : x->type.rank == 3 ? "1, 0, 2"
                       : x->type.rank == 4 ? "1, 0, 2, 3"
                                           : NULL;
    if (!axes) return lift_stop(lift, node, "tokens stand before samples in it");
    return lift_op(lift, node, "transpose", &x, 1, "axes=[%s]", axes);
}

static bool is_samples(const Type *type, int at) {
    return type->rank > at && type->dim[at] == DIM_N;
}

/* What is lifted has samples first: here its rows are in the file's order. */
static Node *as_in_file(Lift *lift, const NetValue *value, Node *x) {
    if (!x || !value->tokens_first) return x;
    if (!is_samples(&x->type, 0) || x->type.rank < 2)
        return lift_stop(lift, value->producer, "tokens stand before samples in it");
    return swap_rows(lift, value->producer, x);
}

/* The other way round. */
static Node *samples_first(Lift *lift, const NetValue *value, Node *x) {
    if (!x || !value->tokens_first) return x;
    if (!is_samples(&x->type, 1))
        return lift_stop(lift, value->producer, "tokens stand before samples in it");
    return swap_rows(lift, value->producer, x);
}

/* ---- values, by their operators ---- */

/* The node of a value by its operator alone, as the file has it. */
static Node *lift_operator(Lift *lift, NetValue *value) {
    NetNode *node = value->producer;
    if (!node) return NULL;
    const PlainRow *row = plain_row(node);
    if (!value->probe[0] || !value->probe[1])
        return lift_stop(lift, node, "its size follows from what the model computes");
    if (!row) return lift_stop(lift, node, LIFT_NO_OP);
    if (lift->depth >= LIFT_DEPTH_MAX)
        return lift_stop(lift, node, "it is nested too deep");
    lift->depth++;
    Node *found = row->rule(lift, node, value);
    lift->depth--;
    if (!found) return lift_stop(lift, node, "no op of ours does this in this form");
    return found;
}

static Node *lift_real(Lift *lift, NetValue *value) {
    NetNode *node = value->producer;
    if (value_is_fixed(value)) return lift_constant(lift, value);
    if (!node && value->input && probe_input_kind(value) == INPUT_POSITIONS)
        return lift_places(lift, value);
    Node *x = lift_size(lift, value);
    const bool counted = x != NULL;
    const bool own = node && (value_is_known(value) || value_behind(value) != value);
    if (!counted) x = own ? lift_operator(lift, value) : lift_value(lift, value);
    if (x && x->type.dtype == DTYPE_I32) x = lift_op(lift, node, "to_real", &x, 1, NULL);
    if (!counted && !own) x = as_in_file(lift, value, x);
    return plain_shaped(lift, value, x);
}

Node *plain_value(Lift *lift, NetValue *value) {
    if (!value->plain) value->plain = lift_real(lift, value);
    return value->plain;
}

Node *plain_operand(Lift *lift, const NetNode *node, int i) {
    NetValue *value = net_operand(node, i);
    if (value) return plain_value(lift, value);
    return lift_stop(lift, node, "an operand is missing");
}

Node *lift_plain(Lift *lift, NetValue *value) {
    Node *found = lift_operator(lift, value);
    if (found && value->tokens_first && found->type.dtype == DTYPE_F32)
        value->plain = found;
    return samples_first(lift, value, found);
}

/* ---- ops ---- */

Node *plain_unary(Lift *lift, const NetNode *node, const char *fn, Node *x) {
    return x ? lift_op(lift, node, "unary", &x, 1, "fn=%s", fn) : NULL;
}

Node *plain_binary(Lift *lift, const NetNode *node, const char *fn, Node *a, Node *b) {
    Node *in[2] = {a, b};
    return a && b ? lift_op(lift, node, "binary", in, 2, "fn=%s", fn) : NULL;
}

Node *plain_with(Lift *lift, const NetNode *node, const char *fn, Node *a,
                 double number) {
    return a ? lift_op(lift, node, "binary", &a, 1, "fn=%s number=%s", fn,
                       short_decimal(lift, number))
             : NULL;
}

Node *plain_scaled(Lift *lift, const NetNode *node, Node *x, double by) {
    if (!x || by == 1) return x;
    return lift_op(lift, node, "scale", &x, 1, "by=%s", short_decimal(lift, by));
}

/* ---- the report ---- */

enum { REPORTS_MAX = 6 };

/* What is known of the nodes that are left, by Node.id. */
typedef struct PlainMarks {
    const LiftPlain **made; /* by a rule */
    bool *plain;            /* a tensor op */
    bool
        *last; /* something of the model reads it, and not only what is plain around it */
    int *part; /* 1 + the last node that it leads to; 0 = none */
    int *count; /* plain ops of a last node's part */
} PlainMarks;

/* Ops between plain ones that matchers know: they belong to the same part. */
static bool is_between(const Node *node) {
    return node_has_trait(node, OP_ELEMENTWISE) || strcmp(node->op->name, "softmax") == 0;
}

/* From the end: what reads a node, and whose part it is. */
static void mark_parts(const Graph *graph, PlainMarks *m) {
    for (int i = 0; i < graph->output_count; i++)
        m->last[graph->outputs[i].node->id] = true;
    for (const Node *node = graph->last; node; node = node->prev) {
        const int id = node->id;
        if (m->made[id] && m->last[id]) m->part[id] = id + 1;
        if (m->part[id] && m->plain[id]) m->count[m->part[id] - 1]++;
        for (int i = 0; i < node->in_count; i++) {
            const Node *in = node->in[i];
            if (!in) continue;
            const bool inside = m->plain[id] || (is_between(node) && !m->last[id]);
            if (!inside) m->last[in->id] = true;
            if (m->part[id] && !m->part[in->id] && (m->plain[in->id] || is_between(in)))
                m->part[in->id] = m->part[id];
        }
    }
}

static void report_part(const Lift *lift, const LiftPlain *plain, int count, Diag *diag) {
    const NetNode *stop = plain->stop ? plain->stop : plain->node;
    Text text = {0};
    text_add(&text, "node '%.100s' (%s): %s", stop->name, stop->op, plain->why);
    if (stop != plain->node)
        text_add(&text, "; so what leads to node '%.100s' (%s)", plain->node->name,
                 plain->node->op);
    else
        text_add(&text, "; so it and what leads to it");
    diag_warn(diag, LOC_FILE(lift->net->path), NULL,
              "%s became %d plain op%s, which passes leave as they are", text.data, count,
              count == 1 ? "" : "s");
    text_free(&text);
}

/* Which of the nodes that rules made are left. */
static void mark_made(const Lift *lift, Arena *arena, PlainMarks *m, size_t nodes) {
    const Node **by_id = ARENA_ARRAY(arena, const Node *, nodes);
    for (const Node *node = lift->graph->first; node; node = node->next) {
        by_id[node->id] = node;
        m->plain[node->id] = node_has_trait(node, OP_TENSOR);
    }
    for (int i = 0; i < lift->plain_count; i++) {
        const Node *node = lift->plains[i].made;
        const bool left =
            node->id >= 0 && (size_t)node->id < nodes && by_id[node->id] == node;
        if (left) m->made[node->id] = &lift->plains[i];
    }
}

void plain_report(Lift *lift, Diag *diag) {
    Graph *graph = lift->graph;
    Arena *arena = arena_create();
    const size_t nodes = (size_t)graph_number(graph);
    PlainMarks m = {ARENA_ARRAY(arena, const LiftPlain *, nodes),
                    ARENA_ARRAY(arena, bool, nodes), ARENA_ARRAY(arena, bool, nodes),
                    ARENA_ARRAY(arena, int, nodes), ARENA_ARRAY(arena, int, nodes)};
    int reported = 0;
    mark_made(lift, arena, &m, nodes);
    mark_parts(graph, &m);
    for (const Node *node = graph->first; node; node = node->next) {
        const int count = m.count[node->id];
        if (count > 0 && reported++ < REPORTS_MAX)
            report_part(lift, m.made[node->id], count, diag);
    }
    if (reported > REPORTS_MAX)
        diag_warn(diag, LOC_FILE(lift->net->path), NULL,
                  "%d more part%s of the graph became plain ops", reported - REPORTS_MAX,
                  reported - REPORTS_MAX == 1 ? "" : "s");
    arena_destroy(arena);
}
