/* Lifting positions that padding does not count: see lift_counted.h.
 *
 * Exporters write the comparison with the padding, the running sum and what follows in
 * several ways. So the nodes between the ids and the choice of rows are run on ids in
 * which every set of places is padding, and are known by what they make of them. */
#include "io/onnx/lift/lift_counted.h"

#include "io/onnx/lift/lift_weights.h"
#include "io/onnx/net/probe.h"
#include "io/onnx/net/trace.h"

#include <string.h>

/* Whether places follow from the ids by RoBERTa's rule: padding has its own number, the
 * others are counted from the next one on. */
static bool counts_others(const Array *places, const Array *ids, int64_t padding) {
    const int64_t tokens = ids->dim[1];
    int64_t next = 0;
    for (int64_t i = 0; i < ids->count; i++) {
        if (i % tokens == 0) next = padding + 1;
        const bool pad = ids->data[i] == (double)padding;
        if (places->data[i] != (double)(pad ? padding : next++)) return false;
    }
    return true;
}

/* Whether a cone makes such places of ids, whichever of the first ones are padding. */
static bool cone_counts(const Cone *cone, int64_t padding) {
    const Array *shape = cone->source->probe[0];
    ArrayPool pool = {arena_create(), ARRAY_COUNT_MAX};
    bool good = shape->rank == 2 && shape->count >= 1 && shape->count <= 8;
    for (int64_t set = 0; good && set < 1 << shape->count; set++) {
        Array *ids = array_create(&pool, ONNX_I64, 2, shape->dim, true);
        good = ids && ids->data;
        for (int64_t i = 0; good && i < ids->count; i++)
            ids->data[i] = (double)(set >> i & 1 ? padding : padding + 1 + i);
        const Array *places = good ? cone_apply(cone, &pool, ids) : NULL;
        good = places && places->count == shape->count &&
               counts_others(places, ids, padding);
    }
    arena_destroy(pool.arena);
    return good;
}

/* The padding that a cone from the ids does not count; -1 when it does something else.
 * It stands among the numbers that the nodes are given. */
static int64_t find_padding(const Cone *cone) {
    double number;
    for (int n = 0; n < cone->nodes; n++)
        for (int i = 0; i < cone->node[n]->in_count; i++) {
            const NetValue *value = cone->node[n]->in[i];
            if (!value_scalar(value, &number) || number < 0 || number > 1 << 20) continue;
            if (number == (double)(int64_t)number && cone_counts(cone, (int64_t)number))
                return (int64_t)number;
        }
    return -1;
}

Node *lift_counted_rows(Lift *lift, const NetNode *node, NetValue *x, NetValue *rows) {
    NetNode *gather = value_behind(rows)->producer;
    bool turned;
    if (!net_is(gather, "Gather") || gather->in_count != 2 || !gather->in[0] ||
        !gather->in[1] || value_is_known(gather->in[1]) ||
        net_int(gather, "axis", 0) != 0)
        return NULL;
    NetValue *table = stored_matrix(gather->in[0], &turned);
    Cone cone = {.net = lift->net, .root = gather->in[1]};
    bool found = table && !turned;
    while (found && (!cone.source || !cone.source->input))
        found = cone_grow(&cone, CONE_COUNTS);
    if (!found || probe_input_kind(cone.source) != INPUT_TOKENS) return NULL;
    const int64_t padding = find_padding(&cone);
    Node *in[3] = {padding < 0 ? NULL : lift_value(lift, x)};
    if (!in[0]) return NULL;
    in[1] = lift_stored(lift, table, -1, NULL);
    in[2] = lift_value(lift, cone.source);
    return in[1] && in[2] ? lift_op(lift, node, "add_position", in, 3, "offset=%lld",
                                    (long long)padding + 1)
                          : NULL;
}
