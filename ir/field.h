/* Field: one typed, range-checked, documented row that describes a member of a C struct.
 *
 * One mechanism used for op attributes, pass options and recipe keys: it binds a Tree to
 * the struct, checks it, prints it back, documents it and yields its JSON Schema. A table
 * of fields ends with a row whose name is NULL. Members not named by the tree keep the
 * value they had, so callers first copy their defaults. */
#ifndef COMPRESS_IR_FIELD_H
#define COMPRESS_IR_FIELD_H

#include "ir/tree.h"

typedef enum FieldKind {
    FIELD_BOOL,    /* bool */
    FIELD_INT,     /* int64_t, min..max; see field_is_absent */
    FIELD_REAL,    /* double, likewise; integers are accepted */
    FIELD_STRING,  /* const char *, NULL = not given */
    FIELD_CHOICE,  /* int, index into `choices` ("none|conv|norm_conv"); of
                    * "auto|true|false"  the last two are booleans in documents */
    FIELD_INTS,    /* IntList, each min..max */
    FIELD_REALS,   /* RealList, each min..max */
    FIELD_STRINGS, /* StringList */
    FIELD_TREE     /* const Tree *, an arbitrary value; NULL = not given */
} FieldKind;

typedef struct IntList {
    int64_t *items;
    int count;
} IntList;

typedef struct RealList {
    double *items;
    int count;
} RealList;

typedef struct StringList {
    const char **items;
    int count;
} StringList;

typedef struct Field {
    const char *name;
    FieldKind kind;
    size_t offset;
    double min, max;     /* inclusive; both 0 = unlimited */
    const char *choices; /* FIELD_CHOICE: names joined by '|'; FIELD_TREE: the allowed
                            kinds ("string|map"), NULL = any except null */
    const char *units;   /* FIELD_REAL: units that may follow the number, in a string
                          * ("45MB"): FIELD_COUNTS or FIELD_BYTES; NULL = none */
    const char *expect;  /* what a value must be, in messages; NULL = by the kind */
    bool required;       /* lists: and not empty */
    bool nullable;       /* null may stand for "not given" and gives NULL */
    bool empty;          /* "" is a value, a required list may be empty */
    bool dims;           /* FIELD_STRING: it spells dimensions (ir/dim.h) */
    bool number; /* FIELD_STRING, FIELD_STRINGS: an integer from 0 on stands for its
                    digits, for columns, which have names or numbers */
    const char *help;
} Field;

/* Units of a field: powers of 1000 (10M = 10,000,000); for bytes, powers of 1000 and of
 * 1024 (45MB = 45,000,000, 1MiB = 1,048,576). */
#define FIELD_COUNTS "K|M|G|T"
#define FIELD_BYTES  "KB|MB|GB|TB|KiB|MiB|GiB|TiB"

/* Offset of a member whose C type must be T, otherwise the code does not compile. */
#define FIELD_AT(S, m, T) (offsetof(S, m) + 0 * sizeof((T *)0 == &((S *)0)->m))

/* Rows: F_INT(struct, member, min, max, help). The row's name is the member's name.
 * Further properties may follow the help: F_STRING(S, m, "...", .nullable = true).
 *
 * A row accepts null and "" only where it says so, so readers need no checks. A member
 * whose default is NULL is `nullable`, so that what fields_to_tree writes can be bound
 * again; for numbers see field_is_absent. */
#define F_BOOL(S, m, ...)                                                                \
    {                                                                                    \
        .name = #m, .kind = FIELD_BOOL, .offset = FIELD_AT(S, m, bool),                  \
        .help = __VA_ARGS__                                                              \
    }
#define F_INT(S, m, lo, hi, ...)                                                         \
    {                                                                                    \
        .name = #m, .kind = FIELD_INT, .offset = FIELD_AT(S, m, int64_t), .min = (lo),   \
        .max = (hi), .help = __VA_ARGS__                                                 \
    }
#define F_REAL(S, m, lo, hi, ...)                                                        \
    {                                                                                    \
        .name = #m, .kind = FIELD_REAL, .offset = FIELD_AT(S, m, double), .min = (lo),   \
        .max = (hi), .help = __VA_ARGS__                                                 \
    }
#define F_STRING(S, m, ...)                                                              \
    {                                                                                    \
        .name = #m, .kind = FIELD_STRING, .offset = FIELD_AT(S, m, const char *),        \
        .help = __VA_ARGS__                                                              \
    }
#define F_CHOICE(S, m, names, ...)                                                       \
    {                                                                                    \
        .name = #m, .kind = FIELD_CHOICE, .offset = FIELD_AT(S, m, int),                 \
        .choices = (names), .help = __VA_ARGS__                                          \
    }
#define F_INTS(S, m, lo, hi, ...)                                                        \
    {                                                                                    \
        .name = #m, .kind = FIELD_INTS, .offset = FIELD_AT(S, m, IntList), .min = (lo),  \
        .max = (hi), .help = __VA_ARGS__                                                 \
    }
#define F_REALS(S, m, lo, hi, ...)                                                       \
    {                                                                                    \
        .name = #m, .kind = FIELD_REALS, .offset = FIELD_AT(S, m, RealList),             \
        .min = (lo), .max = (hi), .help = __VA_ARGS__                                    \
    }
#define F_STRINGS(S, m, ...)                                                             \
    {                                                                                    \
        .name = #m, .kind = FIELD_STRINGS, .offset = FIELD_AT(S, m, StringList),         \
        .help = __VA_ARGS__                                                              \
    }
/* `kinds`: see Field.choices. */
#define F_TREE(S, m, kinds, ...)                                                         \
    {                                                                                    \
        .name = #m, .kind = FIELD_TREE, .offset = FIELD_AT(S, m, const Tree *),          \
        .choices = (kinds), .help = __VA_ARGS__                                          \
    }
#define F_END                                                                            \
    { .name = NULL }

/* The row called `name`, or NULL. */
const Field *field_find(const Field *fields, const char *name);

/* Binds a map to the struct at `target`: unknown keys (with the nearest name as a hint),
 * wrong types, values out of range, null and "" where the row does not allow them, and
 * missing required keys are reported with `status` at their place; binding continues
 * after an error, so all of them are found. `map` NULL or null counts as empty. Lists
 * and strings are copied into the arena; FIELD_TREE members borrow from `map`. Returns
 * the first error's status. */
Status fields_bind(const Field *fields, const Tree *map, void *target, Arena *arena,
                   Status status, Diag *diag);

/* Appends what a value must be: `integer between 1 and 768`, `one of relu, gelu`. */
void field_expect(Text *text, const Field *field);

/* Sets one member from a value, checked as in fields_bind. */
Status field_set(const Field *field, const Tree *value, void *target, Arena *arena,
                 Status status, Diag *diag);

/* Appends `name=value` pairs separated by spaces, without members equal to `defaults`
 * (NULL: all are printed). Reads back through the IR parser. */
void fields_print(Text *text, const Field *fields, const void *source,
                  const void *defaults);

/* Appends one value in IR attribute syntax: 3, 0.5, true, gelu, "text", [1, 2]. */
void field_print_value(Text *text, const Field *field, const void *source);

/* Name of a choice by its index. `index` must be in range. The result is in a static
 * table of the field (borrowed) and `length` bytes long. */
const char *field_choice_name(const Field *field, int index, int *length);

/* Whether a number is out of its field's range or not finite: only a default can be,
 * which means "not given", for which a document may say null. */
bool field_is_absent(const Field *field, const void *source);

/* The struct's values as a map (for provenance), every field included; null where a
 * number is absent. */
Tree *fields_to_tree(Arena *arena, const Field *fields, const void *source);

/* Appends the manual of a table: name, type, range, default, help, one row per line. */
void fields_document(Text *text, const Field *fields, const void *defaults);

/* The table's JSON Schema as a new map: {"type": "object", "properties": ...}. Strings
 * are copied into the arena. `defaults` may be NULL. */
Tree *fields_schema(Arena *arena, const Field *fields, const void *defaults);

/* Nearest of `count` names to a misspelt one, preferring those that begin with it, or
 * NULL if none is near. */
const char *name_nearest(const char *word, const char *const *names, int count);

/* Adds a hint to the error that a name is unknown: the nearest known name, else
 * `otherwise`; NULL = none. */
void name_hint(Diag *diag, const char *word, const char *const *names, int count,
               const char *otherwise);

#endif
