#include "tests/support/rounding.h"

#include "exec/ops/kernel.h"
#include "ir/arena.h"
#include "tests/support/check.h"

#include <string.h>

double rounding_error(Precision precision, double terms) {
    const double deviations = 6;
    const double u = ldexp(1, precision == PRECISION_F64 ? -53 : -24);
    return fmin(terms * u / (1 - terms * u), deviations * sqrt(terms) * u);
}

double rounding_tolerance(Precision precision, double terms, double magnitude) {
    return 2 * rounding_error(precision, terms) * magnitude;
}

double solve_tolerance(double unknowns, double condition) {
    return rounding_tolerance(PRECISION_F64, unknowns, condition);
}

double largest_value(const double *x, int64_t count) {
    double largest = 0;
    for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(x[i]));
    return largest;
}

void rounding_compare(const char *what, const double *got, const double *want,
                      int64_t count, Precision precision, double terms, double least) {
    const double magnitude = fmax(least, largest_value(want, count));
    const double tolerance = rounding_tolerance(precision, terms, magnitude);
    for (int64_t i = 0; i < count; i++)
        if (!(fabs(got[i] - want[i]) <= tolerance))
            fail_msg("%s: element %lld is %.17g, expected %.17g within %.3g", what,
                     (long long)i, got[i], want[i], tolerance);
}

void rounding_check(double got, double want, double tolerance, const char *file,
                    int line) {
    if (fabs(got - want) <= tolerance) return;
    print_error("found %.17g, expected %.17g within %.3g\n", got, want, tolerance);
    _fail(file, line);
}

/* ---- graphs ---- */

static View bind(const Type *type, const int64_t sizes[DIM_SYMBOLS]) {
    Type bound;
    View view = {.rank = type->rank};
    assert_true(type_bind(type, sizes, &bound));
    for (int i = 0; i < bound.rank; i++) view.dim[i] = bound.dim[i];
    view.count = type_count(&bound);
    return view;
}

/* What a node works on, bound. */
typedef struct Work {
    View *in;
    View out, largest; /* operand */
    double products;   /* multiply-adds of a call; 0 where the op counts none */
} Work;

static Work work_of(Arena *arena, const Node *node, const int64_t sizes[DIM_SYMBOLS]) {
    Work w = {.in = ARENA_ARRAY(arena, View, (size_t)node->in_count + 1),
              .out = bind(&node->type, sizes)};
    for (int i = 0; i < node->in_count; i++) {
        if (!node->in[i]) continue;
        w.in[i] = bind(&node->in[i]->type, sizes);
        if (w.in[i].count > w.largest.count) w.largest = w.in[i];
    }
    const Call call = {.node = node,
                       .attrs = node->attrs,
                       .in = w.in,
                       .in_count = node->in_count,
                       .out = w.out};
    if (node->op->flops) w.products = node->op->flops(&call) / 2;
    return w;
}

/* Calls of a node's formula one after the other: a recurrence reads its last result. */
static double steps_of(const Node *node, const Work *w) {
    static const char *const RECURRENCES[] = {"rnn", "lstm", "attention_lstm"};
    for (size_t i = 0; i < sizeof RECURRENCES / sizeof *RECURRENCES; i++)
        if (strcmp(node->op->name, RECURRENCES[i]) == 0) return (double)w->out.dim[1];
    return 1;
}

/* A function of single elements; a loss is a mean over rows of what their elements give;
 * other results have an equal share of the products, or of the elements that are summed,
 * which are those of a row at least. */
static double node_terms(const Node *node, const Work *w) {
    const double row = w->largest.rank > 0 ? (double)view_last(&w->largest) : 1;
    if (node->op->traits & OP_PICKS_TOKENS) return 0;
    if (node->op->traits & OP_ELEMENTWISE) return FUNCTION_TERMS;
    if (node->op->traits & OP_LOSS) {
        const double rows = (double)w->largest.count / row;
        return FUNCTION_TERMS + w->products / rows / row + row + rows;
    }
    if (w->products > 0)
        return steps_of(node, w) * (w->products / (double)w->out.count + FUNCTION_TERMS);
    return FUNCTION_TERMS + fmax(row, (double)w->largest.count / (double)w->out.count);
}

double rounding_node_terms(const Node *node, const int64_t sizes[DIM_SYMBOLS]) {
    Arena *arena = arena_create();
    const Work w = work_of(arena, node, sizes);
    const double terms = node_terms(node, &w);
    arena_destroy(arena);
    return terms;
}

double rounding_operand_terms(const Node *node, int operand,
                              const int64_t sizes[DIM_SYMBOLS]) {
    Arena *arena = arena_create();
    const Work w = work_of(arena, node, sizes);
    const View *x = &w.in[operand];
    const double elements = fmax((double)w.largest.count, (double)w.out.count);
    /* vectors (biases, weights of norms) are added to or multiply whole rows */
    const double parts = x->rank > 1 ? fmax(w.products, elements) : elements;
    const double terms = node_terms(node, &w) + 2 * parts / (double)x->count;
    arena_destroy(arena);
    return terms;
}

double rounding_terms(Graph *graph, const Node *node, const int64_t sizes[DIM_SYMBOLS]) {
    Arena *arena = arena_create();
    double *chain = ARENA_ARRAY(arena, double, (size_t)graph_number(graph));
    for (const Node *at = graph->first; at; at = at->next) {
        if (node_is_leaf(at)) continue;
        for (int i = 0; i < at->in_count; i++)
            if (at->in[i]) chain[at->id] = fmax(chain[at->id], chain[at->in[i]->id]);
        const Work w = work_of(arena, at, sizes);
        chain[at->id] += node_terms(at, &w);
        if (at == node) break;
    }
    const double terms = chain[node->id];
    arena_destroy(arena);
    return terms;
}

double rounding_gradient_terms(Graph *graph, const Node *loss, const Node *leaf,
                               const int64_t sizes[DIM_SYMBOLS]) {
    const double forward = rounding_terms(graph, loss, sizes);
    Arena *arena = arena_create();
    double *chain = ARENA_ARRAY(arena, double, (size_t)graph_number(graph));
    double *users = ARENA_ARRAY(arena, double, (size_t)graph_number(graph));
    chain[loss->id] = forward;
    for (const Node *at = loss; at && at != leaf; at = at->prev) {
        if (chain[at->id] == 0) continue; /* not on the way to the loss */
        chain[at->id] += users[at->id];   /* whose gradients are added */
        for (int i = 0; i < at->in_count; i++) {
            if (!at->in[i]) continue;
            double *to = &chain[at->in[i]->id];
            *to = fmax(*to, chain[at->id] + rounding_operand_terms(at, i, sizes));
            users[at->in[i]->id]++;
        }
    }
    double terms = leaf ? chain[leaf->id] + users[leaf->id] : 0;
    for (const Node *at = graph->first; !leaf && at; at = at->next)
        if (at->op->traits & OP_PARAM) terms = fmax(terms, chain[at->id] + users[at->id]);
    arena_destroy(arena);
    return terms;
}

/* ---- training, differences, chance ---- */

double loss_tolerance(Graph *graph, double loss) {
    const int64_t sizes[DIM_SYMBOLS] = {8, 8, 8, 8};
    double terms = 0;
    for (int o = 0; o < graph->output_count; o++)
        terms = fmax(terms, rounding_terms(graph, graph->outputs[o].node, sizes));
    return rounding_tolerance(PRECISION_F32, terms + 8 * 8 + FUNCTION_TERMS,
                              fmax(1, fabs(loss)));
}

double training_tolerance(double steps, double rate, double slope, double gradient,
                          double weight) {
    return steps * rate * slope * gradient +
           rounding_tolerance(PRECISION_F32, FUNCTION_TERMS * steps, weight);
}

double difference_tolerance(Precision precision, double h, double narrow, double wide,
                            double terms, double magnitude) {
    return fabs(wide - narrow) +
           rounding_tolerance(precision, terms, magnitude) / (2 * h);
}

double chance_tolerance(double deviation, double count) {
    return 6 * deviation / sqrt(count);
}
