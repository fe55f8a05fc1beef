/* Evaluation: the table of operators and what they share. See eval.h. */
#include "io/onnx/net/eval.h"

#include "ir/text.h"

#include <math.h>
#include <string.h>

static const EvalRow *const TABLES[] = {eval_elements_rows, eval_move_rows,
                                        eval_layer_rows};

const EvalRow *eval_find(const char *op) {
    for (size_t t = 0; t < sizeof TABLES / sizeof *TABLES; t++)
        for (const EvalRow *row = TABLES[t]; row->op; row++)
            if (strcmp(row->op, op) == 0) return row;
    return NULL;
}

static Status fail_unknown(const Net *net, const NetNode *node, Diag *diag) {
    Text known = {0};
    for (size_t t = 0; t < sizeof TABLES / sizeof *TABLES; t++)
        for (const EvalRow *row = TABLES[t]; row->op; row++)
            text_add(&known, "%s%s", known.length ? ", " : "", row->op);
    net_fail(net, node, STATUS_MODEL, diag, "this operator is not known");
    diag_note(diag, "known: %s", known.data);
    text_free(&known);
    return STATUS_MODEL;
}

Status eval_node(const Net *net, ArrayPool *pool, const NetNode *node, Array *const *in,
                 Array **out, Diag *diag) {
    const EvalRow *row = eval_find(node->op);
    unsigned depends = 0;
    if (!row) return fail_unknown(net, node, diag);
    for (int i = 0; i < node->out_count; i++) out[i] = NULL;
    for (int i = 0; i < node->in_count; i++) {
        if (node->in[i] && !in[i]) return STATUS_OK;
        if (in[i]) depends |= in[i]->depends;
    }
    EvalCall call = {.pool = pool,
                     .net = net,
                     .node = node,
                     .in = in,
                     .in_count = node->in_count,
                     .out = out};
    if (node->out_count < 1 || !row->run(&call))
        return net_fail(net, node, STATUS_FORMAT, diag, "%s",
                        call.fault ? call.fault : "its operands do not fit");
    const bool of_shape = strcmp(node->op, "Shape") == 0 || strcmp(node->op, "Size") == 0;
    for (int i = 0; i < node->out_count && !of_shape; i++)
        if (out[i]) out[i]->depends = depends;
    return STATUS_OK;
}

bool eval_fault(EvalCall *call, const char *what) {
    call->fault = what;
    return false;
}

Array *eval_in(const EvalCall *call, int i) {
    return i < call->in_count ? call->in[i] : NULL;
}

bool eval_has(const EvalCall *call, int count) {
    for (int i = 0; i < count; i++)
        if (!eval_in(call, i)) return false;
    return true;
}

bool eval_knows(const EvalCall *call) {
    for (int i = 0; i < call->in_count; i++)
        if (call->in[i] && !call->in[i]->data) return false;
    return true;
}

Array *eval_result(EvalCall *call, int i, int32_t type, int rank, const int64_t *dim,
                   bool known) {
    Array *array = array_create(call->pool, type, rank, dim, known);
    if (!array)
        call->fault = "its result would have a shape that is impossible";
    else if (i < call->node->out_count)
        call->out[i] = array;
    return array;
}

bool eval_axis(int64_t axis, int rank, int *out) {
    if (axis < -rank || axis >= rank) return false;
    *out = (int)(axis < 0 ? axis + rank : axis);
    return true;
}

int64_t eval_integer(double x) {
    const double most = 4611686018427387904.0;
    if (!(x > -most)) return -((int64_t)1 << 62);
    return x < most ? (int64_t)x : (int64_t)1 << 62;
}

bool eval_integers(const EvalCall *call, int i, const char *name, int64_t *out,
                   int *count) {
    const Array *array = eval_in(call, i);
    const int64_t *list = net_ints(call->node, name, count);
    if (array) {
        if (!array->data || array->count > NET_RANK_MAX) return false;
        *count = (int)array->count;
        for (int k = 0; k < *count; k++) out[k] = eval_integer(array->data[k]);
        return true;
    }
    if (!list) return *count = -1, true;
    if (*count > NET_RANK_MAX) return false;
    for (int k = 0; k < *count; k++) out[k] = list[k];
    return true;
}
