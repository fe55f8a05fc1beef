/* Editing helpers shared by passes: adding nodes with checks in one call. */
#ifndef COMPRESS_PASSES_EDIT_H
#define COMPRESS_PASSES_EDIT_H

#include "exec/ops.h"
#include "ir/storage.h"
#include "passes/pass.h"

/* Adds a node before `anchor` (NULL: at the end) with `count` operands, attributes from
 * printf-formatted IR text (NULL: defaults), and infers its type. Fails with
 * STATUS_MODEL. */
Status edit_node(Node **out, Graph *graph, Node *anchor, const Op *op, Node *const *in,
                 int count, Diag *diag, const char *attrs, ...)
    __attribute__((format(printf, 8, 9)));

/* Reports that the model does not fit this pass, at the step's place. */
Status edit_fail(PassContext *ctx, Diag *diag, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The same at an option's place, or that of the last given of several joined by '|': see
 * option_fail. */
Status edit_fail_option(PassContext *ctx, const char *options, Diag *diag,
                        const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* Reports a label of a data set that is none of the model's classes. */
Status edit_fail_label(PassContext *ctx, Diag *diag, const Batches *data, int64_t sample,
                       int64_t classes, int32_t label);

/* Weighted sum of scalars as one node; `weights` may be NULL for the mean. */
Status edit_sum(Node **out, Graph *graph, Node *const *terms, const double *weights,
                int count, Diag *diag);

/* Node of a place and role, when its op is `op`; NULL else. A file may give any role to
 * any node: passes that read a node's attributes find it with this. */
Node *edit_find(const Graph *graph, const char *stack, int layer, Role role,
                const Op *op);

/* The stack that an option names; "main" stands for graph_main_stack. NULL stays. */
const char *edit_stack(const Graph *graph, const char *name);

/* Sorts numbers of layers or units, the smallest first. */
void edit_sort(int64_t *items, int64_t count);

/* Number of tokens put in front of the patches (class, distillation). */
int edit_extra_tokens(const Graph *graph);

/* Patch grid of an image model: rows and columns. False for models without patches. */
bool edit_grid(const Graph *graph, int64_t *rows, int64_t *columns);

#endif
