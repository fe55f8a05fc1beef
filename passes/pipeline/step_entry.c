/* Step entries as trees, and what of a model is its state. */
#include "passes/pipeline/step_entry.h"

#include <math.h>
#include <string.h>

/* ---- the state of a model ---- */

/* Notes of the run in a model's provenance. */
static const char *const NOTES[] = {"recipe", "input_hash", "steps", "run"};
enum { NOTE_COUNT = sizeof NOTES / sizeof *NOTES };

static bool is_note(const char *key) {
    for (int i = 0; i < NOTE_COUNT; i++)
        if (strcmp(key, NOTES[i]) == 0) return true;
    return false;
}

/* The provenance with null in place of the run's notes: their places among the others
 * are kept, since equal models are equal bytes. */
static Tree *state_notes(Arena *arena, const Tree *provenance) {
    Tree *map = tree_new(arena, TREE_MAP, LOC_NONE);
    for (const Tree *note = provenance->first; note; note = note->next)
        tree_append(arena, map, note->key, LOC_NONE,
                    is_note(note->key) ? tree_new(arena, TREE_NULL, LOC_NONE)
                                       : tree_copy(arena, note));
    return map;
}

void model_state_hash(Model *model, char out[HASH_TEXT_BYTES]) {
    Arena *arena = arena_create();
    Text text = {0};
    char hash[HASH_TEXT_BYTES];
    model_hash(model, hash);
    text_add(&text, "%s\n", hash);
    tree_print_json(&text, model->config, 0);
    text_add(&text, "\n");
    tree_print_json(&text, state_notes(arena, model->provenance), 0);
    for (int i = 0; i < model->asset_count; i++) {
        const ModelAsset *asset = &model->assets[i];
        bytes_hash(asset->data, asset->length, hash);
        text_add(&text, "\n%s %s", hash, asset->name);
    }
    bytes_hash(text.data, text.length, out);
    text_free(&text);
    arena_destroy(arena);
}

Model *model_state_copy(const Model *model) {
    Model *copy = model_copy(model);
    copy->provenance = state_notes(copy->arena, copy->provenance);
    return copy;
}

void model_take_state(Model *model, Model *kept) {
    Arena *arena = kept->arena;
    Tree *provenance = tree_new(arena, TREE_MAP, LOC_NONE);
    for (const Tree *note = kept->provenance->first; note; note = note->next) {
        const Tree *own =
            is_note(note->key) ? tree_get(model->provenance, note->key) : NULL;
        Tree *value = tree_copy(arena, own ? own : note);
        if (!own && strcmp(note->key, "steps") == 0) value->kind = TREE_LIST;
        tree_append(arena, provenance, note->key, LOC_NONE, value);
    }
    kept->provenance = provenance;
    kept->file_bytes = model->file_bytes;
    model_swap(model, kept);
    model_destroy(kept);
}

/* ---- entries ---- */

Tree *step_entry_tree(Arena *arena, StepEntry *entry) {
    Tree *map = tree_new(arena, TREE_MAP, LOC_NONE);
    const Measure *measure = &entry->measure;
    tree_put_string(arena, map, "state", entry->state);
    tree_put_string(arena, map, "hash", entry->hash);
    tree_put_bool(arena, map, "changed", entry->changed);
    tree_put_int(arena, map, "parameters", measure->parameters);
    tree_put_int(arena, map, "bytes", measure->bytes);
    tree_put_real(arena, map, "flops", measure->flops);
    tree_put_int(arena, map, "peak_bytes", measure->peak_bytes);
    tree_put_string(arena, map, "sample", measure->input);
    tree_put_real(arena, map, "seconds", entry->seconds);
    tree_put(arena, map, "record", tree_copy(arena, entry->record));
    tree_put(arena, map, "times", tree_copy(arena, entry->times));
    tree_put(arena, map, "warnings", tree_copy(arena, entry->warnings));
    return map;
}

/* A value of a kind under `key`; NULL, and reported, where there is none. */
static const Tree *entry_value(const Tree *map, const char *key, TreeKind kind,
                               Diag *diag) {
    const Tree *value = tree_get(map, key);
    if (value && value->kind == kind) return value;
    diag_fail(diag, STATUS_FORMAT, map ? map->loc : LOC_NONE, key,
              "expected a %s, found %s", tree_kind_name(kind),
              value ? tree_kind_name(value->kind) : "nothing");
    return NULL;
}

/* Copies a text that must fit into `size` bytes. */
static void entry_text(char *out, size_t size, const Tree *map, const char *key,
                       Diag *diag) {
    const Tree *value = entry_value(map, key, TREE_STRING, diag);
    if (!value) return;
    if (strlen(value->string) < size)
        strcpy(out, value->string);
    else
        diag_fail(diag, STATUS_FORMAT, map->loc, key,
                  "expected at most %d characters, found %d", (int)size - 1,
                  (int)strlen(value->string));
}

static void entry_count(int64_t *out, const Tree *map, const char *key, Diag *diag) {
    const Tree *value = entry_value(map, key, TREE_INT, diag);
    if (value && value->integer < 0)
        diag_fail(diag, STATUS_FORMAT, map->loc, key, "expected no negative number");
    else if (value)
        *out = value->integer;
}

static void entry_real(double *out, const Tree *map, const char *key, Diag *diag) {
    if (!tree_number(tree_get(map, key), out) || !isfinite(*out) || *out < 0)
        diag_fail(diag, STATUS_FORMAT, map->loc, key, "expected a number from 0 on");
}

Status step_entry_read(StepEntry *out, const Tree *map, Diag *diag) {
    if (!map || map->kind != TREE_MAP)
        return diag_fail(diag, STATUS_FORMAT, map ? map->loc : LOC_NONE, NULL,
                         "expected a map");
    const int errors = diag_errors(diag);
    *out = (StepEntry){0};
    entry_text(out->state, sizeof out->state, map, "state", diag);
    entry_text(out->hash, sizeof out->hash, map, "hash", diag);
    entry_text(out->measure.input, sizeof out->measure.input, map, "sample", diag);
    entry_count(&out->measure.parameters, map, "parameters", diag);
    entry_count(&out->measure.bytes, map, "bytes", diag);
    entry_count(&out->measure.peak_bytes, map, "peak_bytes", diag);
    entry_real(&out->measure.flops, map, "flops", diag);
    entry_real(&out->seconds, map, "seconds", diag);
    const Tree *changed = entry_value(map, "changed", TREE_BOOL, diag);
    out->changed = changed && changed->boolean;
    out->record = entry_value(map, "record", TREE_MAP, diag);
    out->times = entry_value(map, "times", TREE_MAP, diag);
    out->warnings = entry_value(map, "warnings", TREE_LIST, diag);
    return diag_errors(diag) > errors ? STATUS_FORMAT : STATUS_OK;
}

/* ---- warnings ---- */

/* What follows the step's key in `key`: ".finetune.lr"; NULL where it is not in the step.
 */
static const char *key_in_step(const char *key, const char *step) {
    const size_t length = step ? strlen(step) : 0;
    if (!key || !step || strncmp(key, step, length) != 0) return NULL;
    return !key[length] || key[length] == '.' ? key + length : NULL;
}

Tree *step_entry_warnings(Arena *arena, const Diag *diag, int first,
                          const StepSource *source) {
    Tree *list = tree_new(arena, TREE_LIST, LOC_NONE);
    const Loc step = source->at;
    for (int i = first; i < diag_warning_count(diag); i++) {
        const DiagEntry warning = diag_warning(diag, i);
        const char *option = key_in_step(warning.key, source->key);
        const Loc at = warning.at;
        Tree *map = tree_add_map(arena, list);
        tree_put_string(arena, map, "message", warning.message);
        if (option)
            tree_put_string(arena, map, "option", option);
        else if (warning.key)
            tree_put_string(arena, map, "key", warning.key);
        if (!at.file) continue;
        const bool here = step.file && strcmp(at.file, step.file) == 0;
        if (!here) tree_put_string(arena, map, "file", at.file);
        tree_put_int(arena, map, "line", here ? at.line - step.line : at.line);
        tree_put_int(arena, map, "column", at.column);
    }
    return list;
}

static int warning_number(const Tree *warning, const char *key) {
    const Tree *value = tree_get(warning, key);
    const bool fits = value && value->kind == TREE_INT && value->integer > -1000000000 &&
                      value->integer < 1000000000;
    return fits ? (int)value->integer : 0;
}

void step_entry_warn(const Tree *warnings, const StepSource *source, Diag *diag) {
    Arena *arena = arena_create();
    for (const Tree *warning = warnings->first; warning; warning = warning->next) {
        const char *message = tree_string(warning, "message");
        const char *option = tree_string(warning, "option");
        const char *key = tree_string(warning, "key");
        const char *file = tree_string(warning, "file");
        Loc at = {file, warning_number(warning, "line"),
                  warning_number(warning, "column")};
        if (!message) continue;
        if (option && source->key) key = arena_printf(arena, "%s%s", source->key, option);
        if (!file && at.column > 0)
            at = (Loc){source->at.file, source->at.line + at.line, at.column};
        diag_warn(diag, at, key, "%s", message);
    }
    arena_destroy(arena);
}
