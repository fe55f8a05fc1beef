/* Tree: located documents. */
#include "ir/tree.h"

#include "ir/name_map.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Maps with more children than this get an index, so that a document of many keys does
 * not take quadratic time. */
#define INDEX_LEAST 16

const char *tree_kind_name(TreeKind kind) {
    static const char *const NAMES[] = {"null",   "boolean", "integer", "float",
                                        "string", "list",    "map"};
    return (unsigned)kind <= TREE_MAP ? NAMES[kind] : "unknown";
}

Tree *tree_new(Arena *arena, TreeKind kind, Loc loc) {
    Tree *tree = ARENA_NEW(arena, Tree);
    tree->kind = kind;
    tree->loc = loc;
    return tree;
}

/* Enters the map's last child; makes the index first when it is due. Of equal keys the
 * first one is found. */
static void index_add_last(Arena *arena, Tree *map) {
    if (map->count <= INDEX_LEAST) return;
    if (map->index) {
        name_map_add(map->index, map->last->key, map->last);
        return;
    }
    map->index = ARENA_NEW(arena, NameMap);
    map->index->arena = arena;
    for (Tree *child = map->first; child; child = child->next)
        name_map_add(map->index, child->key, child);
}

void tree_append(Arena *arena, Tree *parent, const char *key, Loc key_loc, Tree *child) {
    child->key = arena_strdup(arena, key);
    child->key_loc = key_loc;
    child->parent = parent;
    child->next = NULL;
    if (parent->last) {
        parent->last->next = child;
    } else {
        parent->first = child;
    }
    parent->last = child;
    parent->count++;
    if (key) index_add_last(arena, parent);
}

Tree *tree_get(const Tree *map, const char *key) {
    if (!map || map->kind != TREE_MAP) return NULL;
    if (map->index) return name_map_get(map->index, key);
    for (Tree *child = map->first; child; child = child->next) {
        if (strcmp(child->key, key) == 0) return child;
    }
    return NULL;
}

Tree *tree_get_nonnull(const Tree *map, const char *key) {
    Tree *value = tree_get(map, key);
    return value && value->kind != TREE_NULL ? value : NULL;
}

const char *tree_string(const Tree *map, const char *key) {
    const Tree *value = tree_get(map, key);
    return value && value->kind == TREE_STRING ? value->string : NULL;
}

bool tree_is_string(const Tree *value, const char *string) {
    return value && value->kind == TREE_STRING && strcmp(value->string, string) == 0;
}

bool tree_number(const Tree *value, double *out) {
    if (!value || (value->kind != TREE_INT && value->kind != TREE_FLOAT)) return false;
    *out = value->kind == TREE_INT ? (double)value->integer : value->real;
    return true;
}

/* Puts the detached `value` where `old` stands among its parent's children. */
static void tree_replace(Tree *old, Tree *value) {
    Tree *parent = old->parent, **link = &parent->first;
    while (*link != old) link = &(*link)->next;
    *link = value;
    if (parent->last == old) parent->last = value;
    value->parent = parent;
    value->next = old->next;
    value->key = old->key;
    value->key_loc = old->key_loc;
    if (parent->index) name_map_replace(parent->index, value->key, value);
    old->parent = old->next = NULL;
}

void tree_remove(Tree *child) {
    Tree *parent = child->parent, *before = NULL, **link = &parent->first;
    for (; *link != child; link = &before->next) before = *link;
    *link = child->next;
    if (parent->last == child) parent->last = before;
    parent->count--;
    parent->index = NULL; /* the next append makes it anew */
    child->parent = child->next = NULL;
}

void tree_put(Arena *arena, Tree *map, const char *key, Tree *value) {
    Tree *old = tree_get(map, key);
    if (old) {
        tree_replace(old, value);
    } else {
        tree_append(arena, map, key, value->loc, value);
    }
}

void tree_put_bool(Arena *arena, Tree *map, const char *key, bool value) {
    Tree *tree = tree_new(arena, TREE_BOOL, LOC_NONE);
    tree->boolean = value;
    tree_put(arena, map, key, tree);
}

void tree_put_int(Arena *arena, Tree *map, const char *key, int64_t value) {
    Tree *tree = tree_new(arena, TREE_INT, LOC_NONE);
    tree->integer = value;
    tree_put(arena, map, key, tree);
}

void tree_put_real(Arena *arena, Tree *map, const char *key, double value) {
    Tree *tree = tree_new(arena, TREE_FLOAT, LOC_NONE);
    tree->real = value;
    tree_put(arena, map, key, tree);
}

void tree_put_string(Arena *arena, Tree *map, const char *key, const char *value) {
    Tree *tree = tree_new(arena, value ? TREE_STRING : TREE_NULL, LOC_NONE);
    if (value) tree->string = arena_strdup(arena, value);
    tree_put(arena, map, key, tree);
}

Tree *tree_put_map(Arena *arena, Tree *map, const char *key) {
    Tree *value = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_put(arena, map, key, value);
    return value;
}

Tree *tree_put_list(Arena *arena, Tree *map, const char *key) {
    Tree *value = tree_new(arena, TREE_LIST, LOC_NONE);
    tree_put(arena, map, key, value);
    return value;
}

void tree_add_int(Arena *arena, Tree *list, int64_t value) {
    Tree *item = tree_new(arena, TREE_INT, LOC_NONE);
    item->integer = value;
    tree_append(arena, list, NULL, LOC_NONE, item);
}

void tree_add_real(Arena *arena, Tree *list, double value) {
    Tree *tree = tree_new(arena, TREE_FLOAT, LOC_NONE);
    tree->real = value;
    tree_append(arena, list, NULL, LOC_NONE, tree);
}

void tree_add_string(Arena *arena, Tree *list, const char *value) {
    Tree *tree = tree_new(arena, TREE_STRING, LOC_NONE);
    tree->string = arena_strdup(arena, value);
    tree_append(arena, list, NULL, LOC_NONE, tree);
}

Tree *tree_add_map(Arena *arena, Tree *list) {
    Tree *map = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_append(arena, list, NULL, LOC_NONE, map);
    return map;
}

/* State of one tree_set: what its messages need, and the rest of the path. */
typedef struct PathWalk {
    Arena *arena;
    const char *path;
    Tree *value;
    Diag *diag;
} PathWalk;

/* Element of a list by the digits in `name`. */
static Status list_element(const PathWalk *walk, Tree *list, const char *name,
                           Tree **out) {
    bool digits = strspn(name, "0123456789") == strlen(name) && strlen(name) < 10;
    long index = digits ? strtol(name, NULL, 10) : -1;
    if (index >= 0 && index < list->count) {
        *out = list->first;
        while (index-- > 0) *out = (*out)->next;
        return STATUS_OK;
    }
    const char *place = tree_path(walk->arena, list);
    if (list->count == 0) {
        return diag_fail(walk->diag, STATUS_RECIPE, walk->value->loc, walk->path,
                         "%s is an empty list, found index \"%s\"", place, name);
    }
    return diag_fail(walk->diag, STATUS_RECIPE, walk->value->loc, walk->path,
                     "%s is a list: expected an index from 0 to %d, found \"%s\"", place,
                     list->count - 1, name);
}

/* Child of `parent` called `name`; NULL when a map lacks it. */
static Status path_step(const PathWalk *walk, Tree *parent, const char *name,
                        Tree **out) {
    if (parent->kind == TREE_NULL) parent->kind = TREE_MAP;
    if (parent->kind == TREE_LIST) return list_element(walk, parent, name, out);
    if (parent->kind == TREE_MAP) {
        *out = tree_get(parent, name);
        return STATUS_OK;
    }
    const char *place = tree_path(walk->arena, parent);
    Text found = {0};
    tree_describe(&found, parent);
    Status status = diag_fail(walk->diag, STATUS_RECIPE, walk->value->loc, walk->path,
                              "expected a map or list at %s to hold \"%s\", found %s",
                              *place ? place : "the root", name, found.data);
    text_free(&found);
    return status;
}

/* A path with places in lists as messages have them, "passes[2]", as "passes.2". */
static const char *dotted(Arena *arena, const char *path) {
    char *out = arena_strdup(arena, path), *to = out;
    for (const char *at = path; *at; at++) {
        const size_t digits = *at == '[' ? strspn(at + 1, "0123456789") : 0;
        const bool place = digits > 0 && at > path && at[digits + 1] == ']' &&
                           (!at[digits + 2] || strchr(".[", at[digits + 2]));
        *to++ = place ? '.' : *at;
        if (!place) continue;
        memcpy(to, at + 1, digits);
        to += digits;
        at += digits + 1;
    }
    *to = '\0';
    return out;
}

Status tree_set(Arena *arena, Tree *root, const char *given, Tree *value, Diag *diag) {
    const char *path = dotted(arena, given);
    PathWalk walk = {arena, given, value, diag};
    const size_t length = strlen(path);
    if (length == 0 || path[0] == '.' || path[length - 1] == '.' || strstr(path, ".."))
        return diag_fail(diag, STATUS_USAGE, value->loc, NULL,
                         "expected a path such as train.epochs, found \"%s\"", given);
    Tree *parent = root;
    for (const char *at = path, *dot; (dot = strchr(at, '.')); at = dot + 1) {
        const char *name = arena_strndup(arena, at, (size_t)(dot - at));
        Tree *child;
        TRY(path_step(&walk, parent, name, &child));
        if (!child) {
            child = tree_new(arena, TREE_MAP, value->loc);
            tree_append(arena, parent, name, value->loc, child);
        }
        parent = child;
    }
    const char *dot = strrchr(path, '.'), *name = dot ? dot + 1 : path;
    Tree *old;
    TRY(path_step(&walk, parent, name, &old));
    if (!old)
        tree_append(arena, parent, name, value->loc, value);
    else if (old->key && value->kind == TREE_NULL && parent->count > 1)
        tree_remove(old);
    else
        tree_replace(old, value);
    return STATUS_OK;
}

static void add_path(Text *text, const Tree *tree) {
    if (!tree->parent) return;
    add_path(text, tree->parent);
    if (tree->key) {
        text_add(text, "%s%s", text->length > 0 ? "." : "", tree->key);
    } else {
        int index = 0;
        for (const Tree *c = tree->parent->first; c != tree; c = c->next) index++;
        text_add(text, "[%d]", index);
    }
}

const char *tree_path(Arena *arena, const Tree *tree) {
    Text text = {0};
    add_path(&text, tree);
    const char *path = arena_strndup(arena, text.data, text.length);
    text_free(&text);
    return path;
}

/* Kind of a value in JSON, which has no infinities. */
static TreeKind json_kind(const Tree *tree) {
    return tree->kind == TREE_FLOAT && !isfinite(tree->real) ? TREE_NULL : tree->kind;
}

static bool same_key(const Tree *a, const Tree *b) {
    return a->key && b->key ? strcmp(a->key, b->key) == 0 : a->key == b->key;
}

bool tree_equal(const Tree *a, const Tree *b) {
    if (!a || !b) return a == b;
    const TreeKind kind = json_kind(a);
    if (kind != json_kind(b)) return false;
    switch (kind) {
    case TREE_NULL: return true;
    case TREE_BOOL: return a->boolean == b->boolean;
    case TREE_INT: return a->integer == b->integer;
    case TREE_FLOAT: return a->real == b->real;
    case TREE_STRING: return strcmp(a->string, b->string) == 0;
    case TREE_LIST:
    case TREE_MAP: break;
    }
    if (a->count != b->count) return false;
    const Tree *x = a->first, *y = b->first;
    for (; x && y; x = x->next, y = y->next)
        if ((kind == TREE_MAP && !same_key(x, y)) || !tree_equal(x, y)) return false;
    return !x && !y;
}

/* Copies one value; the file's name is copied once for a run of values that share it. */
typedef struct TreeCopy {
    Arena *arena;
    const char *file, *copy;
} TreeCopy;

static Loc copy_loc(TreeCopy *copy, Loc loc) {
    if (loc.file != copy->file) {
        copy->file = loc.file;
        copy->copy = arena_strdup(copy->arena, loc.file);
    }
    loc.file = copy->copy;
    return loc;
}

static Tree *copy_value(TreeCopy *copy, const Tree *tree) {
    Tree *result = tree_new(copy->arena, tree->kind, copy_loc(copy, tree->loc));
    switch (tree->kind) {
    case TREE_NULL: break;
    case TREE_BOOL: result->boolean = tree->boolean; break;
    case TREE_INT: result->integer = tree->integer; break;
    case TREE_FLOAT: result->real = tree->real; break;
    case TREE_STRING: result->string = arena_strdup(copy->arena, tree->string); break;
    case TREE_LIST:
    case TREE_MAP:
        for (const Tree *child = tree->first; child; child = child->next) {
            Loc key_loc = copy_loc(copy, child->key_loc);
            tree_append(copy->arena, result, child->key, key_loc,
                        copy_value(copy, child));
        }
    }
    return result;
}

Tree *tree_copy(Arena *arena, const Tree *tree) {
    TreeCopy copy = {arena, NULL, NULL};
    return copy_value(&copy, tree);
}

/* ---- printing: for messages and as JSON ---- */

/* Bytes of a string that a message shows. */
#define SHOWN_BYTES 60

static void describe_string(Text *text, const char *string) {
    char shown[SHOWN_BYTES + 4];
    size_t length = strlen(string);
    if (length > SHOWN_BYTES) {
        length = SHOWN_BYTES;
        while (length > 0 && ((unsigned char)string[length] & 0xc0) == 0x80) length--;
        memcpy(shown, string, length);
        strcpy(shown + length, "...");
    } else {
        memcpy(shown, string, length + 1);
    }
    text_quoted(text, shown);
}

void tree_describe(Text *text, const Tree *value) {
    text_add(text, "%s", tree_kind_name(value->kind));
    switch (value->kind) {
    case TREE_BOOL: text_add(text, " %s", value->boolean ? "true" : "false"); break;
    case TREE_INT: text_add(text, " %" PRId64, value->integer); break;
    case TREE_FLOAT:
        text_add(text, " ");
        text_real(text, value->real);
        break;
    case TREE_STRING:
        text_add(text, " ");
        describe_string(text, value->string);
        break;
    case TREE_NULL:
    case TREE_LIST:
    case TREE_MAP: break;
    }
}

static void print_scalar(Text *text, const Tree *tree) {
    switch (tree->kind) {
    case TREE_BOOL: text_add(text, "%s", tree->boolean ? "true" : "false"); break;
    case TREE_INT: text_add(text, "%" PRId64, tree->integer); break;
    case TREE_STRING: text_quoted(text, tree->string); break;
    case TREE_FLOAT:
        if (isfinite(tree->real)) {
            text_real(text, tree->real);
            break;
        } /* fall through */
    default: text_add(text, "null");
    }
}

static bool holds_children(const Tree *tree) {
    return tree->kind == TREE_LIST || tree->kind == TREE_MAP;
}

/* Whether a container prints on one line: empty ones and lists of scalars do. */
static bool prints_flat(const Tree *tree) {
    if (!tree->first) return true;
    if (tree->kind == TREE_MAP) return false;
    for (const Tree *child = tree->first; child; child = child->next) {
        if (holds_children(child)) return false;
    }
    return true;
}

static void print_break(Text *text, int spaces) {
    text_add(text, "\n%*s", spaces, "");
}

static void print_value(Text *text, const Tree *tree, int indent, int level) {
    if (!holds_children(tree)) {
        print_scalar(text, tree);
        return;
    }
    bool map = tree->kind == TREE_MAP, flat = indent <= 0 || prints_flat(tree);
    text_bytes(text, map ? "{" : "[", 1);
    for (const Tree *child = tree->first; child; child = child->next) {
        if (child != tree->first) text_add(text, indent > 0 && flat ? ", " : ",");
        if (!flat) print_break(text, indent * (level + 1));
        if (map) {
            text_quoted(text, child->key);
            text_add(text, indent > 0 ? ": " : ":");
        }
        print_value(text, child, indent, level + 1);
    }
    if (!flat) print_break(text, indent * level);
    text_bytes(text, map ? "}" : "]", 1);
}

void tree_print_json(Text *text, const Tree *tree, int indent) {
    print_value(text, tree, indent, 0);
}
