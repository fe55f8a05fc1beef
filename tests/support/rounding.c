#include "tests/support/rounding.h"

#include "exec/ops/kernel.h"
#include "ir/arena.h"
#include "tests/support/check.h"

#include <math.h>

double rounding_error(Precision precision, double terms) {
    const double deviations = 6;
    const double u = ldexp(1, precision == PRECISION_F64 ? -53 : -24);
    return fmin(terms * u / (1 - terms * u), deviations * sqrt(terms) * u);
}

double rounding_tolerance(Precision precision, double terms, double magnitude) {
    return 2 * rounding_error(precision, terms) * magnitude;
}

static View bind(const Type *type, const int64_t sizes[DIM_SYMBOLS]) {
    Type bound;
    View view = {.rank = type->rank};
    assert_true(type_bind(type, sizes, &bound));
    for (int i = 0; i < bound.rank; i++) view.dim[i] = bound.dim[i];
    view.count = type_count(&bound);
    return view;
}

/* Terms behind one element of a node's value, those of its operands left out. */
static double own_terms(Arena *arena, const Node *node,
                        const int64_t sizes[DIM_SYMBOLS]) {
    View *in = ARENA_ARRAY(arena, View, (size_t)node->in_count + 1);
    double row = 1;
    for (int i = 0; i < node->in_count; i++) {
        if (!node->in[i]) continue;
        in[i] = bind(&node->in[i]->type, sizes);
        if (in[i].rank > 0) row = fmax(row, (double)view_last(&in[i]));
    }
    if (!node->op->flops) return row;
    const Call call = {.node = node,
                       .attrs = node->attrs,
                       .in = in,
                       .in_count = node->in_count,
                       .out = bind(&node->type, sizes)};
    return node->op->flops(&call) / 2 / (double)call.out.count;
}

double rounding_terms(Graph *graph, const Node *node, const int64_t sizes[DIM_SYMBOLS]) {
    Arena *arena = arena_create();
    double *chain = ARENA_ARRAY(arena, double, (size_t)graph_number(graph));
    for (const Node *at = graph->first; at; at = at->next) {
        if (node_is_leaf(at)) continue;
        for (int i = 0; i < at->in_count; i++)
            if (at->in[i]) chain[at->id] = fmax(chain[at->id], chain[at->in[i]->id]);
        chain[at->id] += own_terms(arena, at, sizes);
        if (at == node) break;
    }
    const double terms = chain[node->id];
    arena_destroy(arena);
    return terms;
}
