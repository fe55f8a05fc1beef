/* Binding a recipe: its own keys, then every step, all errors reported. */
#include "passes/recipe.h"

#include "passes/recipe_keys.h"

#include <string.h>

#define DATA_NAMES_MAX 256

static const Field step_fields[] = {
    F_STRING(StepKeys, label, "name of the step in reports"),
    F_BOOL(StepKeys, allow_unchanged, "the step may leave the model as it was"),
    F_END,
};

static const Field keys_fields[] = {
    {.name = "version",
     .kind = FIELD_INT,
     .offset = FIELD_AT(RecipeKeys, version, int64_t),
     .required = true,
     .help = "version of the recipe language: 1"},
    F_STRING(RecipeKeys, name, "name of the recipe, for people"),
    F_INT(RecipeKeys, seed, 0, 1e15, "seed of everything random"),
    F_INT(RecipeKeys, threads, 0, 4096, "threads; 0 = as many as processors"),
    F_TREE(
        RecipeKeys, model,
        "path of the model to start from, relative to the recipe; or a map with a "
        "configuration to build (config: file or map, seed: of the new weights) or with "
        "a folder and changes to its configuration (path: folder, seed: of new heads)"),
    F_TREE(RecipeKeys, data, "map of data sets by name, each with its format"),
    F_TREE(RecipeKeys, passes, "list of steps: name of a pass, or {pass: {options}}"),
    F_STRING(RecipeKeys, output,
             "file to write the model to, relative to the working directory"),
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

/* Checks that one option of a step names a data set of the recipe. */
static Status check_data_name(const Recipe *recipe, const char *name, const Tree *value,
                              const Step *step, const char *option, Arena *arena,
                              Diag *diag) {
    if (!name || tree_get(recipe->data, name)) return STATUS_OK;
    const char *key = value && value->parent
                          ? tree_path(arena, value)
                          : arena_printf(arena, "%s.%s", step->key, option);
    Status status = diag_fail(diag, STATUS_RECIPE, value ? value->loc : step->at, key,
                              "expected the name of a data set, found \"%s\"", name);
    const char *names[DATA_NAMES_MAX];
    int count = 0;
    const Tree *entry = recipe->data ? recipe->data->first : NULL;
    for (; entry && count < DATA_NAMES_MAX; entry = entry->next)
        names[count++] = entry->key;
    const char *nearest = name_nearest(name, names, count);
    if (nearest)
        diag_hint(diag, "did you mean \"%s\"?", nearest);
    else if (count == 0)
        diag_hint(diag, "the recipe has no `data:`");
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

static void check_data_options(const Recipe *recipe, const Step *step,
                               const Tree *options, Arena *arena, Diag *diag) {
    const char *rest = step->pass->data_options;
    while (rest && *rest) {
        size_t length = strcspn(rest, "|");
        const char *name = arena_strndup(arena, rest, length);
        check_data_option(recipe, step, options, name, arena, diag);
        rest += length + (rest[length] == '|');
    }
}

/* Binds the options of a step whose pass is known. */
static void bind_options(const Recipe *recipe, Step *step, const Tree *options,
                         Arena *arena, Diag *diag) {
    const Pass *pass = step->pass;
    int errors = diag_errors(diag);
    step->options = arena_alloc(arena, pass->options_size + 1);
    if (pass->defaults) memcpy(step->options, pass->defaults, pass->options_size);
    if (options && options->kind != TREE_NULL && options->kind != TREE_MAP) {
        diag_fail(diag, STATUS_RECIPE, options->loc, tree_path(arena, options),
                  "expected a map of options, found %s", tree_kind_name(options->kind));
        return;
    }
    static const Field none[] = {F_END};
    fields_bind(pass->fields ? pass->fields : none, options, step->options, arena,
                STATUS_RECIPE, diag);
    check_data_options(recipe, step, options, arena, diag);
    if (pass->check && diag_errors(diag) == errors)
        pass->check(step->options, step->at, step->key, diag);
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
    step->at = entry->key_loc;
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
    step->at = tree->loc;
    step->key = tree_path(arena, tree);
    if (tree->kind == TREE_MAP) {
        bind_step_map(recipe, step, tree, arena, diag);
    } else if (tree->kind == TREE_STRING) {
        step->pass = pass_find(tree->string);
        if (step->pass)
            bind_options(recipe, step, no_options(arena, tree), arena, diag);
        else
            pass_fail_unknown(tree->string, STATUS_RECIPE, tree->loc, step->key, diag);
    } else {
        diag_fail(diag, STATUS_RECIPE, tree->loc, step->key,
                  "expected the name of a pass or a map, found %s",
                  tree_kind_name(tree->kind));
    }
}

static void bind_steps(Recipe *recipe, const Tree *passes, Arena *arena, Diag *diag) {
    if (!passes || passes->kind != TREE_LIST || passes->count == 0) {
        const char *found = !passes                     ? "nothing"
                            : passes->kind == TREE_LIST ? "an empty list"
                                                        : tree_kind_name(passes->kind);
        diag_fail(diag, STATUS_RECIPE, passes ? passes->loc : recipe->source->loc,
                  "passes", "expected a list of steps, found %s", found);
        return;
    }
    recipe->steps = ARENA_ARRAY(arena, Step, (size_t)passes->count);
    for (const Tree *tree = passes->first; tree; tree = tree->next)
        bind_step(recipe, &recipe->steps[recipe->step_count++], tree, arena, diag);
}

/* Checks what the types of the recipe's own keys leave open. */
static void check_keys(const Recipe *recipe, const RecipeKeys *keys, Diag *diag) {
    const Tree *version = tree_get(recipe->source, "version");
    if (version && version->kind == TREE_INT && keys->version != 1)
        diag_fail(diag, STATUS_RECIPE, version->loc, "version",
                  "expected version 1 of the recipe language, found %lld",
                  (long long)keys->version);
    const Tree *model = keys->model;
    if (model && model->kind != TREE_STRING && model->kind != TREE_MAP)
        diag_fail(diag, STATUS_RECIPE, model->loc, "model",
                  "expected a path or a map, found %s", tree_kind_name(model->kind));
    const Tree *data = keys->data;
    if (data && data->kind != TREE_MAP)
        diag_fail(diag, STATUS_RECIPE, data->loc, "data",
                  "expected a map of data sets by name, found %s",
                  tree_kind_name(data->kind));
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
    recipe->model = keys.model;
    recipe->data = keys.data && keys.data->kind == TREE_MAP ? keys.data : NULL;
    recipe->output = keys.output;
    bind_steps(recipe, keys.passes, arena, diag);
    return diag_errors(diag) > errors ? STATUS_RECIPE : STATUS_OK;
}
