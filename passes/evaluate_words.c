/* evaluate: models that predict tokens, at the masked positions. */
#include "passes/evaluate.h"
#include "passes/objective.h"

typedef struct Words {
    Evaluation *e;
    int64_t samples;
} Words;

/* Masked positions of each of these samples. */
static int64_t masked_positions(const Evaluation *e, const Fetch *what) {
    const Type *type = &e->data->columns[e->labels].type;
    return type->dim[0] >= 0 ? type->dim[0] : batches_masked(e->data, what->tokens);
}

static Status add_rows(void *self, const Fetch *what, const float *const *values,
                       const void *const *columns, Diag *diag) {
    Words *words = self;
    Evaluation *e = words->e;
    const int32_t *labels = columns[e->labels];
    const int64_t each = masked_positions(e, what);
    for (int64_t i = 0; i < what->n * each; i++) {
        if (labels[i] == INDEX_SKIP) continue;
        TRY(evaluation_add(e, &e->total, what->index[i / each],
                           values[0] + i * e->classes, labels[i], diag));
    }
    words->samples += what->n;
    return STATUS_OK;
}

static Status run_words(Words *words, Objective *masked, Diag *diag) {
    const Evaluation *e = words->e;
    const EvaluateOptions *o = e->options;
    TRY(objective_mask_tokens(masked, diag));
    Node *logits = graph_output(masked->graph, "logits");
    return forward_batches(masked->graph, &logits, 1, e->data, o->limit, o->batch_size,
                           e->ctx->threads, e->ctx->watch, add_rows, words, diag);
}

Status evaluate_words(Evaluation *e, Diag *diag) {
    Words words = {.e = e};
    Objective masked; /* a copy of the graph whose head sees the masked positions */
    TRY(objective_begin(&masked, e->ctx, e->model, diag));
    Status status = run_words(&words, &masked, diag);
    objective_end(&masked);
    TRY(status);
    if (e->total.rows == 0)
        return edit_fail(e->ctx, diag, "data set \"%s\" has no masked tokens",
                         e->options->data);
    tree_put_int(e->ctx->arena, e->ctx->record, "samples", words.samples);
    tree_put_int(e->ctx->arena, e->ctx->record, "tokens", e->total.rows);
    tally_record(&e->total, e->ctx->arena, e->ctx->record);
    evaluation_time(e, words.samples, 0);
    return STATUS_OK;
}
