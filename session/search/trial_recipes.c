/* Recipes and files of trials: see session/search/trial_recipes.h. */
#include "session/search/trial_recipes.h"

#include "io/files/file.h"
#include "session/output_files.h"
#include "session/recipe_document.h"
#include "session/search/training_share.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double search_rung_share(const Search *search, int rung) {
    return pow(SEARCH_SHRINK, rung - search->rungs + 1);
}

/* Options of evaluate that end a run: short training is not held against them. */
static bool is_gate(const char *option) {
    static const char *const GATES[] = {"min", "max", "max_drop", "against", NULL};
    for (int i = 0; GATES[i]; i++)
        if (strcmp(option, GATES[i]) == 0) return true;
    return false;
}

Tree *search_without_gates(Arena *arena, const Tree *step) {
    Tree *copy = tree_copy(arena, step);
    const Tree *options = tree_get(step, "evaluate");
    if (!options || options->kind != TREE_MAP) return copy;
    Tree *kept = tree_put_map(arena, copy, "evaluate");
    for (const Tree *option = options->first; option; option = option->next)
        if (!is_gate(option->key))
            tree_put(arena, kept, option->key, tree_copy(arena, option));
    return copy;
}

Status search_recipe_write(const Search *search, const char *path, const char *comment,
                           const Tree *passes, bool trial, Diag *diag) {
    Arena *arena = search->arena;
    Tree *map = tree_new(arena, TREE_MAP, LOC_NONE);
    Text text = {0};
    char *found = realpath(search->options.recipe, NULL);
    const char *whole = arena_strdup(arena, found ? found : search->options.recipe);
    free(found);
    tree_put_string(arena, map, "extends", whole);
    Tree *steps = tree_copy(arena, passes);
    recipe_steps_move(arena, steps, path_folder(arena, whole));
    tree_append(arena, map, "passes", LOC_NONE, steps);
    if (trial)
        tree_append(arena, map, "output", LOC_NONE, tree_new(arena, TREE_NULL, LOC_NONE));
    text_add(&text, "# %s\n", comment);
    recipe_document_print(&text, map);
    const Status status = file_write(path, text.data, text.length, diag);
    text_free(&text);
    return status;
}

Status search_rung_write(const Search *search, const Trial *trial,
                         const Candidate *candidate, int rung, Diag *diag) {
    Arena *arena = search->arena;
    const char *comment = "A candidate of a search.";
    if (rung == search->rungs - 1)
        return search_recipe_write(search, trial->recipe, comment, candidate->passes,
                                   true, diag);
    Tree *passes = tree_new(arena, TREE_LIST, candidate->passes->loc);
    for (const Tree *step = candidate->passes->first; step; step = step->next)
        tree_append(arena, passes, NULL, LOC_NONE, search_without_gates(arena, step));
    training_shorten(&search->sized, arena, passes, search_rung_share(search, rung));
    comment = "A candidate of a search, with a share of its training.";
    return search_recipe_write(search, trial->recipe, comment, passes, true, diag);
}

StringList search_sets(const Search *search) {
    const StringList *sets = &search->options.sets;
    const char **items =
        ARENA_ARRAY(search->arena, const char *, (size_t)sets->count + 1);
    int count = 0;
    for (int i = 0; i < sets->count; i++)
        if (strncmp(sets->items[i], "passes", 6) != 0) items[count++] = sets->items[i];
    return (StringList){items, count};
}

static void add_flags(StringList *flags, const char *name, const StringList *values) {
    for (int i = 0; i < values->count; i++) {
        flags->items[flags->count++] = name;
        flags->items[flags->count++] = values->items[i];
    }
}

/* Flags of every trial. */
static StringList trial_flags(const Search *search) {
    const StringList sets = search_sets(search), *env = &search->options.env;
    const StringList *plugins = &search->options.plugins;
    const size_t count = 2 * (size_t)(sets.count + env->count + plugins->count);
    StringList flags = {ARENA_ARRAY(search->arena, const char *, count + 1), 0};
    add_flags(&flags, "--set", &sets);
    add_flags(&flags, "--env", env);
    add_flags(&flags, "--plugin", plugins);
    return flags;
}

TrialRunner search_runner(const Search *search) {
    const SearchOptions *options = &search->options;
    const int jobs = options->jobs > 0 ? (int)options->jobs : 1;
    const int threads = threads_choose(options->threads) / jobs;
    return (TrialRunner){.program = options->program,
                         .cache = path_join(search->arena, options->folder, "cache"),
                         .flags = trial_flags(search),
                         .jobs = jobs,
                         .threads = threads > 0 ? threads : 1,
                         .metric = search->metric,
                         .arena = search->arena,
                         .watch = options->watch};
}

Trial search_trial(const Search *search, const char *folder, const char *name,
                   bool writes_model) {
    Arena *arena = search->arena;
    const char *base = path_join(arena, folder, name);
    return (Trial){.recipe = arena_printf(arena, "%s.yaml", base),
                   .report = arena_printf(arena, "%s.json", base),
                   .log = arena_printf(arena, "%s.log", base),
                   .output = writes_model ? arena_printf(arena, "%s.h5", base) : NULL};
}
