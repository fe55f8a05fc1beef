/* Comparing two graphs: which layers and nodes of one correspond to which of the other,
 * and how they differ. Nodes are matched by place and role, never by number or name. */
#ifndef COMPRESS_SESSION_COMPARE_COMPARE_NODES_H
#define COMPRESS_SESSION_COMPARE_COMPARE_NODES_H

#include "ir/model.h"

/* One difference; NULL = one side has none. */
typedef struct Difference {
    const char
        *what; /* "op", "type", "heads", an operand, "input x", "output y", "task" */
    const char *a, *b;
} Difference;

/* Grows by doubling, in an arena. */
typedef struct DifferenceList {
    Difference *items;
    int count, capacity;
} DifferenceList;

/* Adds one; the strings are borrowed. */
void difference_add(Arena *arena, DifferenceList *list, const char *what, const char *a,
                    const char *b);

/* How the layers of a stack were matched. */
typedef enum LayerMatch {
    LAYERS_BY_NUMBER,  /* one to one */
    LAYERS_BY_LINEAGE, /* by the numbers that removals recorded in the provenance */
    LAYERS_BY_WEIGHTS  /* the order-keeping match with the most similar weights */
} LayerMatch;

typedef struct StackPair {
    const char *stack;
    int layers[2]; /* of each model */
    int *of_b;     /* by layer of B: the layer of A, -1 = A has none */
    LayerMatch match;
} StackPair;

/* A node of A and the one of B in its place. */
typedef struct NodePair {
    const Node *a, *b; /* one may be NULL: removed, added */
    const char *name;  /* as in IR text: A's, or B's if A has none */
    DifferenceList differences;
} NodePair;

typedef struct NodeComparison {
    StackPair *stacks;
    int stack_count;
    DifferenceList ends; /* task, inputs and outputs */
    NodePair *pairs;     /* nodes that are not leaves; A's order, added ones in between */
    int count;
    int changed, removed, added;
} NodeComparison;

/* Whether a pair is in a layer that only one model has. */
bool pair_in_own_layer(const NodeComparison *nodes, const NodePair *pair);

/* Compares structure; if both models have weights, layers without a lineage are matched
 * by them. Everything is in the arena. Numbers the nodes of both graphs. */
void compare_nodes(NodeComparison *out, Arena *arena, const Model *a, const Model *b);

#endif
