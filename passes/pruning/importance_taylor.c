/* First-order Taylor importance of heads and feed-forward units: see importance_taylor.h.
 *
 * The work is done on a copy of the graph in which every block has leaves of its own for
 * the weights that are differentiated, so that layers sharing weights are told apart;
 * every other weight is frozen. */
#include "passes/pruning/importance_taylor.h"

#include "exec/run/gradients.h"
#include "ir/rewrite.h"
#include "passes/training/objective.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Taylor {
    PassContext *ctx;
    const ImportanceOptions *options;
    Graph *graph;    /* the copy */
    Prune copies[2]; /* its heads and feed-forward units */
    Node *loss;
    Params *params;
    float *gradient;
} Taylor;

/* Slots of a block whose gradients count: the paper's J of a unit's value is what the
 * columns of the output projection give; the element-wise form of the authors' code adds
 * the rows of ffn_in. */
static int slots_used(const Taylor *t, const Prune *p) {
    return p->kind == PRUNE_FFN && t->options->abs == ABS_ELEMENT ? 2 : 1;
}

/* Gives the owner of a slot a weight of its own, sharing the data. */
static Status separate(Taylor *t, PruneSlot *slot, Diag *diag) {
    Node *owner = slot->owner;
    const int at = op_operand_index(owner->op, "weight");
    slot->leaf = owner->in[at];
    TRY(storage_separate(&slot->leaf, t->graph, STORAGE_USER(owner), diag));
    slot->leaf->storage->frozen = false;
    return STATUS_OK;
}

static Status separate_all(Taylor *t, Diag *diag) {
    for (int i = 0; i < t->graph->storage_count; i++)
        t->graph->storages[i]->frozen = true;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < t->copies[k].block_count; i++) {
            PruneBlock *block = &t->copies[k].blocks[i];
            TRY(separate(t, &block->slots[SLOT_OUT], diag));
            if (slots_used(t, &t->copies[k]) > 1)
                TRY(separate(t, &block->slots[SLOT_FFN_IN], diag));
        }
    return STATUS_OK;
}

/* ---- loss ---- */

/* The exit called `name` among those of `all`; NULL when there is none. */
static const Exit *find_named(const Exits *all, const char *name) {
    for (int i = 0; i < all->count; i++)
        if (strcmp(all->items[i].output, name) == 0) return &all->items[i];
    return NULL;
}

static Status fail_output(const Taylor *t, const Exits *all, const char *name,
                          Diag *diag) {
    Text list = {0};
    for (int i = 0; i < all->count; i++)
        text_add(&list, "%s%s", i ? ", " : "", all->items[i].output);
    Status status = step_fail_option(t->ctx, "outputs", diag,
                                     "expected predictions of classes, each once, found "
                                     "\"%s\"",
                                     name);
    diag_hint(diag, "the model has %s", list.data);
    text_free(&list);
    return status;
}

/* Those of all exits that the options name. */
static Status choose_named(Taylor *t, Exits *exits, Diag *diag) {
    const StringList *outputs = &t->options->outputs;
    const Exits all = *exits;
    *exits = (Exits){.items = ARENA_ARRAY(t->ctx->arena, Exit, (size_t)outputs->count)};
    for (int i = 0; i < outputs->count; i++) {
        const Exit *exit = find_named(&all, outputs->items[i]);
        if (!exit || find_named(exits, outputs->items[i]))
            return fail_output(t, &all, outputs->items[i], diag);
        exits->items[exits->count++] = *exit;
    }
    return STATUS_OK;
}

/* ---- scores ---- */

/* The importance of a block's units by one gradient. */
static void score_block(const Taylor *t, const Prune *p, const PruneBlock *block,
                        const float *gradient, double *scores) {
    const bool element = t->options->abs == ABS_ELEMENT;
    for (int s = 0; s < slots_used(t, p); s++) {
        const PruneSlot *slot = &block->slots[s];
        const int64_t at = params_offset(t->params, slot->leaf->storage);
        prune_sum(slot, gradient + at, element, scores);
    }
    for (int64_t u = 0; u < block->parts.units; u++) scores[u] = fabs(scores[u]);
}

/* GradientReduce: that of all blocks, one after the other. */
static void score_gradient(void *self, const float *gradient, double *scores) {
    const Taylor *t = self;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < t->copies[k].block_count; i++) {
            const PruneBlock *block = &t->copies[k].blocks[i];
            score_block(t, &t->copies[k], block, gradient, scores);
            scores += block->parts.units;
        }
}

/* Gives all blocks room for scores that lie one after the other; returns how many. */
static int64_t place_scores(Taylor *t, double *scores) {
    int64_t count = 0;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < t->copies[k].block_count; i++) {
            PruneBlock *block = &t->copies[k].blocks[i];
            if (scores) block->scores = scores + count;
            count += block->parts.units;
        }
    return count;
}

static Status differentiate(Taylor *t, const Batches *data, Diag *diag) {
    const ImportanceOptions *options = t->options;
    const GradientRun run = {.graph = t->graph,
                             .loss = t->loss,
                             .params = t->params,
                             .data = data,
                             .limit = options->limit,
                             .batch_size = options->batch_size,
                             .threads = t->ctx->threads,
                             .watch = t->ctx->watch};
    const int64_t count = place_scores(t, NULL);
    double *scores = ARENA_ARRAY(t->ctx->arena, double, (size_t)count);
    place_scores(t, scores);
    if (options->accumulate == ACCUMULATE_ABS_THEN_SUM)
        return batch_gradients(&run, score_gradient, t, scores, count, diag);
    t->gradient = memory_alloc((size_t)params_gradient_count(t->params), sizeof(float));
    TRY(mean_gradient(&run, t->gradient, diag));
    score_gradient(t, t->gradient, scores);
    return STATUS_OK;
}

/* ---- all of it ---- */

static Status find_copy(Taylor *t, const Prune *p, Prune *copy, Diag *diag) {
    if (p->block_count == 0) return STATUS_OK; /* what is not there, or not scored */
    return prune_find(copy, t->ctx, t->graph, p->kind, UNIT_HEAD, p->stack, diag);
}

/* Hands the scores over; the copy's blocks stand in the same order. */
static Status take_scores(const Taylor *t, const Prune *copy, Prune *p, Diag *diag) {
    for (int i = 0; i < p->block_count; i++) {
        PruneBlock *block = &p->blocks[i];
        block->scores = copy->blocks[i].scores;
        for (int64_t u = 0; u < block->parts.units; u++)
            if (!isfinite(block->scores[u]))
                return step_fail(
                    t->ctx, diag,
                    "%s: the importance of unit %lld of its %s is not finite",
                    block->place, (long long)u, prune_units(p->kind));
    }
    return STATUS_OK;
}

/* A model that embeds: the loss of pairs where it can be trained on them, else the mean
 * square of the embedding before its length is taken away, as in memory aware synapses:
 * what changes a function's output most, whatever its labels (Aljundi et al., ECCV 2018).
 */
static Status embed_loss(Taylor *t, Diag *diag) {
    const ImportanceOptions *options = t->options;
    Node *embedding = objective_embedding(t->graph), *zeros = NULL;
    Batches *data = NULL;
    TRY(step_data(t->ctx, options->data, NULL, &data, diag));
    const int labels = data ? batches_column(data, DATA_LABELS) : -1;
    const bool scored = labels >= 0 && data->columns[labels].type.dtype == DTYPE_F32;
    if (batches_group(data) > 1 && (labels < 0 || scored)) {
        const LabelLossOptions pairs = {
            .group = batches_group(data), .scale = CONTRASTIVE_SCALE, .scored = scored};
        return label_loss_add(&t->loss, t->graph, embedding, &pairs, diag);
    }
    if (node_is(embedding, &op_normalize)) embedding = embedding->in[0];
    TRY(node_add(&zeros, t->graph, NULL, &op_scale, &embedding, 1, diag, "by=0.0"));
    return node_add(&t->loss, t->graph, NULL, &op_mean_squared_error,
                    (Node *[]){embedding, zeros}, 2, diag, NULL);
}

/* The graph to differentiate: the sum of the label losses of the outputs that are named,
 * or of all exits; of words that are predicted, at the masked positions. */
static Status build(Taylor *t, const Prune *heads, const Prune *ffn, Diag *diag) {
    Exits exits;
    TRY(find_copy(t, heads, &t->copies[0], diag));
    TRY(find_copy(t, ffn, &t->copies[1], diag));
    TRY(separate_all(t, diag));
    if (objective_embedding(t->graph)) return embed_loss(t, diag);
    TRY(objective_mask_graph(t->ctx, t->graph, diag));
    TRY(exits_find(&exits, t->ctx->arena, t->ctx, t->graph, diag));
    if (t->options->outputs.count) TRY(choose_named(t, &exits, diag));
    return exits_label_loss(&t->loss, t->graph, &exits, &(LabelLossOptions){0}, diag);
}

static Status run(Taylor *t, Prune *heads, Prune *ffn, int64_t *samples, Diag *diag) {
    const ImportanceOptions *options = t->options;
    const bool mean = options->accumulate != ACCUMULATE_ABS_THEN_SUM;
    Batches *data = NULL;
    const DataUse use = {.graph = t->graph,
                         .roots = &t->loss,
                         .root_count = 1,
                         .batch = options->batch_size,
                         .gradient = true,
                         .mean = mean};
    TRY(step_data(t->ctx, options->data, &use, &data, diag));
    if (!data) return STATUS_OK;
    if (data->count == 0)
        return step_fail(t->ctx, diag, "data set \"%s\" has no samples", options->data);
    if (t->ctx->plan) return STATUS_OK;
    const int64_t limit = options->limit;
    *samples = limit > 0 && limit < data->count ? limit : data->count;
    TRY(params_create(&t->params, t->graph, PRECISION_F32, false, diag));
    TRY(differentiate(t, data, diag));
    TRY(take_scores(t, &t->copies[0], heads, diag));
    return take_scores(t, &t->copies[1], ffn, diag);
}

Status importance_taylor(Prune *heads, Prune *ffn, Model *model,
                         const ImportanceOptions *options, int64_t *samples, Diag *diag) {
    Arena *arena = arena_create();
    Taylor t = {
        .ctx = heads->ctx, .options = options, .graph = graph_copy(arena, model->graph)};
    Status status = build(&t, heads, ffn, diag);
    if (status == STATUS_OK) status = run(&t, heads, ffn, samples, diag);
    free(t.gradient);
    params_destroy(t.params);
    graph_release(t.graph);
    arena_destroy(arena);
    return status;
}
