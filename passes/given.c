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

/* What is said about options, and where. */
typedef struct Remark {
    Arena *arena;
    Loc at;
    const char *key;
    Text text;
} Remark;

static Remark remark_make(const Given *given, const char *options, const char *fmt,
                          va_list args) {
    const Tree *option = last_given(given, options);
    Remark remark = {.arena = arena_create(), .at = given->at, .key = given->key};
    if (option) {
        remark.at = option->loc;
        remark.key = tree_path(remark.arena, option);
    } else if (options && !strchr(options, '|')) {
        text_add(&remark.text, "%s: ", options);
    }
    text_add_list(&remark.text, fmt, args);
    return remark;
}

static void remark_free(Remark *remark) {
    text_free(&remark->text);
    arena_destroy(remark->arena);
}

Status given_fail_list(const Given *given, const char *options, Status status, Diag *diag,
                       const char *fmt, va_list args) {
    Remark remark = remark_make(given, options, fmt, args);
    diag_fail(diag, status, remark.at, remark.key, "%s", remark.text.data);
    remark_free(&remark);
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

void given_warn(const Given *given, const char *options, Diag *diag, const char *fmt,
                ...) {
    va_list args;
    va_start(args, fmt);
    Remark remark = remark_make(given, options, fmt, args);
    va_end(args);
    diag_warn(diag, remark.at, remark.key, "%s", remark.text.data);
    remark_free(&remark);
}
