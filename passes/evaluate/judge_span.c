/* Judge of answers that are parts of texts: logits [N, T, 2] of being an answer's first
 * and last token. The best answer of a question is the one with the largest sum of both
 * over all of its windows, among those that lie in the text, end where they begin or
 * later, and are short enough; it is compared with the right ones by the data set
 * (Batches.answers). Where the data set has questions without an answer, the smallest sum
 * at token 0 of a question's windows, if it is above the best answer's, says that there
 * is none (Devlin et al., 2019, section 4.3). */
#include "passes/evaluate/evaluation.h"
#include "passes/evaluate/span_search.h"

#include <math.h>

typedef struct BestAnswer {
    bool seen;
    Span span; /* of `sample` */
    int64_t sample;
    double none; /* score of there being none */
} BestAnswer;

typedef struct Spans {
    BestAnswer *best; /* by question */
    bool with_none;   /* some questions have no answer */
    double exact, f1; /* percent */
} Spans;

static Status span_begin(void *self, Evaluation *e, Diag *diag) {
    Spans *s = self;
    const Answers *answers = e->data->answers;
    if (!answers) {
        step_fail(e->ctx, diag,
                  "data set \"%s\": expected questions about texts with their answers",
                  e->options->data);
        diag_hint(diag, "data sets of format spans have them");
        return STATUS_MODEL;
    }
    s->best = ARENA_ARRAY(e->ctx->arena, BestAnswer, (size_t)answers->questions);
    return STATUS_OK;
}

/* Looks for a better answer in one window. */
static void find_best(BestAnswer *best, const Answers *answers, const Batches *data,
                      int64_t sample, const float *z) {
    int64_t begin, end;
    const double none = (double)z[0] + (double)z[1];
    answers->tokens(data, sample, &begin, &end);
    if (!best->seen)
        *best = (BestAnswer){.seen = true, .span.score = -INFINITY, .none = none};
    if (none < best->none) best->none = none;
    if (span_search(&best->span, z, begin, end, answers->longest)) best->sample = sample;
}

static Status span_add(void *self, Evaluation *e, const Fetch *what,
                       const float *predictions, const void *const *columns, Diag *diag) {
    Spans *s = self;
    const Answers *answers = e->data->answers;
    (void)columns;
    for (int64_t i = 0; i < what->n; i++) {
        const int64_t sample = what->index[i];
        const float *z = predictions + i * what->tokens * 2;
        TRY(evaluation_check_finite(e, sample, z, what->tokens * 2, diag));
        find_best(&s->best[answers->question(e->data, sample)], answers, e->data, sample,
                  z);
    }
    return STATUS_OK;
}

/* Compares the answer to one question with the right ones. */
static void compare_answer(const Spans *s, const Batches *data, int64_t question,
                           double *exact, double *f1) {
    const BestAnswer *best = &s->best[question];
    const char *text = "";
    size_t length = 0;
    const bool none = s->with_none && best->none > best->span.score;
    if (!none && best->span.score > -INFINITY)
        text = data->answers->text(data, best->sample, best->span.first, best->span.last,
                                   &length);
    data->answers->compare(data, question, text, length, exact, f1);
}

static Status span_end(void *self, Evaluation *e, Tree *record, Diag *diag) {
    Spans *s = self;
    Arena *arena = e->ctx->arena;
    const Answers *answers = e->data->answers;
    int64_t count = 0, without = 0;
    double f1_with = 0, right_without = 0;
    (void)diag;
    for (int64_t q = 0; q < answers->questions; q++)
        s->with_none |= s->best[q].seen && !answers->answerable(e->data, q);
    for (int64_t q = 0; q < answers->questions; q++) {
        double exact, f1;
        if (!s->best[q].seen) continue;
        compare_answer(s, e->data, q, &exact, &f1);
        const bool answerable = answers->answerable(e->data, q);
        count++;
        without += !answerable;
        s->exact += exact;
        s->f1 += f1;
        *(answerable ? &f1_with : &right_without) += f1;
    }
    s->exact *= 100 / (double)count;
    s->f1 *= 100 / (double)count;
    tree_put_int(arena, record, "questions", count);
    tree_put_real(arena, record, "exact_match", s->exact);
    tree_put_real(arena, record, "f1", s->f1);
    if (without == 0) return STATUS_OK;
    if (without < count)
        tree_put_real(arena, record, "answerable_f1",
                      100 * f1_with / (double)(count - without));
    tree_put_real(arena, record, "no_answer_accuracy",
                  100 * right_without / (double)without);
    return STATUS_OK;
}

static double span_metric(const void *self, Metric metric) {
    const Spans *s = self;
    return metric == METRIC_F1 ? s->f1 : s->exact;
}

const Judge judge_span = {
    .task = TASK_FIND_SPAN,
    .output = OUTPUT_LOGITS,
    .columns = {DATA_SPAN_FIRST},
    .metrics = JUDGE_KNOWS(METRIC_F1) | JUDGE_KNOWS(METRIC_EXACT_MATCH),
    .usual = METRIC_F1,
    .size = sizeof(Spans),
    .begin = span_begin,
    .add = span_add,
    .end = span_end,
    .metric = span_metric,
};
