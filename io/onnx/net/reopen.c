/* Reopening: see reopen.h. */
#include "io/onnx/net/reopen.h"

#include "io/onnx/net/eval.h"
#include "io/onnx/net/probe_input.h"

#include <stdlib.h>
#include <string.h>

/* ---- what the file fixes ---- */

int64_t reopen_fixed(const NetValue *input, int dim) {
    const OnnxTensorType *type = probe_input_type(input);
    const OnnxShape *shape = type ? type->shape : NULL;
    if (!shape || (size_t)dim >= shape->n_dim ||
        shape->dim[dim]->value_case !=
            ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE)
        return 0;
    return shape->dim[dim]->dim_value > 0 ? shape->dim[dim]->dim_value : 0;
}

int reopen_counted(const Net *net, const NetValue *input, int dim) {
    if (dim == 0) return probe_input_kind(input) == INPUT_SWITCH ? -1 : COUNTED_SAMPLES;
    if (dim > 1) return -1;
    switch (probe_input_kind(input)) {
    case INPUT_TOKENS:
    case INPUT_TYPE_IDS:
    case INPUT_PADDING:
    case INPUT_POSITIONS:
        return probe_is_source(net, input->name) ? COUNTED_SOURCE : COUNTED_TOKENS;
    case INPUT_STATES: return COUNTED_SOURCE;
    default: return -1;
    }
}

void reopen_find(Net *net) {
    int64_t found[COUNTED] = {0};
    for (int i = 0; i < net->input_count; i++)
        for (int d = 0; d < 2; d++) {
            const int counted = reopen_counted(net, net->inputs[i], d);
            const bool every = /* positions that are those of every sample */
                d == 0 && probe_input_kind(net->inputs[i]) == INPUT_POSITIONS &&
                reopen_fixed(net->inputs[i], d) == 1;
            const int64_t size =
                counted < 0 || every ? 0 : reopen_fixed(net->inputs[i], d);
            if (size > 0 && found[counted] > 0 && found[counted] != size) return;
            if (size > 0) found[counted] = size;
        }
    const int last = NET_PROBES - 1; /* tables have rows for the probes' tokens */
    if ((found[COUNTED_TOKENS] && found[COUNTED_TOKENS] < probe_tokens(last)) ||
        (found[COUNTED_SOURCE] && found[COUNTED_SOURCE] < probe_source_tokens(last)))
        return;
    memcpy(net->fixed, found, sizeof found);
}

bool reopen_any(const Net *net) {
    for (int i = 0; i < COUNTED; i++)
        if (net->fixed[i] > 0) return true;
    return false;
}

/* ---- what sizes are made of ---- */

/* A size with the file's numbers, and in each probe. */
enum { FILE_POINT, POINTS = 1 + NET_PROBES };

typedef struct Size {
    int64_t at[POINTS];
} Size;

static Array *value_at(const NetValue *value, int point) {
    return point == FILE_POINT ? value->fixed : value->probe[point - 1];
}

static Size size_of(const NetValue *value, int dim) {
    Size size;
    for (int k = 0; k < POINTS; k++) size.at[k] = value_at(value, k)->dim[dim];
    return size;
}

static bool is_open(const Size *size) {
    for (int k = 1; k < POINTS; k++)
        if (size->at[k] != size->at[FILE_POINT]) return true;
    return false;
}

static int64_t probe_count(int probe, int counted) {
    return counted == COUNTED_SAMPLES  ? probe_samples(probe)
           : counted == COUNTED_TOKENS ? probe_tokens(probe)
                                       : probe_source_tokens(probe);
}

int64_t reopen_file_count(const Net *net, int counted) {
    return net->fixed[counted] > 0 ? net->fixed[counted]
                                   : probe_count(NET_PROBES - 1, counted);
}

static Size counted_size(const Net *net, int counted) {
    Size size = {{reopen_file_count(net, counted)}};
    for (int p = 0; p < NET_PROBES; p++) size.at[1 + p] = probe_count(p, counted);
    return size;
}

enum { POWER_MAX = 2 };

/* A number times how often each is counted in it. */
typedef struct Parts {
    int64_t number;
    int power[COUNTED];
} Parts;

static bool parts_of(const Net *net, const Size *size, Parts *out) {
    const int counts = net->translates ? COUNTED : COUNTED_SOURCE;
    *out = (Parts){.number = size->at[FILE_POINT]};
    if (!is_open(size)) return true;
    for (;;) {
        int next = 0;
        while (next < counts && out->power[next] == POWER_MAX) out->power[next++] = 0;
        if (next == counts) return false;
        out->power[next]++;
        Size left = *size; /* the number, at each of them */
        bool same = true;
        for (int c = 0; c < counts; c++) {
            const Size one = counted_size(net, c);
            for (int k = 0; k < POINTS; k++)
                for (int n = 0; n < out->power[c]; n++) {
                    same = same && left.at[k] % one.at[k] == 0;
                    left.at[k] /= one.at[k];
                }
        }
        out->number = left.at[FILE_POINT];
        if (same && out->number > 0 && !is_open(&left)) return true;
    }
}

/* Whether a size is one of what is counted, and which; -1 = none alone. */
static int counted_alone(const Net *net, const Size *size) {
    for (int c = 0; c < COUNTED; c++) {
        const Size one = counted_size(net, c);
        if (memcmp(&one, size, sizeof one) == 0 &&
            (c < COUNTED_SOURCE || net->translates))
            return c;
    }
    return -1;
}

/* ---- new values ---- */

static NetValue *add_value(Reopen *r, const char *name, NetNode *producer) {
    if (r->value_count == r->value_capacity) {
        r->value_capacity = r->value_capacity ? 2 * r->value_capacity : 32;
        r->values = memory_grow(r->values, (size_t)r->value_capacity, sizeof *r->values);
    }
    NetValue *value = ARENA_NEW(r->net->arena, NetValue);
    *value = (NetValue){.name = name, .producer = producer};
    r->values[r->value_count++] = value;
    return value;
}

static void add_node(Reopen *r, NetNode *node) {
    if (r->node_count == r->node_capacity) {
        r->node_capacity = r->node_capacity ? 2 * r->node_capacity : 256;
        r->nodes = memory_grow(r->nodes, (size_t)r->node_capacity, sizeof *r->nodes);
    }
    r->nodes[r->node_count++] = node;
}

/* Gives a new value its one user. */
static void set_user(Reopen *r, NetValue *value, NetNode *user) {
    value->users = ARENA_NEW(r->net->arena, NetNode *);
    value->users[0] = user;
    value->user_count = 1;
}

/* Lets a node have a new value as operand; the old one has another user, or one fewer. */
static void set_operand(Reopen *r, NetNode *node, int i, NetValue *value, NetNode *user) {
    NetValue *old = node->in[i];
    int at = 0;
    while (old->users[at] != node) at++;
    if (user)
        old->users[at] = user;
    else
        old->users[at] = old->users[--old->user_count];
    node->in[i] = value;
    set_user(r, value, node);
}

/* Integers that follow from sizes, as an operand. */
static NetValue *add_integers(Reopen *r, const char *name, const Size *sizes, int count) {
    NetValue *value = add_value(r, name, NULL);
    const int64_t dim[1] = {count};
    for (int k = 0; k < POINTS; k++) {
        Array *array = array_create(r->pool, ONNX_I64, 1, dim, true);
        if (!array || !array->data) return NULL;
        for (int i = 0; i < count; i++) array->data[i] = (double)sizes[i].at[k];
        if (k == FILE_POINT)
            value->fixed = array;
        else
            value->probe[k - 1] = array;
    }
    return value;
}

/* Puts a node between operand `i` of `node` and what gives it. */
static Status put_between(Reopen *r, NetNode *node, int i, const char *op,
                          NetValue *const *more, int count, Diag *diag) {
    Arena *arena = r->net->arena;
    OnnxNode *proto = ARENA_NEW(arena, OnnxNode);
    NetNode *made = ARENA_NEW(arena, NetNode);
    NetValue *old = node->in[i];
    *proto = (OnnxNode)ONNX__NODE_PROTO__INIT;
    *made = (NetNode){.op = op, .name = node->name, .proto = proto, .out_count = 1};
    made->in_count = 1 + count;
    made->in = ARENA_ARRAY(arena, NetValue *, (size_t)made->in_count);
    made->out = ARENA_NEW(arena, NetValue *);
    made->out[0] = add_value(r, old->name, made);
    made->in[0] = old;
    set_operand(r, node, i, made->out[0], made);
    for (int k = 0; k < count; k++) {
        if (!more[k])
            return net_fail(r->net, node, STATUS_MODEL, diag, "too many numbers");
        made->in[1 + k] = more[k];
        set_user(r, more[k], made);
    }
    add_node(r, made);
    for (int k = 0; k < POINTS; k++) {
        Array *in[NET_RANK_MAX], *out[1];
        for (int j = 0; j < made->in_count; j++) in[j] = value_at(made->in[j], k);
        TRY(eval_node(r->net, r->pool, made, in, out, diag));
        if (k == FILE_POINT)
            made->out[0]->fixed = out[0];
        else
            made->out[0]->probe[k - 1] = out[0];
    }
    return STATUS_OK;
}

/* ---- operands ---- */

/* Whether shape and numbers of a value are there for all sizes. */
static bool is_evaluated(const NetValue *value, bool numbers) {
    for (int k = 0; k < POINTS; k++) {
        const Array *array = value ? value_at(value, k) : NULL;
        if (!array || (numbers && !array->data)) return false;
        if (array->rank != value_at(value, FILE_POINT)->rank) return false;
    }
    return true;
}

static bool is_open_value(const NetValue *value) {
    for (int d = 0; d < value->fixed->rank; d++) {
        const Size size = size_of(value, d);
        if (is_open(&size)) return true;
    }
    return false;
}

/* Whether number `i` of a list is the same for all sizes. */
static bool is_same_number(const NetValue *list, int64_t i) {
    for (int k = 1; k < POINTS; k++) {
        if (i >= value_at(list, k)->count) return false;
        if (value_at(list, k)->data[i] != value_at(list, FILE_POINT)->data[i])
            return false;
    }
    return i < list->fixed->count;
}

/* ---- Reshape ---- */

/* A part of a dimension: what is counted, or a number. */
typedef struct Factor {
    Size size;
    bool counted;
} Factor;

enum { FACTORS_MAX = NET_RANK_MAX * (1 + COUNTED * POWER_MAX) };

static void add_number(Factor *list, int *count, int64_t number) {
    if (number == 1) return;
    if (*count == 0 || list[*count - 1].counted)
        list[(*count)++] = (Factor){{{1, 1, 1}}, false};
    for (int k = 0; k < POINTS; k++) list[*count - 1].size.at[k] *= number;
}

/* A value's dimensions, the slowest part first: what is counted stands before numbers,
 * samples before tokens unless the value's rows are the other way round. */
static bool list_factors(const Net *net, const NetValue *x, Factor *list, int *count) {
    static const int ORDERS[2][COUNTED] = {
        {COUNTED_SAMPLES, COUNTED_TOKENS, COUNTED_SOURCE},
        {COUNTED_TOKENS, COUNTED_SOURCE, COUNTED_SAMPLES}};
    const int rank = x->fixed->rank;
    *count = 0;
    for (int d = 0; d < rank; d++) {
        const Size size = size_of(x, d);
        const bool turned = x->tokens_first && rank == 2 && d == 0;
        Parts parts;
        if (!parts_of(net, &size, &parts) || size.at[FILE_POINT] < 1) return false;
        for (int c = 0; c < COUNTED; c++) {
            const int counted = ORDERS[turned][c];
            if (turned && counted == COUNTED_SAMPLES)
                add_number(list, count, parts.number);
            for (int n = 0; n < parts.power[counted]; n++)
                list[(*count)++] = (Factor){counted_size(net, counted), true};
        }
        if (!turned) add_number(list, count, parts.number);
    }
    return true;
}

/* Whether something stands before samples. */
static bool is_turned(const Net *net, const Factor *list, int count) {
    const Size samples = counted_size(net, COUNTED_SAMPLES);
    for (int i = 1; i < count; i++)
        if (list[i].counted && memcmp(&list[i].size, &samples, sizeof samples) == 0)
            return true;
    return false;
}

static bool is_one(const Factor *factor) {
    return factor->counted && factor->size.at[FILE_POINT] == 1;
}

/* Whether a factor that is 1 in the file belongs to the dimension that is full, and not
 * to the next one: that is a 1 as well, or a part of the number behind it (heads that
 * stand beside samples). */
static bool ends_here(const Factor *factor, const Factor *end, const int64_t *next,
                      int more) {
    if (more == 0) return true;
    if (*next == 1) return false;
    return factor + 1 == end || factor[1].counted ||
           *next >= factor[1].size.at[FILE_POINT];
}

/* Divides factors, in their order, among dimensions whose sizes in the file are known. */
static bool match_shape(Factor *at, int count, const Array *want, Size *out) {
    const Factor *end = at + count;
    for (int d = 0; d < want->rank; d++) {
        int64_t rest = want->dim[d];
        out[d] = (Size){{1, 1, 1}};
        bool takes = rest == 1 && at < end && is_one(at);
        while (rest > 1 || takes) {
            if (at == end || rest < 1) return false;
            int64_t part = at->size.at[FILE_POINT];
            if (!at->counted && part % rest == 0) part = rest;
            if (rest % part != 0) return false;
            rest /= part;
            for (int k = 0; k < POINTS; k++)
                out[d].at[k] *= at->counted ? at->size.at[k] : part;
            for (int k = 0; k < POINTS && !at->counted; k++) at->size.at[k] /= part;
            if (at->counted || at->size.at[FILE_POINT] == 1) at++;
            takes = rest == 1 && at < end && is_one(at) && want->dim[d] > 1 &&
                    ends_here(at, end, want->dim + d + 1, want->rank - d - 1);
        }
    }
    return at == end;
}

/* Whether a shape that was computed fits the probes' sizes. */
static bool fits_probes(const Reopen *r, const NetNode *node) {
    Diag *aside = diag_create();
    bool same = true, good = true;
    for (int64_t i = 0; i < node->in[1]->fixed->count; i++)
        same = same && is_same_number(node->in[1], i);
    for (int p = 0; p < NET_PROBES && !same && good; p++) {
        Array *in[2] = {node->in[0]->probe[p], node->in[1]->probe[p]}, *out[1];
        good = eval_node(r->net, r->pool, node, in, out, aside) == STATUS_OK;
    }
    diag_destroy(aside);
    return !same && good;
}

static Status reopen_reshape(Reopen *r, NetNode *node, Diag *diag) {
    Factor factors[FACTORS_MAX];
    Size shape[NET_RANK_MAX];
    int count;
    if (node->in_count != 2 || !is_evaluated(node->in[0], false) ||
        !is_evaluated(node->in[1], true) || !is_open_value(node->in[0]) ||
        fits_probes(r, node))
        return STATUS_OK;
    const Array *want = node->out[0] ? node->out[0]->fixed : NULL;
    const bool listed = want && list_factors(r->net, node->in[0], factors, &count);
    const bool turned = listed && is_turned(r->net, factors, count);
    if (!listed || !match_shape(factors, count, want, shape))
        return net_fail(r->net, node, STATUS_MODEL, diag,
                        "its shape is written for fixed sizes, in a way that does not "
                        "say what they count");
    NetValue *value = add_integers(r, node->in[1]->name, shape, want->rank);
    if (value) set_operand(r, node, 1, value, NULL);
    node->out[0]->tokens_first = turned && want->rank == 2;
    return STATUS_OK;
}

/* ---- Expand and Slice ---- */

/* What a dimension that an Expand makes counts: tokens, where the number is theirs. */
static Size made_size(const Net *net, int64_t number) {
    for (int c = COUNTED_TOKENS; c <= (net->translates ? COUNTED_SOURCE : COUNTED_TOKENS);
         c++)
        if (net->fixed[c] > 0 && net->fixed[c] == number) return counted_size(net, c);
    if (net->fixed[COUNTED_SAMPLES] > 1 && net->fixed[COUNTED_SAMPLES] == number)
        return counted_size(net, COUNTED_SAMPLES);
    return (Size){{number, number, number}};
}

/* Dimensions that are asked for are the operand's where it has them. */
static void reopen_expand(Reopen *r, NetNode *node) {
    Size shape[NET_RANK_MAX];
    if (node->in_count != 2 || !is_evaluated(node->in[0], false) ||
        !is_evaluated(node->in[1], true) || node->in[1]->fixed->count > NET_RANK_MAX)
        return;
    const NetValue *x = node->in[0], *list = node->in[1];
    const int rank = (int)list->fixed->count;
    for (int d = 0; d < rank; d++) {
        const int own = d - rank + x->fixed->rank;
        const int64_t asked = eval_integer(list->fixed->data[d]);
        const Size has = own >= 0 ? size_of(x, own) : (Size){{1, 1, 1}};
        if (!is_same_number(list, d)) {
            for (int k = 0; k < POINTS; k++)
                shape[d].at[k] = eval_integer(value_at(list, k)->data[d]);
        } else if (asked == 1 || has.at[FILE_POINT] == asked) {
            shape[d] = asked == 1 ? (Size){{1, 1, 1}} : has;
        } else {
            shape[d] = made_size(r->net, asked);
        }
    }
    NetValue *value = add_integers(r, list->name, shape, rank);
    if (value) set_operand(r, node, 1, value, NULL);
}

/* An end that was that of a dimension is the end of what it is now. */
static void reopen_slice(Reopen *r, NetNode *node) {
    Size ends[NET_RANK_MAX];
    bool changed = false;
    int axis;
    if (node->in_count < 3 || !is_evaluated(node->in[0], false) ||
        !is_evaluated(node->in[2], true) || node->in[2]->fixed->count > NET_RANK_MAX)
        return;
    const NetValue *x = node->in[0], *list = node->in[2], *axes = net_operand(node, 3);
    const int count = (int)list->fixed->count;
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < POINTS; k++)
            ends[i].at[k] = i < value_at(list, k)->count
                                ? eval_integer(value_at(list, k)->data[i])
                                : 0;
        if (axes && (!is_evaluated(axes, true) || axes->fixed->count <= i)) return;
        const int64_t at = axes ? eval_integer(axes->fixed->data[i]) : i;
        if (!eval_axis(at, x->fixed->rank, &axis)) return;
        const Size size = size_of(x, axis);
        if (!is_open(&size) || !is_same_number(list, i) ||
            ends[i].at[FILE_POINT] < size.at[FILE_POINT])
            continue;
        for (int k = 0; k < POINTS; k++) ends[i].at[k] = INT32_MAX;
        changed = true;
    }
    NetValue *value = changed ? add_integers(r, list->name, ends, count) : NULL;
    if (value) set_operand(r, node, 2, value, NULL);
}

/* ---- operands side by side ---- */

static const Size ZERO = {{0}}, ONE = {{1, 1, 1}};

/* Cuts a dimension of operand `i` after so many elements. */
static Status cut_operand(Reopen *r, NetNode *node, int i, int axis, const Size *size,
                          Diag *diag) {
    const Size along = {{axis, axis, axis}};
    const char *name = node->name;
    NetValue *more[3] = {add_integers(r, name, &ZERO, 1), add_integers(r, name, size, 1),
                         add_integers(r, name, &along, 1)};
    return put_between(r, node, i, "Slice", more, 3, diag);
}

static Status repeat_operand(Reopen *r, NetNode *node, int i, int axis, const Size *size,
                             Diag *diag) {
    Size shape[NET_RANK_MAX];
    const int rank = node->in[i]->fixed->rank;
    for (int d = 0; d < rank; d++) shape[d] = d == axis ? *size : ONE;
    NetValue *more[1] = {add_integers(r, node->name, shape, rank)};
    return put_between(r, node, i, "Expand", more, 1, diag);
}

/* Whether all parts of a value along a dimension are the same. */
static bool has_same_parts(const NetValue *value, int axis) {
    const Array *array = value->fixed;
    if (!array->data) return false;
    const int64_t stride = array_stride(array, axis);
    for (int64_t i = 0; i < array->count; i++) {
        const int64_t first = i - i / stride % array->dim[axis] * stride;
        if (array->data[i] != array->data[first]) return false;
    }
    return true;
}

/* Gives a dimension of operand `i`, which is fixed, the size that others have. */
static Status fit_operand(Reopen *r, NetNode *node, int i, int axis, const Size *size,
                          bool joins, Diag *diag) {
    const int counted = counted_alone(r->net, size);
    const int64_t has = node->in[i]->fixed->dim[axis];
    if (has != size->at[FILE_POINT]) return STATUS_OK;
    if (counted == COUNTED_TOKENS || counted == COUNTED_SOURCE)
        return cut_operand(r, node, i, axis, size, diag);
    if (has > 1) {
        if (!has_same_parts(node->in[i], axis)) return STATUS_OK;
        TRY(cut_operand(r, node, i, axis, &ONE, diag));
    }
    return joins ? repeat_operand(r, node, i, axis, size, diag) : STATUS_OK;
}

/* Operands whose shapes go together but for the last `apart` dimensions; one along which
 * they are joined is left out. */
static Status reopen_together(Reopen *r, NetNode *node, int apart, int joined,
                              Diag *diag) {
    for (int i = 0; i < node->in_count; i++)
        if (!is_evaluated(node->in[i], false)) return STATUS_OK;
    for (int back = 1 + apart; back <= NET_RANK_MAX; back++) {
        const NetValue *open = NULL;
        for (int i = 0; i < node->in_count && !open; i++) {
            const int rank = node->in[i]->fixed->rank;
            const Size size = back <= rank ? size_of(node->in[i], rank - back) : ONE;
            if (is_open(&size)) open = node->in[i];
        }
        if (!open || joined == open->fixed->rank - back) continue;
        const Size size = size_of(open, open->fixed->rank - back);
        for (int i = 0; i < node->in_count; i++) {
            const int axis = node->in[i]->fixed->rank - back;
            if (axis < 0) continue;
            const Size own = size_of(node->in[i], axis);
            if (is_open(&own) || (own.at[FILE_POINT] == 1 && joined < 0)) continue;
            TRY(fit_operand(r, node, i, axis, &size, joined >= 0, diag));
        }
    }
    return STATUS_OK;
}

static Status reopen_joined(Reopen *r, NetNode *node, Diag *diag) {
    int axis;
    if (node->in_count < 1 || !is_evaluated(node->in[0], false) ||
        !eval_axis(net_int(node, "axis", 0), node->in[0]->fixed->rank, &axis))
        return STATUS_OK;
    return reopen_together(r, node, 0, axis, diag);
}

Status reopen_node(Reopen *r, NetNode *node, Diag *diag) {
    Status status = STATUS_OK;
    const EvalRow *row = eval_find(node->op);
    if (net_is(node, "Reshape")) status = reopen_reshape(r, node, diag);
    if (net_is(node, "Expand")) reopen_expand(r, node);
    if (net_is(node, "Slice")) reopen_slice(r, node);
    if (net_is(node, "Concat")) status = reopen_joined(r, node, diag);
    if (net_is(node, "MatMul")) status = reopen_together(r, node, 2, -1, diag);
    if (row && row->kind == EVAL_ELEMENTS && node->in_count > 1)
        status = reopen_together(r, node, 0, -1, diag);
    add_node(r, node);
    return status;
}

void reopen_end(Reopen *r) {
    Net *net = r->net;
    const size_t count = (size_t)(net->value_count + r->value_count);
    NetValue **values = ARENA_ARRAY(net->arena, NetValue *, count);
    memcpy(values, net->values, (size_t)net->value_count * sizeof *values);
    for (int i = 0; i < r->value_count; i++) values[net->value_count++] = r->values[i];
    net->values = values;
    net->nodes = ARENA_ARRAY(net->arena, NetNode *, (size_t)r->node_count + 1);
    for (int i = 0; i < r->node_count; i++) {
        net->nodes[i] = r->nodes[i];
        net->nodes[i]->order = i;
    }
    net->node_count = r->node_count;
    free(r->nodes);
    free(r->values);
}
