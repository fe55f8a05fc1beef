/* Graph: what a model computes.
 *
 * A node is its single value. Nodes are in topological order in a doubly linked list.
 * Parameters are leaf nodes that name a Storage: two layers share weights when their
 * nodes use the same leaf, so counting, printing and saving see each storage once. */
#ifndef COMPRESS_IR_GRAPH_H
#define COMPRESS_IR_GRAPH_H

#include "ir/gaussian.h"
#include "ir/lineage.h"
#include "ir/model_parts.h"
#include "ir/op.h"

typedef enum Role {
#define ROLE(name, text, help) ROLE_##name,
#include "ir/roles.def"
#undef ROLE
    ROLE_COUNT
} Role;

/* Printed name of a role ("q"), and the reverse (ROLE_COUNT when unknown). */
const char *role_name(Role role);
Role role_parse(const char *name);

/* How a storage gets its first values when a model is built from config alone. */
typedef enum InitKind {
    INIT_ZEROS,
    INIT_ONES,
    INIT_NORMAL,
    INIT_TRUNC_NORMAL,
    INIT_IDENTITY
} InitKind;

typedef struct Init {
    InitKind kind;
    double std; /* of the two normal kinds; truncated at 2 std */
} Init;

/* One weight tensor. Its name is unique in its graph. Passes read and change it only
 * through ir/storage.h. */
typedef struct Storage {
    const char *name;
    Tensor tensor; /* shape only until weights are loaded or initialised */
    Init init;
    bool frozen; /* never trained (a teacher's weights inside a training graph) */
    Lineage kept[RANK_MAX]; /* by axis: what pruning left of the original */
    Gaussian *gaussian;     /* in the arena; NULL = nothing is known */
    bool dropped;           /* its Gaussian was dropped: see graph_take_dropped */
} Storage;

typedef struct Node Node;
struct Node {
    const Op *op;
    Node *prev, *next;
    Node **in; /* in[i] is operand i; absent optional operands are NULL; a variadic
                  operand's values follow from its index on */
    int in_count;
    void *attrs; /* op->attrs_size bytes */
    Type type;
    const char *name;  /* inputs: the name users bind data to; else NULL */
    Storage *storage;  /* params, else NULL */
    const char *stack; /* place: "encoder", "decoder", "embeddings", ...; NULL = none */
    int layer;         /* place: layer within the stack, from 0; -1 = none */
    Role role;
    int id;  /* position, valid after graph_number */
    Loc loc; /* in the IR text it was parsed from, else none */
};

/* A named result of the graph, for instance "logits". */
typedef struct Output {
    const char *name;
    Node *node;
} Output;

typedef struct Graph {
    Arena *arena; /* nodes, names, attributes; owned by the Model */
    const OpTable *ops;
    Node *first, *last;
    int node_count;
    Storage **storages;
    int storage_count, storage_capacity;
    Output *outputs;
    int output_count, output_capacity;
    Task task; /* as declared by the builder of the graph, TASK_NONE = not declared */
} Graph;

/* Empty graph in an arena; it is freed with the arena, but call graph_release first: the
 * weights' buffers are reference-counted. */
Graph *graph_create(Arena *arena, const OpTable *ops);

/* Drops the weights of every storage. NULL is allowed. */
void graph_release(Graph *graph);

/* Adds a storage with a shape and no data. The name is copied. Fails with STATUS_MODEL
 * when the name is taken or the shape is impossible. */
Status graph_add_storage(Storage **out, Graph *graph, const char *name,
                         const Tensor *shape, Diag *diag);

/* Storage by name, NULL when unknown. */
Storage *graph_storage(const Graph *graph, const char *name);

/* A storage name that is not taken: `name`, else `name.2`, ...; in the arena. */
const char *graph_fresh_name(Graph *graph, const char *name);

/* Leaf that names a storage: the existing one, or a new one at the start of the list
 * (after the other leaves). */
Node *graph_param(Graph *graph, Storage *storage);

/* New input leaf. The name is copied; it must be free. */
Node *graph_input(Graph *graph, const char *name, const Type *type);

/* Input by name, NULL when there is none. */
Node *graph_find_input(const Graph *graph, const char *name);

/* New node before `anchor` (NULL: at the end), with operands in order and NULL for
 * absent optional ones (trailing ones may be omitted), attributes at their defaults,
 * type not yet inferred: set attributes, then call node_infer. */
Node *graph_insert(Graph *graph, Node *anchor, const Op *op, Node *const *in,
                   int in_count);

/* Sets attributes from text in IR syntax ("heads=4 scale=0.125", printf format) and
 * checks them. Fails with STATUS_MODEL. */
Status node_set(Graph *graph, Node *node, Diag *diag, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Recomputes the node's type from its operands (op->infer). */
Status node_infer(Node *node, Diag *diag);

/* Operand by its declared name; NULL when absent. The name must exist. */
Node *node_operand(const Node *node, const char *name);

/* Whether a node is of an op; false for NULL. */
static inline bool node_is(const Node *node, const Op *op) {
    return node && node->op == op;
}

/* Whether a node's op has a trait, or one of several; false for NULL. */
static inline bool node_has_trait(const Node *node, int traits) {
    return node && (node->op->traits & traits) != 0;
}

/* Whether a node is a leaf, and whether it is one without a storage. */
static inline bool node_is_leaf(const Node *node) {
    return node_has_trait(node, OP_LEAF);
}
static inline bool node_is_input(const Node *node) {
    return node_is_leaf(node) && !node->storage;
}

/* Whether each element of a node's value is a function of that element of its only
 * operand. */
static inline bool node_maps_elements(const Node *node) {
    return node_has_trait(node, OP_ELEMENTWISE) && node->in_count == 1;
}

/* Number of heads that a node treats separately, and of key/value heads if counted
 * separately: its attributes `heads` and `kv_heads`. 0 = it has none. */
int64_t node_heads(const Node *node);
int64_t node_key_heads(const Node *node);

/* Numbers in a row of a node's value: its last dimension; 0 for a scalar, or NULL. */
int64_t node_width(const Node *node);

/* Width of a query head of a node with heads; 0 if it has none, or is NULL. */
int64_t node_head_width(const Node *node);

/* Whether operand `i` is given. */
static inline bool node_has(const Node *node, int i) {
    return i < node->in_count && node->in[i];
}

/* Sets (or with NULL removes) an operand by its declared name. */
void node_set_operand(Graph *graph, Node *node, const char *name, Node *value);

/* Sets the place and role. The stack's name is copied. Returns `node`. */
Node *node_place(Graph *graph, Node *node, const char *stack, int layer, Role role);

/* Names a result; an existing output of that name is redirected. */
void graph_set_output(Graph *graph, const char *name, Node *node);

/* Result by name, NULL when there is none; and removal by name. */
Node *graph_output(const Graph *graph, const char *name);
void graph_remove_output(Graph *graph, const char *name);

/* Whether a node is in a stack (NULL = any, or none) and in a layer of it (-1 = any, or
 * none). */
bool node_is_in(const Node *node, const char *stack, int layer);

/* First node at a place with a role, NULL when there is none. `stack` NULL = any stack,
 * layer -1 = any layer. graph_find_next continues after `after`. */
Node *graph_find(const Graph *graph, const char *stack, int layer, Role role);
Node *graph_find_next(const Graph *graph, const Node *after, const char *stack, int layer,
                      Role role);

/* The output of a layer: its last residual sum (residual2, unless that block was
 * removed), or in post-norm layers the norm after it. NULL when there is no such layer.
 */
Node *graph_layer_output(const Graph *graph, const char *stack, int layer);

/* Number of layers of a stack: 1 + the largest layer in use, 0 when it has none. */
int graph_layer_count(const Graph *graph, const char *stack);

/* Stage of a layer, from 0: how many times the stack joins neighbouring tokens (role
 * merge) before it; for a layer that does not exist, how many times in all. Layers of
 * one stage have the same number and width of tokens. */
int graph_layer_stage(const Graph *graph, const char *stack, int layer);

/* The stack whose layers lead to the model's predictions: "decoder" when that has layers,
 * else "encoder". */
const char *graph_main_stack(const Graph *graph);

/* The task that the graph appears to be for, judged by the shape of its logits, its
 * stacks and whether the logits are as wide as the vocabulary. Used if no task was
 * declared; IR text leaves out a task that is the same. */
Task graph_implied_task(const Graph *graph);

/* The task: the declared one, else the implied one. */
Task graph_task(const Graph *graph);

/* Rows of the table that the input ids select from: tokens that the graph can read. 0 if
 * there is no such table, for instance with a factored one. */
int64_t graph_vocabulary(const Graph *graph);

/* How many classes, labels or values the logits have for each sample, or for each word
 * of TASK_LABEL_TOKENS; 0 if there are no such logits. */
int64_t graph_classes(const Graph *graph);

/* Value of an integer attribute, -1 if the node's op has none of this name. */
int64_t node_integer(const Node *node, const char *name);

/* The same for a list of integers (borrowed), empty if there is none. */
IntList node_integers(const Node *node, const char *name);

/* The same for a real number, 0 if there is none; and for a bool, false if there is
 * none. */
double node_real(const Node *node, const char *name);
bool node_flag(const Node *node, const char *name);

/* Whether the attribute `name` is a choice with the value `choice` ("gelu"). */
bool node_chooses(const Node *node, const char *name, const char *choice);

/* Numbers the nodes by position (Node.id) and returns their count. */
int graph_number(Graph *graph);

/* Number of operands (of all nodes and outputs) that are `node`. */
int graph_use_count(const Graph *graph, const Node *node);

/* The only node that reads `node`, NULL if there is another reader or an output. */
Node *graph_only_reader(const Graph *graph, const Node *node);

/* Parameters and their bytes as stored, each storage counted once; only storages that
 * some leaf names. */
int64_t graph_parameter_count(const Graph *graph);
size_t graph_parameter_bytes(const Graph *graph);

#endif
