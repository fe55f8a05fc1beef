/* Conditioning: marks, order of work, report. See condition.h. */
#include "passes/posterior/condition.h"

#include "passes/posterior/condition_forms.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- marks ---- */

static void mark_element(ConditionPart *part, const ConditionSlice *slice,
                         ConditionMark mark, int64_t i) {
    part->mark[i] = (uint8_t)mark;
    if (mark == MARK_GIVEN)
        part->value[i] = slice->values ? slice->values[i] : slice->value;
}

static void mark_slice(ConditionPart *part, const ConditionSlice *slice,
                       ConditionMark mark) {
    const Tensor *tensor = storage_tensor(slice->storage);
    if (!part->mark) part->mark = memory_alloc((size_t)part->count + 1, 1);
    if (!part->value && mark == MARK_GIVEN)
        part->value = memory_alloc((size_t)part->count + 1, sizeof *part->value);
    if (slice->axis < 0) {
        for (int64_t i = 0; i < part->count; i++) mark_element(part, slice, mark, i);
        return;
    }
    int64_t outer = 1, inner = 1;
    for (int i = 0; i < slice->axis; i++) outer *= tensor->dim[i];
    for (int i = slice->axis + 1; i < tensor->rank; i++) inner *= tensor->dim[i];
    for (int64_t o = 0; o < outer; o++)
        for (int64_t k = 0; k < slice->count; k++)
            for (int64_t i = 0; i < inner; i++)
                mark_element(part, slice, mark,
                             (o * tensor->dim[slice->axis] + slice->index[k]) * inner +
                                 i);
}

static Status mark_slices(Conditioning *c, const ConditionSlice *slices, int count,
                          ConditionMark mark) {
    for (int s = 0; s < count; s++) {
        const ConditionSlice *slice = &slices[s];
        ConditionPart *part = NULL;
        const Tensor *tensor = storage_tensor(slice->storage);
        bool good = slice->axis < tensor->rank;
        for (int64_t i = 0; good && slice->axis >= 0 && i < slice->count; i++)
            good = slice->index[i] >= 0 && slice->index[i] < tensor->dim[slice->axis] &&
                   (i == 0 || slice->index[i] > slice->index[i - 1]);
        if (!good)
            return diag_fail(c->diag, STATUS_INTERNAL, c->ctx->source.at,
                             slice->storage->name,
                             "a slice does not lie within the weights");
        for (int i = 0; i < c->part_count && !part; i++)
            if (c->parts[i].storage == slice->storage) part = &c->parts[i];
        if (part) {
            mark_slice(part, slice, mark);
            continue;
        }
        const int64_t all = tensor_count(tensor);
        c->report->unknown += slice->axis < 0 || all == 0
                                  ? all
                                  : all / tensor->dim[slice->axis] * slice->count;
    }
    return STATUS_OK;
}

static void count_marks(Conditioning *c) {
    for (int p = 0; p < c->part_count; p++) {
        ConditionPart *part = &c->parts[p];
        int64_t removed = 0;
        for (int64_t i = 0; part->mark && i < part->count; i++) {
            part->given += part->mark[i] == MARK_GIVEN;
            removed += part->mark[i] == MARK_REMOVED;
        }
        c->report->given += part->given;
        c->report->removed += removed;
        c->report->kept += part->count - part->given - removed;
    }
}

/* ---- the work ---- */

static bool is_kron(const ConditionPart *part) {
    return part->normal->form == GAUSSIAN_KRON;
}

/* Storages of form kron can fail one by one, the others only together and before the
 * first of them is changed: so kron goes first, and can be put back. */
static Status run(Conditioning *c, const Condition *condition) {
    TRY(mark_slices(c, condition->removed, condition->removed_count, MARK_REMOVED));
    TRY(mark_slices(c, condition->given, condition->given_count, MARK_GIVEN));
    count_marks(c);
    if (c->ctx->plan) return STATUS_OK;
    for (int i = 0; i < c->part_count; i++)
        TRY(gaussian_check(c->parts[i].normal, c->parts[i].storage->name, STATUS_MODEL,
                           c->diag));
    Status status = STATUS_OK;
    for (int i = 0; i < c->part_count && status == STATUS_OK; i++) {
        if (!is_kron(&c->parts[i])) continue;
        condition_begin(c, &c->parts[i]);
        status = condition_kron(c, &c->parts[i]);
    }
    if (status == STATUS_OK) status = condition_low_rank(c);
    for (int i = 0; i < c->part_count; i++) {
        ConditionPart *part = &c->parts[i];
        if (!is_kron(part) || !part->before) continue;
        if (status == STATUS_OK) {
            condition_end(c, part);
            continue;
        }
        part->before->origin = part->normal->origin;
        gaussian_release(part->normal);
        *part->normal = *part->before;
        part->before = NULL;
    }
    if (status != STATUS_OK) return status;
    ConditionReport *report = c->report;
    report->jitter = c->jitter;
    report->changed = c->changed;
    if (c->moved > 0) report->moved = c->mean > 0 ? sqrt(c->moved / c->mean) : INFINITY;
    if (c->variance > 0) report->shrunk = 1 - c->left / c->variance;
    return STATUS_OK;
}

Status condition_gaussians(PassContext *ctx, Graph *graph, const Condition *condition,
                           ConditionReport *report, Diag *diag) {
    *report = (ConditionReport){0};
    const int most = graph_gaussian_count(graph);
    if (most == 0) {
        Status status =
            step_fail(ctx, diag, "expected a model with a posterior, found one without");
        diag_hint(diag, "estimate_posterior makes one");
        return status;
    }
    Status status = graph_check_gaussians(graph, STATUS_MODEL, diag);
    Conditioning c = {
        .ctx = ctx, .report = report, .diag = diag, .scratch = arena_create()};
    c.parts = memory_alloc((size_t)most, sizeof *c.parts);
    for (int i = 0; i < graph->storage_count; i++) {
        Storage *storage = graph->storages[i];
        if (storage_gaussian(storage))
            c.parts[c.part_count++] =
                (ConditionPart){.storage = storage,
                                .normal = storage_edit_gaussian(storage),
                                .count = tensor_count(storage_tensor(storage))};
    }
    if (status == STATUS_OK) status = run(&c, condition);
    if (status != STATUS_OK) diag_place(diag, ctx->source.at, ctx->source.key);
    for (int i = 0; i < c.part_count; i++) {
        gaussian_release(c.parts[i].before);
        free(c.parts[i].mark);
        free(c.parts[i].value);
    }
    free(c.parts);
    arena_destroy(c.scratch);
    return status;
}

/* ---- what passes do with it ---- */

void condition_record(PassContext *ctx, const char *name, const ConditionReport *report) {
    Arena *arena = ctx->arena;
    Tree *map = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_put_int(arena, map, "given", report->given);
    tree_put_int(arena, map, "removed", report->removed);
    tree_put_int(arena, map, "kept", report->kept);
    if (report->unknown > 0) tree_put_int(arena, map, "unknown", report->unknown);
    if (!ctx->plan) {
        tree_put_real(arena, map, "moved", report->moved);
        tree_put_real(arena, map, "variance_lost", report->shrunk);
        if (report->jitter > 0) tree_put_real(arena, map, "jitter", report->jitter);
        if (!report->changed) /* why means and variances of what stays are the old ones */
            tree_put_string(arena, map, "note",
                            report->given == 0
                                ? "conditioning did nothing: nothing that is set has a "
                                  "posterior"
                                : "conditioning did nothing: what stays is not "
                                  "correlated with what is set, so its means and "
                                  "variances are selected");
    }
    tree_append(arena, ctx->record, name, LOC_NONE, map);
}

Status condition_set_weights(Graph *graph, Diag *diag) {
    for (int i = 0; i < graph->storage_count; i++)
        if (storage_gaussian(graph->storages[i]))
            TRY(storage_take_mean(graph->storages[i], diag));
    return STATUS_OK;
}
