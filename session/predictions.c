/* Predictions: see predictions.h. A task fills in what it says of a sample. */
#include "session/predictions.h"

#include "io/datasets/class_names.h"
#include "ir/class_name.h"
#include "passes/evaluate/label_thresholds.h"
#include "passes/evaluate/span_search.h"

#include <math.h>
#include <stdlib.h>

/* One sample. */
typedef struct Sample {
    Arena *arena; /* of this sample */
    const Predictions *all;
    int64_t index, width; /* width: of a row of logits */
    Tree *map;
} Sample;

static const float *row_of(const Sample *s, int64_t row) {
    return (const float *)tensor_data(s->all->logits) + row * s->width;
}

static int64_t largest(const float *row, int64_t classes) {
    int64_t best = 0;
    for (int64_t c = 1; c < classes; c++)
        if (row[c] > row[best]) best = c;
    return best;
}

static const char *name_of(const Sample *s, int64_t label) {
    return class_name(s->all->model->config, label, s->arena);
}

/* ---- classes ---- */

static Status predict_class(const Sample *s, Diag *diag) {
    (void)diag;
    const float *row = row_of(s, s->index);
    const int64_t best = largest(row, s->width);
    double sum = 0;
    for (int64_t c = 0; c < s->width; c++) sum += exp((double)row[c] - row[best]);
    tree_put_string(s->arena, s->map, "label", name_of(s, best));
    tree_put_real(s->arena, s->map, "score", 1 / sum);
    Tree *scores = tree_put_list(s->arena, s->map, "scores");
    for (int64_t c = 0; c < s->width; c++)
        tree_add_real(s->arena, scores, exp((double)row[c] - row[best]) / sum);
    return STATUS_OK;
}

/* ---- labels ---- */

typedef struct FoundLabel {
    float probability;
    int64_t label;
} FoundLabel;

static int likeliest_first(const void *a, const void *b) {
    const FoundLabel *x = a, *y = b;
    if (x->probability != y->probability) return x->probability < y->probability ? 1 : -1;
    return (x->label > y->label) - (x->label < y->label);
}

static Status predict_labels(const Sample *s, Diag *diag) {
    (void)diag;
    const float *row = row_of(s, s->index);
    FoundLabel *found = ARENA_ARRAY(s->arena, FoundLabel, (size_t)s->width);
    size_t count = 0;
    for (int64_t l = 0; l < s->width; l++)
        if ((double)label_probability(row[l]) >= s->all->threshold[l])
            found[count++] = (FoundLabel){label_probability(row[l]), l};
    qsort(found, count, sizeof *found, likeliest_first);
    Tree *labels = tree_put_list(s->arena, s->map, "labels");
    for (size_t k = 0; k < count; k++) {
        Tree *label = tree_add_map(s->arena, labels);
        tree_put_string(s->arena, label, "label", name_of(s, found[k].label));
        tree_put_real(s->arena, label, "score", found[k].probability);
    }
    Tree *scores = tree_put_list(s->arena, s->map, "scores");
    for (int64_t l = 0; l < s->width; l++)
        tree_add_real(s->arena, scores, label_probability(row[l]));
    return STATUS_OK;
}

/* ---- values ---- */

static Status predict_values(const Sample *s, Diag *diag) {
    (void)diag;
    Tree *values = tree_put_list(s->arena, s->map, "values");
    for (int64_t v = 0; v < s->width; v++)
        tree_add_real(s->arena, values, row_of(s, s->index)[v]);
    return STATUS_OK;
}

static Status predict_score(const Sample *s, Diag *diag) {
    (void)diag;
    tree_put_real(s->arena, s->map, "score", row_of(s, s->index)[0]);
    return STATUS_OK;
}

/* ---- words ---- */

static Status predict_words(const Sample *s, Diag *diag) {
    (void)diag;
    const UserText *text = &s->all->texts->items[s->index];
    const int64_t tokens = s->all->logits->dim[1];
    Tree *words = tree_put_list(s->arena, s->map, "words");
    for (int w = 0; w < text->word_count; w++) {
        const UserWord *word = &text->words[w];
        const char *name = NULL;
        if (word->token >= 0) {
            const float *row = row_of(s, s->index * tokens + word->token);
            name = name_of(s, largest(row, s->width));
        }
        Tree *entry = tree_add_map(s->arena, words);
        tree_put_string(s->arena, entry, "word",
                        arena_strndup(s->arena, word->text.text, word->text.length));
        tree_put_string(s->arena, entry, "label", name);
    }
    return STATUS_OK;
}

/* ---- answers ---- */

/* Most tokens of an answer. */
enum { ANSWER_TOKENS = 30 };

static Status predict_answer(const Sample *s, Diag *diag) {
    const UserText *text = &s->all->texts->items[s->index];
    const float *z = row_of(s, s->index * s->all->logits->dim[1]);
    const int64_t begin = (int64_t)text->second_begin;
    const int64_t end = (int64_t)text->second_end;
    Span best = {-INFINITY, begin, begin};
    if (begin >= end)
        return diag_fail(diag, STATUS_USAGE, text->at, NULL,
                         "expected a pair: a question as \"text\" and the text that "
                         "holds its answer as \"text_pair\"");
    span_search(&best, z, begin, end, ANSWER_TOKENS);
    Text answer = {0};
    const Status status =
        tokenizer_decode(s->all->tokenizer, &answer, text->ids + best.first,
                         (size_t)(best.last - best.first + 1), true, text->at, diag);
    if (status == STATUS_OK)
        tree_put_string(s->arena, s->map, "answer", answer.data ? answer.data : "");
    tree_put_real(s->arena, s->map, "score", best.score - (double)z[0] - (double)z[1]);
    text_free(&answer);
    return status;
}

/* ---- embeddings ---- */

/* Seven digits tell floats of vectors apart well enough, and are shorter than all. */
static Status predict_embedding(const Sample *s, Diag *diag) {
    (void)diag;
    Tree *vector = tree_put_list(s->arena, s->map, "embedding");
    for (int64_t c = 0; c < s->width; c++) {
        char digits[32];
        snprintf(digits, sizeof digits, "%.7g", (double)row_of(s, s->index)[c]);
        tree_add_real(s->arena, vector, strtod(digits, NULL));
    }
    return STATUS_OK;
}

/* ---- all of them ---- */

typedef struct TaskPredictor {
    Status (*predict)(const Sample *sample, Diag *diag);
    const char *output;
    bool texts; /* of texts alone */
} TaskPredictor;

static const TaskPredictor PREDICTORS[TASK_COUNT] = {
    [TASK_CLASSIFY] = {predict_class, OUTPUT_LOGITS, false},
    [TASK_MULTI_LABEL] = {predict_labels, OUTPUT_LOGITS, false},
    [TASK_REGRESS] = {predict_values, OUTPUT_LOGITS, false},
    [TASK_LABEL_TOKENS] = {predict_words, OUTPUT_LOGITS, true},
    [TASK_FIND_SPAN] = {predict_answer, OUTPUT_LOGITS, true},
    [TASK_CHOOSE] = {predict_score, OUTPUT_LOGITS, false},
    [TASK_EMBED] = {predict_embedding, OUTPUT_EMBEDDING, false},
};

const char *predictions_output(Task task) {
    return PREDICTORS[task].output;
}

Status predictions_prepare(Predictions *predictions, Arena *arena, Diag *diag) {
    const Task task = graph_task(predictions->model->graph);
    const Tensor *logits = predictions->logits;
    const int64_t width = logits->dim[logits->rank - 1];
    StringList names; /* what is wrong with them is told here */
    bool stored;
    if (PREDICTORS[task].texts && !(predictions->texts && predictions->texts->count))
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                         "expected texts: the model speaks of their words");
    TRY(class_names_of(&names, predictions->model->config, "config.json", arena, diag));
    if (task != TASK_MULTI_LABEL) return STATUS_OK;
    double *threshold = ARENA_ARRAY(arena, double, (size_t)width);
    predictions->threshold = threshold;
    return label_thresholds_read(threshold, width, &stored, predictions->model, diag);
}

/* What the map of any task begins with. */
static void put_input(const Sample *s) {
    const Predictions *all = s->all;
    const UserText *text =
        all->texts && all->texts->count ? &all->texts->items[s->index] : NULL;
    tree_put_string(s->arena, s->map, "input", all->samples[s->index]);
    if (text && text->pair)
        tree_put_string(s->arena, s->map, "input_pair",
                        arena_strndup(s->arena, text->second.text, text->second.length));
    if (all->exits) tree_put_int(s->arena, s->map, "exit_layer", all->exits[s->index]);
}

Status prediction_of(Tree **out, const Predictions *predictions, int64_t sample,
                     Arena *arena, Diag *diag) {
    const Tensor *logits = predictions->logits;
    const Sample s = {arena, predictions, sample, logits->dim[logits->rank - 1],
                      tree_new(arena, TREE_MAP, LOC_NONE)};
    put_input(&s);
    *out = s.map;
    return PREDICTORS[graph_task(predictions->model->graph)].predict(&s, diag);
}
