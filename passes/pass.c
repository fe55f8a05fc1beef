/* All passes: those of passes/passes.def, and those that were added. */
#include "passes/pass.h"

#include <stdlib.h>
#include <string.h>

#define PASS_ROW(name) extern const Pass pass_##name;
#include "passes/passes.def"
#undef PASS_ROW

static const Pass *const built_in[] = {
#define PASS_ROW(name) &pass_##name,
#include "passes/passes.def"
#undef PASS_ROW
    NULL};

/* The built-in ones and those that were added; NULL = none were. */
static const Pass **all;

const Pass *const *pass_list(void) {
    return all ? all : built_in;
}

static int pass_count(void) {
    const Pass *const *list = pass_list();
    int count = 0;
    while (list[count]) count++;
    return count;
}

void pass_add(const Pass *pass) {
    const int count = pass_count();
    const Pass **list = memory_alloc((size_t)count + 2, sizeof *list);
    memcpy(list, pass_list(), (size_t)count * sizeof *list);
    list[count] = pass;
    free(all);
    all = list;
}

const Pass *pass_find(const char *name) {
    for (const Pass *const *pass = pass_list(); *pass; pass++)
        if (strcmp((*pass)->name, name) == 0) return *pass;
    return NULL;
}

Status pass_fail_unknown(const char *name, Status status, Loc at, const char *key,
                         Diag *diag) {
    const int count = pass_count();
    const char **names = memory_alloc((size_t)count, sizeof *names);
    for (int i = 0; i < count; i++) names[i] = pass_list()[i]->name;
    diag_fail(diag, status, at, key, "unknown pass \"%s\"", name);
    name_hint(diag, name, names, count, "`compress passes` lists the passes");
    free(names);
    return status;
}

PassEffects pass_effects(const Pass *pass, const void *options) {
    PassEffects effects = pass->effects;
    if (pass->effects_of) pass->effects_of(options, &effects);
    if (pass->flags & PASS_TRAINS) effects.refuses |= MODEL_QUANTISED;
    return effects;
}

const char *exactness_name(Exactness exactness) {
    static const char *const names[] = {"exact", "bounded", "lossy"};
    return names[exactness];
}
