/* Given: the place of a fault. */
#include "passes/given.h"

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

/* The last option given that is listed, NULL when there is none. */
static const Tree *last_given(const Given *given, const char *options) {
    const Tree *last = NULL;
    if (!options || !given->options || given->options->kind != TREE_MAP) return NULL;
    for (const Tree *entry = given->options->first; entry; entry = entry->next)
        if (is_listed(options, entry->key)) last = entry;
    return last;
}

Loc given_loc(const Given *given, const char *options) {
    const Tree *option = last_given(given, options);
    return option ? option->loc : given->at;
}

Status given_fail_list(const Given *given, const char *options, Status status, Diag *diag,
                       const char *fmt, va_list args) {
    Arena *arena = arena_create();
    Text text = {0};
    const Tree *option = last_given(given, options);
    const bool unsaid = options && !option && !strchr(options, '|');
    if (unsaid) text_add(&text, "%s: ", options);
    text_add_list(&text, fmt, args);
    diag_fail(diag, status, option ? option->loc : given->at,
              option ? tree_path(arena, option) : given->key, "%s", text.data);
    text_free(&text);
    arena_destroy(arena);
    return status;
}

Status given_fail(const Given *given, const char *options, Status status, Diag *diag,
                  const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    given_fail_list(given, options, status, diag, fmt, args);
    va_end(args);
    return status;
}
