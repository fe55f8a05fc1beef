/* evaluate: tasks with a judge. See judge.h. */
#include "passes/evaluate/evaluation.h"

#include "exec/run/forward.h"

#include <math.h>

static const Judge *const JUDGES[] = {&judge_choice,  &judge_embed, &judge_labels,
                                      &judge_regress, &judge_span,  &judge_tokens};

const Judge *judge_find(Task task) {
    for (size_t i = 0; i < sizeof JUDGES / sizeof *JUDGES; i++)
        if (JUDGES[i]->task == task) return JUDGES[i];
    return NULL;
}

Status evaluation_check_finite(const Evaluation *e, int64_t sample, const float *values,
                               int64_t count, Diag *diag) {
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return step_fail(e->ctx, diag,
                             "sample %lld: expected finite predictions, found %g",
                             (long long)sample, values[i]);
    return STATUS_OK;
}

static Status check_columns(const Evaluation *e, Diag *diag) {
    for (const char *const *name = e->judge->columns; *name; name++) {
        if (batches_column(e->data, *name) >= 0) continue;
        return step_fail(e->ctx, diag,
                         "data set \"%s\" has no column %s, by which a model of task %s "
                         "is judged",
                         e->options->data, *name, task_name(e->judge->task));
    }
    return STATUS_OK;
}

typedef struct Judgement {
    Evaluation *e;
    int64_t samples;
} Judgement;

static Status add_run(void *self, const Fetch *what, const float *const *values,
                      const void *const *columns, Diag *diag) {
    Judgement *j = self;
    j->samples += what->n;
    return j->e->judge->add(j->e->judged, j->e, what, values[0], columns, diag);
}

static Status run_judge(Evaluation *e, Node *output, Tree *record, Diag *diag) {
    const Judge *judge = e->judge;
    PassContext *ctx = e->ctx;
    Judgement j = {.e = e};
    if (judge->begin) TRY(judge->begin(e->judged, e, diag));
    if (ctx->plan) return STATUS_OK;
    TRY(forward_batches(e->model->graph, &output, 1, e->data, e->options->limit,
                        e->options->batch_size, ctx->threads, ctx->watch, add_run, &j,
                        diag));
    tree_put_int(ctx->arena, record, "samples", j.samples);
    TRY(judge->end(e->judged, e, record, diag));
    if (record == ctx->record) evaluation_time(e, j.samples, 0);
    return STATUS_OK;
}

/* Judges one output; e->judged is then what it came to. */
static Status judge_output(Evaluation *e, Node *output, Tree *record, Diag *diag) {
    const Judge *judge = e->judge;
    e->judged =
        ARENA_ARRAY(e->ctx->arena, max_align_t, judge->size / sizeof(max_align_t) + 1);
    const Status status = run_judge(e, output, record, diag);
    if (judge->close) judge->close(e->judged);
    return status;
}

Status evaluate_judged(Evaluation *e, Diag *diag) {
    Arena *arena = e->ctx->arena;
    TRY(check_columns(e, diag));
    if (e->mode == EVALUATE_EACH) {
        Tree *list = tree_new(arena, TREE_LIST, LOC_NONE);
        for (int i = 0; i < e->exits.count; i++) {
            Tree *row = evaluation_exit_row(arena, list, &e->exits.items[i]);
            TRY(judge_output(e, e->exits.items[i].logits, row, diag));
        }
        tree_append(arena, e->ctx->record, "exits", LOC_NONE, list);
    }
    /* the last exit is what the gate is about */
    return judge_output(e, graph_output(e->model->graph, e->judge->output),
                        e->ctx->record, diag);
}
