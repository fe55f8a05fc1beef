/* The manual and the JSON Schema of recipes, from the same rows that bind them. */
#include "passes/pipeline/recipe.h"
#include "passes/pipeline/recipe_keys.h"

void recipe_document(Text *text) {
    text_add(text, "Keys of a recipe:\n");
    fields_document(text, recipe_fields(), recipe_key_defaults());
    text_add(text, "\nKeys of a step, beside the name of its pass:\n");
    fields_document(text, recipe_step_fields(), recipe_step_defaults());
    text_add(text, "\nKeys of `repeat`, a step that is a block of others:\n");
    fields_document(text, recipe_repeat_fields(), recipe_repeat_defaults());
}

static const Field NO_FIELDS[] = {F_END};

static const Field *options_of(const Pass *pass) {
    return pass->fields ? pass->fields : NO_FIELDS;
}

static bool has_required(const Field *fields) {
    for (const Field *field = fields; field->name; field++)
        if (field->required) return true;
    return false;
}

/* Makes `schema` one of a map without other keys than those put into the result. */
static Tree *put_properties(Arena *arena, Tree *schema) {
    tree_put_string(arena, schema, "type", "object");
    tree_put_bool(arena, schema, "additionalProperties", false);
    return tree_put_map(arena, schema, "properties");
}

static void put_reference(Arena *arena, Tree *schema, const char *name) {
    tree_put_string(arena, schema, "$ref", arena_printf(arena, "#/$defs/%s", name));
}

/* A pass's options in a repeat: numbers may be ranges. */
static void put_ranges(Arena *arena, Tree *schema, const Pass *pass) {
    Tree *properties = put_properties(arena, schema);
    for (const Field *field = options_of(pass); field->name; field++) {
        const bool number = field->kind == FIELD_INT || field->kind == FIELD_REAL;
        Tree *property = tree_put_map(arena, properties, field->name);
        Tree *any = tree_put_list(arena, property, "anyOf");
        if (number) put_reference(arena, tree_add_map(arena, any), "range");
        put_reference(arena, tree_add_map(arena, any),
                      arena_printf(arena, "%s/properties/%s", pass->name, field->name));
    }
    if (!has_required(options_of(pass))) return;
    Tree *required = tree_put_list(arena, schema, "required");
    for (const Field *field = options_of(pass); field->name; field++)
        if (field->required) tree_add_string(arena, required, field->name);
}

/* A step `{name: {options}, label: ..., allow_unchanged: ...}`; of a round of a repeat
 * where `repeated`. */
static void put_step(Arena *arena, Tree *schema, const Pass *pass, bool repeated) {
    Tree *properties = put_properties(arena, schema);
    for (const Field *key = recipe_step_fields(); key->name; key++)
        put_reference(arena, tree_put_map(arena, properties, key->name),
                      arena_printf(arena, "step/properties/%s", key->name));
    Tree *options = tree_put_map(arena, properties, pass->name);
    Tree *any = tree_put_list(arena, options, "anyOf");
    if (!has_required(options_of(pass)))
        tree_put_string(arena, tree_add_map(arena, any), "type", "null");
    if (repeated)
        put_ranges(arena, tree_add_map(arena, any), pass);
    else
        put_reference(arena, tree_add_map(arena, any), pass->name);
    tree_add_string(arena, tree_put_list(arena, schema, "required"), pass->name);
    tree_put_string(arena, schema, "description", pass->summary);
}

/* A list of steps, at the top (where a repeat may stand, and the list may be empty) or in
 * a repeat. */
static void put_steps(Arena *arena, Tree *schema, bool repeated) {
    tree_put_string(arena, schema, "type", "array");
    if (repeated) tree_put_int(arena, schema, "minItems", 1);
    Tree *items = tree_put_map(arena, schema, "items");
    Tree *any = tree_put_list(arena, items, "anyOf");
    /* a bare name: of passes without required options */
    Tree *names = tree_put_list(arena, tree_add_map(arena, any), "enum");
    for (const Pass *const *pass = pass_list(); *pass; pass++) {
        if (!has_required(options_of(*pass)))
            tree_add_string(arena, names, (*pass)->name);
        put_step(arena, tree_add_map(arena, any), *pass, repeated);
    }
    if (repeated) return;
    Tree *block = tree_add_map(arena, any);
    Tree *properties = put_properties(arena, block);
    put_reference(arena, tree_put_map(arena, properties, "repeat"), "repeat");
    tree_add_string(arena, tree_put_list(arena, block, "required"), "repeat");
}

/* What the rest of the schema refers to: ranges, the keys of a step, repeats, the options
 * of every pass. */
static void put_definitions(Arena *arena, Tree *schema) {
    Tree *definitions = tree_put_map(arena, schema, "$defs");
    Tree *range = tree_put_map(arena, definitions, "range");
    Tree *ends = put_properties(arena, range);
    Tree *required = tree_put_list(arena, range, "required");
    for (int i = 0; i < 2; i++) {
        const char *const name = i ? "to" : "from";
        tree_put_string(arena, tree_put_map(arena, ends, name), "type", "number");
        tree_add_string(arena, required, name);
    }
    tree_put(arena, definitions, "step",
             fields_schema(arena, recipe_step_fields(), recipe_step_defaults()));
    Tree *repeat = tree_put_map(arena, definitions, "repeat");
    Tree *all = tree_put_list(arena, repeat, "allOf");
    tree_append(arena, all, NULL, LOC_NONE,
                fields_schema(arena, recipe_repeat_fields(), NULL));
    Tree *properties = tree_put_map(arena, tree_add_map(arena, all), "properties");
    put_steps(arena, tree_put_map(arena, properties, "passes"), true);
    for (const Pass *const *pass = pass_list(); *pass; pass++)
        tree_put(arena, definitions, (*pass)->name,
                 fields_schema(arena, options_of(*pass), (*pass)->defaults));
}

/* What the rows of the recipe's own keys leave open. */
static void put_details(Arena *arena, Tree *schema) {
    Tree *properties = tree_put_map(arena, schema, "properties");
    tree_put_int(arena, tree_put_map(arena, properties, "version"), "const", 1);
    Tree *data = tree_put_map(arena, properties, "data");
    Tree *entry = tree_put_map(arena, data, "additionalProperties");
    tree_put_string(arena, entry, "type", "object");
    tree_add_string(arena, tree_put_list(arena, entry, "required"), "format");
    put_steps(arena, tree_put_map(arena, properties, "passes"), false);
}

void recipe_schema(Text *text) {
    Arena *arena = arena_create();
    Tree *schema = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_put_string(arena, schema, "$schema",
                    "https://json-schema.org/draft/2020-12/schema");
    tree_put_string(arena, schema, "title", "Recipe of compress");
    put_definitions(arena, schema);
    Tree *all = tree_put_list(arena, schema, "allOf");
    tree_append(arena, all, NULL, LOC_NONE,
                fields_schema(arena, recipe_fields(), recipe_key_defaults()));
    put_details(arena, tree_add_map(arena, all));
    tree_print_json(text, schema, 1);
    text_add(text, "\n");
    arena_destroy(arena);
}
