/* All passes, made from passes/passes.def. */
#include "passes/pass.h"

#include <string.h>

#define PASS_ROW(name) extern const Pass pass_##name;
#include "passes/passes.def"
#undef PASS_ROW

static const Pass *const passes[] = {
#define PASS_ROW(name) &pass_##name,
#include "passes/passes.def"
#undef PASS_ROW
    NULL};

const Pass *const *pass_list(void) {
    return passes;
}

const Pass *pass_find(const char *name) {
    for (const Pass *const *pass = passes; *pass; pass++)
        if (strcmp((*pass)->name, name) == 0) return *pass;
    return NULL;
}

Status pass_fail_unknown(const char *name, Status status, Loc at, const char *key,
                         Diag *diag) {
    enum { COUNT = sizeof passes / sizeof passes[0] - 1 };
    const char *names[COUNT];
    for (int i = 0; i < COUNT; i++) names[i] = passes[i]->name;
    diag_fail(diag, status, at, key, "unknown pass \"%s\"", name);
    name_hint(diag, name, names, COUNT, "`compress passes` lists the passes");
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
