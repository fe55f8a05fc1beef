/* Rewriting helpers: what passes do to graphs, in ways that keep them valid. */
#ifndef COMPRESS_IR_REWRITE_H
#define COMPRESS_IR_REWRITE_H

#include "ir/graph.h"

/* Makes every user (nodes and outputs) of `old` use `value` instead, except `value`
 * itself (so a node inserted after `old` can wrap it). */
void graph_replace_uses(Graph *graph, Node *old, Node *value);

/* Unlinks a node. It must have no users. */
void graph_erase(Graph *graph, Node *node);

/* Removes every node that no output depends on (inputs stay), then every storage that no
 * leaf names, dropping its weights. Returns the number of nodes removed. */
int graph_remove_dead(Graph *graph);

/* Moves `node` to just before `anchor` (NULL: to the end). The caller keeps the order
 * topological. */
void graph_move_before(Graph *graph, Node *node, Node *anchor);

/* Recomputes all types in order. Fails with the first op's error. */
Status graph_infer(Graph *graph, Diag *diag);

/* Fixes symbols whose size is above 0 to that size, in the types of inputs and in
 * attributes that spell dimensions, and recomputes all types. Fails with
 * STATUS_MODEL. */
Status graph_bind(Graph *graph, const int64_t sizes[DIM_SYMBOLS], Diag *diag);

/* Copies all of `from` into `graph`: storages get `prefix` before their names and share
 * their weights with the originals (copy on write); inputs are matched by name with
 * those of `graph` and added if missing; outputs are not copied. Places keep their layer
 * and role, their stack gets the prefix. `map[id]` receives the copy of each node of
 * `from`, numbered by graph_number(from); it has room for from->node_count. Fails with
 * STATUS_MODEL when an input of the same name has another type. */
Status graph_import(Graph *graph, Graph *from, const char *prefix, Node **map,
                    Diag *diag);

/* Deep copy of a graph into another arena, outputs included; weights are shared until
 * written (copy on write). */
Graph *graph_copy(Arena *arena, Graph *graph);

#endif
