/* Binding a recipe: its own keys, then every step, all errors reported. */
#include "passes/pipeline/recipe.h"

#include "passes/pipeline/recipe_expand.h"
#include "passes/pipeline/recipe_keys.h"
#include "passes/pipeline/recipe_names.h"

#include <string.h>

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
    F_TREE(RecipeKeys, passes, "list",
           "list of steps: name of a pass, {pass: {options}}, or {repeat: {...}}",
           .expect = "a list of steps", .required = true),
    F_STRING(RecipeKeys, output,
             "file to write the model to, relative to the working directory",
             .nullable = true),
    F_END,
};

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

/* Binds the options of a step whose pass is known. */
static void bind_options(const Recipe *recipe, Step *step, const Tree *options,
                         Arena *arena, Diag *diag) {
    const Pass *pass = step->pass;
    int errors = diag_errors(diag);
    step->options = arena_alloc(arena, pass->options_size + 1);
    step->source.options = options;
    if (pass->defaults) memcpy(step->options, pass->defaults, pass->options_size);
    if (options && options->kind != TREE_NULL && options->kind != TREE_MAP) {
        diag_fail(diag, STATUS_RECIPE, options->loc, tree_path(arena, options),
                  "expected a map of options, found %s", tree_kind_name(options->kind));
        return;
    }
    static const Field none[] = {F_END};
    fields_bind(pass->fields ? pass->fields : none, options, step->options, arena,
                STATUS_RECIPE, diag);
    recipe_check_data(recipe, step, options, arena, diag);
    if (pass->check && diag_errors(diag) == errors)
        pass->check(step->options, &step->source, diag);
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
            diag_hint(diag, "options stand below the pass: {%s: {%s: ...}}", found->key,
                      entry->key);
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

/* The options of a step that is a bare name: nothing, at the place of the name. */
static const Tree *no_options(Arena *arena, const Tree *name) {
    Tree *options = tree_new(arena, TREE_NULL, name->loc);
    options->key = name->string;
    options->key_loc = name->loc;
    options->parent = (Tree *)name;
    return options;
}

static void bind_step(const Recipe *recipe, Step *step, const Tree *tree, Arena *arena,
                      Diag *diag) {
    step->source.at = tree->loc;
    step->source.key = tree_path(arena, tree);
    if (tree->kind == TREE_MAP) {
        bind_step_map(recipe, step, tree, arena, diag);
    } else if (tree->kind == TREE_STRING) {
        step->pass = pass_find(tree->string);
        if (step->pass)
            bind_options(recipe, step, no_options(arena, tree), arena, diag);
        else
            pass_fail_unknown(tree->string, STATUS_RECIPE, tree->loc, step->source.key,
                              diag);
    } else {
        diag_fail(diag, STATUS_RECIPE, tree->loc, step->source.key,
                  "expected the name of a pass or a map, found %s",
                  tree_kind_name(tree->kind));
    }
}

/* Label of a step in a round: that of the step with the round behind it. */
static const char *round_label(Arena *arena, const char *label, const StepItem *item) {
    return arena_printf(arena, "%s%s%d/%d", label ? label : "", label ? " " : "",
                        item->round, item->rounds);
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
    if (item->round > 0) step->label = round_label(arena, step->label, item);
    if (item->round > 1 && diag_errors(diag) > errors)
        diag_note(diag, "in round %d of %d", item->round, item->rounds);
}

static void bind_steps(Recipe *recipe, const Tree *passes, Arena *arena, Diag *diag) {
    if (!passes) return; /* reported */
    StepItems items;
    recipe_expand(&items, arena, passes, diag);
    recipe->steps = ARENA_ARRAY(arena, Step, (size_t)items.count + 1);
    recipe->step_count = items.count;
    for (int i = 0; i < items.count; i++)
        bind_item(recipe, &recipe->steps[i], &items.items[i], arena, diag);
    recipe_check_snapshots(recipe, arena, diag);
}

/* Checks what the types of the recipe's own keys leave open. */
static void check_keys(const Recipe *recipe, const RecipeKeys *keys, Diag *diag) {
    const Tree *version = tree_get(recipe->source, "version");
    if (version && version->kind == TREE_INT && keys->version != 1)
        diag_fail(diag, STATUS_RECIPE, version->loc, "version",
                  "expected version 1 of the recipe language, found %lld",
                  (long long)keys->version);
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
    check_keys(recipe, &keys, diag);
    recipe->seed = keys.seed;
    recipe->threads = keys.threads;
    recipe->processor = (Processor)keys.processor;
    recipe->model = keys.model;
    recipe->data = keys.data;
    recipe->output = keys.output;
    bind_steps(recipe, keys.passes, arena, diag);
    return diag_errors(diag) > errors ? STATUS_RECIPE : STATUS_OK;
}
