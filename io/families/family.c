/* Families: the table of io/families/families.def. */
#include "io/families/family.h"

#include <string.h>

#define FAMILY(name) extern const Family family_##name;
#include "io/families/families.def"
#undef FAMILY

static const Family *const FAMILIES[] = {
#define FAMILY(name) &family_##name,
#include "io/families/families.def"
#undef FAMILY
    NULL};

const Family *const *family_list(void) {
    return FAMILIES;
}

const Family *family_find(const char *model_type) {
    for (const Family *const *family = FAMILIES; *family; family++)
        if (strcmp((*family)->model_type, model_type) == 0) return *family;
    return NULL;
}

const char *family_same_name(Arena *arena, const char *tensor) {
    (void)arena;
    return tensor;
}
