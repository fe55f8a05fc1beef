/* Odd values: see odd_values.h. */
#include "tests/support/odd_values.h"

#include <math.h>
#include <string.h>

/* Children of a container that are visited. */
enum { CHILDREN = 12 };

static Tree *of_int(Arena *arena, int64_t integer, Loc at) {
    Tree *tree = tree_new(arena, TREE_INT, at);
    tree->integer = integer;
    return tree;
}

static Tree *of_real(Arena *arena, double real, Loc at) {
    Tree *tree = tree_new(arena, TREE_FLOAT, at);
    tree->real = real;
    return tree;
}

static Tree *of_string(Arena *arena, const char *string, Loc at) {
    Tree *tree = tree_new(arena, TREE_STRING, at);
    tree->string = string;
    return tree;
}

/* A list of one item, a map of one key; empty without `item`. */
static Tree *list_of(Arena *arena, Tree *item, Loc at) {
    Tree *list = tree_new(arena, TREE_LIST, at);
    if (item) tree_append(arena, list, NULL, LOC_NONE, item);
    return list;
}

static Tree *map_of(Arena *arena, const char *key, Tree *value, Loc at) {
    Tree *map = tree_new(arena, TREE_MAP, at);
    if (value) tree_append(arena, map, key, at, value);
    return map;
}

static Tree *nested(Arena *arena, Loc at) {
    Tree *tree = list_of(arena, NULL, at);
    for (int i = 0; i < 20; i++)
        tree = i % 2 ? list_of(arena, tree, at) : map_of(arena, "a", tree, at);
    return tree;
}

static Tree *long_text(Arena *arena, Loc at) {
    char *text = arena_alloc(arena, 5001);
    memset(text, 'x', 5000);
    return of_string(arena, text, at);
}

static Tree *of_bool(Arena *arena, bool boolean, Loc at) {
    Tree *tree = tree_new(arena, TREE_BOOL, at);
    tree->boolean = boolean;
    return tree;
}

Tree *odd_value(Arena *arena, int number, Loc at) {
    Tree *null = tree_new(arena, TREE_NULL, at);
    switch (number) {
    case 0: return null;
    case 1: return of_bool(arena, true, at);
    case 2: return of_bool(arena, false, at);
    case 3: return of_int(arena, 0, at);
    case 4: return of_int(arena, -1, at);
    case 5: return of_int(arena, 3, at);
    case 6: return of_int(arena, INT64_MAX, at);
    case 7: return of_int(arena, INT64_MIN, at);
    case 8: return of_real(arena, 0.5, at);
    case 9: return of_real(arena, -1e308, at);
    case 10: return of_real(arena, 1e308, at);
    case 11: return of_real(arena, NAN, at);
    case 12: return of_real(arena, -INFINITY, at);
    case 13: return of_string(arena, "", at);
    case 14: return of_string(arena, "x", at);
    case 15: return of_string(arena, "nan", at);
    case 16: return long_text(arena, at);
    case 17: return list_of(arena, NULL, at);
    case 18: return list_of(arena, null, at);
    case 19: return list_of(arena, of_string(arena, "", at), at);
    case 20: return list_of(arena, of_int(arena, INT64_MIN, at), at);
    case 21: return list_of(arena, of_int(arena, 1, at), at);
    case 22: return map_of(arena, NULL, NULL, at);
    case 23: return map_of(arena, "x", null, at);
    default: return nested(arena, at);
    }
}

void visit_values(Tree *root, void (*visit)(void *self, Tree *value), void *self) {
    if (root->parent) visit(self, root);
    if (root->kind != TREE_LIST && root->kind != TREE_MAP) return;
    int count = 0;
    for (Tree *child = root->first; child && count < CHILDREN; child = child->next) {
        visit_values(child, visit, self);
        count += root->count > 2 * CHILDREN;
    }
}

Swap swap_value(Tree *at, const Tree *value) {
    const Swap swap = {*at, at};
    Tree odd = *value;
    odd.key = at->key;
    odd.key_loc = at->key_loc;
    odd.parent = at->parent;
    odd.next = at->next;
    *at = odd;
    for (Tree *child = odd.kind == TREE_LIST || odd.kind == TREE_MAP ? odd.first : NULL;
         child; child = child->next)
        child->parent = at;
    return swap;
}

void swap_back(Swap *swap) {
    *swap->at = swap->kept;
}
