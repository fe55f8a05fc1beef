/* Nodes: making them with their checks in one call, and finding them by place and op. */
#ifndef COMPRESS_PASSES_NODES_H
#define COMPRESS_PASSES_NODES_H

#include "exec/ops.h"
#include "ir/graph.h"

/* Adds a node before `anchor` (NULL: at the end) with `count` operands, attributes from
 * printf-formatted IR text (NULL: defaults), and infers its type. Fails with
 * STATUS_MODEL. */
Status node_add(Node **out, Graph *graph, Node *anchor, const Op *op, Node *const *in,
                int count, Diag *diag, const char *attrs, ...)
    __attribute__((format(printf, 8, 9)));

/* Weighted sum of scalars as one node; `weights` may be NULL for the mean. */
Status node_add_sum(Node **out, Graph *graph, Node *const *terms, const double *weights,
                    int count, Diag *diag);

/* Node of a place and role, if its op is `op`; otherwise NULL. A file may give any role
 * to any node: passes that read a node's attributes find it with this. */
Node *node_find(const Graph *graph, const char *stack, int layer, Role role,
                const Op *op);

/* The input i32 [N, T] that says which tokens of x [N, T, D] are not padding; NULL if
 * there is none. */
Node *node_tokens_mask(const Graph *graph, const Node *x);

/* Tokens that the smallest table of positions has rows for; 0 = there is none, and so no
 * limit. */
int64_t graph_positions(const Graph *graph);

/* A name for weights that belong to others: "word.weight" and "_factor" give
 * "word_factor.weight". In the arena. */
const char *weight_name_with(Arena *arena, const char *name, const char *more);

#endif
