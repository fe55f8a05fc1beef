/* Odd values: what somebody, or a damaged file, may write in place of any value. */
#ifndef COMPRESS_TESTS_SUPPORT_ODD_VALUES_H
#define COMPRESS_TESTS_SUPPORT_ODD_VALUES_H

#include "ir/tree.h"

enum { ODD_VALUES = 25 };

/* One of them, new in the arena: null, booleans, integers and numbers at the ends of
 * their types, NaN and infinities, strings (empty, long, of numbers), lists and maps
 * (empty, of null, nested). `number` in [0, ODD_VALUES). */
Tree *odd_value(Arena *arena, int number, Loc at);

/* Calls `visit` for every value below the root, the children of large containers
 * (vocabularies) left out but for the first few. A visit may detach nothing. */
void visit_values(Tree *root, void (*visit)(void *self, Tree *value), void *self);

/* Puts `value` in the place of `old`, which is not the root, and back again. */
typedef struct Swap {
    Tree kept, *at;
} Swap;
Swap swap_value(Tree *at, const Tree *value);
void swap_back(Swap *swap);

#endif
