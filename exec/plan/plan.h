/* Plan: a graph prepared to run at given sizes.
 *
 * A plan fixes the order of calls and the place of every value, gradient, saved statistic
 * and scratch area in one workspace, based only on their lifetimes: inference reuses
 * memory as soon as the last reader is done, training keeps only what a backward kernel
 * reads. Plans are immutable once made (exec/plan/plan_build.h) and may be shared by
 * threads; each thread runs one in a workspace of its own (exec/run/run.h).
 *
 * Time: forward call f happens at time f (0 .. calls - 1), its backward call at time
 * 2 * calls - 1 - f, or later if values are recomputed before it: see
 * exec/plan/recompute.h. `end` is later than every call. Lifetimes are closed intervals.
 */
#ifndef COMPRESS_EXEC_PLAN_PLAN_H
#define COMPRESS_EXEC_PLAN_PLAN_H

#include "exec/ops/kernel.h"

#include <stdatomic.h>

/* Alignment of every buffer in the workspace. */
#define PLAN_ALIGNMENT ((size_t)64)

typedef enum BufferKind {
    BUFFER_VALUE,
    BUFFER_AUX,
    BUFFER_GRADIENT,
    BUFFER_SCRATCH
} BufferKind;

/* A piece of the workspace. */
typedef struct PlanBuffer {
    BufferKind kind;
    int owner;       /* node it was made for; a shared gradient has several users */
    int first, last; /* lifetime */
    size_t bytes;    /* a multiple of PLAN_ALIGNMENT */
    size_t offset;
} PlanBuffer;

/* What a backward call does to the gradient of an operand. */
typedef enum GradientWrite {
    GRADIENT_NONE,      /* not wanted */
    GRADIENT_SET,       /* first writer: overwrite */
    GRADIENT_ADD,       /* later writer: add */
    GRADIENT_CLEAR_ADD, /* first writer, operand used twice: zero it, then add */
    GRADIENT_SHARE      /* first writer of a plain copy: both are one buffer */
} GradientWrite;

typedef struct PlanOperand {
    int node; /* index into Plan.nodes; -1 = absent */
    GradientWrite write;
} PlanOperand;

typedef struct PlanNode {
    Node *node;
    const Op *op;
    const Kernel *kernel; /* of the plan's set */
    Type type;            /* bound */
    int64_t count;
    PlanOperand *in; /* Node.in_count operands, at least the declared number */
    int in_count;
    int forward, backward; /* times of its calls; -1 = none */
    int again;             /* time when it is computed once more; -1 = never */
    bool depends;          /* depends on something that needs a gradient */
    int value, aux, gradient, forward_scratch, backward_scratch; /* buffers, -1 = none */
    int value_again, aux_again, scratch_again;                   /* where it is again */
    int64_t offset;      /* trainable param: place in the gradient array; else -1 */
    int64_t index_limit; /* integer input: values must lie below; 0 = not checked */
    bool index_skip;     /* or may be INDEX_SKIP */
} PlanNode;

typedef struct Plan {
    atomic_int references;
    Arena *arena;
    Graph *graph;
    Precision precision;
    bool bf16; /* see PlanOptions */
    const KernelTable *kernels;
    int64_t samples;
    PlanNode *nodes; /* in graph order */
    int node_count;
    int *index; /* by Node.id: index into nodes, -1 = not planned */
    int index_count;
    int loss; /* index into nodes, -1 = none */
    int calls, end;
    PlanBuffer *buffers;
    int buffer_count;
    size_t bytes;
    double flops, flops_again; /* of a forward run; of what is computed again */
} Plan;

/* Another reference; plan_destroy drops one. The first belongs to the creator. */
Plan *plan_retain(const Plan *plan);

/* Index of a node in a plan, -1 when it is not planned. */
int plan_find(const Plan *plan, const Node *node);

/* Bytes of a real number in the plan's precision. */
size_t plan_real_bytes(const Plan *plan);

/* Bytes of one element of a node's value. */
size_t plan_element_bytes(const Plan *plan, const PlanNode *node);

/* Whether a node is a leaf that names a storage. */
bool plan_is_param(const PlanNode *node);

/* The entry of a node about which nothing is known yet: no operands, type, calls or
 * buffers. */
PlanNode plan_node(const Plan *plan, Node *node);

/* Fills `view` with the shape of a node's value, without data. */
void plan_view(View *view, const PlanNode *node);

/* The buffers that calls after the forward run read: for recomputed values, the second
 * ones. */
int plan_late_value(const PlanNode *node);
int plan_late_aux(const PlanNode *node);

/* A forward call with only shapes. `in` has room for node->in_count views. */
void plan_call(Call *call, View *in, const Plan *plan, const PlanNode *node);

/* Drops a reference; the last one frees the plan. NULL is allowed. */
void plan_destroy(Plan *plan);

/* Bytes of one workspace: activations, gradients, saved statistics, scratch; without
 * weights, weight gradients and optimiser state. */
size_t plan_workspace_bytes(const Plan *plan);

/* FLOPs of one forward run over the planned nodes (one multiply-add = 2), for all N
 * samples. */
double plan_flops(const Plan *plan);

/* FLOPs recomputed before backward calls; 0 without PlanOptions.recompute.
 */
double plan_flops_again(const Plan *plan);

/* Values of an integer input must lie in [0, result); 0 = any value. */
int64_t plan_index_limit(const Plan *plan, const Node *input);

/* Samples per run (the N it was planned for). */
int64_t plan_samples(const Plan *plan);

/* When the gradients of weights are complete: the array of gradients is divided into
 * `count` ranges of `size` elements, and last[i] is the time of the last backward call
 * that adds to range i; -1 = none does. */
void plan_last_writes(const Plan *plan, int64_t size, int64_t count, int *last);

/* Appends a table for people: each call with its buffers' offsets and lifetimes. */
void plan_print(Text *text, const Plan *plan);

#endif
