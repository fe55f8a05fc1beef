/* Recipes: binding one (its own keys, then every step, all errors reported), and the
 * manual and the JSON Schema, from the same rows that bind them. */
#include "passes/pipeline/recipe.h"

#include "passes/pipeline/recipe_expand.h"
#include "passes/pipeline/recipe_keys.h"
#include "passes/pipeline/snapshot.h"

#include <string.h>

/* Names that are compared with one that is not known. */
#define NAMES_MAX 256

/* ---- keys ---- */

static const Field step_fields[] = {
    F_STRING(StepKeys, label, "name of the step in reports", .nullable = true),
    F_BOOL(StepKeys, allow_unchanged, "the step may leave the model as it was"),
    F_END,
};

static const Field keys_fields[] = {
    {.name = "version",
     .kind = FIELD_INT,
     .offset = FIELD_AT(RecipeKeys, version, int64_t),
     .required = true,
     .help = "version of the recipe language: 1"},
    F_STRING(RecipeKeys, name, "name of the recipe, for people", .nullable = true,
             .empty = true),
    F_INT(RecipeKeys, seed, 0, 1e15, "seed of everything random"),
    F_INT(RecipeKeys, threads, 0, 4096, "threads; 0 = as many as processors"),
    F_CHOICE(RecipeKeys, processor, PROCESSOR_NAMES,
             "level of x86-64 whose kernels are used, for the same bytes on every "
             "processor that has it; auto = the best there is"),
    F_TREE(
        RecipeKeys, model, "string|map",
        "path of the model to start from, relative to the recipe; or a map with a "
        "configuration to build (config: file or map, seed: of the new weights) or with "
        "a folder and changes to its configuration (path: folder, seed: of new heads)",
        .expect = "a path or a map", .nullable = true),
    F_TREE(RecipeKeys, data, "map", "map of data sets by name, each with its format",
           .expect = "a map of data sets by name", .nullable = true),
    F_TREE(RecipeKeys, extends, "string|list",
           "another recipe, or a list of them, over which this one is laid: maps are "
           "merged, other values replaced",
           .expect = "the path of a recipe, or a list of them", .nullable = true),
    F_TREE(RecipeKeys, anchors, NULL,
           "a place for values that YAML's anchors name and aliases repeat; it says "
           "nothing by itself",
           .nullable = true),
    F_TREE(RecipeKeys, passes, "list",
           "list of steps: name of a pass, {pass: {options}}, or {repeat: {...}}",
           .expect = "a list of steps", .required = true),
    F_TREE(RecipeKeys, output, "string|map|list",
           "where to write the model, relative to the working directory: a path, whose "
           "ending names the format (`compress formats`); a map with path, dtype and the "
           "format's options; or a list of these",
           .expect = "a path, a map with path, or a list of them", .nullable = true),
    F_TREE(RecipeKeys, checkpoint, "map",
           "when the run keeps what --resume goes on from; not given: as often as costs "
           "little, where the recipe writes a model",
           .expect = "a map with every, minutes, folder", .nullable = true),
    F_CHOICE(RecipeKeys, keep, RECIPE_KEEP_NAMES,
             "on_failure: when a gate does not hold, the model is written as NAME.failed "
             "with the output's ending, and not at all else"),
    F_END,
};

static const Field checkpoint_fields[] = {
    F_INT(CheckpointKeys, every, 0, 1000000000,
          "after so many steps; 0 = never; not given: when it costs at most 1 % of the "
          "time since the last one"),
    F_REAL(CheckpointKeys, minutes, 1e-9, 1e9,
           "inside a step that trains, after so many minutes; not given: likewise"),
    F_STRING(CheckpointKeys, folder,
             "where to, relative to the working directory; not given: the first output "
             "with .checkpoint behind its name",
             .nullable = true),
    F_END,
};
static const CheckpointKeys checkpoint_defaults = {.every = -1};

static const RecipeKeys keys_defaults = {.version = 1};
static const StepKeys step_defaults = {0};

const Field *recipe_fields(void) {
    return keys_fields;
}
const RecipeKeys *recipe_key_defaults(void) {
    return &keys_defaults;
}
const Field *recipe_step_fields(void) {
    return step_fields;
}
const StepKeys *recipe_step_defaults(void) {
    return &step_defaults;
}

const Field *recipe_checkpoint_fields(void) {
    return checkpoint_fields;
}
const CheckpointKeys *recipe_checkpoint_defaults(void) {
    return &checkpoint_defaults;
}

static const Field NO_FIELDS[] = {F_END};

static const Field *options_of(const Pass *pass) {
    return pass->fields ? pass->fields : NO_FIELDS;
}

bool recipe_reserves(const char *name) {
    /* blocks and what a search chooses; and what YAML reads as no text */
    static const char *const WORDS[] = {"repeat", "choose", "between",
                                        "null",   "true",   "false"};
    for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS; i++)
        if (strcmp(WORDS[i], name) == 0) return true;
    return field_find(step_fields, name) != NULL;
}

/* ---- data sets ---- */

/* Checks that one option of a step names a data set of the recipe. */
static Status check_data_name(const Recipe *recipe, const char *name, const Tree *value,
                              const Step *step, const char *option, Arena *arena,
                              Diag *diag) {
    if (!name || tree_get(recipe->data, name)) return STATUS_OK;
    const char *key = value && value->parent
                          ? tree_path(arena, value)
                          : arena_printf(arena, "%s.%s", step->source.key, option);
    Status status = diag_fail(diag, STATUS_RECIPE, value ? value->loc : step->source.at,
                              key, "expected the name of a data set, found \"%s\"", name);
    const char *names[NAMES_MAX];
    int count = 0;
    const Tree *entry = recipe->data ? recipe->data->first : NULL;
    for (; entry && count < NAMES_MAX; entry = entry->next) names[count++] = entry->key;
    name_hint(diag, name, names, count, count == 0 ? "the recipe has no `data:`" : NULL);
    return status;
}

/* Checks the option `name[0..length)` of a step: one data set or a list of them. */
static Status check_data_option(const Recipe *recipe, const Step *step,
                                const Tree *options, const char *name, Arena *arena,
                                Diag *diag) {
    const Field *field = field_find(step->pass->fields, name);
    const char *base = step->options;
    const Tree *value = tree_get(options, name);
    if (field && field->kind == FIELD_STRING) {
        const char *data = *(const char *const *)(base + field->offset);
        return check_data_name(recipe, data, value, step, name, arena, diag);
    }
    if (!field || field->kind != FIELD_STRINGS) return STATUS_OK;
    const StringList *list = (const StringList *)(base + field->offset);
    const Tree *item = value ? value->first : NULL;
    for (int i = 0; i < list->count; i++) {
        check_data_name(recipe, list->items[i], item, step, name, arena, diag);
        item = item ? item->next : NULL;
    }
    return STATUS_OK;
}

/* ---- snapshots ---- */

const char *recipe_snapshot_made(const Step *step) {
    if (step->pass != &pass_snapshot || !step->options) return NULL;
    return ((const SnapshotOptions *)step->options)->name;
}

/* Index of the first step in [first, end) that makes the snapshot, -1 = none does. */
static int find_snapshot(const Recipe *recipe, const char *name, int first, int end) {
    for (int i = first; i < end; i++) {
        const char *made = recipe_snapshot_made(&recipe->steps[i]);
        if (made && strcmp(made, name) == 0) return i;
    }
    return -1;
}

/* Says what could be meant by the name of a snapshot that no step before `end` makes. */
static void hint_snapshot(const Recipe *recipe, const char *name, int end, Diag *diag) {
    const char *names[NAMES_MAX];
    int count = 0;
    const int later = find_snapshot(recipe, name, end, recipe->step_count);
    if (later >= 0) {
        diag_hint(diag, "%s makes it, which comes later",
                  recipe->steps[later].source.key);
        return;
    }
    for (int i = 0; i < end && count < NAMES_MAX; i++) {
        const char *made = recipe_snapshot_made(&recipe->steps[i]);
        if (made) names[count++] = made;
    }
    const char *nearest = name_nearest(name, names, count);
    if (nearest)
        diag_hint(diag, "did you mean \"" SNAPSHOT_PREFIX "%s\"?", nearest);
    else
        diag_hint(diag, "a step `- snapshot: {name: NAME}` before this one makes it");
}

int recipe_snapshot_find(const Recipe *recipe, const char *name, int end) {
    for (int i = end - 1; i >= 0; i--) {
        const char *made = recipe_snapshot_made(&recipe->steps[i]);
        if (made && strcmp(made, name) == 0) return i;
    }
    return -1;
}

/* Whether an option of the step names the snapshot. */
static bool names_snapshot(const Step *step, const char *wanted) {
    const Field *field = step->pass->fields;
    for (; field && field->name; field++) {
        if (field->kind != FIELD_STRING) continue;
        const char *text =
            *(const char *const *)((const char *)step->options + field->offset);
        const char *name = text ? snapshot_name(text) : NULL;
        if (name && strcmp(name, wanted) == 0) return true;
    }
    return false;
}

bool recipe_snapshot_needed(const Recipe *recipe, int made, int first) {
    const char *name = recipe_snapshot_made(&recipe->steps[made]);
    for (int i = first; i < recipe->step_count; i++) {
        if (recipe_snapshot_find(recipe, name, i) != made) return false;
        if (names_snapshot(&recipe->steps[i], name)) return true;
    }
    return false;
}

/* Checks the strings among the options of a step. */
static void check_references(const Recipe *recipe, int index, Arena *arena, Diag *diag) {
    const Step *step = &recipe->steps[index];
    const char *base = step->options;
    const Field *field = step->pass->fields;
    for (; field && field->name; field++) {
        const Tree *value = tree_get(step->source.options, field->name);
        const char *text = NULL;
        if (value && field->kind == FIELD_STRING)
            text = *(const char *const *)(base + field->offset);
        const char *name = text ? snapshot_name(text) : NULL;
        if (!name || find_snapshot(recipe, name, 0, index) >= 0) continue;
        diag_fail(diag, STATUS_RECIPE, value->loc, tree_path(arena, value),
                  "expected a snapshot that an earlier step makes, found \"%s\"", text);
        hint_snapshot(recipe, name, index, diag);
    }
}

/* Reports "snapshot:NAME" among the options where no earlier step makes that snapshot,
 * and names that two steps give to snapshots. Rounds of a repeat are one step here: each
 * round's snapshot takes the place of the last one's. Steps that did not bind have no
 * options. */
static void check_snapshots(const Recipe *recipe, Arena *arena, Diag *diag) {
    for (int i = 0; i < recipe->step_count; i++) {
        const Step *step = &recipe->steps[i];
        if (!step->options || step->round > 1) continue;
        check_references(recipe, i, arena, diag);
        const char *name = recipe_snapshot_made(step);
        const int earlier = name ? find_snapshot(recipe, name, 0, i) : -1;
        if (earlier < 0) continue;
        option_fail(&step->source, "name", STATUS_RECIPE, diag,
                    "expected a name that is free, %s makes snapshot \"%s\" already",
                    recipe->steps[earlier].source.key, name);
    }
}

/* ---- binding ---- */

const char *data_option_next(const char **rest, Arena *arena) {
    if (!*rest || !**rest) return NULL;
    const size_t length = strcspn(*rest, "|");
    const char *name = arena_strndup(arena, *rest, length);
    *rest += length + ((*rest)[length] == '|');
    return name;
}

Status step_bind(Step *step, const Tree *options, Arena *arena, Diag *diag) {
    const Pass *pass = step->pass;
    const int errors = diag_errors(diag);
    step->options = arena_alloc(arena, pass->options_size + 1);
    step->source.options = options;
    if (pass->defaults) memcpy(step->options, pass->defaults, pass->options_size);
    if (options && options->kind != TREE_NULL && options->kind != TREE_MAP)
        return diag_fail(diag, STATUS_RECIPE, options->loc, tree_path(arena, options),
                         "expected a map of options, found %s",
                         tree_kind_name(options->kind));
    fields_bind(options_of(pass), options, step->options, arena, STATUS_RECIPE, diag);
    if (pass->check && diag_errors(diag) == errors)
        pass->check(step->options, &step->source, diag);
    return diag_errors(diag) == errors ? STATUS_OK : STATUS_RECIPE;
}

/* Binds the options of a step whose pass is known. */
static void bind_options(const Recipe *recipe, Step *step, const Tree *options,
                         Arena *arena, Diag *diag) {
    const char *rest = step->pass->data_options, *name;
    step_bind(step, options, arena, diag);
    while ((name = data_option_next(&rest, arena)))
        check_data_option(recipe, step, options, name, arena, diag);
}

/* The entry of a step's map that names its pass, NULL (and reported) when there is none
 * or a second one. The step's own keys are bound to `own`. */
static const Tree *split_step(const Tree *step, StepKeys *own, Arena *arena, Diag *diag) {
    const Tree *found = NULL;
    for (const Tree *entry = step->first; entry; entry = entry->next) {
        const Field *field = field_find(step_fields, entry->key);
        if (field) {
            field_set(field, entry, own, arena, STATUS_RECIPE, diag);
            continue;
        }
        if (found) {
            diag_fail(diag, STATUS_RECIPE, entry->key_loc, tree_path(arena, step),
                      "expected one pass in a step, found \"%s\" and \"%s\"", found->key,
                      entry->key);
            if (pass_find(found->key) && pass_find(entry->key))
                diag_hint(diag, "each pass begins with its own `- `, which \"%s\" lacks",
                          entry->key);
            else
                diag_hint(diag, "options stand below the pass: {%s: {%s: ...}}",
                          found->key, entry->key);
            return NULL;
        }
        found = entry;
    }
    if (!found)
        diag_fail(diag, STATUS_RECIPE, step->loc, tree_path(arena, step),
                  "expected the name of a pass, found %s",
                  step->count ? "only the step's own keys" : "an empty map");
    return found;
}

static void bind_step_map(const Recipe *recipe, Step *step, const Tree *tree,
                          Arena *arena, Diag *diag) {
    StepKeys keys = step_defaults;
    const Tree *entry = split_step(tree, &keys, arena, diag);
    step->label = keys.label;
    step->allow_unchanged = keys.allow_unchanged;
    if (!entry) return;
    step->source.at = entry->key_loc;
    step->pass = pass_find(entry->key);
    if (step->pass)
        bind_options(recipe, step, entry, arena, diag);
    else
        pass_fail_unknown(entry->key, STATUS_RECIPE, entry->key_loc,
                          tree_path(arena, tree), diag);
}

static void bind_step(const Recipe *recipe, Step *step, const Tree *tree, Arena *arena,
                      Diag *diag) {
    step->source.at = tree->loc;
    step->source.key = tree_path(arena, tree);
    if (tree->kind == TREE_MAP) {
        bind_step_map(recipe, step, tree, arena, diag);
    } else if (tree->kind == TREE_STRING) {
        step->pass = pass_find(tree->string);
        if (!step->pass) {
            pass_fail_unknown(tree->string, STATUS_RECIPE, tree->loc, step->source.key,
                              diag);
            return;
        }
        /* a bare name: its options are nothing, at the place of the name */
        Tree *options = tree_new(arena, TREE_NULL, tree->loc);
        options->key = tree->string;
        options->key_loc = tree->loc;
        options->parent = (Tree *)tree;
        bind_options(recipe, step, options, arena, diag);
    } else {
        diag_fail(diag, STATUS_RECIPE, tree->loc, step->source.key,
                  "expected the name of a pass or a map, found %s",
                  tree_kind_name(tree->kind));
    }
}

/* Binds one step. A mistake in a step of a block is reported in the first round that has
 * it. */
static void bind_item(const Recipe *recipe, Step *step, StepItem *item, Arena *arena,
                      Diag *diag) {
    const int errors = diag_errors(diag);
    const bool again = item->round > 1 && item[-item->stride].failed;
    step->round = item->round;
    step->rounds = item->rounds;
    step->stride = item->stride;
    if (!item->failed && !again) bind_step(recipe, step, item->tree, arena, diag);
    item->failed = item->failed || again || diag_errors(diag) > errors;
    const char *label = step->label; /* gets the round behind it */
    if (item->round > 0)
        step->label = arena_printf(arena, "%s%s%d/%d", label ? label : "",
                                   label ? " " : "", item->round, item->rounds);
    if (item->round > 1 && diag_errors(diag) > errors)
        diag_note(diag, "in round %d of %d", item->round, item->rounds);
}

Status recipe_bind(Recipe *recipe, Arena *arena, const Tree *document, const char *path,
                   const char *folder, Diag *diag) {
    *recipe = (Recipe){.path = path, .folder = folder, .source = document};
    if (!document || document->kind != TREE_MAP)
        return diag_fail(diag, STATUS_RECIPE, document ? document->loc : LOC_FILE(path),
                         NULL, "expected a map of recipe keys, found %s",
                         document ? tree_kind_name(document->kind) : "nothing");
    int errors = diag_errors(diag);
    RecipeKeys keys = keys_defaults;
    fields_bind(keys_fields, document, &keys, arena, STATUS_RECIPE, diag);
    const Tree *version = tree_get(document, "version");
    if (version && version->kind == TREE_INT && keys.version != 1)
        diag_fail(diag, STATUS_RECIPE, version->loc, "version",
                  "expected version 1 of the recipe language, found %lld",
                  (long long)keys.version);
    recipe->seed = keys.seed;
    recipe->threads = keys.threads;
    recipe->processor = (Processor)keys.processor;
    recipe->keep = (RecipeKeep)keys.keep;
    recipe->model = keys.model;
    recipe->data = keys.data;
    recipe->output = keys.output;
    recipe->checkpoint = checkpoint_defaults;
    if (keys.checkpoint && keys.checkpoint->kind == TREE_MAP) /* else reported, or null */
        fields_bind(checkpoint_fields, keys.checkpoint, &recipe->checkpoint, arena,
                    STATUS_RECIPE, diag);
    if (keys.passes) { /* else reported */
        StepItems items;
        recipe_expand(&items, arena, keys.passes, diag);
        recipe->steps = ARENA_ARRAY(arena, Step, (size_t)items.count + 1);
        recipe->step_count = items.count;
        for (int i = 0; i < items.count; i++)
            bind_item(recipe, &recipe->steps[i], &items.items[i], arena, diag);
        check_snapshots(recipe, arena, diag);
    }
    return diag_errors(diag) > errors ? STATUS_RECIPE : STATUS_OK;
}

/* ---- manual and schema ---- */

void recipe_document(Text *text) {
    text_add(text, "Keys of a recipe:\n");
    fields_document(text, recipe_fields(), recipe_key_defaults());
    text_add(text, "\nKeys of `checkpoint`:\n");
    fields_document(text, recipe_checkpoint_fields(), recipe_checkpoint_defaults());
    text_add(text, "\nKeys of a step, beside the name of its pass:\n");
    fields_document(text, recipe_step_fields(), recipe_step_defaults());
    text_add(text, "\nKeys of `repeat`, a step that is a block of others:\n");
    fields_document(text, recipe_repeat_fields(), recipe_repeat_defaults());
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

/* Whether a schema describes one value that is no text: a number, a switch, a choice. */
static bool is_no_text(const Tree *schema) {
    const Tree *type = tree_get(schema, "type");
    if (type && type->kind == TREE_LIST) type = type->first;
    return tree_get(schema, "enum") || tree_is_string(type, "integer") ||
           tree_is_string(type, "number") || tree_is_string(type, "boolean");
}

/* Lets ${NAME} stand for such values of all properties (docs/recipes.md, Sharing). */
static void admit_variables(Arena *arena, Tree *schema) {
    Tree *properties = tree_get(schema, "properties");
    for (Tree *child = schema->first; child; child = child->next)
        if (child->kind == TREE_MAP || child->kind == TREE_LIST)
            admit_variables(arena, child);
    for (Tree *value = properties ? properties->first : NULL, *next; value;
         value = next) {
        next = value->next;
        if (!is_no_text(value)) continue;
        Tree *either = tree_new(arena, TREE_MAP, LOC_NONE);
        Tree *list = tree_put_list(arena, either, "anyOf");
        tree_append(arena, list, NULL, LOC_NONE, tree_copy(arena, value));
        put_reference(arena, tree_add_map(arena, list), "variable");
        tree_put(arena, properties, value->key, either);
    }
}

void recipe_schema(Text *text) {
    Arena *arena = arena_create();
    Tree *schema = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_put_string(arena, schema, "$schema",
                    "https://json-schema.org/draft/2020-12/schema");
    tree_put_string(arena, schema, "title", "Recipe of compress");
    put_definitions(arena, schema);
    Tree *all = tree_put_list(arena, schema, "allOf");
    Tree *own = fields_schema(arena, recipe_fields(), recipe_key_defaults());
    tree_append(arena, all, NULL, LOC_NONE, own);
    /* what is required may stand in a recipe that is extended */
    Tree *required = tree_copy(arena, tree_get(own, "required"));
    tree_put_list(arena, own, "required");
    Tree *either = tree_put_list(arena, schema, "anyOf");
    tree_add_string(arena, tree_put_list(arena, tree_add_map(arena, either), "required"),
                    "extends");
    tree_put(arena, tree_add_map(arena, either), "required", required);
    /* what the rows of the recipe's own keys leave open */
    Tree *properties = tree_put_map(arena, tree_add_map(arena, all), "properties");
    tree_put_int(arena, tree_put_map(arena, properties, "version"), "const", 1);
    Tree *checkpoint =
        tree_put_list(arena, tree_put_map(arena, properties, "checkpoint"), "anyOf");
    tree_put_string(arena, tree_add_map(arena, checkpoint), "type", "null");
    tree_append(
        arena, checkpoint, NULL, LOC_NONE,
        fields_schema(arena, recipe_checkpoint_fields(), recipe_checkpoint_defaults()));
    Tree *data = tree_put_map(arena, properties, "data");
    Tree *entry = tree_put_map(arena, data, "additionalProperties");
    tree_put_string(arena, entry, "type", "object");
    tree_add_string(arena, tree_put_list(arena, entry, "required"), "format");
    put_steps(arena, tree_put_map(arena, properties, "passes"), false);
    admit_variables(arena, schema);
    Tree *variable = tree_put_map(arena, tree_get(schema, "$defs"), "variable");
    tree_put_string(arena, variable, "type", "string");
    tree_put_string(arena, variable, "pattern", "^\\$\\{[A-Za-z_][A-Za-z0-9_]*\\}$");
    tree_print_json(text, schema, 1);
    text_add(text, "\n");
    arena_destroy(arena);
}
