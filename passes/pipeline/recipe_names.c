/* Names that steps refer to: data sets of the recipe, snapshots of earlier steps. */
#include "passes/pipeline/recipe_names.h"

#include "passes/pipeline/snapshot.h"

#include <string.h>

#define NAMES_MAX 256

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

void recipe_check_data(const Recipe *recipe, const Step *step, const Tree *options,
                       Arena *arena, Diag *diag) {
    const char *rest = step->pass->data_options;
    while (rest && *rest) {
        size_t length = strcspn(rest, "|");
        const char *name = arena_strndup(arena, rest, length);
        check_data_option(recipe, step, options, name, arena, diag);
        rest += length + (rest[length] == '|');
    }
}

/* ---- snapshots ---- */

/* Name that a step gives to a snapshot, NULL when it makes none. */
static const char *snapshot_made(const Step *step) {
    if (step->pass != &pass_snapshot || !step->options) return NULL;
    return ((const SnapshotOptions *)step->options)->name;
}

/* Index of the first step in [first, end) that makes the snapshot, -1 = none does. */
static int find_snapshot(const Recipe *recipe, const char *name, int first, int end) {
    for (int i = first; i < end; i++) {
        const char *made = snapshot_made(&recipe->steps[i]);
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
        const char *made = snapshot_made(&recipe->steps[i]);
        if (made) names[count++] = made;
    }
    const char *nearest = name_nearest(name, names, count);
    if (nearest)
        diag_hint(diag, "did you mean \"" SNAPSHOT_PREFIX "%s\"?", nearest);
    else
        diag_hint(diag, "a step `- snapshot: {name: NAME}` before this one makes it");
}

/* Checks a string of step `index` that may name a snapshot. */
static void check_reference(const Recipe *recipe, int index, const char *text,
                            const Tree *value, Arena *arena, Diag *diag) {
    const char *name = snapshot_name(text);
    if (!name || find_snapshot(recipe, name, 0, index) >= 0) return;
    diag_fail(diag, STATUS_RECIPE, value->loc, tree_path(arena, value),
              "expected a snapshot that an earlier step makes, found \"%s\"", text);
    hint_snapshot(recipe, name, index, diag);
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
        if (text) check_reference(recipe, index, text, value, arena, diag);
    }
}

/* Checks that no earlier step makes a snapshot of the same name. */
static void check_taken(const Recipe *recipe, int index, Diag *diag) {
    const Step *step = &recipe->steps[index];
    const char *name = snapshot_made(step);
    const int earlier = name ? find_snapshot(recipe, name, 0, index) : -1;
    if (earlier < 0) return;
    option_fail(&step->source, "name", STATUS_RECIPE, diag,
                "expected a name that is free, %s makes snapshot \"%s\" already",
                recipe->steps[earlier].source.key, name);
}

void recipe_check_snapshots(const Recipe *recipe, Arena *arena, Diag *diag) {
    for (int i = 0; i < recipe->step_count; i++) {
        const Step *step = &recipe->steps[i];
        if (!step->options || step->round > 1) continue;
        check_references(recipe, i, arena, diag);
        check_taken(recipe, i, diag);
    }
}
