/* Lifting heads: which columns of which projection the queries, keys or values of
 * attention are, through views, splits, rotations by position and copies for grouped
 * queries. See lift.h. */
#include "io/onnx/lift.h"

#include "io/onnx/probe.h"

#include <math.h>

/* ---- heads of tokens ---- */

/* Where the elements of heads come from in a source with rows of `columns`. */
typedef struct HeadMap {
    int64_t rows;                /* tokens of one sample, or of one window */
    int64_t batch, heads, width; /* of the value [batch, heads, rows, width] */
    int64_t group;               /* heads that share columns */
    int64_t columns;             /* of the source */
    int64_t *column;             /* of number j of group g: column[g * width + j] */
} HeadMap;

/* Index of element (b, h, r, j) of a value [.., rows, width], or of its transpose. */
static int64_t head_element(const HeadMap *m, bool turned, int64_t bh, int64_t r,
                            int64_t j) {
    return turned ? (bh * m->width + j) * m->rows + r : (bh * m->rows + r) * m->width + j;
}

/* Reads the map from where the first token of the first sample comes from. */
static bool read_head_map(HeadMap *m, Arena *arena, const Array *index, bool turned,
                          int64_t source_count) {
    const int rank = index->rank;
    if (rank < 3 || source_count % m->columns != 0) return false;
    m->rows = index->dim[rank - (turned ? 1 : 2)];
    m->width = index->dim[rank - (turned ? 2 : 1)];
    const int64_t tokens = source_count / m->columns;
    if (m->rows < 1 || m->width < 1 || tokens % m->rows != 0) return false;
    m->batch = tokens / m->rows;
    const int64_t all = index->count / (m->rows * m->width);
    if (m->batch < 1 || all % m->batch != 0) return false;
    m->heads = all / m->batch;
    const double first = index->data[head_element(m, turned, 0, 0, 0)];
    m->group = 1;
    while (m->group < m->heads &&
           index->data[head_element(m, turned, m->group, 0, 0)] == first)
        m->group++;
    if (m->heads % m->group != 0) return false;
    const int64_t groups = m->heads / m->group;
    m->column = ARENA_ARRAY(arena, int64_t, (size_t)(groups * m->width));
    for (int64_t g = 0; g < groups; g++)
        for (int64_t j = 0; j < m->width; j++) {
            const double at = index->data[head_element(m, turned, g * m->group, 0, j)];
            if (!(at >= 1 && at <= (double)m->columns)) return false;
            m->column[g * m->width + j] = (int64_t)at - 1;
        }
    return true;
}

/* Whether all elements come from where the map says. */
static bool holds_head_map(const HeadMap *m, const Array *index, bool turned) {
    for (int64_t b = 0; b < m->batch; b++)
        for (int64_t h = 0; h < m->heads; h++)
            for (int64_t r = 0; r < m->rows; r++)
                for (int64_t j = 0; j < m->width; j++) {
                    const int64_t from = (b * m->rows + r) * m->columns +
                                         m->column[h / m->group * m->width + j];
                    const int64_t at = head_element(m, turned, b * m->heads + h, r, j);
                    if (index->data[at] != (double)(from + 1)) return false;
                }
    return true;
}

/* Whether the columns are all of the source's, in order. */
static bool takes_all_columns(const HeadMap *m) {
    const int64_t count = m->heads / m->group * m->width;
    for (int64_t i = 0; i < count; i++)
        if (m->column[i] != i) return false;
    return count == m->columns;
}

/* Columns of a value that is lifted: all of it, or the outputs of a projection that are
 * wanted. */
static Node *lift_columns(Lift *lift, NetValue *source, const HeadMap *m) {
    Projection projection;
    if (takes_all_columns(m)) return lift_value(lift, source);
    if (!match_projection(lift, value_behind(source), &projection))
        return lift_stop(lift, source->producer,
                         "heads are parts of a value that is no projection");
    return lift_projection(lift, &projection, m->column, m->heads / m->group * m->width);
}

/* ---- rotary positions ---- */

/* x cos + turned(x) sin, before or after the heads are apart. */
typedef struct Rotary {
    NetValue *x, *turned, *cosine, *sine;
} Rotary;

static bool match_rotary(NetValue *value, Rotary *out) {
    NetNode *node = value->producer;
    NetValue *part[2][2]; /* of each product: the unknown and the known operand */
    if (!net_is(node, "Add") || node->in_count != 2) return false;
    for (int i = 0; i < 2; i++) {
        NetValue *product = node->in[i] ? value_behind(node->in[i]) : NULL;
        NetNode *mul = product ? product->producer : NULL;
        if (!net_is(mul, "Mul") || mul->in_count != 2 || !mul->in[0] || !mul->in[1])
            return false;
        const int known = value_is_known(mul->in[1]);
        part[i][0] = mul->in[!known];
        part[i][1] = mul->in[known];
        if (!value_is_known(part[i][1]) || value_is_known(part[i][0])) return false;
    }
    /* at position 0 the cosine is 1 and the sine 0 */
    const int cosine = part[0][1]->probe[0]->data[0] == 1 ? 0 : 1;
    *out = (Rotary){part[cosine][0], part[1 - cosine][0], part[cosine][1],
                    part[1 - cosine][1]};
    return true;
}

/* Checks one probe: every element is x cos(a) -+ its partner sin(a) with the angle a of
 * its token and pair. */
static bool is_rotation(const Rotary *rotary, const Trace *x, const Trace *turned,
                        int probe, int64_t columns, double theta) {
    const Array *index = x->index[probe], *other = turned->index[probe];
    const int64_t width = index->dim[index->rank - 1], half = width / 2;
    const int64_t tokens = probe_tokens(probe);
    const bool masked = rotary->sine->probe[probe]->depends & DEPENDS_MASK;
    for (int64_t i = 0; i < index->count; i++) {
        const int64_t from = (int64_t)index->data[i] - 1, j = i % width;
        const double partner = index->data[i - j + (j + half) % width];
        if (other->data[i] != (j < half ? -partner : partner) || from < 0) return false;
        const int64_t token = from / columns % tokens;
        if (masked && !probe_mask(probe, from / columns / tokens, token)) continue;
        const double angle =
            (double)token * pow(theta, -2.0 * (double)(j % half) / (double)width);
        const double cosine =
            array_broadcast_number(rotary->cosine->probe[probe], index, i);
        const double sine = array_broadcast_number(rotary->sine->probe[probe], index, i);
        if (!(fabs(cosine - cos(angle)) <= 1e-3 && fabs(sine - sin(angle)) <= 1e-3))
            return false;
    }
    return true;
}

/* The base of the angles, from that of the last pair but none at the second token. */
static double rotary_base(const Rotary *rotary, const Trace *x, int64_t columns) {
    const Array *index = x->index[1];
    const int64_t width = index->dim[index->rank - 1], half = width / 2;
    for (int64_t i = 0; half > 1 && i < index->count; i++) {
        const int64_t token = ((int64_t)index->data[i] - 1) / columns % probe_tokens(1);
        if (token != 1 || i % width != 1) continue;
        const double angle =
            atan2(array_broadcast_number(rotary->sine->probe[1], index, i),
                  array_broadcast_number(rotary->cosine->probe[1], index, i));
        return angle > 0 ? round_digits(pow(angle, -(double)half)) : 0;
    }
    return 0;
}

/* The rotated value's tokens: a rotary node on the columns that it takes, and where the
 * elements of the value stand in its rows. */
static Node *lift_rotary(Lift *lift, NetValue *value, const Rotary *rotary, Arena *arena,
                         HeadMap *m, Array *at[NET_PROBES]) {
    Trace x, other;
    if (!trace_value(&x, lift->net, rotary->x, false)) return NULL;
    Node *node = NULL;
    NetValue *source = x.source;
    const Array *shape = source->probe[0];
    m->columns = shape->rank > 0 ? shape->dim[shape->rank - 1] : 0;
    const int rank = x.index[0]->rank;
    const int64_t width = x.index[0]->dim[rank - 1];
    if (m->columns < 2 || width % 2 ||
        !trace_value(&other, lift->net, rotary->turned, false)) {
        trace_free(&x);
        return lift_stop(lift, value->producer, "its operands are not heads of tokens");
    }
    const double theta = rotary_base(rotary, &x, m->columns);
    bool good = theta > 1 && other.source == source && x.scale == other.scale &&
                array_same_shape(x.index[0], value->probe[0]);
    for (int p = 0; p < NET_PROBES && good; p++)
        good = is_rotation(rotary, &x, &other, p, m->columns, theta);
    /* columns in the order of their first token */
    const int64_t tokens = shape->count / (m->columns > 0 ? m->columns : 1);
    const int64_t used = x.index[0]->count / tokens;
    m->column = ARENA_ARRAY(arena, int64_t, (size_t)m->columns);
    int64_t *place = ARENA_ARRAY(arena, int64_t, (size_t)m->columns), next = 0;
    for (int64_t i = 0; i < x.index[0]->count && good; i++) {
        const int64_t from = (int64_t)x.index[0]->data[i] - 1;
        if (from >= m->columns) continue;
        place[from] = next;
        m->column[next++] = from;
    }
    good = good && next == used && used % width == 0;
    m->width = width;
    m->heads = good ? used / width : 0;
    m->group = 1;
    if (good) node = lift_columns(lift, source, m);
    if (node)
        node = lift_op(lift, value->producer, "rotary", &node, 1, "heads=%lld theta=%s",
                       (long long)m->heads, short_decimal(lift, theta));
    for (int p = 0; p < NET_PROBES && node; p++) {
        ArrayPool pool = {arena, ARRAY_COUNT_MAX};
        const Array *index = x.index[p];
        at[p] = array_create(&pool, ONNX_F64, index->rank, index->dim, true);
        for (int64_t i = 0; at[p] && at[p]->data && i < index->count; i++) {
            const int64_t from = (int64_t)index->data[i] - 1;
            at[p]->data[i] =
                (double)(from / m->columns * used + place[from % m->columns] + 1);
        }
        if (!at[p] || !at[p]->data) node = NULL;
    }
    m->columns = used;
    trace_free(&x);
    trace_free(&other);
    return node ? node
                : lift_stop(lift, value->producer, "it is no rotation by position");
}

/* ---- queries, keys and values ---- */

/* Puts the places of a rotary's elements in the place of its index. */
static void compose(Array *index, const Array *at) {
    for (int64_t i = 0; i < index->count; i++)
        index->data[i] = index->data[i] >= 1 ? at->data[(int64_t)index->data[i] - 1] : 0;
}

static bool lift_traced_heads(Lift *lift, const Trace *trace, bool turned, Heads *out) {
    NetValue *source = trace->source;
    const Array *shape = source->probe[0];
    Rotary rotary;
    HeadMap m = {0}, inner = {0};
    Array *at[NET_PROBES];
    Node *node = NULL;
    m.columns = shape->rank > 0 ? shape->dim[shape->rank - 1] : 0;
    const bool turns = match_rotary(source, &rotary);
    if (turns) {
        node = lift_rotary(lift, source, &rotary, trace->arena, &inner, at);
        if (!node) return false;
        m.columns = inner.columns;
        for (int p = 0; p < NET_PROBES; p++) compose(trace->index[p], at[p]);
    }
    bool good = m.columns > 0;
    for (int p = NET_PROBES - 1; p >= 0 && good; p--)
        good = read_head_map(&m, trace->arena, trace->index[p], turned,
                             source->probe[p]->count) &&
               holds_head_map(&m, trace->index[p], turned);
    if (good && turns && !takes_all_columns(&m)) good = false;
    if (!good) {
        lift_stop(lift, source->producer, "its columns are not heads of tokens");
        return false;
    }
    if (!turns) node = lift_columns(lift, source, &m);
    *out = (Heads){node, m.heads / m.group, m.width, trace->scale};
    return node != NULL;
}

bool lift_heads(Lift *lift, NetValue *value, bool turned, Heads *out) {
    Trace trace;
    if (!trace_value(&trace, lift->net, value, false)) {
        lift_stop(lift, value->producer, "its elements are not those of one value");
        return false;
    }
    const bool good = lift_traced_heads(lift, &trace, turned, out);
    trace_free(&trace);
    return good;
}
