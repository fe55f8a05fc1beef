/* Field, continued: the manual and the JSON Schema of a table. */
#include "ir/field.h"

#include <float.h>
#include <string.h>

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
    if (field->kind == FIELD_CHOICE) {
        text_add(text, "%s", field->choices);
    } else {
        field_expect(text, field);
    }
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

static void put_tree(Arena *arena, Tree *map, const char *key, Tree *value) {
    tree_append(arena, map, key, LOC_NONE, value);
}

static Tree *append_string(Arena *arena, Tree *list, const char *string, size_t length) {
    Tree *item = tree_new(arena, TREE_STRING, LOC_NONE);
    item->string = arena_strndup(arena, string, length);
    tree_append(arena, list, NULL, LOC_NONE, item);
    return item;
}

static void put_choices(Arena *arena, Tree *schema, const Field *field) {
    Tree *list = tree_new(arena, TREE_LIST, LOC_NONE);
    for (const char *p = field->choices; *p; p += *p == '|') {
        size_t length = strcspn(p, "|");
        append_string(arena, list, p, length);
        p += length;
    }
    put_tree(arena, schema, "enum", list);
}

/* The type of a number for which null may stand. */
static void put_nullable(Arena *arena, Tree *schema, const char *name) {
    Tree *list = tree_new(arena, TREE_LIST, LOC_NONE);
    append_string(arena, list, name, strlen(name));
    append_string(arena, list, "null", strlen("null"));
    put_tree(arena, schema, "type", list);
}

/* Adds the keywords of one kind of value; lists describe their items the same way. */
static void put_type(Arena *arena, Tree *schema, const Field *field, FieldKind kind,
                     bool nullable) {
    static const FieldKind ITEMS[] = {[FIELD_INTS] = FIELD_INT,
                                      [FIELD_REALS] = FIELD_REAL,
                                      [FIELD_STRINGS] = FIELD_STRING};
    static const char *const NAMES[] = {
        [FIELD_BOOL] = "boolean",  [FIELD_INT] = "integer", [FIELD_REAL] = "number",
        [FIELD_STRING] = "string", [FIELD_INTS] = "array",  [FIELD_REALS] = "array",
        [FIELD_STRINGS] = "array", [FIELD_TREE] = NULL};
    if (NAMES[kind] && nullable)
        put_nullable(arena, schema, NAMES[kind]);
    else if (NAMES[kind])
        tree_put_string(arena, schema, "type", NAMES[kind]);
    if (kind == FIELD_CHOICE) put_choices(arena, schema, field);
    if (kind == FIELD_INT || kind == FIELD_REAL) {
        put_range(arena, schema, field, kind == FIELD_INT);
    }
    if (kind != FIELD_INTS && kind != FIELD_REALS && kind != FIELD_STRINGS) return;
    Tree *items = tree_new(arena, TREE_MAP, LOC_NONE);
    put_type(arena, items, field, ITEMS[kind], false);
    put_tree(arena, schema, "items", items);
}

/* `values`: the defaults as a map, NULL when there are none. */
static Tree *field_schema(Arena *arena, const Field *field, const Tree *values,
                          const void *defaults) {
    Tree *schema = tree_new(arena, TREE_MAP, LOC_NONE);
    const bool nullable = defaults && field_is_absent(field, defaults);
    put_type(arena, schema, field, field->kind, nullable);
    const Tree *value = tree_get(values, field->name);
    if (value && value->kind != TREE_NULL && !field->required) {
        put_tree(arena, schema, "default", tree_copy(arena, value));
    }
    if (field->help) tree_put_string(arena, schema, "description", field->help);
    return schema;
}

void fields_schema(Text *text, const Field *fields, const void *defaults) {
    Arena *arena = arena_create();
    Tree *values = defaults ? fields_to_tree(arena, fields, defaults) : NULL;
    Tree *schema = tree_new(arena, TREE_MAP, LOC_NONE);
    Tree *properties = tree_new(arena, TREE_MAP, LOC_NONE);
    Tree *required = tree_new(arena, TREE_LIST, LOC_NONE);
    for (const Field *field = fields; field && field->name; field++) {
        put_tree(arena, properties, field->name,
                 field_schema(arena, field, values, defaults));
        if (field->required) {
            append_string(arena, required, field->name, strlen(field->name));
        }
    }
    tree_put_string(arena, schema, "type", "object");
    put_tree(arena, schema, "properties", properties);
    if (required->count > 0) put_tree(arena, schema, "required", required);
    tree_put_bool(arena, schema, "additionalProperties", false);
    tree_print_json(text, schema, 0);
    arena_destroy(arena);
}
