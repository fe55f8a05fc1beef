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

/* `name` with `to` in the place of `from`, which stands at `at`. */
static const char *renamed(Arena *arena, const char *name, const char *at,
                           const char *from, const char *to) {
    return arena_printf(arena, "%.*s%s%s", (int)(at - name), name, to, at + strlen(from));
}

int family_split(const Family *family, Arena *arena, const char *tensor,
                 const char *parts[SPLIT_MAX]) {
    for (const JoinedTensor *j = family->joined; j && j->whole; j++) {
        const char *at = strstr(tensor, j->whole);
        if (!at) continue;
        int count = 0;
        for (; count < SPLIT_MAX && j->parts[count]; count++)
            parts[count] = renamed(arena, tensor, at, j->whole, j->parts[count]);
        return count;
    }
    return 0;
}

TensorSlice family_join(const Family *family, Arena *arena, const char *storage) {
    for (const JoinedTensor *j = family->joined; j && j->whole; j++) {
        TensorSlice slice = {NULL, 0, 0};
        for (int part = 0; part < SPLIT_MAX && j->parts[part]; part++, slice.parts++) {
            const char *at = strstr(storage, j->parts[part]);
            if (!at) continue;
            slice.tensor = renamed(arena, storage, at, j->parts[part], j->whole);
            slice.part = part;
        }
        if (slice.tensor) return slice;
    }
    return (TensorSlice){storage, 0, 1};
}
