/* The lines of predictions: see prediction_lines.h. */
#include "cli/prediction_lines.h"

static void print_class(const Tree *map, const char *sample) {
    printf("%.4f  %s  %s\n", tree_get(map, "score")->real, tree_get(map, "label")->string,
           sample);
}

static void print_labels(const Tree *map, const char *sample) {
    const Tree *labels = tree_get(map, "labels");
    for (const Tree *label = labels->first; label; label = label->next)
        printf("%s%s %.4f", label == labels->first ? "" : ", ",
               tree_get(label, "label")->string, tree_get(label, "score")->real);
    printf("%s  %s\n", labels->first ? "" : "-", sample);
}

static void print_values(const Tree *map, const char *sample) {
    const Tree *values = tree_get(map, "values");
    for (const Tree *value = values->first; value; value = value->next)
        printf("%s%.4f", value == values->first ? "" : ", ", value->real);
    printf("  %s\n", sample);
}

static void print_score(const Tree *map, const char *sample) {
    printf("%.4f  %s\n", tree_get(map, "score")->real, sample);
}

static void print_words(const Tree *map, const char *sample) {
    (void)sample;
    for (const Tree *word = tree_get(map, "words")->first; word; word = word->next) {
        const Tree *label = tree_get_nonnull(word, "label");
        printf("%s\t%s\n", tree_get(word, "word")->string, label ? label->string : "-");
    }
    puts("");
}

static void print_answer(const Tree *map, const char *sample) {
    printf("%.4f  %s  %s\n", tree_get(map, "score")->real,
           tree_get(map, "answer")->string, sample);
}

/* What a task's line is printed by; NULL = JSON, always. */
static void (*const PRINTERS[TASK_COUNT])(const Tree *map, const char *sample) = {
    [TASK_CLASSIFY] = print_class,   [TASK_MULTI_LABEL] = print_labels,
    [TASK_REGRESS] = print_values,   [TASK_LABEL_TOKENS] = print_words,
    [TASK_FIND_SPAN] = print_answer, [TASK_CHOOSE] = print_score,
};

/* Texts of a map, which may be anybody's, without what would end a line or do something
 * to a terminal. */
static void clean_texts(Arena *arena, Tree *tree) {
    if (tree->kind == TREE_LIST || tree->kind == TREE_MAP)
        for (Tree *child = tree->first; child; child = child->next)
            clean_texts(arena, child);
    if (tree->kind != TREE_STRING) return;
    char *line = arena_strdup(arena, tree->string);
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = ' ';
    tree->string = line;
}

static void print_json(const Tree *map) {
    Text line = {0};
    tree_print_json(&line, map, 0);
    puts(line.data);
    text_free(&line);
}

Status prediction_lines_print(Arena *arena, Predictions *predictions, bool json,
                              Diag *diag) {
    void (*print)(const Tree *, const char *) =
        PRINTERS[graph_task(predictions->model->graph)];
    TRY(predictions_prepare(predictions, arena, diag));
    Status status = STATUS_OK;
    for (int64_t i = 0; i < predictions->logits->dim[0] && status == STATUS_OK; i++) {
        Arena *own = arena_create();
        Tree *map;
        status = prediction_of(&map, predictions, i, own, diag);
        if (status == STATUS_OK && print && !json) {
            clean_texts(own, map);
            print(map, tree_get(map, "input")->string);
        } else if (status == STATUS_OK) {
            print_json(map);
        }
        arena_destroy(own);
    }
    if (status == STATUS_USAGE) diag_hint(diag, "--jsonl gives pairs of texts");
    return status;
}
