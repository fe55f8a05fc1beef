/* remove_attention: takes additive attention out of a recurrent decoder; what it reads of
 * the encoder becomes the mean of the encoder's states. See passes/posterior/prior.h.
 *
 * The scores of source token j are U0 tanh(U1 h_j + U2 s). Where U0, or both U1 and U2,
 * are zero they are all equal, softmax gives each token the same weight, and the context
 * is the mean over the tokens that count. */
#include "ir/rewrite.h"
#include "passes/posterior/prior.h"

enum { ZERO_ALL, ZERO_SCORE, ZERO_PROJECTIONS };

typedef struct AttentionOptions {
    int zero;  /* ZERO_ */
    int prior; /* PriorKind */
} AttentionOptions;

#define A AttentionOptions
static const Field fields[] = {
    F_CHOICE(A, zero, "all|score|projections",
             "prior: gaussian: what is taken to be zero: all matrices of attention, the "
             "vector U0 that gives the score, or the projections U1 and U2 under it"),
    F_PRIOR(A),
    F_END,
};

static const A defaults = {0};

static Status attention_check(const void *opaque, const StepSource *source, Diag *diag) {
    const A *options = opaque;
    if (options->zero == ZERO_ALL || options->prior == PRIOR_GAUSSIAN) return STATUS_OK;
    return option_fail(source, "zero", STATUS_RECIPE, diag,
                       "expected prior: gaussian with it");
}

/* Operands of the decoder's op that make up its attention. */
enum { SCORE, MEMORY, STATE, PARTS };
static const char *const PART[PARTS] = {"align_score", "align_memory", "align_state"};

static bool attends(const Node *node) {
    return node_is(node, &op_attention_lstm) && node_operand(node, PART[SCORE]);
}

static bool is_listed(const SliceList *list, const Storage *storage) {
    for (int i = 0; i < list->count; i++)
        if (list->items[i].storage == storage) return true;
    return false;
}

static Status gather(SliceList *given, SliceList *removed, PassContext *ctx,
                     const Graph *graph, int zero, Diag *diag) {
    for (const Node *node = graph->first; node; node = node->next)
        for (int p = 0; attends(node) && p < PARTS; p++) {
            const Node *leaf = node_operand(node, PART[p]);
            int uses = 0; /* as attention's matrix */
            for (const Node *n = graph->first; n; n = n->next)
                for (int q = 0; attends(n) && q < PARTS; q++)
                    uses += node_operand(n, PART[q]) == leaf;
            if (!leaf->storage || uses != graph_use_count(graph, leaf))
                return step_fail(
                    ctx, diag,
                    "expected %s to be weights that attention alone uses, found %s",
                    PART[p], leaf->storage ? leaf->storage->name : leaf->op->name);
            const bool zeroed = zero == ZERO_ALL || (zero == ZERO_SCORE) == (p == SCORE);
            SliceList *list = zeroed ? given : removed;
            if (!is_listed(given, leaf->storage) && !is_listed(removed, leaf->storage))
                slices_add(ctx->arena, list,
                           (ConditionSlice){.storage = leaf->storage, .axis = -1});
        }
    if (given->count) return STATUS_OK;
    step_fail(ctx, diag, "the model has no additive attention to remove");
    diag_hint(diag, "`remove_block` takes attention out of the layers of a transformer");
    return STATUS_MODEL;
}

static Status attention_run(PassContext *ctx, Model *model, const void *opaque,
                            Diag *diag) {
    const A *options = opaque;
    Graph *graph = model->graph;
    SliceList given = {0}, removed = {0};
    TRY(gather(&given, &removed, ctx, graph, options->zero, diag));
    if (options->prior == PRIOR_GAUSSIAN)
        TRY(prior_condition(ctx, graph, &given, &removed, diag));
    for (Node *node = graph->first; node; node = node->next)
        for (int p = 0, had = attends(node); had && p < PARTS; p++)
            node_set_operand(graph, node, PART[p], NULL);
    graph_remove_dead(graph);
    TRY(graph_infer(graph, diag));
    if (options->prior == PRIOR_GAUSSIAN) return condition_set_weights(graph, diag);
    return options->prior == PRIOR_RANDOM ? prior_redraw(ctx, model, diag) : STATUS_OK;
}

const Pass pass_remove_attention = {
    .name = "remove_attention",
    .summary = "take additive attention out of a recurrent decoder: its context becomes "
               "the mean",
    .paper = "Bayesian distillation of transformer models (2023), theorems 2 to 4",
    .fields = fields,
    .options_size = sizeof(A),
    .defaults = &defaults,
    .exactness = PASS_LOSSY,
    .effects = {.needs = MODEL_ADDITIVE_ATTENTION, .takes = MODEL_ADDITIVE_ATTENTION},
    .check = attention_check,
    .run = attention_run,
};
