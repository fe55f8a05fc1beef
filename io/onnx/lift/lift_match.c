/* All matchers, tried in turn: see lift_match.h. */
#include "io/onnx/lift/lift_match.h"

#include "io/onnx/lift/lift_fused.h"
#include "io/onnx/lift/lift_rows.h"
#include "io/onnx/lift/lift_tokens.h"
#include "io/onnx/lift/lift_weights.h"
#include "io/onnx/net/eval.h"

#include <string.h>

Node *match_value(Lift *lift, NetValue *value) {
    NetNode *node = value->producer;
    if (value_is_constant(value)) return lift_stored(lift, value, -1, NULL);
    const EvalRow *row = eval_find(node->op);
    Projection projection;
    Node *found = NULL;
    if (value_behind(value) != value) return lift_value(lift, value_behind(value));
    if (match_projection(lift, value, &projection))
        return lift_projection(lift, &projection, NULL, 0);
    if (row->kind == EVAL_MOVES) {
        if (net_is(node, "Gather")) found = match_embedding(lift, node);
        return found ? found : match_moved(lift, value);
    }
    if (row->kind == EVAL_SHAPE || strncmp(node->op, "Reduce", 6) == 0) {
        if (net_is(node, "Softmax")) return match_softmax(lift, node);
        found = match_fused(lift, node, value);
        return found ? found : match_pool(lift, node);
    }
    found = match_norm(lift, value);
    if (!found) found = match_activation(lift, value);
    if (!found && (net_is(node, "Add") || net_is(node, "Sum")))
        found = match_sum(lift, node);
    if (!found && (net_is(node, "Mul") || net_is(node, "Div")))
        found = match_product(lift, node);
    return found;
}
