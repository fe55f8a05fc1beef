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

/* Puts `type`: one name, or a list of the names that a tree may be and of null. */
static void put_types(Arena *arena, Tree *schema, const Field *field, FieldKind kind,
                      bool nullable) {
    static const char *const NAMES[] = {
        [FIELD_BOOL] = "boolean",  [FIELD_INT] = "integer", [FIELD_REAL] = "number",
        [FIELD_STRING] = "string", [FIELD_INTS] = "array",  [FIELD_REALS] = "array",
        [FIELD_STRINGS] = "array", [FIELD_TREE] = NULL};
    const char *names = kind == FIELD_TREE ? field->choices : NAMES[kind];
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
    if (kind == FIELD_CHOICE) put_names(arena, schema, "enum", field->choices);
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

/* `values`: the defaults as a map, NULL when there are none. */
static void put_field(Arena *arena, Tree *schema, const Field *field, const Tree *values,
                      const void *defaults) {
    const bool nullable =
        field->nullable || (defaults && field_is_absent(field, defaults));
    put_type(arena, schema, field, field->kind, nullable);
    const Tree *value = tree_get_nonnull(values, field->name);
    if (value && !field->required)
        tree_put(arena, schema, "default", tree_copy(arena, value));
    if (field->help) tree_put_string(arena, schema, "description", field->help);
}

Tree *fields_schema(Arena *arena, const Field *fields, const void *defaults) {
    const Tree *values = defaults ? fields_to_tree(arena, fields, defaults) : NULL;
    Tree *schema = tree_new(arena, TREE_MAP, LOC_NONE);
    Tree *required = tree_new(arena, TREE_LIST, LOC_NONE);
    tree_put_string(arena, schema, "type", "object");
    Tree *properties = tree_put_map(arena, schema, "properties");
    for (const Field *field = fields; field && field->name; field++) {
        Tree *property = tree_put_map(arena, properties, field->name);
        put_field(arena, property, field, values, defaults);
        if (field->required) tree_add_string(arena, required, field->name);
    }
    if (required->count > 0) tree_put(arena, schema, "required", required);
    tree_put_bool(arena, schema, "additionalProperties", false);
    return schema;
}
