/* Judge of words with labels: logits [N, T, classes] against labels i32[T], INDEX_SKIP
 * where a token has none. A sample's labelled tokens are its words; entities are found in
 * their labels (entities.h). */
#include "ir/class_name.h"
#include "passes/evaluate/entities.h"
#include "passes/evaluate/evaluation.h"

typedef struct TokenLabels {
    EntityTags tags;
    LabelCounts *entities; /* by type */
    LabelCounts sum;
    Tally tokens;
    int32_t *labels, *predicted; /* [max_tokens] of one sample */
} TokenLabels;

static Status tokens_begin(void *self, Evaluation *e, Diag *diag) {
    TokenLabels *t = self;
    Arena *arena = e->ctx->arena;
    const Node *logits = graph_output(e->model->graph, OUTPUT_LOGITS);
    const Type *type = evaluation_label_type(e->data);
    e->classes = logits->type.dim[2];
    if (type->dtype != DTYPE_I32 || type->rank != 1 || !e->data->length ||
        type->dim[0] != DIM_T) {
        step_fail(e->ctx, diag, "data set \"%s\": expected labels of one integer a token",
                  e->options->data);
        diag_hint(diag, "format tokens has such labels");
        return STATUS_MODEL;
    }
    const bool named = e->data->class_names && e->data->classes == e->classes;
    const char **names = ARENA_ARRAY(arena, const char *, (size_t)e->classes);
    for (int64_t c = 0; c < e->classes; c++)
        names[c] =
            named ? e->data->class_names[c] : class_name(e->model->config, c, arena);
    entity_tags_read(&t->tags, arena, names, e->classes);
    t->entities = ARENA_ARRAY(arena, LabelCounts, (size_t)t->tags.type_count);
    t->labels = ARENA_ARRAY(arena, int32_t, (size_t)e->data->max_tokens);
    t->predicted = ARENA_ARRAY(arena, int32_t, (size_t)e->data->max_tokens);
    tally_open(&t->tokens, arena, e->classes, false);
    return STATUS_OK;
}

static Status tokens_add(void *self, Evaluation *e, const Fetch *what,
                         const float *predictions, const void *const *columns,
                         Diag *diag) {
    TokenLabels *t = self;
    const int32_t *labels = columns[batches_column(e->data, DATA_LABELS)];
    for (int64_t i = 0; i < what->n; i++) {
        const int64_t sample = what->index[i];
        int64_t words = 0;
        for (int64_t k = 0; k < what->tokens; k++) {
            const int64_t at = i * what->tokens + k;
            if (labels[at] == INDEX_SKIP) continue;
            TRY(evaluation_add(e, &t->tokens, sample, predictions + at * e->classes,
                               labels[at], diag));
            t->labels[words] = labels[at];
            t->predicted[words++] = t->tokens.row_class;
        }
        entities_count(t->entities, &t->tags, e->options->entities == ENTITIES_STRICT,
                       t->labels, t->predicted, words);
    }
    return STATUS_OK;
}

static double tokens_metric(const void *self, Metric metric) {
    const TokenLabels *t = self;
    switch (metric) {
    case METRIC_F1: return 100 * label_f1(t->sum);
    case METRIC_F1_MACRO:
        return 100 * label_f1_macro(t->entities, t->tags.type_count, true);
    case METRIC_PRECISION: return 100 * label_precision(t->sum);
    case METRIC_RECALL: return 100 * label_recall(t->sum);
    default: return tally_metric(&t->tokens, metric);
    }
}

static Status tokens_end(void *self, Evaluation *e, Tree *record, Diag *diag) {
    static const char *const SCHEMES[] = {"iob2", "iobes", "plain"};
    TokenLabels *t = self;
    Arena *arena = e->ctx->arena;
    if (t->tokens.rows == 0)
        return step_fail(e->ctx, diag, "data set \"%s\" has no words with labels",
                         e->options->data);
    t->sum = label_counts_sum(t->entities, t->tags.type_count);
    tree_put_int(arena, record, "words", t->tokens.rows);
    tree_put_string(arena, record, "tags", SCHEMES[t->tags.scheme]);
    tree_put_real(arena, record, "accuracy", tokens_metric(t, METRIC_ACCURACY));
    tree_put_real(arena, record, "loss", tokens_metric(t, METRIC_LOSS));
    tree_put_real(arena, record, "f1", tokens_metric(t, METRIC_F1));
    tree_put_real(arena, record, "precision", tokens_metric(t, METRIC_PRECISION));
    tree_put_real(arena, record, "recall", tokens_metric(t, METRIC_RECALL));
    tree_put_real(arena, record, "f1_macro", tokens_metric(t, METRIC_F1_MACRO));
    Tree *list = tree_put_list(arena, record, "entities");
    for (int i = 0; i < t->tags.type_count; i++) {
        Tree *row = tree_add_map(arena, list);
        tree_put_string(arena, row, "type", t->tags.types[i]);
        tree_put_real(arena, row, "f1", 100 * label_f1(t->entities[i]));
        tree_put_int(arena, row, "entities", t->entities[i].labelled);
    }
    return STATUS_OK;
}

const Judge judge_tokens = {
    .task = TASK_LABEL_TOKENS,
    .output = OUTPUT_LOGITS,
    .columns = {DATA_LABELS},
    .metrics = JUDGE_KNOWS(METRIC_ACCURACY) | JUDGE_KNOWS(METRIC_LOSS) |
               JUDGE_KNOWS(METRIC_F1) | JUDGE_KNOWS(METRIC_F1_MACRO) |
               JUDGE_KNOWS(METRIC_PRECISION) | JUDGE_KNOWS(METRIC_RECALL),
    .usual = METRIC_F1,
    .size = sizeof(TokenLabels),
    .begin = tokens_begin,
    .add = tokens_add,
    .end = tokens_end,
    .metric = tokens_metric,
};
