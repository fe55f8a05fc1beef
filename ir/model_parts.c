/* Model parts: tasks by name. */
#include "ir/model_parts.h"

#include <string.h>

static const char *const NAMES[TASK_COUNT] = {[TASK_NONE] = "none",
                                              [TASK_CLASSIFY] = "classify",
                                              [TASK_MULTI_LABEL] = "multi_label",
                                              [TASK_REGRESS] = "regress",
                                              [TASK_FILL_IN] = "fill_in",
                                              [TASK_NEXT_TOKEN] = "next_token",
                                              [TASK_TRANSLATE] = "translate",
                                              [TASK_LABEL_TOKENS] = "label_tokens",
                                              [TASK_FIND_SPAN] = "find_span",
                                              [TASK_CHOOSE] = "choose",
                                              [TASK_EMBED] = "embed"};

const char *task_name(Task task) {
    return NAMES[task];
}

Task task_find(const char *name) {
    int task = 0;
    while (task < TASK_COUNT && strcmp(NAMES[task], name) != 0) task++;
    return (Task)task;
}

bool task_predicts_tokens(Task task) {
    return task == TASK_FILL_IN || task_predicts_next(task);
}

bool task_predicts_next(Task task) {
    return task == TASK_NEXT_TOKEN || task == TASK_TRANSLATE;
}

bool input_is_mask(const char *name) {
    return strcmp(name, INPUT_MASK) == 0 || strcmp(name, INPUT_TARGET_MASK) == 0;
}
