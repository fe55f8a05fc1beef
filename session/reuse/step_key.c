/* Step keys: their parts, and how two sets of parts differ. */
#include "session/reuse/step_key.h"

#include "exec/linalg/bf16.h"
#include "exec/linalg/blas.h"
#include "exec/linalg/products.h"
#include "exec/processor.h"
#include "io/datasets/dataset_hash.h"
#include "io/files/file.h"
#include "ir/version.h"

#include <inttypes.h>
#include <string.h>

#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

/* State of another model that was asked for. */
typedef struct KnownHash {
    const char *name;
    char hash[HASH_TEXT_BYTES];
    struct KnownHash *next;
} KnownHash;

struct StepKeys {
    Session *session;
    Arena *arena;
    const char *program, *processor;
    char (*states)[HASH_TEXT_BYTES]; /* of the model before each step */
    char (*keys)[HASH_TEXT_BYTES];   /* of each step; "" = it has none */
    KnownHash *models;
};

/* Hash of the running program; "" where it cannot be read. */
static const char *program_hash(Arena *arena) {
    char hash[HASH_TEXT_BYTES] = "";
    Diag *none = diag_create();
    file_hash("/proc/self/exe", hash, none);
    diag_destroy(none);
    return arena_strdup(arena, hash);
}

/* What of the machine and its libraries results depend on. */
static const char *processor_text(Arena *arena) {
    const char *libc = "";
#ifdef __GLIBC__
    libc = gnu_get_libc_version();
#endif
    return arena_printf(arena, "%s, %s, %s, %s%sbf16 by %s, libc %s",
                        processor_name(processor_level()), blas_core(), blas_library(),
                        products_name() ? products_name() : "",
                        products_name() ? ", " : "", bf16_products(), libc);
}

StepKeys *step_keys_create(Session *session) {
    Arena *arena = session->arena;
    const size_t steps = (size_t)session->recipe.step_count + 1;
    StepKeys *keys = ARENA_NEW(arena, StepKeys);
    *keys = (StepKeys){.session = session,
                       .arena = arena,
                       .program = program_hash(arena),
                       .processor = processor_text(arena),
                       .states = arena_array(arena, steps, HASH_TEXT_BYTES),
                       .keys = arena_array(arena, steps, HASH_TEXT_BYTES)};
    return keys;
}

/* ---- what a step asks for ---- */

static KnownHash *find_hash(KnownHash *known, const char *name) {
    while (known && strcmp(known->name, name) != 0) known = known->next;
    return known;
}

static KnownHash *new_hash(StepKeys *keys, KnownHash **list, const char *name) {
    KnownHash *known = ARENA_NEW(keys->arena, KnownHash);
    *known = (KnownHash){.name = name, .next = *list};
    return *list = known;
}

static DataEntry *find_entry(const Session *session, const char *name) {
    for (int i = 0; i < session->data.count; i++)
        if (strcmp(session->data.entries[i].name, name) == 0)
            return &session->data.entries[i];
    return NULL;
}

/* A data set: its format, its options but for paths and tolerances, and the hash of its
 * files. */
static Status put_data(StepKeys *keys, Tree *use, const char *name, Diag *diag) {
    DataEntry *entry = find_entry(keys->session, name);
    if (!entry)
        return diag_fail(diag, STATUS_INTERNAL, LOC_NONE, name,
                         "no data set of this name");
    if (!*entry->hash)
        TRY(dataset_hash(entry->hash, entry->format, entry->options, diag));
    Arena *arena = keys->arena;
    Tree *options = tree_new(arena, TREE_MAP, LOC_NONE);
    const Tree *all = fields_to_tree(arena, entry->format->fields, entry->options);
    for (const Tree *option = all->first; option; option = option->next)
        if (!dataset_is_path(entry->format, option->key) &&
            !dataset_is_tolerance(entry->format, option->key))
            tree_put(arena, options, option->key, tree_copy(arena, option));
    tree_put_string(arena, use, "data", name);
    tree_put_string(arena, use, "format", entry->format->name);
    tree_put(arena, use, "options", options);
    tree_put_string(arena, use, "hash", entry->hash);
    return STATUS_OK;
}

/* Another model, by its path, or with NULL the input. */
static Status put_model(StepKeys *keys, Tree *use, const char *path, Diag *diag) {
    const char *name = path ? path : "";
    KnownHash *known = find_hash(keys->models, name);
    if (!known) {
        Resources *resources = &keys->session->resources;
        Model *model = NULL;
        TRY(resources->model(resources, path, false, LOC_NONE, &model, diag));
        known = new_hash(keys, &keys->models, name);
        model_state_hash(model, known->hash);
    }
    tree_put_string(keys->arena, use, "model", path ? path : "the input");
    tree_put_string(keys->arena, use, "hash", known->hash);
    return STATUS_OK;
}

/* A snapshot, by the state of the model that it was made of. */
static Status put_snapshot(StepKeys *keys, Tree *use, const char *name, int index,
                           Diag *diag) {
    const int made = recipe_snapshot_find(&keys->session->recipe, name, index);
    if (made < 0)
        return diag_fail(diag, STATUS_INTERNAL, LOC_NONE, name,
                         "no snapshot of this name");
    tree_put_string(keys->arena, use, "snapshot", name);
    tree_put_string(keys->arena, use, "hash", keys->states[made]);
    return STATUS_OK;
}

/* The record of an earlier step, which follows from its key. */
static Status put_record(StepKeys *keys, Tree *use, int64_t made, int index, Diag *diag) {
    if (made < 0 || made >= index || !*keys->keys[made])
        return diag_fail(diag, STATUS_INTERNAL, LOC_NONE, NULL,
                         "step %d has no key, whose record is asked for", (int)made + 1);
    tree_put_int(keys->arena, use, "step", made + 1);
    tree_put_string(keys->arena, use, "hash", keys->keys[made]);
    return STATUS_OK;
}

static Status put_uses(StepKeys *keys, Tree *list, int index, Diag *diag) {
    const RunReport *planned = &keys->session->planned;
    if (index >= planned->count || !planned->steps[index].result.uses)
        return diag_fail(diag, STATUS_INTERNAL, LOC_NONE, NULL, "step %d was not planned",
                         index + 1);
    const Tree *asked = planned->steps[index].result.uses->first;
    for (; asked; asked = asked->next) {
        Tree *use = tree_add_map(keys->arena, list);
        const Tree *what = asked->first;
        if (strcmp(what->key, "data") == 0)
            TRY(put_data(keys, use, what->string, diag));
        else if (strcmp(what->key, "snapshot") == 0)
            TRY(put_snapshot(keys, use, what->string, index, diag));
        else if (strcmp(what->key, "step") == 0)
            TRY(put_record(keys, use, what->integer, index, diag));
        else if (strcmp(what->key, "clock") == 0)
            tree_put_bool(keys->arena, use, "clock", true);
        else
            TRY(put_model(keys, use, what->kind == TREE_STRING ? what->string : NULL,
                          diag));
    }
    return STATUS_OK;
}

/* ---- keys ---- */

Status step_key(StepKeys *keys, int index, const char *state, Tree **parts,
                char key[HASH_TEXT_BYTES], Diag *diag) {
    Arena *arena = keys->arena;
    const Recipe *recipe = &keys->session->recipe;
    const Step *step = &recipe->steps[index];
    const uint64_t seed = pipeline_step_seed(recipe, index);
    Tree *map = tree_new(arena, TREE_MAP, LOC_NONE);
    strcpy(keys->states[index], state);
    *keys->keys[index] = 0;
    tree_put_string(arena, map, "tool", COMPRESS_VERSION_TEXT);
    tree_put_string(arena, map, "program", keys->program);
    tree_put_string(arena, map, "processor", keys->processor);
    tree_put_string(arena, map, "model", state);
    TRY(put_uses(keys, tree_put_list(arena, map, "uses"), index, diag));
    tree_put_string(arena, map, "pass", step->pass->name);
    if (step->pass->origin) tree_put_string(arena, map, "plugin", step->pass->origin);
    tree_put(arena, map, "options",
             step->pass->fields ? fields_to_tree(arena, step->pass->fields, step->options)
                                : tree_new(arena, TREE_MAP, LOC_NONE));
    tree_put_string(arena, map, "seed", arena_printf(arena, "%016" PRIx64, seed));
    Text text = {0};
    tree_print_json(&text, map, 0);
    bytes_hash(text.data, text.length, key);
    strcpy(keys->keys[index], key);
    text_free(&text);
    *parts = map;
    return STATUS_OK;
}

bool step_parts_timed(const Tree *parts) {
    const Tree *use = tree_get(parts, "uses");
    for (use = use ? use->first : NULL; use; use = use->next)
        if (tree_get(use, "clock")) return true;
    return false;
}

/* ---- what differs ---- */

static const char *part_text(const Tree *parts, const char *key) {
    const Tree *value = tree_get(parts, key);
    return value && value->kind == TREE_STRING ? value->string : "?";
}

/* Two values that differ under `what`. */
static void tell_values(Text *text, const char *what, const Tree *kept,
                        const Tree *wanted) {
    text_add(text, "%s was ", what);
    if (kept)
        tree_print_json(text, kept, 0);
    else
        text_add(text, "not there");
    text_add(text, " and is ");
    if (wanted)
        tree_print_json(text, wanted, 0);
    else
        text_add(text, "not there");
}

/* The first of two lists' uses that differ. */
static void tell_uses(Text *text, const Tree *kept, const Tree *wanted) {
    const Tree *a = kept && kept->kind == TREE_LIST ? kept->first : NULL;
    const Tree *b = wanted->first;
    while (a && b && tree_equal(a, b)) a = a->next, b = b->next;
    const Tree *use = b ? b : a;
    const bool data = tree_get(use, "data") != NULL;
    if (data)
        text_add(text, "data set \"%s\" is another one or has other files",
                 part_text(use, "data"));
    else if (tree_get(use, "step"))
        text_add(text, "an earlier step whose record it reads is another one");
    else
        text_add(text, "model \"%s\" is another one",
                 part_text(use, tree_get(use, "snapshot") ? "snapshot" : "model"));
}

/* The first of two maps' values that differ. */
static void tell_options(Text *text, const Tree *kept, const Tree *wanted) {
    for (const Tree *value = wanted->first; value; value = value->next) {
        const Tree *was = tree_get(kept, value->key);
        if (tree_equal(was, value)) continue;
        text_add(text, "option ");
        tell_values(text, value->key, was, value);
        return;
    }
    text_add(text, "its options are others");
}

bool step_parts_differ(Text *text, int index, const Tree *kept, const Tree *wanted) {
    const Tree *value = wanted->first;
    while (value && tree_equal(tree_get(kept, value->key), value)) value = value->next;
    if (!value) return false;
    const Tree *was = tree_get(kept, value->key);
    if (strcmp(value->key, "program") == 0)
        text_add(text, "it was written by another build of compress");
    else if (strcmp(value->key, "tool") == 0)
        tell_values(text, "the version of compress", was, value);
    else if (strcmp(value->key, "processor") == 0)
        tell_values(text, "the processor", was, value);
    else if (strcmp(value->key, "model") == 0)
        text_add(text, "the model %s is another one",
                 index > 0 ? "before it" : "that the steps begin from");
    else if (strcmp(value->key, "uses") == 0)
        tell_uses(text, was, value);
    else if (strcmp(value->key, "options") == 0)
        tell_options(text, was, value);
    else
        tell_values(text, value->key, was, value);
    return true;
}
