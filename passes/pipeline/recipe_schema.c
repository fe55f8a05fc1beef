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

/* The schema of a pass's options, under $defs. */
static void schema_options(Text *text, const Pass *pass) {
    static const Field none[] = {F_END};
    text_add(text, ",\n");
    text_quoted(text, pass->name);
    text_add(text, ":");
    fields_schema(text, pass->fields ? pass->fields : none, pass->defaults);
}

/* The properties of a pass's options in a repeat: numbers may be ranges. */
static void schema_ranges(Text *text, const Pass *pass) {
    text_add(text,
             "{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{");
    for (const Field *field = pass->fields; field && field->name; field++) {
        const bool number = field->kind == FIELD_INT || field->kind == FIELD_REAL;
        text_add(text, "%s\"%s\":{\"anyOf\":[%s", field == pass->fields ? "" : ",",
                 field->name, number ? "{\"$ref\":\"#/$defs/range\"}," : "");
        text_add(text, "{\"$ref\":\"#/$defs/%s/properties/%s\"}]}", pass->name,
                 field->name);
    }
    text_add(text, "},\"required\":[");
    const char *separator = "";
    for (const Field *field = pass->fields; field && field->name; field++) {
        if (!field->required) continue;
        text_add(text, "%s\"%s\"", separator, field->name);
        separator = ",";
    }
    text_add(text, "]}");
}

/* The schema of `{name: {options}, label: ..., allow_unchanged: ...}`. */
static void schema_pass(Text *text, const Pass *pass, bool repeated) {
    text_add(text, ",\n{\"type\":\"object\",\"required\":[");
    text_quoted(text, pass->name);
    text_add(text, "],\"additionalProperties\":false,\"description\":");
    text_quoted(text, pass->summary);
    text_add(text, ",\n \"properties\":{\"label\":{\"type\":\"string\"},"
                   "\"allow_unchanged\":{\"type\":\"boolean\"},\n ");
    text_quoted(text, pass->name);
    text_add(text, ":{\"anyOf\":[");
    if (!has_required(pass)) text_add(text, "{\"type\":\"null\"},");
    if (repeated)
        schema_ranges(text, pass);
    else
        text_add(text, "{\"$ref\":\"#/$defs/%s\"}", pass->name);
    text_add(text, "]}}}");
}

/* The schema of the lists of steps, at the top and in a repeat. */
static void schema_steps(Text *text, bool repeated) {
    text_add(text, "{\"type\":\"array\",\"minItems\":1,\"items\":{\"anyOf\":[\n");
    schema_names(text);
    for (const Pass *const *pass = pass_list(); *pass; pass++)
        schema_pass(text, *pass, repeated);
    if (!repeated)
        text_add(text, ",\n{\"type\":\"object\",\"required\":[\"repeat\"],"
                       "\"additionalProperties\":false,"
                       "\"properties\":{\"repeat\":{\"$ref\":\"#/$defs/repeat\"}}}");
    text_add(text, "]}}");
}

/* What the rest of the schema refers to. */
static void schema_definitions(Text *text) {
    text_add(text, "\"$defs\":{\"range\":{\"type\":\"object\","
                   "\"required\":[\"from\",\"to\"],\"additionalProperties\":false,"
                   "\"properties\":{\"from\":{\"type\":\"number\"},"
                   "\"to\":{\"type\":\"number\"}}},\n\"repeat\":{\"allOf\":[");
    fields_schema(text, recipe_repeat_fields(), NULL);
    text_add(text, ",\n{\"properties\":{\"passes\":");
    schema_steps(text, true);
    text_add(text, "}}]}");
    for (const Pass *const *pass = pass_list(); *pass; pass++)
        schema_options(text, *pass);
    text_add(text, "},\n");
}

void recipe_schema(Text *text) {
    text_add(text, "{\"$schema\":\"https://json-schema.org/draft/2020-12/schema\",\n"
                   "\"title\":\"Recipe of compress\",\n");
    schema_definitions(text);
    text_add(text, "\"allOf\":[\n");
    fields_schema(text, recipe_fields(), recipe_key_defaults());
    text_add(text, ",\n{\"required\":[\"passes\"],\n"
                   "\"properties\":{\"version\":{\"const\":1},\n"
                   "\"model\":{\"type\":[\"string\",\"object\"]},\n"
                   "\"data\":{\"type\":\"object\",\"additionalProperties\":"
                   "{\"type\":\"object\",\"required\":[\"format\"]}},\n"
                   "\"passes\":");
    schema_steps(text, false);
    text_add(text, "}}]}\n");
}
