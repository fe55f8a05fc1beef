/* Traces and cones: see trace.h. */
#include "io/onnx/net/trace.h"

#include "io/onnx/net/eval.h"
#include "io/onnx/net/probe.h"

#include <string.h>

enum { TRACE_DEPTH_MAX = 48, TRACE_PARTS_MAX = 64 };

/* ---- single values ---- */

NetValue *value_behind(NetValue *value) {
    for (int i = 0; i < TRACE_DEPTH_MAX && value && value->producer; i++) {
        const NetNode *node = value->producer;
        const bool same = net_is(node, "Identity") || net_is(node, "Cast") ||
                          net_is(node, "CastLike") ||
                          (net_is(node, "Dropout") && value->slot == 0);
        if (!same || !node->in_count || !node->in[0]) break;
        /* real numbers that become integers are others */
        const Array *from = node->in[0]->probe[0], *to = value->probe[0];
        if (from && to && !from->data && !array_is_integer(from) && array_is_integer(to))
            break;
        value = node->in[0];
    }
    return value;
}

bool value_is_known(const NetValue *value) {
    for (int p = 0; p < NET_PROBES; p++)
        if (!value->probe[p] || !value->probe[p]->data) return false;
    return true;
}

bool value_is_constant(const NetValue *value) {
    return value->stored || (value_is_known(value) && !value->probe[0]->depends);
}

bool value_is_fixed(const NetValue *value) {
    const Array *a = value->probe[0], *b = value->probe[1];
    if (value->stored) return true;
    return value_is_known(value) &&
           !((a->depends | b->depends) & ~(unsigned)DEPENDS_CACHE) &&
           array_same_shape(a, b) &&
           (a == b || memcmp(a->data, b->data, (size_t)a->count * sizeof *a->data) == 0);
}

bool value_scalar(const NetValue *value, double *number) {
    double other;
    return value && array_scalar(value->probe[0], number) &&
           array_scalar(value->probe[1], &other) && other == *number;
}

/* ---- traces ---- */

typedef struct Tracer {
    Trace *trace;
    const Net *net;
    ArrayPool pool;
    bool stored;
    int depth, joins; /* nodes that join several parts, on the way here */
} Tracer;

static bool is_multiplied(Tracer *t, const NetNode *node, NetValue **x, double *by);
static bool trace_into(Tracer *t, NetValue *value, Array **index);

/* Place of element `i` of an array of [T, N, ...] or [T N, D] in [N, T, ...]. */
static int64_t samples_first(const Array *array, int probe, int64_t i) {
    const int64_t samples = probe_samples(probe);
    const bool joined = array->rank == 2 && array->dim[1] != samples;
    const int64_t tokens = joined ? array->dim[0] / samples : array->dim[0];
    const int64_t inner = array->count / (tokens * samples);
    const int64_t t = i / inner / samples, n = i / inner % samples;
    return (n * tokens + t) * inner + i % inner;
}

int64_t trace_place(const Trace *trace, int probe, int64_t i) {
    return trace->tokens_first ? samples_first(trace->index[probe], probe, i) : i;
}

/* Indices of the source itself. */
static bool trace_end(Tracer *t, NetValue *value, Array **index) {
    if (t->trace->source && t->trace->source != value) return false;
    if (t->stored && !value->stored) return false;
    t->trace->source = value;
    for (int p = 0; p < NET_PROBES; p++) {
        const Array *array = value->probe[p];
        if (!array) return false;
        index[p] = array_create(&t->pool, ONNX_F64, array->rank, array->dim, true);
        if (!index[p] || !index[p]->data) return false;
        for (int64_t i = 0; i < array->count; i++)
            index[p]->data[i] =
                (double)((value->tokens_first ? samples_first(array, p, i) : i) + 1);
    }
    return true;
}

/* Keys and values of earlier tokens, of which there are none. */
static bool is_empty(const NetValue *value) {
    for (int p = 0; p < NET_PROBES; p++)
        if (!value->probe[p] || value->probe[p]->count > 0) return false;
    return true;
}

/* A node that moves elements, applied to the indices of its operand, or operands. */
static bool trace_move(Tracer *t, NetNode *node, int slot, Array **index) {
    const int parts = net_is(node, "Concat") ? node->in_count : 1;
    Array *in[NET_PROBES][TRACE_PARTS_MAX] = {{0}}, *out[TRACE_PARTS_MAX];
    if (node->in_count > TRACE_PARTS_MAX || node->out_count > TRACE_PARTS_MAX)
        return false;
    t->joins += parts > 1;
    const Array *first = node->in_count && node->in[0] ? node->in[0]->probe[0] : NULL;
    if (net_is(node, "Transpose") && first && first->rank > t->trace->turned)
        t->trace->turned = first->rank;
    for (int i = 0; i < node->in_count; i++) {
        Array *moved[NET_PROBES];
        const bool none = parts > 1 && node->in[i] && is_empty(node->in[i]);
        const bool part = i < parts && !none;
        if (part && (!node->in[i] || !trace_into(t, node->in[i], moved))) return false;
        for (int p = 0; p < NET_PROBES; p++)
            in[p][i] = part ? moved[p] : node->in[i] ? node->in[i]->probe[p] : NULL;
    }
    t->joins -= parts > 1;
    Diag *diag = diag_create();
    bool good = true;
    for (int p = 0; p < NET_PROBES && good; p++) {
        good = eval_node(t->net, &t->pool, node, in[p], out, diag) == STATUS_OK &&
               out[slot] && out[slot]->data;
        index[p] = out[slot];
    }
    diag_destroy(diag);
    return good;
}

/* Whether it is known where a node puts elements: rows of a table by ids are not. */
static bool is_moved(const NetNode *node) {
    for (int i = 1; i < node->in_count && !net_is(node, "Concat"); i++)
        if (node->in[i] && !value_is_known(node->in[i])) return false;
    return true;
}

static bool trace_negative(Tracer *t, NetValue *x, Array **index) {
    if (!trace_into(t, x, index)) return false;
    for (int p = 0; p < NET_PROBES; p++) {
        Array *copy =
            array_create(&t->pool, ONNX_F64, index[p]->rank, index[p]->dim, true);
        if (!copy || !copy->data) return false;
        for (int64_t i = 0; i < copy->count; i++) copy->data[i] = -index[p]->data[i];
        index[p] = copy;
    }
    return true;
}

/* Whether a node multiplies or divides one operand by a number. */
static bool is_multiplied(Tracer *t, const NetNode *node, NetValue **x, double *by) {
    const bool divided = net_is(node, "Div");
    if (t->joins || (!divided && !net_is(node, "Mul")) || node->in_count != 2)
        return false;
    for (int i = divided; i < 2; i++)
        if (node->in[i] && value_scalar(node->in[i], by) && node->in[1 - i]) {
            *x = node->in[1 - i];
            if (divided) *by = 1 / *by;
            return *by != 0;
        }
    return false;
}

static bool trace_into(Tracer *t, NetValue *value, Array **index) {
    NetNode *node = value->producer;
    NetValue *x;
    double by;
    if (t->depth >= TRACE_DEPTH_MAX) return false;
    if (!node || (!t->stored && value_is_known(value))) return trace_end(t, value, index);
    const EvalRow *row = eval_find(node->op);
    bool good;
    t->depth++;
    if (value_behind(value) != value) {
        good = trace_into(t, value_behind(value), index);
    } else if (row && row->kind == EVAL_MOVES && is_moved(node)) {
        good = trace_move(t, node, value->slot, index);
    } else if (net_is(node, "Neg") && node->in[0]) {
        good = trace_negative(t, node->in[0], index);
    } else if (is_multiplied(t, node, &x, &by)) {
        t->trace->scale *= by;
        good = trace_into(t, x, index);
    } else {
        good = trace_end(t, value, index);
    }
    t->depth--;
    return good;
}

bool trace_value(Trace *out, const Net *net, NetValue *value, bool stored) {
    *out =
        (Trace){.arena = arena_create(), .scale = 1, .tokens_first = value->tokens_first};
    Tracer t = {out, net, {out->arena, 4 * (int64_t)ARRAY_COUNT_MAX}, stored, 0, 0};
    if (value->probe[0] && trace_into(&t, value, out->index)) return true;
    trace_free(out);
    return false;
}

void trace_free(Trace *trace) {
    arena_destroy(trace->arena);
    trace->arena = NULL;
}

bool trace_is_plain(const Trace *trace) {
    for (int p = 0; p < NET_PROBES; p++) {
        const Array *index = trace->index[p];
        if (index->count != trace->source->probe[p]->count) return false;
        for (int64_t i = 0; i < index->count; i++)
            if (index->data[i] != (double)(trace_place(trace, p, i) + 1)) return false;
    }
    return true;
}

/* ---- cones ---- */

enum { CONE_NODES_MAX = 24, CONE_FRONT_MAX = 8 };

static bool is_in_cone(const NetNode *node, ConeKind kind) {
    const EvalRow *row = node ? eval_find(node->op) : NULL;
    double number;
    if (!row || node->out_count != 1) return false;
    for (int i = 0; i < node->in_count; i++) {
        /* an operand that is known must be what the cone may have */
        const NetValue *value = node->in[i];
        if (!value || !value_is_known(value) || value_scalar(value, &number)) continue;
        if (kind != CONE_ROWS || value->probe[0]->depends) return false;
    }
    if (row->kind == EVAL_ELEMENTS) return true;
    if (kind == CONE_COUNTS) return net_is(node, "CumSum");
    const Array *x = node->in_count && node->in[0] ? node->in[0]->probe[0] : NULL;
    const Array *y = node->out[0] ? node->out[0]->probe[0] : NULL;
    return kind == CONE_ROWS && strncmp(node->op, "Reduce", 6) == 0 && x && y &&
           x->rank == y->rank && x->rank > 0 && y->dim[y->rank - 1] == 1 &&
           y->count * x->dim[x->rank - 1] == x->count;
}

/* Values without known numbers that the nodes of the cone take from outside of it; the
 * last one computed stands first. */
static int cone_front(const Cone *cone, NetValue *front[CONE_FRONT_MAX]) {
    int count = 0;
    for (int n = 0; n < cone->nodes; n++)
        for (int i = 0; i < cone->node[n]->in_count; i++) {
            NetValue *value = cone->node[n]->in[i];
            bool out = value && !value_is_known(value);
            for (int k = 0; k < cone->nodes && out; k++)
                out = value->producer != cone->node[k];
            for (int k = 0; k < count && out; k++) out = front[k] != value;
            if (!out) continue;
            if (count == CONE_FRONT_MAX) return count + 1;
            front[count++] = value;
        }
    for (int i = 1; i < count; i++) {
        const NetNode *a = front[0]->producer, *b = front[i]->producer;
        if (!b || (a && a->order >= b->order)) continue;
        NetValue *first = front[0];
        front[0] = front[i];
        front[i] = first;
    }
    return count;
}

bool cone_grow(Cone *cone, ConeKind kind) {
    NetValue *front[CONE_FRONT_MAX + 1] = {cone->root};
    int count = 1;
    do {
        if (cone->nodes > 0) count = cone_front(cone, front);
        if (count < 1 || count > CONE_FRONT_MAX) return false;
        if (!is_in_cone(front[0]->producer, kind) || cone->nodes == CONE_NODES_MAX)
            return false;
        cone->node[cone->nodes++] = front[0]->producer;
        count = cone_front(cone, front);
    } while (count != 1);
    cone->source = front[0];
    return true;
}

/* What the cone's nodes make of the numbers, in the order of the net. */
Array *cone_apply(const Cone *cone, ArrayPool *pool, Array *numbers) {
    Array *made[CONE_NODES_MAX] = {0}, *in[16], *last = NULL;
    Diag *diag = diag_create();
    bool good = true;
    for (int n = cone->nodes - 1; n >= 0 && good; n--) { /* found from the end */
        const NetNode *node = cone->node[n];
        good = node->in_count <= 16;
        for (int i = 0; i < node->in_count && good; i++) {
            NetValue *value = node->in[i];
            in[i] = !value ? NULL : value == cone->source ? numbers : value->probe[0];
            for (int k = cone->nodes - 1; value && k > n; k--)
                if (value->producer == cone->node[k]) in[i] = made[k];
        }
        good = good && eval_node(cone->net, pool, node, in, &last, diag) == STATUS_OK &&
               last && last->data;
        made[n] = last;
    }
    diag_destroy(diag);
    return good ? last : NULL;
}
