/* Companions: see companions.h. */
#include "session/companions.h"

#include "io/datasets/class_names.h"
#include "io/files/file.h"
#include "io/formats/assets.h"
#include "io/formats/model_vocabulary.h"
#include "io/tokenizers/tokenizer.h"

#include <string.h>

static const char PREPROCESSOR[] = "preprocessor_config.json";

/* The text of an option of a data set, NULL when not given or not its format's. */
static const char *option_of(const DataEntry *entry, const char *name) {
    for (const Field *field = entry->format->fields; field->name; field++)
        if (field->kind == FIELD_STRING && strcmp(field->name, name) == 0)
            return *(const char *const *)((const char *)entry->options + field->offset);
    return NULL;
}

/* ---- tokenizers ---- */

/* Whether a data set's tokens are the model's: those that its note names, or where it has
 * none, no more than it can read. */
static bool fits(const Model *model, const Batches *data) {
    if (!data || !data->vocabulary) return false;
    if (vocabulary_has_note(model)) return vocabulary_is_noted(model, data->vocabulary);
    return data->vocabulary->count <= graph_vocabulary(model->graph);
}

static bool same_tokens(const TokenNames *a, const TokenNames *b) {
    bool same = a->count == b->count;
    for (int64_t i = 0; same && i < a->count; i++)
        same = strcmp(a->tokens[i], b->tokens[i]) == 0;
    return same;
}

/* Whether the tokenizer that goes with the model has these tokens. */
static bool reads_as(const Model *model, const TokenNames *vocabulary) {
    Tokenizer *tokenizer = NULL;
    Diag *own = diag_create(); /* one that cannot be read is not taken */
    bool same = false;
    if (tokenizer_read_model(&tokenizer, model, "", own) == STATUS_OK) {
        Arena *arena = arena_create();
        same = same_tokens(vocabulary_of(tokenizer, arena), vocabulary);
        arena_destroy(arena);
        tokenizer_destroy(tokenizer);
    }
    diag_destroy(own);
    return same;
}

/* Whether every output can hold the model. */
static bool can_be_written(const Session *session, const Model *model) {
    Diag *own = diag_create();
    bool can = true;
    for (int i = 0; can && i < session->output_count; i++) {
        ModelOutput output = session->outputs[i];
        can = output_check_model(&output, model, own) == STATUS_OK;
    }
    diag_destroy(own);
    return can;
}

static void take_tokenizer(const Session *session, const char *path,
                           const TokenNames *vocabulary, Diag *diag) {
    Model *model = session->model, *with = model_copy(model);
    Diag *own = diag_create();
    assets_read_tokenizer(with, path, own);
    diag_destroy(own);
    if (reads_as(with, vocabulary) && can_be_written(session, with))
        assets_read_tokenizer(model, path, diag);
    model_destroy(with);
}

/* Two of them, for sentence pairs; each a tokenizer.json. */
static void take_pair(Model *model, const char *source, const char *target, Diag *diag) {
    if (!text_ends_with(source, ".json") || !text_ends_with(target, ".json")) return;
    assets_read_file(model, source, "source_tokenizer.json", diag);
    assets_read_file(model, target, "target_tokenizer.json", diag);
}

static void take_tokens(Session *session, Diag *diag) {
    Model *model = session->model;
    for (int i = 0; i < session->data_count; i++) {
        const DataEntry *entry = &session->data[i];
        const char *both = option_of(entry, "tokenizer");
        const char *source = option_of(entry, "source_tokenizer");
        const char *target = option_of(entry, "target_tokenizer");
        if (!fits(model, entry->batches)) continue;
        if (!source) source = both;
        if (!target) target = both;
        if (source && target && strcmp(source, target) != 0)
            take_pair(model, source, target, diag);
        else if (source)
            take_tokenizer(session, source, entry->batches->vocabulary, diag);
        return;
    }
}

/* ---- images and classes ---- */

static void take_preprocessor(Session *session, Diag *diag) {
    for (int i = 0; i < session->data_count; i++) {
        const char *path = option_of(&session->data[i], "preprocessor");
        if (!path) continue;
        if (path_is_folder(path)) path = path_join(session->arena, path, PREPROCESSOR);
        assets_read_file(session->model, path, PREPROCESSOR, diag);
        return;
    }
}

static void put_names(Model *model, const Batches *data) {
    Arena *arena = model->arena;
    Tree *names = tree_new(arena, TREE_MAP, LOC_NONE);
    Tree *labels = tree_new(arena, TREE_MAP, LOC_NONE);
    for (int i = 0; i < data->classes; i++) {
        const char *name = data->class_names[i];
        tree_put_string(arena, names, arena_printf(arena, "%d", i), name);
        tree_put_int(arena, labels, arena_strdup(arena, name), i);
    }
    tree_put(arena, model->config, "id2label", names);
    tree_put(arena, model->config, "label2id", labels);
}

static void take_names(Session *session) {
    const int64_t classes = graph_classes(session->model->graph);
    for (int i = 0; i < session->data_count; i++) {
        const Batches *data = session->data[i].batches;
        if (!data || !data->class_names || data->classes != classes) continue;
        put_names(session->model, data);
        return;
    }
}

/* Whether the model's configuration names its classes. */
static bool has_names(const Session *session) {
    StringList names;
    Diag *own = diag_create();
    const Status status =
        class_names_of(&names, session->model->config, "", session->arena, own);
    diag_destroy(own);
    return status != STATUS_OK || names.count > 0;
}

/* ---- all of it ---- */

/* Whether the model has a tokenizer, or two. */
static bool has_tokenizer(const Model *model) {
    return tokenizer_of_model(model) || model_asset(model, "source_tokenizer.json");
}

void companions_take(Session *session, Diag *diag) {
    const Model *model = session->model;
    if (!has_tokenizer(model)) take_tokens(session, diag);
    if (!model_asset(model, PREPROCESSOR)) take_preprocessor(session, diag);
    if (!has_names(session)) take_names(session);
}
