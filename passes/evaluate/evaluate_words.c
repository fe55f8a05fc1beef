/* evaluate: models that predict tokens, at the masked positions or after each token. */
#include "passes/evaluate/evaluation.h"

#include "exec/run/feed.h"
#include "passes/training/objective.h"

/* Most bytes of logits of one run: a vocabulary of 32,000 takes 33 MB for 256 tokens. */
#define LOGITS_BYTES ((int64_t)64 << 20)

typedef struct Words {
    Evaluation *e;
    int64_t samples;
} Words;

/* Labels of each sample padded to so many tokens. */
static int64_t label_count(const Evaluation *e, int64_t tokens) {
    const int64_t dim = e->data->columns[e->labels].type.dim[0];
    return dim >= 0 ? dim : dim == DIM_M ? batches_masked(e->data, tokens) : tokens;
}

static Status add_rows(void *self, const Fetch *what, const float *const *values,
                       const void *const *columns, Diag *diag) {
    Words *words = self;
    Evaluation *e = words->e;
    const int32_t *labels = columns[e->labels];
    const int64_t each = label_count(e, what->tokens);
    for (int64_t i = 0; i < what->n * each; i++) {
        if (labels[i] == INDEX_SKIP) continue;
        TRY(evaluation_add(e, &e->total, what->index[i / each],
                           values[0] + i * e->classes, labels[i], diag));
    }
    words->samples += what->n;
    return STATUS_OK;
}

/* There must be a label for each row of logits. */
static Status check_rows(const Evaluation *e, Graph *graph, Node *logits, Diag *diag) {
    int64_t sizes[DIM_SYMBOLS] = {0};
    Type bound;
    TRY(feed_check(graph, &logits, 1, e->data, sizes, diag));
    sizes[DIM_INDEX(DIM_N)] = 1;
    const int64_t labels = label_count(e, e->data->max_tokens);
    const bool known = type_bind(&logits->type, sizes, &bound);
    if (known && bound.dim[1] == labels) return STATUS_OK;
    return step_fail(e->ctx, diag,
                     "data set \"%s\": expected labels for %lld rows of logits, found "
                     "%lld",
                     e->options->data, known ? (long long)bound.dim[1] : 0,
                     (long long)labels);
}

static Status run_words(Words *words, Objective *masked, Diag *diag) {
    const Evaluation *e = words->e;
    TRY(objective_mask_tokens(masked, diag));
    Node *logits = graph_output(masked->graph, OUTPUT_LOGITS);
    TRY(check_rows(e, masked->graph, logits, diag));
    if (e->ctx->plan) return STATUS_OK;
    /* samples of a run: those asked for, or as many as keep the logits small */
    const int64_t rows = label_count(e, e->data->max_tokens);
    const int64_t row_bytes = e->classes * (int64_t)sizeof(float);
    const int64_t most = LOGITS_BYTES / row_bytes / (rows > 0 ? rows : 1);
    int64_t samples = e->options->batch_size;
    if (samples > most) samples = most > 0 ? most : 1;
    return forward_batches(masked->graph, &logits, 1, e->data, e->options->limit, samples,
                           e->ctx->threads, e->ctx->watch, add_rows, words, diag);
}

Status evaluate_words(Evaluation *e, Diag *diag) {
    Words words = {.e = e};
    Objective masked; /* a copy of the graph whose head sees the masked positions */
    TRY(objective_begin(&masked, e->ctx, e->model, diag));
    Status status = run_words(&words, &masked, diag);
    objective_end(&masked);
    TRY(status);
    if (e->ctx->plan) return STATUS_OK;
    if (e->total.rows == 0)
        return step_fail(e->ctx, diag, "data set \"%s\" has no %s", e->options->data,
                         e->next ? "labels" : "masked tokens");
    tree_put_int(e->ctx->arena, e->ctx->record, "samples", words.samples);
    tree_put_int(e->ctx->arena, e->ctx->record, "tokens", e->total.rows);
    tally_record(&e->total, e->ctx->arena, e->ctx->record);
    evaluation_time(e, words.samples, 0);
    return STATUS_OK;
}
