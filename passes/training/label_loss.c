/* Label losses: see label_loss.h. */
#include "passes/training/label_loss.h"

#include "exec/ops.h"
#include "ir/batches.h"
#include "passes/nodes.h"

/* An input of this name and type, added where there is none. */
static Node *find_input(Graph *graph, const char *name, const Type *type) {
    Node *input = graph_find_input(graph, name);
    return input ? input : graph_input(graph, name, type);
}

/* The type of one number for each row of logits. */
static Type row_type(const Node *logits, DType dtype) {
    Type type = logits->type;
    type.dtype = dtype;
    type.dim[--type.rank] = 0;
    return type;
}

static Status add_cross_entropy(Node **out, Graph *graph, Node *logits,
                                const LabelLossOptions *options, Diag *diag) {
    const bool masked = logits->type.rank == 3 && logits->type.dim[1] == DIM_M;
    const Type number = row_type(logits, DTYPE_I32), share = row_type(logits, DTYPE_F32);
    Node *in[4] = {logits,
                   find_input(graph, masked ? "masked_labels" : DATA_LABELS, &number)};
    if (options->mixed) {
        in[2] = find_input(graph, DATA_MIX_LABELS, &number);
        in[3] = find_input(graph, DATA_MIX_SHARE, &share);
    }
    return node_add(out, graph, NULL, &op_cross_entropy, in, options->mixed ? 4 : 2, diag,
                    "smoothing=%.17g", options->smoothing);
}

static Status add_squared_error(Node **out, Graph *graph, Node *logits,
                                const LabelLossOptions *options, Diag *diag) {
    (void)options;
    Node *in[2] = {logits, find_input(graph, DATA_LABELS, &logits->type)};
    return node_add(out, graph, NULL, &op_mean_squared_error, in, 2, diag, NULL);
}

static Status add_span(Node **out, Graph *graph, Node *logits,
                       const LabelLossOptions *options, Diag *diag) {
    (void)options;
    const Type number = {.dtype = DTYPE_I32, .rank = 1, .dim = {logits->type.dim[0]}};
    Node *mask = graph_find_input(graph, INPUT_MASK);
    Node *in[4] = {logits, find_input(graph, DATA_SPAN_FIRST, &number),
                   find_input(graph, DATA_SPAN_LAST, &number), mask};
    return node_add(out, graph, NULL, &op_span_cross_entropy, in, mask ? 4 : 3, diag,
                    NULL);
}

static Status add_choice(Node **out, Graph *graph, Node *logits,
                         const LabelLossOptions *options, Diag *diag) {
    (void)options;
    const Type number = row_type(logits, DTYPE_I32);
    Node *in[3] = {logits, find_input(graph, DATA_LABELS, &number),
                   find_input(graph, DATA_CHOICE_PLACE, &number)};
    return node_add(out, graph, NULL, &op_choice_cross_entropy, in, 3, diag, NULL);
}

static Status add_contrastive(Node **out, Graph *graph, Node *embedding,
                              const LabelLossOptions *options, Diag *diag) {
    const int64_t group = options->group > 0 ? options->group : 2;
    const Type score = {.dtype = DTYPE_F32, .rank = 2, .dim = {DIM_N, 1}};
    if (options->scored) {
        Node *in[2] = {embedding, find_input(graph, DATA_LABELS, &score)};
        return node_add(out, graph, NULL, &op_pair_cosine_mse, in, 2, diag, "group=%lld",
                        (long long)group);
    }
    return node_add(out, graph, NULL, &op_contrastive, &embedding, 1, diag,
                    "group=%lld scale=%.17g symmetric=%s", (long long)group,
                    options->scale, options->symmetric ? "true" : "false");
}

static Status add_binary(Node **out, Graph *graph, Node *logits,
                         const LabelLossOptions *options, Diag *diag) {
    Node *in[2] = {logits, find_input(graph, DATA_LABELS, &logits->type)};
    const RealList *weights = options->positive;
    Text positive = {0};
    for (int i = 0; weights && i < weights->count; i++) {
        text_add(&positive, i ? ", " : "");
        text_real(&positive, weights->items[i]);
    }
    const Status status =
        node_add(out, graph, NULL, &op_binary_cross_entropy, in, 2, diag,
                 "smoothing=%.17g positive=[%s]", options->smoothing,
                 positive.data ? positive.data : "");
    text_free(&positive);
    return status;
}

typedef Status LabelLossAdd(Node **out, Graph *graph, Node *logits,
                            const LabelLossOptions *options, Diag *diag);

static LabelLossAdd *const LOSSES[TASK_COUNT] = {
    [TASK_CLASSIFY] = add_cross_entropy,
    [TASK_FILL_IN] = add_cross_entropy,
    [TASK_NEXT_TOKEN] = add_cross_entropy,
    [TASK_TRANSLATE] = add_cross_entropy,
    [TASK_LABEL_TOKENS] = add_cross_entropy,
    [TASK_REGRESS] = add_squared_error,
    [TASK_FIND_SPAN] = add_span,
    [TASK_CHOOSE] = add_choice,
    [TASK_EMBED] = add_contrastive,
    [TASK_MULTI_LABEL] = add_binary,
};

bool label_loss_known(Task task) {
    return LOSSES[task] != NULL;
}

Status label_loss_add(Node **out, Graph *graph, Node *logits,
                      const LabelLossOptions *options, Diag *diag) {
    const Task task = graph_task(graph);
    if (LOSSES[task]) return LOSSES[task](out, graph, logits, options, diag);
    return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                     "task %s has no loss against labels", task_name(task));
}
