/* Windows that slide along the tokens: see lift_reach.h. */
#include "io/onnx/lift/lift_reach.h"

#include "io/onnx/net/array.h"
#include "io/onnx/net/probe.h"
#include "io/onnx/net/trace.h"

#include <math.h>
#include <stdlib.h>

/* Nodes that are looked at before a mask. */
enum { NODES_MAX = 512, LAST = NET_PROBES - 1 };

/* By how much a comparison holds, for a query and a key: the right operand less the left
 * one, or the reverse. */
static double margin_of(const NetNode *node, bool less, int64_t i) {
    const Array *shape = node->out[0]->probe[LAST];
    const double a = array_broadcast_number(node->in[0]->probe[LAST], shape, i);
    const double b = array_broadcast_number(node->in[1]->probe[LAST], shape, i);
    return less ? b - a : a - b;
}

/* Whether the margin is a number less the distance of query and key, and which number. */
static bool is_of_distance(const NetNode *node, bool less, bool both, double *number) {
    const Array *shape = node->out[0]->probe[LAST];
    const int64_t tokens = probe_tokens(LAST);
    for (int64_t i = 0; i < shape->count; i++) {
        const int64_t distance = i / tokens % tokens - i % tokens;
        const double sum = margin_of(node, less, i) +
                           (double)(both && distance < 0 ? -distance : distance);
        if (i == 0) *number = sum;
        if (sum != *number) return false;
    }
    return shape->count > 0;
}

static MaskReach read_comparison(const NetNode *node) {
    const bool less = net_is(node, "Less") || net_is(node, "LessOrEqual");
    const bool more = net_is(node, "Greater") || net_is(node, "GreaterOrEqual");
    const int64_t tokens = probe_tokens(LAST);
    MaskReach none = {0};
    if ((!less && !more) || node->in_count != 2 || node->out_count < 1) return none;
    const Array *shape = node->out[0] ? node->out[0]->probe[LAST] : NULL;
    if (!shape || shape->rank < 2 || !node->in[0] || !node->in[1] ||
        !value_is_known(node->in[0]) || !value_is_known(node->in[1]) ||
        shape->dim[shape->rank - 1] != tokens || shape->dim[shape->rank - 2] != tokens)
        return none;
    const bool equal = net_is(node, "LessOrEqual") || net_is(node, "GreaterOrEqual");
    for (int both = 0; both < 2; both++) {
        double number;
        if (is_of_distance(node, less, both, &number) && number >= 1 &&
            number < 1 << 30 && number == floor(number))
            return (MaskReach){(int64_t)number + equal, both};
    }
    return none;
}

MaskReach find_reach(const NetValue *mask) {
    const NetNode *waiting[NODES_MAX];
    int count = 0;
    MaskReach found = {0};
    if (mask->producer) waiting[count++] = mask->producer;
    for (int at = 0; at < count && !found.reach; at++) {
        const NetNode *node = waiting[at];
        found = read_comparison(node);
        for (int i = 0; i < node->in_count && count < NODES_MAX; i++) {
            const NetNode *before = node->in[i] ? node->in[i]->producer : NULL;
            int known = 0;
            while (before && known < count && waiting[known] != before) known++;
            if (before && known == count) waiting[count++] = before;
        }
    }
    return found;
}
