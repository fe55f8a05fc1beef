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

/* Outputs that are judged in one run over the data, the last one for the gate. */
typedef struct Judgement {
    Evaluation *e;
    int count;
    Node **outputs;
    Tree **records; /* what there is to know of each */
    void **states;  /* the judge's */
    int64_t samples;
} Judgement;

static Status add_run(void *self, const Fetch *what, const float *const *values,
                      const void *const *columns, Diag *diag) {
    Judgement *j = self;
    j->samples += what->n;
    for (int i = 0; i < j->count; i++)
        TRY(j->e->judge->add(j->states[i], j->e, what, values[i], columns, diag));
    return STATUS_OK;
}

static Status run_judge(Judgement *j, Diag *diag) {
    Evaluation *e = j->e;
    const Judge *judge = e->judge;
    PassContext *ctx = e->ctx;
    for (int i = 0; i < j->count && judge->begin; i++)
        TRY(judge->begin(j->states[i], e, diag));
    if (ctx->plan) return STATUS_OK;
    TRY(forward_batches(e->model->graph, j->outputs, j->count, e->data, e->options->limit,
                        e->options->batch_size, ctx->threads, ctx->watch, add_run, j,
                        diag));
    for (int i = 0; i < j->count; i++) {
        tree_put_int(ctx->arena, j->records[i], "samples", j->samples);
        TRY(judge->end(j->states[i], e, j->records[i], diag));
    }
    evaluation_time(e, j->samples, 0);
    return STATUS_OK;
}

/* Every exit with a row of its own, where that is asked for; then the gate's. */
static void list_outputs(Judgement *j) {
    const Evaluation *e = j->e;
    Arena *arena = e->ctx->arena;
    const int exits = e->mode == EVALUATE_EACH ? e->exits.count : 0;
    const size_t size = e->judge->size / sizeof(max_align_t) + 1;
    j->count = exits + 1;
    j->outputs = ARENA_ARRAY(arena, Node *, (size_t)j->count);
    j->records = ARENA_ARRAY(arena, Tree *, (size_t)j->count);
    j->states = ARENA_ARRAY(arena, void *, (size_t)j->count);
    Tree *list = exits ? tree_put_list(arena, e->ctx->record, "exits") : NULL;
    for (int i = 0; i < exits; i++) {
        j->outputs[i] = e->exits.items[i].logits;
        j->records[i] = evaluation_exit_row(arena, list, &e->exits.items[i]);
    }
    j->outputs[exits] = graph_output(e->model->graph, e->judge->output);
    j->records[exits] = e->ctx->record;
    for (int i = 0; i < j->count; i++)
        j->states[i] = ARENA_ARRAY(arena, max_align_t, size);
}

Status evaluate_judged(Evaluation *e, Diag *diag) {
    Judgement j = {.e = e};
    TRY(check_columns(e, diag));
    list_outputs(&j);
    const Status status = run_judge(&j, diag);
    for (int i = 0; i < j.count && e->judge->close; i++) e->judge->close(j.states[i]);
    e->judged = j.states[j.count - 1];
    return status;
}
