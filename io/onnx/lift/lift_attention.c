/* Lifting attention: joined heads of softmax(q k^T + masks) v, whatever reshapes,
 * transposes and scalings stand between. See lift_attention.h.
 *
 * Walked from the joined heads back: the product with the values, the softmax, what is
 * added to the scores (masks are known by their numbers, tables of relative positions by
 * where their elements go), the product of queries and keys, and how each of the three
 * comes from tokens: which columns of a projection are which number of which head. */
#include "io/onnx/lift/lift_attention.h"

#include "io/onnx/lift/lift_heads.h"
#include "io/onnx/lift/lift_reach.h"
#include "io/onnx/lift/lift_rows.h"
#include "io/onnx/lift/lift_weights.h"
#include "io/onnx/net/probe.h"

#include <math.h>
#include <string.h>

/* Forbidden scores get numbers below this; Swin's windows have -100. */
static const double FORBIDDEN = -50;

/* ---- scores ---- */

/* What stands between the softmax and the product of queries and keys. */
typedef struct Scores {
    NetNode *product;
    double scale, cap;         /* cap: 0 = none */
    MaskReach reach;           /* of the masks */
    double *added[NET_PROBES]; /* to each score, NULL = nothing */
    int64_t count[NET_PROBES];
    NetValue *table;   /* of relative positions, NULL = none */
    Trace table_trace; /* of what is added from it */
    Arena *arena;
} Scores;

/* Adds known numbers, broadcast to the scores' shape, times the scale so far; with
 * `where` only there where that is, or is not, 0. */
static bool add_mask(Scores *s, const NetValue *mask, const NetValue *scores,
                     const NetValue *where, bool at_zero) {
    if (s->cap > 0) return false; /* what is added before the cap is capped */
    if (!s->reach.reach) s->reach = find_reach(where ? where : mask);
    for (int p = 0; p < NET_PROBES; p++) {
        const Array *shape = scores->probe[p];
        if (!s->added[p]) {
            s->count[p] = shape->count;
            if (shape->count > ARRAY_COUNT_MAX) return false;
            s->added[p] = ARENA_ARRAY(s->arena, double, (size_t)shape->count + 1);
        }
        if (shape->count != s->count[p] || mask->probe[p]->rank > shape->rank)
            return false;
        for (int64_t i = 0; i < shape->count; i++) {
            double x = array_broadcast_number(mask->probe[p], shape, i);
            if (where)
                x = (array_broadcast_number(where->probe[p], shape, i) == 0) == at_zero
                        ? x
                        : 0;
            s->added[p][i] += s->scale * x;
        }
    }
    return true;
}

/* Whether numbers are those of a mask: nothing, or far below every score. */
static bool is_mask(const NetValue *value) {
    if (!value_is_known(value)) return false;
    for (int p = 0; p < NET_PROBES; p++)
        for (int64_t i = 0; i < value->probe[p]->count; i++) {
            const double x = value->probe[p]->data[i];
            if (x != 0 && !(x <= FORBIDDEN)) return false;
        }
    return true;
}

/* An operand of a sum with the scores: a mask, or a table of relative positions. */
static bool take_added(Scores *s, const Net *net, NetValue *added,
                       const NetValue *scores) {
    if (is_mask(added)) return add_mask(s, added, scores, NULL, false);
    if (s->table || s->scale != 1 || s->cap > 0) return false;
    if (!trace_value(&s->table_trace, net, added, true)) return false;
    s->table = s->table_trace.source;
    return true;
}

/* c tanh(x / c): the factor c of a value, which is the scores' cap where the value is a
 * tanh. What comes before has the factor 1 / c. */
static NetValue *step_factor(Scores *s, NetValue *value, double number) {
    const NetNode *tanh = value_behind(value)->producer;
    s->scale *= number;
    if (!tanh || !net_is(tanh, "Tanh") || !tanh->in[0] || s->cap > 0) return value;
    if (s->scale != number || number <= 0) return NULL;
    s->cap = number;
    return tanh->in[0];
}

/* One node on the way from the softmax to the product; gives the next value. */
static NetValue *step_scores(Scores *s, const Net *net, NetValue *value) {
    NetNode *node = value->producer;
    double number;
    NetValue *a = node->in_count > 0 ? node->in[0] : NULL,
             *b = node->in_count > 1 ? node->in[1] : NULL;
    if (!a) return NULL;
    if (net_is(node, "Reshape") || net_is(node, "Unsqueeze") || net_is(node, "Squeeze"))
        return a;
    if (net_is(node, "Where") && node->in_count == 3) {
        NetValue *c = node->in[2];
        if (!a || !b || !c || !value_is_known(a)) return NULL;
        if (is_mask(c)) return add_mask(s, c, value, a, true) ? b : NULL;
        return is_mask(b) && add_mask(s, b, value, a, false) ? c : NULL;
    }
    if (!b) return NULL;
    const bool divided = net_is(node, "Div"), scaled = divided || net_is(node, "Mul");
    for (int i = divided; i < 2 && scaled; i++)
        if (value_scalar(node->in[i], &number)) {
            return step_factor(s, node->in[1 - i], divided ? 1 / number : number);
        }
    if (net_is(node, "Max"))
        for (int i = 0; i < 2; i++)
            if (value_scalar(node->in[i], &number) && number <= -1e4)
                return node->in[1 - i];
    if (!net_is(node, "Add")) return NULL;
    for (int i = 1; i >= 0; i--)
        if (take_added(s, net, node->in[i], value)) return node->in[1 - i];
    return NULL;
}

/* The product of a softmax's scores; false leaves lift->stop at what is in the way. */
static bool walk_scores(Lift *lift, NetValue *value, Scores *s) {
    for (int i = 0; i < 24 && value; i++) {
        value = value_behind(value);
        NetNode *node = value->producer;
        if (!node) return false;
        if (net_is(node, "MatMul") || net_is(node, "com.microsoft.FusedMatMul")) {
            s->product = node;
            s->scale *= net_real(node, "alpha", 1);
            return !net_int(node, "transA", 0);
        }
        value = step_scores(s, lift->net, value);
        if (!value) lift_stop(lift, node, "not known between scores and their softmax");
    }
    return false;
}

/* ---- masks ---- */

/* Whether what is added forbids exactly the keys after the query, or those that fill up,
 * or both, or nothing, and those out of reach. `heads` scores follow each other for every
 * sample. */
static bool mask_is(const double *added, int probe, int64_t count, int64_t queries,
                    int64_t keys, bool causal, bool padded, MaskReach reach) {
    const int64_t each = count / probe_samples(probe);
    for (int64_t i = 0; i < count; i++) {
        const int64_t key = i % keys, query = i / keys % queries;
        const int64_t distance = reach.both && key > query ? key - query : query - key;
        const bool free_key = (!causal || key <= query) &&
                              (!padded || probe_mask(keys, i / each, key)) &&
                              (reach.reach == 0 || distance < reach.reach);
        if ((added[i] <= FORBIDDEN) == free_key) return false;
    }
    return true;
}

static bool find_mask(const Scores *s, const Array *const scores[NET_PROBES],
                      bool *causal, bool *padded) {
    for (int kind = 0; kind < 4; kind++) {
        bool good = true;
        for (int p = 0; p < NET_PROBES && good; p++) {
            const Array *shape = scores[p];
            const int64_t keys = shape->dim[shape->rank - 1],
                          queries = shape->dim[shape->rank - 2];
            const bool tokens =
                kind < 2 || keys == probe_tokens(p) || keys == probe_source_tokens(p);
            good = tokens && shape->count == s->count[p] &&
                   shape->count % probe_samples(p) == 0 &&
                   mask_is(s->added[p], p, s->count[p], queries, keys, kind & 1, kind & 2,
                           s->reach);
        }
        if (!good || (s->reach.reach && !s->reach.both && !(kind & 1))) continue;
        *causal = kind & 1;
        *padded = kind & 2;
        return true;
    }
    return false;
}

/* ---- windows ---- */

const Node *partition_of(const Node *node) {
    for (int i = 0; i < 4 && node; i++) {
        if (strcmp(node->op->name, "window_partition") == 0) return node;
        node = node->in_count > 0 ? node->in[0] : NULL;
    }
    return NULL;
}

/* Part of a turned grid that a row or column belongs to: windows of the last ones hold
 * two parts. */
static int64_t shifted_part(int64_t at, int64_t size, int64_t window, int64_t shift) {
    return at < size - window ? 0 : at < size - shift ? 1 : 2;
}

/* Whether what is added to scores of windows is Swin's: -100 between the parts. */
static bool is_shift_mask(const Scores *s, int64_t heads, int64_t grid_h, int64_t grid_w,
                          int64_t window, int64_t shift) {
    const int64_t full_h = (grid_h + window - 1) / window * window,
                  full_w = (grid_w + window - 1) / window * window;
    const int64_t tokens = window * window, windows = full_h * full_w / tokens;
    for (int64_t i = 0; i < s->count[0]; i++) {
        const int64_t key = i % tokens, query = i / tokens % tokens;
        const int64_t w = i / (tokens * tokens * heads) % windows;
        const int64_t top = w / (full_w / window) * window,
                      left = w % (full_w / window) * window;
        int64_t part[2];
        for (int k = 0; k < 2; k++) {
            const int64_t at = k ? key : query;
            part[k] = 3 * shifted_part(top + at / window, full_h, window, shift) +
                      shifted_part(left + at % window, full_w, window, shift);
        }
        const bool apart = shift > 0 && part[0] != part[1];
        if ((s->added[0][i] <= FORBIDDEN) != apart) return false;
    }
    return true;
}

/* Whether element (head, query, key) of what is added is row (di, dj) of the table. */
static bool is_relative_table(const Scores *s, int64_t heads, int64_t window) {
    const Array *index = s->table_trace.index[0];
    const int64_t tokens = window * window, side = 2 * window - 1;
    if (s->table_trace.scale != 1 || s->table->probe[0]->count != side * side * heads ||
        index->count != heads * tokens * tokens)
        return false;
    for (int64_t i = 0; i < index->count; i++) {
        const int64_t key = i % tokens, query = i / tokens % tokens,
                      head = i / (tokens * tokens);
        const int64_t di = query / window - key / window + window - 1,
                      dj = query % window - key % window + window - 1;
        if (index->data[i] != (double)((di * side + dj) * heads + head + 1)) return false;
    }
    return true;
}

/* The table that a bias of every pair of tokens was computed from: what an optimiser has
 * made of it. NULL when pairs with the same offset differ. */
static NetValue *table_of_pairs(Lift *lift, const NetNode *node, const Scores *s,
                                int64_t heads, int64_t window) {
    const int64_t tokens = window * window, side = 2 * window - 1;
    const int64_t dim[2] = {side * side, heads};
    const Array *pairs = s->table->probe[0];
    if (!trace_is_plain(&s->table_trace) || pairs->count != heads * tokens * tokens)
        return NULL;
    Array *table = array_create(lift->pool, ONNX_F32, 2, dim, true);
    if (!table || !table->data || !pairs->data) return NULL;
    for (int pass = 0; pass < 2; pass++) /* filled, then compared */
        for (int64_t i = 0; i < pairs->count; i++) {
            const int64_t key = i % tokens, query = i / tokens % tokens;
            const int64_t di = query / window - key / window + window - 1,
                          dj = query % window - key % window + window - 1;
            double *at = &table->data[(di * side + dj) * heads + i / (tokens * tokens)];
            if (pass == 0) *at = pairs->data[i];
            if (*at != pairs->data[i]) return NULL;
        }
    NetValue *value = ARENA_NEW(lift->net->arena, NetValue);
    const char *last = strrchr(node->name, '/');
    const int length = last ? (int)(last - node->name) : 0;
    value->name = arena_printf(lift->arena, "%.*s.relative_position_bias_table", length,
                               node->name);
    value->probe[0] = value->probe[1] = table;
    return value;
}

/* Gives attention what is added to its scores beside masks: a table by offset, where it
 * is one of windows or of a grid, or else a bias for every pair of tokens. */
static Node *add_table(Lift *lift, const NetNode *node, const Scores *s, Node *attention,
                       int64_t heads, int64_t window) {
    const int64_t side = 2 * window - 1, table_dim[2] = {side * side, heads};
    const Array *pairs = s->table_trace.index[0];
    const int64_t rows = pairs->rank > 1 ? pairs->dim[pairs->rank - 2] : 0,
                  columns = pairs->rank > 1 ? pairs->dim[pairs->rank - 1] : 0;
    NetValue *folded = window ? table_of_pairs(lift, node, s, heads, window) : NULL;
    Node *value = NULL;
    const char *name = "rel_bias";
    if (window && is_relative_table(s, heads, window)) {
        value = lift_stored(lift, s->table, 2, table_dim);
    } else if (folded) {
        value = lift_stored(lift, folded, 2, table_dim);
    } else if (trace_is_plain(&s->table_trace) &&
               pairs->count == heads * rows * columns) {
        name = "bias";
        value = lift_stored(lift, s->table, 3, (const int64_t[]){heads, rows, columns});
    }
    if (!value) return lift_stop(lift, node, "its table is none of relative positions");
    node_set_operand(lift->graph, attention, name, value);
    Diag *diag = diag_create();
    const Status status = node_infer(attention, diag);
    diag_destroy(diag);
    return status == STATUS_OK ? attention
                               : lift_stop(lift, node, "its table is of another size");
}

static Node *lift_windowed(Lift *lift, const NetNode *node, const Scores *s,
                           Node *const in[3], int64_t heads, const char *scale,
                           const Node *partition, int64_t window) {
    const int64_t grid_h = node_integer(partition, "grid_h"),
                  grid_w = node_integer(partition, "grid_w"),
                  shift = node_integer(partition, "shift");
    if (s->added[0] && !is_shift_mask(s, heads, grid_h, grid_w, window, shift))
        return lift_stop(lift, node, "its mask is none of shifted windows");
    if (!s->added[0] && shift > 0)
        return lift_stop(lift, node, "its windows are shifted, but nothing is masked");
    Node *attention = lift_op(
        lift, node, "attention", in, 3,
        "heads=%lld grid_h=%lld grid_w=%lld window=%lld shift=%lld%s", (long long)heads,
        (long long)grid_h, (long long)grid_w, (long long)window, (long long)shift, scale);
    return attention && s->table ? add_table(lift, node, s, attention, heads, window)
                                 : attention;
}

/* ---- the whole ---- */

/* Joined heads: element (token, head * width + j) is (head, token, j) of the product. */
static bool joins_heads(const Trace *trace, int64_t *heads) {
    const Array *y = trace->index[0], *x = trace->source->probe[0];
    if (y->rank < 2 || x->rank < 3) return false;
    const int64_t width = x->dim[x->rank - 1], rows = x->dim[x->rank - 2];
    const int64_t columns = y->dim[y->rank - 1];
    if (columns % width != 0) return false;
    *heads = columns / width;
    for (int p = 0; p < NET_PROBES; p++) {
        const Array *index = trace->index[p];
        const int64_t queries = trace->source->probe[p]->dim[x->rank - 2];
        for (int64_t i = 0; i < index->count; i++) {
            const int64_t at = trace_place(trace, p, i);
            const int64_t token = at / columns, head = at % columns / width;
            const int64_t from =
                ((token / queries * *heads + head) * queries + token % queries) * width +
                at % width;
            if (index->data[i] != (double)(from + 1)) return false;
        }
    }
    return rows > 0 && trace->scale == 1;
}

/* Attributes beside the usual ones. */
static const char *limits_text(Lift *lift, const Scores *s) {
    const char *text = "";
    if (s->reach.reach)
        text = arena_printf(lift->arena, " reach=%lld", (long long)s->reach.reach);
    if (s->cap > 0)
        text = arena_printf(lift->arena, "%s cap=%s", text, short_decimal(lift, s->cap));
    return text;
}

static Node *lift_scores(Lift *lift, const NetNode *node, Scores *s, NetValue *values,
                         int64_t heads) {
    Heads q, k, v;
    bool causal = false, padded = false;
    const bool turned = net_int(s->product, "transB", 0);
    NetNode *product = s->product;
    if (!lift_heads(lift, product->in[0], false, &q) ||
        !lift_heads(lift, product->in[1], !turned, &k) ||
        !lift_heads(lift, values, false, &v))
        return NULL;
    if (q.groups != heads || k.groups != v.groups || q.width != k.width || v.scale != 1)
        return lift_stop(lift, node, "its heads do not go together");
    Node *in[4] = {q.node, k.node, v.node, NULL};
    const double factor = s->scale * q.scale * k.scale; /* the usual one is not said */
    const char *scale =
        fabs(factor * sqrt((double)q.width) - 1) < 1e-5
            ? ""
            : arena_printf(lift->arena, " scale=%s", short_factor(lift, factor));
    const Array *scores[NET_PROBES];
    for (int p = 0; p < NET_PROBES; p++) scores[p] = product->out[0]->probe[p];
    const int64_t rows = scores[0]->dim[scores[0]->rank - 2];
    const Node *partition = partition_of(q.node);
    if (partition)
        return lift_windowed(lift, node, s, in, heads, scale, partition,
                             (int64_t)llround(sqrt((double)rows)));
    if (s->added[0] && !find_mask(s, scores, &causal, &padded))
        return lift_stop(lift, node, "its mask is neither causal nor one of padding");
    /* What stands behind a token is not seen by it: no padding to be masked. Models with
     * a source and a target name the target's mask all the same. */
    const bool source = scores[0]->dim[scores[0]->rank - 1] == probe_source_tokens(0) ||
                        !lift->net->translates;
    if (lift->net->translates ? padded || causal : padded && !causal)
        in[3] = lift_input(lift, source ? INPUT_MASK : INPUT_TARGET_MASK, NULL);
    lift->decoder |= causal;
    const char *groups = k.groups == heads ? ""
                                           : arena_printf(lift->arena, " kv_heads=%lld",
                                                          (long long)k.groups);
    Node *attention = lift_op(lift, node, "attention", in, in[3] ? 4 : 3,
                              "heads=%lld%s%s%s%s", (long long)heads, groups,
                              causal ? " causal=true" : "", scale, limits_text(lift, s));
    return attention && s->table ? add_table(lift, node, s, attention, heads, 0)
                                 : attention;
}

/* The softmax behind a product's first operand: some put zeros where it is not a number.
 */
static NetNode *softmax_behind(NetValue *value) {
    value = value_behind(value);
    NetNode *node = value->producer;
    if (net_is(node, "Where") && node->in_count == 3 && node->in[2])
        node = value_behind(node->in[2])->producer;
    if (!net_is(node, "Softmax") || node->in_count != 1 || !node->in[0]) return NULL;
    const int64_t axis = net_int(node, "axis", -1);
    return axis == -1 || axis == node->in[0]->probe[0]->rank - 1 ? node : NULL;
}

Node *match_attention(Lift *lift, NetValue *value, const Trace *trace) {
    NetNode *product = trace->source->producer;
    int64_t heads;
    (void)value;
    if (!net_is(product, "MatMul") || !product->in[0] || !product->in[1]) return NULL;
    NetNode *softmax = softmax_behind(product->in[0]);
    if (!softmax || !joins_heads(trace, &heads)) return NULL;
    Scores s = {.scale = 1, .arena = arena_create()};
    Node *found = NULL;
    if (walk_scores(lift, softmax->in[0], &s))
        found = lift_scores(lift, product, &s, product->in[1], heads);
    if (s.table) trace_free(&s.table_trace);
    arena_destroy(s.arena);
    return found;
}
