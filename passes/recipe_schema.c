/* The manual and the JSON Schema of recipes, from the same rows that bind them. */
#include "passes/recipe.h"
#include "passes/recipe_keys.h"

void recipe_document(Text *text) {
    text_add(text, "Keys of a recipe:\n");
    fields_document(text, recipe_fields(), recipe_key_defaults());
    text_add(text, "\nKeys of a step, beside the name of its pass:\n");
    fields_document(text, recipe_step_fields(), recipe_step_defaults());
}

static bool has_required(const Pass *pass) {
    for (const Field *field = pass->fields; field && field->name; field++)
        if (field->required) return true;
    return false;
}

/* The schema of one step given as a bare name: passes without required options. */
static void schema_names(Text *text) {
    bool first = true;
    text_add(text, "{\"enum\":[");
    for (const Pass *const *pass = pass_list(); *pass; pass++) {
        if (has_required(*pass)) continue;
        if (!first) text_add(text, ",");
        text_quoted(text, (*pass)->name);
        first = false;
    }
    text_add(text, "]}");
}

/* The schema of `{name: {options}, label: ..., allow_unchanged: ...}`. */
static void schema_pass(Text *text, const Pass *pass) {
    text_add(text, ",\n{\"type\":\"object\",\"required\":[");
    text_quoted(text, pass->name);
    text_add(text, "],\"additionalProperties\":false,\"description\":");
    text_quoted(text, pass->summary);
    text_add(text, ",\n \"properties\":{\"label\":{\"type\":\"string\"},"
                   "\"allow_unchanged\":{\"type\":\"boolean\"},\n ");
    text_quoted(text, pass->name);
    text_add(text, ":{\"anyOf\":[");
    if (!has_required(pass)) text_add(text, "{\"type\":\"null\"},");
    static const Field none[] = {F_END};
    fields_schema(text, pass->fields ? pass->fields : none, pass->defaults);
    text_add(text, "]}}}");
}

void recipe_schema(Text *text) {
    text_add(text, "{\"$schema\":\"https://json-schema.org/draft/2020-12/schema\",\n"
                   "\"title\":\"Recipe of compress\",\n"
                   "\"allOf\":[\n");
    fields_schema(text, recipe_fields(), recipe_key_defaults());
    text_add(text,
             ",\n{\"required\":[\"passes\"],\n"
             "\"properties\":{\"version\":{\"const\":1},\n"
             "\"model\":{\"type\":[\"string\",\"object\"]},\n"
             "\"data\":{\"type\":\"object\",\"additionalProperties\":"
             "{\"type\":\"object\",\"required\":[\"format\"]}},\n"
             "\"passes\":{\"type\":\"array\",\"minItems\":1,\"items\":{\"anyOf\":[\n");
    schema_names(text);
    for (const Pass *const *pass = pass_list(); *pass; pass++) schema_pass(text, *pass);
    text_add(text, "]}}}}]}\n");
}
