/* Tree: a located document, what YAML, JSON and IR attributes are read into.
 *
 * All of a tree lives in one arena. Every value and every key knows its place in the
 * file, so that an error can point at it. */
#ifndef COMPRESS_IR_TREE_H
#define COMPRESS_IR_TREE_H

#include "ir/arena.h"
#include "ir/status.h"
#include "ir/text.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum TreeKind {
    TREE_NULL,
    TREE_BOOL,
    TREE_INT,
    TREE_FLOAT,
    TREE_STRING,
    TREE_LIST,
    TREE_MAP
} TreeKind;

typedef struct Tree Tree;
struct Tree {
    TreeKind kind;
    Loc loc;         /* of the value */
    const char *key; /* name within the parent map, else NULL */
    Loc key_loc;
    Tree *parent, *next;   /* next child of the same parent */
    Tree *first, *last;    /* children of a list or map */
    int count;             /* number of children */
    struct NameMap *index; /* of a large map: kept by ir/tree.c */
    union {
        bool boolean;
        int64_t integer;
        double real;
        const char *string;
    };
};

/* New value of a kind, detached. */
Tree *tree_new(Arena *arena, TreeKind kind, Loc loc);

/* Appends `child` to a list, or to a map under `key` (copied into the arena). A map
 * must not hold the key already: readers check with tree_get first. */
void tree_append(Arena *arena, Tree *parent, const char *key, Loc key_loc, Tree *child);

/* Child of a map by key, NULL if absent or if `map` is NULL or not a map. */
Tree *tree_get(const Tree *map, const char *key);

/* The same, and NULL for null: for documents that write null for "not given", such as
 * Hugging Face's and the records in our own model files. */
Tree *tree_get_nonnull(const Tree *map, const char *key);

/* The string under a key, NULL where there is none or `map` is NULL or no map. */
const char *tree_string(const Tree *map, const char *key);

/* Whether a value, which may be NULL, is a number, integer or not; if so, stores it. */
bool tree_number(const Tree *value, double *out);

/* Whether a value, which may be NULL, is this string. */
bool tree_is_string(const Tree *value, const char *string);

/* Replaces the value at a dotted path (`train.epochs`, `passes.2.rank`, which may be
 * written `passes[2].rank` as tree_path has it), creating maps on the way, by `value`;
 * null removes an existing key, unless it is its map's only one; list indices must
 * exist. Used by --set. Fails with STATUS_USAGE for a malformed path, with STATUS_RECIPE
 * if it does not fit the tree. */
Status tree_set(Arena *arena, Tree *root, const char *path, Tree *value, Diag *diag);

/* Path of a value from its root, as `passes[2].rank`; in the arena. The root is "". */
const char *tree_path(Arena *arena, const Tree *tree);

/* Name of a kind for messages: "integer", "map", ... */
const char *tree_kind_name(TreeKind kind);

/* Appends what a value is, for messages: `string "abc"`, `integer 3`, `list`. */
void tree_describe(Text *text, const Tree *value);

/* Whether two trees are equal as JSON: the kinds, the values, and the keys of maps in
 * order; a real number that is not finite is null. NULL equals only NULL. */
bool tree_equal(const Tree *a, const Tree *b);

/* Deep copy into another arena, locations kept. */
Tree *tree_copy(Arena *arena, const Tree *tree);

/* Convenience constructors for maps built by code (provenance, configs, reports). An
 * existing key gets the new value in its place. */
void tree_put_bool(Arena *arena, Tree *map, const char *key, bool value);
void tree_put_int(Arena *arena, Tree *map, const char *key, int64_t value);
void tree_put_real(Arena *arena, Tree *map, const char *key, double value);
void tree_put_string(Arena *arena, Tree *map, const char *key, const char *value);
void tree_put(Arena *arena, Tree *map, const char *key, Tree *value); /* detached */

/* Removes a value from its map or list; it is then detached. */
void tree_remove(Tree *child);

/* Puts a new, empty map or list and returns it. */
Tree *tree_put_map(Arena *arena, Tree *map, const char *key);
Tree *tree_put_list(Arena *arena, Tree *map, const char *key);

/* Appends to a list: numbers; a copy of the string; a new, empty map, returned. */
void tree_add_int(Arena *arena, Tree *list, int64_t value);
void tree_add_real(Arena *arena, Tree *list, double value);
void tree_add_string(Arena *arena, Tree *list, const char *value);
Tree *tree_add_map(Arena *arena, Tree *list);

/* Appends the tree as JSON. `indent` spaces per level; 0 = one line. Numbers print so
 * that they read back equal; NaN and infinities print as null. */
void tree_print_json(Text *text, const Tree *tree, int indent);

#endif
