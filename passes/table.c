/* The table of passes, made from passes/passes.def. */
#include "passes/pass.h"

#include <string.h>

#define PASS_ROW(name) extern const Pass pass_##name;
#include "passes/passes.def"
#undef PASS_ROW

static const Pass *const table[] = {
#define PASS_ROW(name) &pass_##name,
#include "passes/passes.def"
#undef PASS_ROW
    NULL};

const Pass *const *pass_list(void) {
    return table;
}

const Pass *pass_find(const char *name) {
    for (const Pass *const *pass = table; *pass; pass++)
        if (strcmp((*pass)->name, name) == 0) return *pass;
    return NULL;
}

const char *exactness_name(Exactness exactness) {
    static const char *const names[] = {"exact", "bounded", "lossy"};
    return names[exactness];
}
