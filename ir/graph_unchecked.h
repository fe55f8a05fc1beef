/* Building blocks of graphs without checks, and the corresponding checks: for the files
 * of ir that make, parse, verify and rewrite graphs. All other code works through
 * ir/graph.h and ir/rewrite.h. */
#ifndef COMPRESS_IR_GRAPH_UNCHECKED_H
#define COMPRESS_IR_GRAPH_UNCHECKED_H

#include "ir/graph.h"

/* Longest name of an input, storage, output or stack, and the largest layer number. */
enum { NAME_LENGTH_MAX = 512, LAYER_MAX = 999999 };

/* Room for a node's label in messages. */
enum { NODE_LABEL_BYTES = 80 };

/* "$name", "@name" or "%id op" for messages, cut when long; returns `out`. */
const char *node_label(char out[NODE_LABEL_BYTES], const Node *node);

/* Whether a name is not NULL, not empty, not too long and UTF-8. */
bool name_is_valid(const char *name);

/* Number of declared operands that take one value each, and whether one more follows
 * that takes the rest. */
int op_single_count(const Op *op);
bool op_is_variadic(const Op *op);

/* New node outside of the list, attributes at their defaults, no operands set. */
Node *graph_new_node(Graph *graph, const Op *op, int in_count);

/* Puts a node into the list before `anchor` (NULL: at the end), or removes it. */
void graph_link(Graph *graph, Node *node, Node *anchor);
void graph_unlink(Graph *graph, Node *node);

/* New leaf outside of the list. Names are borrowed. */
Node *graph_new_input(Graph *graph, const char *name, const Type *type);
Node *graph_new_param(Graph *graph, Storage *storage);

/* Appends a storage without weights; `name` is borrowed, nothing is checked. */
Storage *graph_append_storage(Graph *graph, const char *name, const Tensor *shape);

/* Drops a storage's weights and its Gaussian; the shape stays. */
void storage_release(Storage *storage);

/* Appends an output; `name` is borrowed and must be free. */
void graph_append_output(Graph *graph, const char *name, Node *node);

/* Checks the number of operands, that required ones are present, and integer versus
 * real. */
Status node_check_operands(const Node *node, Status status, Diag *diag);

/* Attributes at their defaults, or a copy of `from` with its lists and strings. NULL for
 * ops without attributes. */
void *attrs_default(Arena *arena, const Op *op);
void *attrs_copy(Arena *arena, const Op *op, const void *from);

/* Attributes that fields_print leaves out: the op's defaults, else zeros in the arena. */
const void *attrs_defaults(Arena *arena, const Op *op);

/* Binds a map of attributes to a node. */
Status attrs_bind(Graph *graph, Node *node, const Tree *map, Status status, Diag *diag);

/* Checks that attributes are within their ranges. */
Status attrs_check(const Node *node, Status status, Diag *diag);

/* The type of a leaf that names a storage: i32 for integers, f32 for the rest. */
Type storage_type(const Storage *storage);

#endif
