/* Predictions: see predictions.h. */
#include "cli/predictions.h"

#include "io/datasets/class_names.h"
#include "passes/evaluate/label_thresholds.h"
#include "passes/evaluate/span_search.h"

#include <math.h>
#include <stdlib.h>

typedef struct Printing {
    Arena *arena;
    const Model *model;
    const Tensor *logits;
    const char *const *samples;
    const UserTexts *texts;
    const Tokenizer *tokenizer;
    int64_t width; /* of a row of logits */
} Printing;

static const float *row_of(const Printing *p, int64_t row) {
    return (const float *)tensor_data(p->logits) + row * p->width;
}

static int64_t largest(const float *row, int64_t classes) {
    int64_t best = 0;
    for (int64_t c = 1; c < classes; c++)
        if (row[c] > row[best]) best = c;
    return best;
}

static Status print_classes(const Printing *p, Diag *diag) {
    (void)diag;
    for (int64_t i = 0; i < p->logits->dim[0]; i++) {
        const float *row = row_of(p, i);
        const int64_t best = largest(row, p->width);
        double sum = 0;
        for (int64_t c = 0; c < p->width; c++) sum += exp((double)row[c] - row[best]);
        printf("%.4f  %s  %s\n", 1 / sum, label_name(p->model, best, p->arena),
               p->samples[i]);
    }
    return STATUS_OK;
}

typedef struct FoundLabel {
    float probability;
    int64_t label;
} FoundLabel;

static int likeliest_first(const void *a, const void *b) {
    const FoundLabel *x = a, *y = b;
    if (x->probability != y->probability) return x->probability < y->probability ? 1 : -1;
    return (x->label > y->label) - (x->label < y->label);
}

static Status print_labels(const Printing *p, Diag *diag) {
    bool stored;
    double *threshold = ARENA_ARRAY(p->arena, double, (size_t)p->width);
    FoundLabel *found = ARENA_ARRAY(p->arena, FoundLabel, (size_t)p->width);
    TRY(label_thresholds_read(threshold, p->width, &stored, p->model, diag));
    for (int64_t i = 0; i < p->logits->dim[0]; i++) {
        size_t count = 0;
        for (int64_t l = 0; l < p->width; l++) {
            const float probability = label_probability(row_of(p, i)[l]);
            if ((double)probability >= threshold[l])
                found[count++] = (FoundLabel){probability, l};
        }
        qsort(found, count, sizeof *found, likeliest_first);
        for (size_t k = 0; k < count; k++)
            printf("%s%s %.4f", k ? ", " : "",
                   label_name(p->model, found[k].label, p->arena),
                   (double)found[k].probability);
        printf("%s  %s\n", count ? "" : "-", p->samples[i]);
    }
    return STATUS_OK;
}

static Status print_values(const Printing *p, Diag *diag) {
    (void)diag;
    for (int64_t i = 0; i < p->logits->dim[0]; i++) {
        for (int64_t v = 0; v < p->width; v++)
            printf("%s%.4f", v ? ", " : "", (double)row_of(p, i)[v]);
        printf("  %s\n", p->samples[i]);
    }
    return STATUS_OK;
}

static Status print_words(const Printing *p, Diag *diag) {
    (void)diag;
    const int64_t tokens = p->logits->dim[1];
    for (int i = 0; p->texts && i < p->texts->count; i++) {
        const UserText *text = &p->texts->items[i];
        for (int w = 0; w < text->word_count; w++) {
            const UserWord *word = &text->words[w];
            const char *name = "-";
            if (word->token >= 0) {
                const float *row = row_of(p, i * tokens + word->token);
                name = label_name(p->model, largest(row, p->width), p->arena);
            }
            printf("%.*s\t%s\n", (int)word->text.length, word->text.text, name);
        }
        puts("");
    }
    return STATUS_OK;
}

/* Most tokens of an answer. */
enum { ANSWER_TOKENS = 30 };

static Status print_answers(const Printing *p, Diag *diag) {
    const int64_t tokens = p->logits->dim[1];
    for (int i = 0; p->texts && i < p->texts->count; i++) {
        const UserText *text = &p->texts->items[i];
        const float *z = row_of(p, i * tokens);
        const int64_t begin = (int64_t)text->second_begin;
        const int64_t end = (int64_t)text->second_end;
        Span best = {-INFINITY, begin, begin};
        if (begin >= end)
            return diag_fail(diag, STATUS_USAGE, text->at, NULL,
                             "expected --jsonl with a question as \"text\" and the text "
                             "that holds its answer as \"text_pair\"");
        span_search(&best, z, begin, end, ANSWER_TOKENS);
        Text answer = {0};
        const Status status =
            tokenizer_decode(p->tokenizer, &answer, text->ids + best.first,
                             (size_t)(best.last - best.first + 1), true, text->at, diag);
        if (status == STATUS_OK)
            printf("%.4f  %s  %s\n", best.score - (double)z[0] - (double)z[1],
                   answer.data ? answer.data : "", p->samples[i]);
        text_free(&answer);
        TRY(status);
    }
    return STATUS_OK;
}

static Status print_embeddings(const Printing *p, Diag *diag) {
    (void)diag;
    for (int64_t i = 0; i < p->logits->dim[0]; i++) {
        Text line = {0};
        text_add(&line, "{\"input\": ");
        text_quoted(&line, p->samples[i]);
        text_add(&line, ", \"embedding\": [");
        for (int64_t c = 0; c < p->width; c++)
            text_add(&line, "%s%.7g", c ? ", " : "", (double)row_of(p, i)[c]);
        text_add(&line, "]}");
        puts(line.data);
        text_free(&line);
    }
    return STATUS_OK;
}

typedef Status Print(const Printing *printing, Diag *diag);

static Print *const PRINTS[TASK_COUNT] = {
    [TASK_CLASSIFY] = print_classes,  [TASK_MULTI_LABEL] = print_labels,
    [TASK_REGRESS] = print_values,    [TASK_LABEL_TOKENS] = print_words,
    [TASK_FIND_SPAN] = print_answers, [TASK_CHOOSE] = print_values,
    [TASK_EMBED] = print_embeddings,
};

bool predictions_known(Task task) {
    return PRINTS[task] != NULL;
}

Status predictions_print(Arena *arena, const Model *model, const Tensor *logits,
                         const char *const *samples, const UserTexts *texts,
                         const Tokenizer *tokenizer, Diag *diag) {
    StringList names; /* what is wrong with them is told here */
    const Printing printing = {
        arena, model, logits, samples, texts, tokenizer, logits->dim[logits->rank - 1]};
    TRY(class_names_of(&names, model->config, "config.json", arena, diag));
    return PRINTS[graph_task(model->graph)](&printing, diag);
}
