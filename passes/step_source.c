/* StepSource: the place of a fault. */
#include "passes/step_source.h"

#include <string.h>

/* Whether `name` is one of the names in `list`, which are joined by '|'. */
static bool is_listed(const char *list, const char *name) {
    const size_t length = strlen(name);
    while (*list) {
        const size_t width = strcspn(list, "|");
        if (width == length && memcmp(list, name, length) == 0) return true;
        list += width + (list[width] == '|');
    }
    return false;
}

/* The last option written that is listed, NULL when there is none. */
static const Tree *last_listed(const StepSource *source, const char *options) {
    const Tree *last = NULL;
    if (!options || !source->options || source->options->kind != TREE_MAP) return NULL;
    for (const Tree *entry = source->options->first; entry; entry = entry->next)
        if (is_listed(options, entry->key)) last = entry;
    return last;
}

Loc option_loc(const StepSource *source, const char *options) {
    const Tree *option = last_listed(source, options);
    return option ? option->loc : source->at;
}

/* A message about options, and where it points. */
typedef struct OptionMessage {
    Arena *arena;
    Loc at;
    const char *key;
    Text text;
} OptionMessage;

static OptionMessage message_make(const StepSource *source, const char *options,
                                  const char *fmt, va_list args) {
    const Tree *option = last_listed(source, options);
    OptionMessage message = {
        .arena = arena_create(), .at = source->at, .key = source->key};
    if (option) {
        message.at = option->loc;
        message.key = tree_path(message.arena, option);
    } else if (options && !strchr(options, '|')) {
        text_add(&message.text, "%s: ", options);
    }
    text_add_list(&message.text, fmt, args);
    return message;
}

static void message_free(OptionMessage *message) {
    text_free(&message->text);
    arena_destroy(message->arena);
}

Status option_fail_list(const StepSource *source, const char *options, Status status,
                        Diag *diag, const char *fmt, va_list args) {
    OptionMessage message = message_make(source, options, fmt, args);
    diag_fail(diag, status, message.at, message.key, "%s", message.text.data);
    message_free(&message);
    return status;
}

Status option_fail(const StepSource *source, const char *options, Status status,
                   Diag *diag, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    option_fail_list(source, options, status, diag, fmt, args);
    va_end(args);
    return status;
}

void option_warn(const StepSource *source, const char *options, Diag *diag,
                 const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    OptionMessage message = message_make(source, options, fmt, args);
    va_end(args);
    diag_warn(diag, message.at, message.key, "%s", message.text.data);
    message_free(&message);
}
