/* Lifting heads: which columns of which projection the queries, keys or values of
 * attention are, through views, splits, rotations by position and copies for grouped
 * queries. See lift_heads.h. */
#include "io/onnx/lift/lift_heads.h"

#include "io/onnx/lift/lift_rows.h"
#include "io/onnx/lift/lift_weights.h"
#include "io/onnx/net/probe.h"

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
        if (masked && !probe_mask(tokens, from / columns / tokens, token)) continue;
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

/* A rotation of heads of one source: where its operands come from. */
typedef struct Turn {
    Trace x, turned;
    int64_t columns; /* of the source */
    int64_t width;   /* of a head */
    double theta;
    int64_t
        *place; /* by column of the source: which one it is among those that are taken */
} Turn;

static void turn_close(Turn *turn) {
    trace_free(&turn->x);
    trace_free(&turn->turned);
}

/* Checks that a value is a rotation by position of heads of one source. */
static bool turn_open(Turn *turn, const Net *net, const NetValue *value,
                      const Rotary *rotary) {
    *turn = (Turn){0};
    if (!trace_value(&turn->x, net, rotary->x, false)) return false;
    if (!trace_value(&turn->turned, net, rotary->turned, false)) {
        trace_free(&turn->x);
        return false;
    }
    const Array *shape = turn->x.source->probe[0], *index = turn->x.index[0];
    turn->columns = shape->rank > 0 ? shape->dim[shape->rank - 1] : 0;
    turn->width = index->rank > 0 ? index->dim[index->rank - 1] : 0;
    bool good = turn->columns > 1 && turn->width > 1 && turn->width % 2 == 0 &&
                turn->turned.source == turn->x.source &&
                turn->x.scale == turn->turned.scale &&
                array_same_shape(index, value->probe[0]);
    if (good) turn->theta = rotary_base(rotary, &turn->x, turn->columns);
    good = good && turn->theta > 1;
    for (int p = 0; p < NET_PROBES && good; p++)
        good =
            is_rotation(rotary, &turn->x, &turn->turned, p, turn->columns, turn->theta);
    if (!good) turn_close(turn);
    return good;
}

/* The columns that are taken, in the order of the first token's elements. */
static bool turn_columns(Turn *turn, HeadMap *m, Arena *arena) {
    const Array *index = turn->x.index[0];
    const int64_t columns = turn->columns;
    const int64_t tokens = turn->x.source->probe[0]->count / columns;
    const int64_t used = tokens > 0 ? index->count / tokens : 0;
    int64_t next = 0;
    m->columns = columns;
    m->column = ARENA_ARRAY(arena, int64_t, (size_t)columns);
    turn->place = ARENA_ARRAY(arena, int64_t, (size_t)columns);
    for (int64_t i = 0; i < index->count; i++) {
        const int64_t from = (int64_t)index->data[i] - 1;
        if (from >= columns) continue;
        if (next == columns) return false;
        turn->place[from] = next;
        m->column[next++] = from;
    }
    m->width = turn->width;
    m->heads = used / turn->width;
    m->group = 1;
    return next == used && used > 0 && used % turn->width == 0;
}

/* The rotated value's tokens: a rotary node on the columns that it takes, and where the
 * elements of the value stand in its rows. */
static Node *lift_rotary(Lift *lift, NetValue *value, const Rotary *rotary, Arena *arena,
                         HeadMap *m, Array *at[NET_PROBES]) {
    Turn turn;
    ArrayPool pool = {arena, 4 * (int64_t)ARRAY_COUNT_MAX};
    if (!turn_open(&turn, lift->net, value, rotary))
        return lift_stop(lift, value->producer, "it is no rotation by position");
    Node *node =
        turn_columns(&turn, m, arena) ? lift_columns(lift, turn.x.source, m) : NULL;
    if (node)
        node = lift_op(lift, value->producer, "rotary", &node, 1, "heads=%lld theta=%s",
                       (long long)m->heads, short_decimal(lift, turn.theta));
    const int64_t used = m->heads * m->width;
    for (int p = 0; p < NET_PROBES && node; p++) {
        const Array *index = turn.x.index[p];
        at[p] = array_create(&pool, ONNX_F64, index->rank, index->dim, true);
        if (!at[p] || !at[p]->data) node = NULL;
        for (int64_t i = 0; node && i < index->count; i++) {
            const int64_t from = (int64_t)index->data[i] - 1;
            at[p]->data[i] = (double)(from / turn.columns * used +
                                      turn.place[from % turn.columns] + 1);
        }
    }
    m->columns = used;
    turn_close(&turn);
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
