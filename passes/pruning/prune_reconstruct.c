/* Pruning with calibration data: see prune.h.
 *
 * A group's units are read by one projection or, where its blocks share other weights
 * alone, by several: each of them is a fit. Blocks whose projection is one storage are
 * one fit, over the rows of all of them. Units that go are left in the graph with zeros
 * in the columns that are read of them, and are cut afterwards. */
#include "passes/pruning/prune.h"

#include "ir/half.h"
#include "ir/rewrite.h"
#include "ir/storage.h"
#include "passes/fault.h"
#include "passes/layers.h"
#include "passes/oneshot/drift.h"
#include "passes/oneshot/obs.h"

#include <math.h>
#include <stdlib.h>

bool prune_calibrates(const PruneOptions *options) {
    return options->reconstruct || options->score == SCORE_RECONSTRUCTION;
}

Status prune_calibrate(Calibration **out, Prune *prunes, int count,
                       const PruneOptions *options, Diag *diag) {
    PassContext *ctx = prunes->ctx;
    int values = 0;
    for (int k = 0; k < count; k++) values += prunes[k].block_count;
    Node **inputs = ARENA_ARRAY(ctx->arena, Node *, (size_t)values);
    values = 0;
    for (int k = 0; k < count; k++)
        for (int i = 0; i < prunes[k].block_count; i++)
            inputs[values++] = prunes[k].blocks[i].out->in[0];
    TRY(calibration_open(out, ctx, prunes->graph, inputs, values, &options->calibration,
                         diag));
    if (*out) calibration_record(*out, ctx->record);
    return STATUS_OK;
}

/* ---- the fits of a group ---- */

/* A group, and the layers that read its units. */
typedef struct Refit {
    Prune *prune;
    PruneGroup *group;
    PruneBlock **blocks; /* of the group */
    int block_count;
    int *fit; /* by block: its fit */
    LinearFit *fits;
    int fit_count;
} Refit;

static void refit_open(Refit *t, Prune *prune, PruneGroup *group) {
    Arena *arena = prune->ctx->arena;
    const size_t most = (size_t)prune->block_count;
    *t = (Refit){.prune = prune, .group = group};
    t->blocks = ARENA_ARRAY(arena, PruneBlock *, most);
    t->fit = ARENA_ARRAY(arena, int, most);
    t->fits = ARENA_ARRAY(arena, LinearFit, most);
    for (int i = 0; i < prune->block_count; i++) {
        PruneBlock *block = &prune->blocks[i];
        if (&prune->groups[block->group] != group) continue;
        int same = 0;
        while (same < t->block_count &&
               t->blocks[same]->slots[SLOT_OUT].leaf != block->slots[SLOT_OUT].leaf)
            same++;
        t->fit[t->block_count] = same < t->block_count ? t->fit[same] : t->fit_count++;
        t->blocks[t->block_count++] = block;
    }
}

static void refit_close(Refit *t) {
    for (int f = 0; f < t->fit_count; f++) fit_close(&t->fits[f]);
}

/* The block that a fit's weights are read from and written to. */
static PruneBlock *block_of(const Refit *t, int fit) {
    int i = 0;
    while (t->fit[i] != fit) i++;
    return t->blocks[i];
}

/* The projection that reads the units of a block: the first of two factors, where it ends
 * in two. */
static Node *reader_of(const PruneBlock *block) {
    return block->slots[SLOT_OUT].owner;
}

/* The bias of a fit's projections, where they alone read it and it is stored. */
static Node *bias_of(const Refit *t, int fit) {
    Node **users = ARENA_ARRAY(t->prune->ctx->arena, Node *, (size_t)t->block_count);
    Node *bias = node_operand(reader_of(block_of(t, fit)), "bias");
    int count = 0;
    for (int i = 0; i < t->block_count; i++)
        if (t->fit[i] == fit) users[count++] = reader_of(t->blocks[i]);
    const bool own = bias && bias->storage &&
                     storage_used_by(t->prune->graph, bias, (StorageUsers){users, count});
    return own ? bias : NULL;
}

/* Reads a projection's weights as [outputs, inputs], and its bias. */
static Status read_layer(LinearFit *fit, const Refit *t, int index, Diag *diag) {
    const Node *out = reader_of(block_of(t, index)), *bias = bias_of(t, index);
    const bool transposed = ((const LinearAttrs *)out->attrs)->transposed;
    const Tensor *w = storage_tensor(node_operand(out, "weight")->storage);
    const int64_t M = w->dim[transposed], K = w->dim[!transposed];
    TRY(fit_open(fit, M, K, bias != NULL, diag));
    if (bias) tensor_read_f64(storage_tensor(bias->storage), 0, M, fit->bias);
    if (!transposed) {
        tensor_read_f64(w, 0, M * K, fit->weight);
        return STATUS_OK;
    }
    double *row = memory_alloc((size_t)M, sizeof *row);
    for (int64_t i = 0; i < K; i++) {
        tensor_read_f64(w, i * M, M, row);
        for (int64_t m = 0; m < M; m++) fit->weight[m * K + i] = row[m];
    }
    free(row);
    return STATUS_OK;
}

/* Reads the layers of a group and gathers the rows that reach them. */
static Status gather(Refit *t, Calibration *calibration, double damp, Diag *diag) {
    Arena *arena = t->prune->ctx->arena;
    Node **inputs = ARENA_ARRAY(arena, Node *, (size_t)t->block_count);
    Gram *grams = ARENA_ARRAY(arena, Gram, (size_t)t->block_count);
    for (int i = 0; i < t->block_count; i++) inputs[i] = reader_of(t->blocks[i])->in[0];
    TRY(calibration_gram(calibration, inputs, t->block_count, grams, diag));
    Status status = STATUS_OK;
    for (int f = 0; f < t->fit_count && status == STATUS_OK; f++) {
        Gram *sum = NULL;
        for (int i = 0; i < t->block_count; i++) {
            if (t->fit[i] != f) continue;
            if (sum) gram_merge(sum, &grams[i]);
            if (!sum) sum = &grams[i];
        }
        status = read_layer(&t->fits[f], t, f, diag);
        if (status == STATUS_OK) status = fit_set(&t->fits[f], sum, damp, diag);
        calibration_warn_rows(calibration, sum->rows, sum->width, diag);
    }
    for (int i = 0; i < t->block_count; i++) gram_destroy(&grams[i]);
    return status;
}

/* ---- scores ---- */

/* Squares of the values behind the blocks of a group, by fit. */
typedef struct Squares {
    const Refit *refit;
    double *sums; /* by fit */
} Squares;

/* CalibrationSink. */
static Status add_squares(void *self, const CalibrationRows *rows, Diag *diag) {
    const Squares *s = self;
    (void)diag;
    for (int i = 0; i < s->refit->block_count; i++) {
        double sum = 0;
        for (int64_t k = 0; k < rows[i].count * rows[i].width; k++)
            sum += (double)rows[i].x[k] * (double)rows[i].x[k];
        s->sums[s->refit->fit[i]] += sum;
    }
    return STATUS_OK;
}

/* Makes costs shares of the residual sums behind the blocks, which tell how much what a
 * block gives counts there: layers can be compared by them. */
static Status scale_costs(Refit *t, Calibration *calibration, Diag *diag) {
    Arena *arena = t->prune->ctx->arena;
    Node **values = ARENA_ARRAY(arena, Node *, (size_t)t->block_count);
    Squares squares = {t, ARENA_ARRAY(arena, double, (size_t)t->fit_count)};
    for (int i = 0; i < t->block_count; i++)
        values[i] = drift_value(t->prune->graph, t->blocks[i]->out);
    TRY(calibration_rows(calibration, values, t->block_count, add_squares, &squares,
                         diag));
    for (int f = 0; f < t->fit_count; f++) t->fits[f].scale = squares.sums[f];
    return STATUS_OK;
}

/* Scores a group's units: the one that goes first has the least. Costs that fall again
 * count as much as the one before, so that taking units by their scores takes them in
 * order. */
static Status score_refit(Refit *t, Diag *diag) {
    PassContext *ctx = t->prune->ctx;
    const int64_t parts = prune_part_count(&t->group->parts);
    ObsRemoval *removals = ARENA_ARRAY(ctx->arena, ObsRemoval, (size_t)parts);
    TRY(obs_remove(removals, parts, t->fits, t->fit_count, parts, ctx->threads,
                   ctx->watch, diag));
    double *scores = ARENA_ARRAY(ctx->arena, double, (size_t)parts), most = 0;
    for (int64_t i = 0; i < parts; i++) {
        most = fmax(most, removals[i].cost);
        scores[removals[i].unit] = most;
    }
    t->blocks[0]->scores = scores;
    return STATUS_OK;
}

Status prune_obs_scores(Prune *prunes, int count, Calibration *calibration,
                        const PruneOptions *options, Diag *diag) {
    int groups = 0;
    for (int k = 0; k < count; k++) groups += prunes[k].group_count;
    calibration_expect(calibration, 3 * groups,
                       false); /* and once when it is reconstructed */
    for (int k = 0; k < count; k++) {
        for (int g = 0; g < prunes[k].group_count; g++) {
            Refit t;
            refit_open(&t, &prunes[k], &prunes[k].groups[g]);
            Status status = gather(&t, calibration, options->calibration.damp, diag);
            if (status == STATUS_OK) status = scale_costs(&t, calibration, diag);
            if (status == STATUS_OK) status = score_refit(&t, diag);
            refit_close(&t);
            TRY(status);
        }
        calibration_restart(calibration);
    }
    return STATUS_OK;
}

/* ---- taking over ---- */

/* Which inputs of a fit stay. */
static void fill_keep(bool *keep, const Refit *t, const LinearFit *fit) {
    const int64_t parts = prune_part_count(&t->group->parts);
    bool *kept = ARENA_ARRAY(t->prune->ctx->arena, bool, (size_t)parts);
    prune_mask(kept, t->group);
    for (int64_t i = 0; i < fit->inputs; i++) keep[i] = kept[i / (fit->inputs / parts)];
}

/* The type in which new values of a storage are kept: its own, or f32 for one that is
 * quantised. */
static DType type_of(const Storage *storage) {
    const DType dtype = storage_tensor(storage)->dtype;
    return dtype == DTYPE_F16 || dtype == DTYPE_BF16 || dtype == DTYPE_F64 ? dtype
                                                                           : DTYPE_F32;
}

/* Puts values[rows, columns] into storage order; false where one becomes infinite. */
static bool store(void *data, DType dtype, const double *values, int64_t rows,
                  int64_t columns, bool transposed) {
    bool finite = true;
    for (int64_t i = 0; i < rows * columns; i++) {
        const int64_t at = transposed ? i % columns * rows + i / columns : i;
        const float value = (float)values[i];
        float read = value;
        if (dtype == DTYPE_F64) ((double *)data)[at] = values[i];
        if (dtype == DTYPE_F32) ((float *)data)[at] = value;
        if (dtype == DTYPE_F16)
            read = f16_to_float(((uint16_t *)data)[at] = f16_from_float(value));
        if (dtype == DTYPE_BF16)
            read = bf16_to_float(((uint16_t *)data)[at] = bf16_from_float(value));
        finite = finite && isfinite(read);
    }
    return finite;
}

/* Gives a leaf new values, or when planning (`values` NULL) the type that they have. */
static Status replace(const Refit *t, Node *leaf, const double *values, int64_t rows,
                      int64_t columns, bool transposed, Diag *diag) {
    const Tensor *old = storage_tensor(leaf->storage);
    const DType dtype = type_of(leaf->storage);
    Tensor tensor;
    void *data;
    TRY(storage_blank(&tensor, &data, leaf->storage, dtype, old->rank, old->dim, diag));
    if (values && data && !store(data, dtype, values, rows, columns, transposed)) {
        tensor_release(&tensor);
        return step_fail(t->prune->ctx, diag,
                         "%s: a reconstructed weight is too large for %s",
                         leaf->storage->name, dtype_name(dtype));
    }
    return storage_replace(t->prune->graph, leaf, STORAGE_ALL_USERS, tensor, -1, diag);
}

static Status write_layer(const Refit *t, int index, Diag *diag) {
    const LinearFit *fit = &t->fits[index];
    const Node *out = reader_of(block_of(t, index));
    Node *bias = bias_of(t, index);
    TRY(replace(t, node_operand(out, "weight"), fit->weight, fit->outputs, fit->inputs,
                ((const LinearAttrs *)out->attrs)->transposed, diag));
    return bias ? replace(t, bias, fit->bias, 1, fit->outputs, false, diag) : STATUS_OK;
}

/* Chooses the units that stay, as many as the group keeps: those that would go last.
 * Where a unit has a part of each set, the parts of all are taken out by themselves, and
 * in each set those that went last stay. */
static Status choose_units(Refit *t, Diag *diag) {
    PassContext *ctx = t->prune->ctx;
    PruneGroup *group = t->group;
    const int64_t parts = prune_part_count(&group->parts);
    const int64_t gone =
        group->parts.sets > 1 ? parts : group->parts.units - group->keep_count;
    ObsRemoval *removals = ARENA_ARRAY(ctx->arena, ObsRemoval, (size_t)gone + 1);
    double *turn = ARENA_ARRAY(ctx->arena, double, (size_t)parts);
    TRY(obs_remove(removals, gone, t->fits, t->fit_count, parts, ctx->threads, ctx->watch,
                   diag));
    for (int64_t i = 0; i < parts; i++) turn[i] = (double)gone;
    for (int64_t i = 0; i < gone; i++) turn[removals[i].unit] = (double)i;
    if (group->parts.sets > 1) {
        group->scores = ARENA_ARRAY(ctx->arena, double, (size_t)group->parts.units);
        prune_rank_parts(group, turn);
        prune_keep_first(group, group->keep_count);
        return STATUS_OK;
    }
    group->keep_count = 0;
    for (int64_t u = 0; u < parts; u++)
        if (turn[u] >= (double)gone) group->keep[group->keep_count++] = u;
    return STATUS_OK;
}

static Status finish_refit(Refit *t, const PruneOptions *options, Diag *diag) {
    if (options->score == SCORE_RECONSTRUCTION) TRY(choose_units(t, diag));
    for (int f = 0; f < t->fit_count; f++) {
        LinearFit *fit = &t->fits[f];
        FitErrors errors;
        bool *keep = ARENA_ARRAY(t->prune->ctx->arena, bool, (size_t)fit->inputs);
        fill_keep(keep, t, fit);
        if (options->reconstruct) {
            TRY(reconstruct(&errors, fit, keep, diag));
            TRY(write_layer(t, f, diag));
        } else {
            TRY(fit_cut_error(&errors, fit, keep, diag));
        }
        for (int i = 0; i < t->block_count; i++) {
            if (t->fit[i] != f) continue;
            t->blocks[i]->rows = fit->rows;
            t->blocks[i]->errors = errors;
            t->blocks[i]->few_rows = fit->rows < fit->inputs;
            t->blocks[i]->raised = fit->raised;
        }
    }
    return STATUS_OK;
}

/* As gather, for a group of one block behind others that have changed: the layer takes on
 * what is missing behind it of what there was before. */
static Status gather_drift(Refit *t, Calibration *calibration, const Before *before,
                           double damp, Diag *diag) {
    const Graph *graph = t->prune->graph;
    Node *out = t->blocks[0]->out, *value = drift_value(graph, out);
    Drift drift;
    Gram gram;
    TRY(drift_gather(&drift, &gram, calibration, out->in[0], value, before, diag));
    Status status = read_layer(&t->fits[0], t, 0, diag);
    if (status == STATUS_OK) status = fit_set(&t->fits[0], &gram, damp, diag);
    calibration_warn_rows(calibration, gram.rows, gram.width, diag);
    if (status == STATUS_OK)
        status = fit_follow(&t->fits[0], drift.cross, drift.mean, diag);
    gram_destroy(&gram);
    drift_free(&drift);
    return status;
}

/* `before` NULL: nothing has changed so far, or nothing is to follow. Nor does a layer of
 * two factors follow: the one that reads the units has no value of before to come to. */
static Status run_refit(Refit *t, Calibration *calibration, const Before *before,
                        const PruneOptions *options, Diag *diag) {
    const double damp = options->calibration.damp;
    const bool follows =
        before && t->block_count == 1 && reader_of(t->blocks[0]) == t->blocks[0]->out;
    Status status = follows ? gather_drift(t, calibration, before, damp, diag)
                            : gather(t, calibration, damp, diag);
    if (status == STATUS_OK) status = finish_refit(t, options, diag);
    refit_close(t);
    return status;
}

/* The group of the block that ends in a node, when it is the group's first and loses
 * units. */
static bool find_refit(Refit *t, Prune *prunes, int count, const Node *out) {
    for (int k = 0; k < count; k++)
        for (int i = 0; i < prunes[k].block_count; i++) {
            Prune *prune = &prunes[k];
            PruneGroup *group = &prune->groups[prune->blocks[i].group];
            if (prune->blocks[i].out != out || group->keep_count == group->parts.units)
                continue;
            refit_open(t, prune, group);
            return t->blocks[0] == &prune->blocks[i];
        }
    return false;
}

/* Goes over the groups in the order in which they run. */
static Status run_refits(Prune *prunes, int count, Calibration *calibration,
                         const Before *before, const PruneOptions *options, Diag *diag) {
    bool changed = false;
    for (Node *node = prunes->graph->first; node; node = node->next) {
        Refit t;
        if (!find_refit(&t, prunes, count, node)) continue;
        TRY(run_refit(&t, calibration, changed ? before : NULL, options, diag));
        changed = options->reconstruct;
    }
    for (int k = 0; k < count; k++) prunes[k].guessed = false;
    return STATUS_OK;
}

/* Planning: the types of the weights that change. */
static Status plan_refits(Prune *prunes, int count, const PruneOptions *options,
                          Diag *diag) {
    for (Node *node = prunes->graph->first; node; node = node->next) {
        Refit t;
        if (!options->reconstruct || !find_refit(&t, prunes, count, node)) continue;
        for (int f = 0; f < t.fit_count; f++) TRY(write_layer(&t, f, diag));
    }
    return STATUS_OK;
}

Status prune_reconstruct(Prune *prunes, int count, Calibration *calibration,
                         const PruneOptions *options, Diag *diag) {
    Before before;
    Refit t;
    int groups = 0;
    if (!calibration) return plan_refits(prunes, count, options, diag);
    for (Node *node = prunes->graph->first; node; node = node->next)
        groups += find_refit(&t, prunes, count, node);
    calibration_expect(calibration, groups, false);
    if (!options->follow)
        return run_refits(prunes, count, calibration, NULL, options, diag);
    const Prune *last = &prunes[count - 1];
    Status status = before_open(&before, last->ctx, last->graph,
                                &last->blocks[last->block_count - 1].out->in[0], 1,
                                &options->calibration, diag);
    if (status == STATUS_OK)
        status = run_refits(prunes, count, calibration, &before, options, diag);
    before_close(&before);
    return status;
}
