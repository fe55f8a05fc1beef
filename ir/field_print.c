/* Field: tables of struct members; finding, printing and documenting them. */
#include "ir/field.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* The member of struct `base` that `field` describes, as a pointer to T. */
#define MEMBER(T, base, field) ((T const *)((const char *)(base) + (field)->offset))

const Field *field_find(const Field *fields, const char *name) {
    for (const Field *field = fields; field->name; field++) {
        if (strcmp(field->name, name) == 0) return field;
    }
    return NULL;
}

const char *field_choice_name(const Field *field, int index, int *length) {
    const char *name = field->choices;
    while (index-- > 0) name = strchr(name, '|') + 1;
    *length = (int)strcspn(name, "|");
    return name;
}

static void add_names(Text *text, const char *names, const char *separator) {
    for (const char *p = names; *p; p++) {
        if (*p == '|') {
            text_add(text, "%s", separator);
        } else {
            text_bytes(text, p, 1);
        }
    }
}

/* A bound, without a fraction when it has none. */
static void add_bound(Text *text, double bound) {
    if (bound == floor(bound) && fabs(bound) < 1e15) {
        text_add(text, "%.0f", bound);
    } else {
        text_real(text, bound);
    }
}

static void add_range(Text *text, const Field *field) {
    if (field->min == 0 && field->max == 0) return;
    bool integer = field->kind == FIELD_INT || field->kind == FIELD_INTS;
    double most = integer ? 9e18 : DBL_MAX;
    bool low = field->min > -most, high = field->max < most;
    if (low) {
        text_add(text, high ? " between " : " of at least ");
        add_bound(text, field->min);
    }
    if (high) {
        text_add(text, low ? " and " : " of at most ");
        add_bound(text, field->max);
    }
}

void field_expect(Text *text, const Field *field) {
    static const char *const NAMES[] = {
        [FIELD_BOOL] = "boolean",          [FIELD_INT] = "integer",
        [FIELD_REAL] = "number",           [FIELD_STRING] = "string",
        [FIELD_CHOICE] = "one of ",        [FIELD_INTS] = "list of integers",
        [FIELD_REALS] = "list of numbers", [FIELD_STRINGS] = "list of strings",
        [FIELD_TREE] = "any value"};
    const bool kinds = field->kind == FIELD_TREE && field->choices;
    if (field->expect) {
        text_add(text, "%s", field->expect);
        return;
    }
    if (kinds)
        add_names(text, field->choices, " or ");
    else
        text_add(text, "%s", NAMES[field->kind]);
    if (field->number) text_add(text, " or number from 0");
    if (field->kind == FIELD_CHOICE) add_names(text, field->choices, ", ");
    add_range(text, field);
    if (!field->units) return;
    text_add(text, ", or with a unit (");
    add_names(text, field->units, ", ");
    text_add(text, ")");
}

static void print_list(Text *text, const Field *field, const void *source) {
    const IntList *ints = MEMBER(IntList, source, field);
    const RealList *reals = MEMBER(RealList, source, field);
    const StringList *strings = MEMBER(StringList, source, field);
    const FieldKind kind = field->kind;
    const int count = kind == FIELD_INTS    ? ints->count
                      : kind == FIELD_REALS ? reals->count
                                            : strings->count;
    text_add(text, "[");
    for (int i = 0; i < count; i++) {
        if (i > 0) text_add(text, ", ");
        if (kind == FIELD_INTS) text_add(text, "%" PRId64, ints->items[i]);
        if (kind == FIELD_REALS) text_real(text, reals->items[i]);
        if (kind == FIELD_STRINGS) text_quoted(text, strings->items[i]);
    }
    text_add(text, "]");
}

/* Whether a member is a pointer that is NULL, which stands for "not given". */
static bool member_absent(const Field *field, const void *source) {
    if (field->kind == FIELD_STRING) return !*MEMBER(const char *, source, field);
    return field->kind == FIELD_TREE && !*MEMBER(const Tree *, source, field);
}

void field_print_value(Text *text, const Field *field, const void *source) {
    if (member_absent(field, source)) {
        text_add(text, "null");
        return;
    }
    const char *name;
    int length;
    switch (field->kind) {
    case FIELD_BOOL:
        text_add(text, "%s", *MEMBER(bool, source, field) ? "true" : "false");
        break;
    case FIELD_INT: text_add(text, "%" PRId64, *MEMBER(int64_t, source, field)); break;
    case FIELD_REAL: text_real(text, *MEMBER(double, source, field)); break;
    case FIELD_STRING: text_quoted(text, *MEMBER(const char *, source, field)); break;
    case FIELD_CHOICE:
        name = field_choice_name(field, *MEMBER(int, source, field), &length);
        text_bytes(text, name, (size_t)length);
        break;
    case FIELD_TREE:
        tree_print_json(text, *MEMBER(const Tree *, source, field), 0);
        break;
    case FIELD_INTS:
    case FIELD_REALS:
    case FIELD_STRINGS: print_list(text, field, source); break;
    }
}

/* Values print so that they read back equal, so equal text means equal values. */
static bool member_equal(const Field *field, const void *a, const void *b) {
    Text text_a = {0}, text_b = {0};
    field_print_value(&text_a, field, a);
    field_print_value(&text_b, field, b);
    bool equal = text_a.length == text_b.length &&
                 memcmp(text_a.data, text_b.data, text_a.length) == 0;
    text_free(&text_a);
    text_free(&text_b);
    return equal;
}

void fields_print(Text *text, const Field *fields, const void *source,
                  const void *defaults) {
    const char *separator = "";
    for (const Field *field = fields; field && field->name; field++) {
        if (defaults ? member_equal(field, source, defaults)
                     : member_absent(field, source)) {
            continue;
        }
        text_add(text, "%s%s=", separator, field->name);
        field_print_value(text, field, source);
        separator = " ";
    }
}

static Tree *new_int(Arena *arena, int64_t value) {
    Tree *tree = tree_new(arena, TREE_INT, LOC_NONE);
    tree->integer = value;
    return tree;
}

static Tree *new_real(Arena *arena, double value) {
    Tree *tree = tree_new(arena, TREE_FLOAT, LOC_NONE);
    tree->real = value;
    return tree;
}

static Tree *new_string(Arena *arena, const char *value) {
    Tree *tree = tree_new(arena, value ? TREE_STRING : TREE_NULL, LOC_NONE);
    if (value) tree->string = arena_strdup(arena, value);
    return tree;
}

/* A choice as a document has it: `true` and `false` are booleans. */
static Tree *new_choice(Arena *arena, const char *name, size_t length) {
    const bool yes = length == 4 && memcmp(name, "true", 4) == 0;
    const bool no = length == 5 && memcmp(name, "false", 5) == 0;
    Tree *tree = tree_new(arena, yes || no ? TREE_BOOL : TREE_STRING, LOC_NONE);
    if (yes || no)
        tree->boolean = yes;
    else
        tree->string = arena_strndup(arena, name, length);
    return tree;
}

static Tree *new_list(Arena *arena, const Field *field, const void *source) {
    Tree *list = tree_new(arena, TREE_LIST, LOC_NONE);
    bool ints = field->kind == FIELD_INTS, reals = field->kind == FIELD_REALS;
    const IntList *a = MEMBER(IntList, source, field);
    const RealList *b = MEMBER(RealList, source, field);
    const StringList *c = MEMBER(StringList, source, field);
    int count = ints ? a->count : reals ? b->count : c->count;
    for (int i = 0; i < count; i++) {
        Tree *item = ints    ? new_int(arena, a->items[i])
                     : reals ? new_real(arena, b->items[i])
                             : new_string(arena, c->items[i]);
        tree_append(arena, list, NULL, LOC_NONE, item);
    }
    return list;
}

bool field_is_absent(const Field *field, const void *source) {
    if (field->kind != FIELD_INT && field->kind != FIELD_REAL) return false;
    const double value = field->kind == FIELD_INT
                             ? (double)*MEMBER(int64_t, source, field)
                             : *MEMBER(double, source, field);
    if (field->min == 0 && field->max == 0) return !isfinite(value);
    return value < field->min || value > field->max;
}

static Tree *member_to_tree(Arena *arena, const Field *field, const void *source) {
    Tree *made;
    const Tree *tree;
    const char *name;
    int length;
    if (field_is_absent(field, source)) return tree_new(arena, TREE_NULL, LOC_NONE);
    switch (field->kind) {
    case FIELD_BOOL:
        made = tree_new(arena, TREE_BOOL, LOC_NONE);
        made->boolean = *MEMBER(bool, source, field);
        return made;
    case FIELD_INT: return new_int(arena, *MEMBER(int64_t, source, field));
    case FIELD_REAL: return new_real(arena, *MEMBER(double, source, field));
    case FIELD_STRING: return new_string(arena, *MEMBER(const char *, source, field));
    case FIELD_CHOICE:
        name = field_choice_name(field, *MEMBER(int, source, field), &length);
        return new_choice(arena, name, (size_t)length);
    case FIELD_TREE:
        tree = *MEMBER(const Tree *, source, field);
        return tree ? tree_copy(arena, tree) : tree_new(arena, TREE_NULL, LOC_NONE);
    default: return new_list(arena, field, source);
    }
}

Tree *fields_to_tree(Arena *arena, const Field *fields, const void *source) {
    Tree *map = tree_new(arena, TREE_MAP, LOC_NONE);
    for (const Field *field = fields; field && field->name; field++) {
        Tree *value = member_to_tree(arena, field, source);
        tree_append(arena, map, field->name, LOC_NONE, value);
    }
    return map;
}

/* ---- the manual and the JSON Schema of a table ---- */

static int max_int(int a, int b) {
    return a > b ? a : b;
}

/* The default as it is printed; "required" or "none" where there is no value. */
static void add_default(Text *text, const Field *field, const void *defaults) {
    if (field->required) {
        text_add(text, "required");
        return;
    }
    if (!defaults) return;
    Text value = {0};
    field_print_value(&value, field, defaults);
    bool none = strcmp(value.data, "null") == 0 || field_is_absent(field, defaults);
    text_add(text, "default %s", none ? "none" : value.data);
    text_free(&value);
}

/* What a value must be, the choices separated as in the table. */
static void add_type(Text *text, const Field *field) {
    Field plain = *field;
    plain.expect = NULL;
    if (field->kind == FIELD_CHOICE)
        text_add(text, "%s", field->choices);
    else
        field_expect(text, &plain);
}

/* Columns wider than this do not push the others to the right. */
#define WIDTH_MAX 32

static int column_width(const Text *cell) {
    return cell->length > WIDTH_MAX ? 0 : (int)cell->length;
}

typedef struct Widths {
    int name, type, value;
} Widths;

static Widths measure_table(const Field *fields, const void *defaults) {
    Widths widths = {0};
    for (const Field *field = fields; field && field->name; field++) {
        Text type = {0}, value = {0};
        text_add(&type, "%s", "");
        text_add(&value, "%s", "");
        add_type(&type, field);
        add_default(&value, field, defaults);
        widths.name = max_int(widths.name, (int)strlen(field->name));
        widths.type = max_int(widths.type, column_width(&type));
        widths.value = max_int(widths.value, column_width(&value));
        text_free(&type);
        text_free(&value);
    }
    return widths;
}

void fields_document(Text *text, const Field *fields, const void *defaults) {
    Widths widths = measure_table(fields, defaults);
    for (const Field *field = fields; field && field->name; field++) {
        Text type = {0}, value = {0};
        text_add(&value, "%s", "");
        add_type(&type, field);
        add_default(&value, field, defaults);
        text_add(text, "  %-*s  %-*s  %-*s  %s\n", widths.name, field->name, widths.type,
                 type.data, widths.value, value.data, field->help ? field->help : "");
        text_free(&type);
        text_free(&value);
    }
}

static void put_range(Arena *arena, Tree *schema, const Field *field, bool integer) {
    if (field->min == 0 && field->max == 0) return;
    const char *const keys[] = {"minimum", "maximum"};
    const double bounds[] = {field->min, field->max};
    for (int i = 0; i < 2; i++) {
        double most = integer ? 9e18 : DBL_MAX;
        if (!(bounds[i] > -most && bounds[i] < most)) continue;
        if (integer) {
            tree_put_int(arena, schema, keys[i], (int64_t)bounds[i]);
        } else {
            tree_put_real(arena, schema, keys[i], bounds[i]);
        }
    }
}

/* Puts the names in `names`, which are joined by '|', as a list. */
static Tree *put_names(Arena *arena, Tree *schema, const char *key, const char *names) {
    Tree *list = tree_put_list(arena, schema, key);
    for (const char *p = names; *p; p += *p == '|') {
        const size_t length = strcspn(p, "|");
        tree_add_string(arena, list, arena_strndup(arena, p, length));
        p += length;
    }
    return list;
}

/* Puts `enum`, in which `true` and `false` are booleans. */
static void put_choices(Arena *arena, Tree *schema, const char *names) {
    Tree *list = tree_put_list(arena, schema, "enum");
    for (const char *p = names; *p; p += *p == '|') {
        const size_t length = strcspn(p, "|");
        tree_append(arena, list, NULL, LOC_NONE, new_choice(arena, p, length));
        p += length;
    }
}

/* Puts `type`: one name, or a list of the names that a tree may be and of null. */
static void put_types(Arena *arena, Tree *schema, const Field *field, FieldKind kind,
                      bool nullable) {
    static const char *const NAMES[] = {
        [FIELD_BOOL] = "boolean",  [FIELD_INT] = "integer", [FIELD_REAL] = "number",
        [FIELD_STRING] = "string", [FIELD_INTS] = "array",  [FIELD_REALS] = "array",
        [FIELD_STRINGS] = "array", [FIELD_TREE] = NULL};
    const bool units = kind == FIELD_REAL && field->units;
    const char *names = kind == FIELD_TREE                      ? field->choices
                        : units                                 ? "number|string"
                        : kind == FIELD_STRING && field->number ? "string|integer"
                                                                : NAMES[kind];
    if (!names) return; /* choices have no type, some trees may be anything */
    Tree *list = put_names(arena, schema, "type", names);
    for (Tree *name = list->first; name; name = name->next) {
        if (strcmp(name->string, "map") == 0) name->string = "object";
        if (strcmp(name->string, "list") == 0) name->string = "array";
    }
    if (nullable) tree_add_string(arena, list, "null");
    if (list->count == 1) tree_put_string(arena, schema, "type", list->first->string);
}

/* Adds the keywords of one kind of value; lists describe their items the same way. */
static void put_type(Arena *arena, Tree *schema, const Field *field, FieldKind kind,
                     bool nullable) {
    static const FieldKind ITEMS[] = {[FIELD_INTS] = FIELD_INT,
                                      [FIELD_REALS] = FIELD_REAL,
                                      [FIELD_STRINGS] = FIELD_STRING};
    put_types(arena, schema, field, kind, nullable);
    if (kind == FIELD_CHOICE) put_choices(arena, schema, field->choices);
    if (kind == FIELD_INT || kind == FIELD_REAL) {
        put_range(arena, schema, field, kind == FIELD_INT);
    }
    if (kind == FIELD_STRING && !field->empty)
        tree_put_int(arena, schema, "minLength", 1);
    if (kind != FIELD_INTS && kind != FIELD_REALS && kind != FIELD_STRINGS) return;
    if (field->required && !field->empty) tree_put_int(arena, schema, "minItems", 1);
    Tree *items = tree_put_map(arena, schema, "items");
    put_type(arena, items, field, ITEMS[kind], false);
}

Tree *fields_schema(Arena *arena, const Field *fields, const void *defaults) {
    const Tree *values = defaults ? fields_to_tree(arena, fields, defaults) : NULL;
    Tree *schema = tree_new(arena, TREE_MAP, LOC_NONE);
    Tree *required = tree_new(arena, TREE_LIST, LOC_NONE);
    tree_put_string(arena, schema, "type", "object");
    Tree *properties = tree_put_map(arena, schema, "properties");
    for (const Field *field = fields; field && field->name; field++) {
        Tree *property = tree_put_map(arena, properties, field->name);
        const bool nullable =
            field->nullable || (defaults && field_is_absent(field, defaults));
        put_type(arena, property, field, field->kind, nullable);
        const Tree *value = tree_get_nonnull(values, field->name);
        if (value && !field->required)
            tree_put(arena, property, "default", tree_copy(arena, value));
        if (field->help) tree_put_string(arena, property, "description", field->help);
        if (field->required) tree_add_string(arena, required, field->name);
    }
    if (required->count > 0) tree_put(arena, schema, "required", required);
    tree_put_bool(arena, schema, "additionalProperties", false);
    return schema;
}
