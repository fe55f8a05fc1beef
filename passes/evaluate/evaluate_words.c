/* evaluate: models that predict tokens, at the masked positions or after each token. */
#include "passes/evaluate/evaluation.h"

#include "exec/run/feed.h"
#include "passes/training/objective.h"

#include <math.h>
#include <stdlib.h>

/* Most bytes of logits of one run: a vocabulary of 32,000 takes 33 MB for 256 tokens. */
#define LOGITS_BYTES ((int64_t)64 << 20)

/* What a model makes of one text with an ending. */
typedef struct EndingScore {
    double loss;          /* sum over the ending's tokens */
    int64_t wrong;        /* tokens that are not the likeliest */
    int32_t right, bytes; /* DATA_CHOICE_RIGHT, DATA_CHOICE_BYTES */
    bool seen;
} EndingScore;

typedef struct Words {
    Evaluation *e;
    int64_t samples;
    EndingScore *endings; /* by sample; NULL: the data set's texts have none */
    int right, bytes;     /* their columns */
    Tally others;         /* the tokens of endings that are not right */
    RowScore *scores;     /* of the rows of one run */
    int64_t capacity;
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
    const int64_t each = label_count(e, what->tokens), count = what->n * each;
    if (count > words->capacity) {
        words->capacity = count;
        words->scores = memory_grow(words->scores, (size_t)count, sizeof *words->scores);
    }
    tally_score(words->scores, values[0], labels, count, e->classes, e->ctx->threads);
    for (int64_t i = 0; i < count; i++) {
        if (labels[i] == INDEX_SKIP) continue;
        const int64_t sample = what->index[i / each];
        const RowScore *score = &words->scores[i];
        const bool right =
            !words->endings || ((const int32_t *)columns[words->right])[i / each];
        TRY(evaluation_add_scored(e, right ? &e->total : &words->others, sample, score,
                                  values[0] + i * e->classes, labels[i], diag));
        if (!words->endings) continue;
        words->endings[sample].loss += score->loss;
        words->endings[sample].wrong += score->likely != labels[i];
    }
    for (int64_t i = 0; words->endings && i < what->n; i++) {
        EndingScore *ending = &words->endings[what->index[i]];
        ending->right = ((const int32_t *)columns[words->right])[i];
        ending->bytes = ((const int32_t *)columns[words->bytes])[i];
        ending->seen = true;
    }
    words->samples += what->n;
    return STATUS_OK;
}

/* Whether, of the `group` endings of a text, the right one has the smallest loss, or loss
 * for each byte. */
static bool chooses_right(const EndingScore *endings, int64_t group, bool by_byte) {
    int64_t best = 0;
    double least = INFINITY;
    for (int64_t i = 0; i < group; i++) {
        const double loss = endings[i].loss / (by_byte ? endings[i].bytes : 1);
        if (!(loss < least)) continue;
        best = i;
        least = loss;
    }
    return endings[best].right == 1;
}

/* Which right endings the model would write word for word, and how likely they are. */
static void score_words(const Words *words) {
    Evaluation *e = words->e;
    double loss = 0;
    int64_t exact = 0, right = 0;
    for (int64_t i = 0; i < e->data->count; i++) {
        const EndingScore *ending = &words->endings[i];
        if (!ending->seen || !ending->right) continue;
        exact += ending->wrong == 0;
        right++;
        loss += ending->loss;
    }
    if (right == 0) return;
    e->exact_match = 100 * (double)exact / (double)right;
    e->ending_perplexity = exp(loss / (double)right);
    tree_put_real(e->ctx->arena, e->ctx->record, "exact_match", e->exact_match);
    tree_put_real(e->ctx->arena, e->ctx->record, "ending_perplexity",
                  e->ending_perplexity);
}

/* Which endings it chooses. */
static void score_choices(const Words *words) {
    Evaluation *e = words->e;
    Arena *arena = e->ctx->arena;
    Tree *record = e->ctx->record;
    const EndingScore *endings = words->endings;
    const int64_t group = batches_group(e->data);
    int64_t texts = 0, chosen[2] = {0};
    for (int64_t i = 0; group > 1 && i < e->data->count; i += group) {
        bool seen = true;
        for (int64_t k = i; k < i + group; k++) seen &= endings[k].seen;
        if (!seen) continue;
        texts++;
        for (int by_byte = 0; by_byte < 2; by_byte++)
            chosen[by_byte] += chooses_right(endings + i, group, by_byte);
    }
    if (texts == 0) return;
    for (int k = 0; k < 2; k++) e->choice[k] = 100 * (double)chosen[k] / (double)texts;
    tree_put_int(arena, record, "questions", texts);
    tree_put_real(arena, record, "choice_accuracy", e->choice[0]);
    tree_put_real(arena, record, "choice_accuracy_normalized", e->choice[1]);
}

/* Metrics of texts with endings. */
static Status check_endings(const Evaluation *e, Diag *diag) {
    const bool choice =
        e->metric == METRIC_CHOICE || e->metric == METRIC_CHOICE_NORMALIZED;
    if (!choice && e->metric != METRIC_EXACT_MATCH && e->metric != METRIC_ENDING)
        return STATUS_OK;
    const bool endings = batches_column(e->data, DATA_CHOICE_RIGHT) >= 0;
    if (endings && (!choice || batches_group(e->data) > 1)) return STATUS_OK;
    step_fail(e->ctx, diag, "data set \"%s\": expected texts with %s", e->options->data,
              choice ? "several endings each" : "endings");
    diag_hint(diag, "data sets of format endings have them");
    return STATUS_MODEL;
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
    TRY(check_endings(e, diag));
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
    Words words = {.e = e,
                   .right = batches_column(e->data, DATA_CHOICE_RIGHT),
                   .bytes = batches_column(e->data, DATA_CHOICE_BYTES)};
    Objective masked; /* a copy of the graph whose head sees the masked positions */
    TRY(objective_begin(&masked, e->ctx, e->model, diag));
    if (words.right >= 0 && words.bytes >= 0)
        words.endings = ARENA_ARRAY(e->ctx->arena, EndingScore, (size_t)e->data->count);
    tally_open(&words.others, e->ctx->arena, e->classes, e->words);
    Status status = run_words(&words, &masked, diag);
    objective_end(&masked);
    free(words.scores);
    TRY(status);
    if (e->ctx->plan) return STATUS_OK;
    if (e->total.rows == 0 && words.others.rows > 0)
        return step_fail_option(
            e->ctx, "limit|data", diag,
            "data set \"%s\": expected a right ending among the first "
            "%lld, found none",
            e->options->data, (long long)words.samples);
    if (e->total.rows == 0)
        return step_fail(e->ctx, diag, "data set \"%s\" has no %s", e->options->data,
                         e->next ? "labels" : "masked tokens");
    tree_put_int(e->ctx->arena, e->ctx->record, "samples", words.samples);
    tree_put_int(e->ctx->arena, e->ctx->record, "tokens", e->total.rows);
    tally_record(&e->total, e->ctx->arena, e->ctx->record);
    if (words.endings) {
        score_words(&words);
        score_choices(&words);
    }
    evaluation_time(e, words.samples, 0);
    return STATUS_OK;
}
