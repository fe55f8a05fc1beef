/* Sessions: data sets against the model that reads them, and what the steps may ask for.
 */
#include "exec/ops.h"
#include "io/datasets/class_names.h"
#include "io/files/file.h"
#include "io/formats/load.h"
#include "io/formats/model_vocabulary.h"
#include "session/session.h"

#include <inttypes.h>
#include <string.h>

/* ---- data sets against the model: vocabulary and classes ---- */

/* The classes of a data set and of a model, and where they are compared. */
typedef struct Classes {
    DataEntry *entry;
    StringList data, model; /* names by label; those of the model may be missing */
    Loc at;
    Diag *diag;
} Classes;

/* Names that differ in one place, where others are the same on both sides. When no name
 * of the data is one of the model's, nothing can be said of their order. */
static Status check_names(const Classes *c) {
    int other = -1, known = 0;
    for (int i = 0; i < c->data.count; i++) {
        if (strcmp(c->data.items[i], c->model.items[i]) != 0 && other < 0) other = i;
        known += class_names_find(&c->model, c->data.items[i]) >= 0;
    }
    if (other < 0) return STATUS_OK;
    if (known > 0) {
        diag_fail(c->diag, STATUS_MODEL, c->at, NULL,
                  "data set \"%s\": class %d is '%.64s', in the model it is '%.64s'",
                  c->entry->name, other, c->data.items[other], c->model.items[other]);
        diag_hint(c->diag,
                  "`labels: [...]` or `config` under the data set gives the order "
                  "of the model");
        return STATUS_MODEL;
    }
    if (c->entry->warned) return STATUS_OK;
    c->entry->warned = true;
    diag_warn(c->diag, c->at, NULL,
              "data set \"%s\" and the model name their classes differently ('%.64s', "
              "'%.64s'): their order is not checked",
              c->entry->name, c->data.items[0], c->model.items[0]);
    return STATUS_OK;
}

static Status check_classes(Session *session, DataEntry *entry, const Model *model,
                            Loc at, Diag *diag) {
    const Batches *data = entry->batches;
    const int64_t classes = graph_classes(model->graph);
    if (!data->class_names || classes == 0) return STATUS_OK;
    Classes c = {.entry = entry, .at = at, .diag = diag};
    c.data =
        (StringList){ARENA_ARRAY(session->arena, const char *, (size_t)data->classes),
                     (int)data->classes};
    for (int i = 0; i < c.data.count; i++) c.data.items[i] = data->class_names[i];
    if (data->classes != classes) {
        diag_fail(diag, STATUS_MODEL, at, NULL,
                  "data set \"%s\" has %d classes, the model's head %" PRId64,
                  entry->name, c.data.count, classes);
        diag_hint(diag,
                  "`labels: [...]` or `config` under the data set names all classes "
                  "of the head, in order");
        return STATUS_MODEL;
    }
    TRY(class_names_of(&c.model, model->config, session->input.path, session->arena,
                       diag));
    return c.model.count == c.data.count ? check_names(&c) : STATUS_OK;
}

static Status check_vocabulary(Session *session, DataEntry *entry, Loc at, Diag *diag) {
    const TokenNames *vocabulary = entry->batches->vocabulary;
    const char *what =
        arena_printf(session->arena, "tokenizer of data set \"%s\"", entry->name);
    if (!entry->started) {
        if (session->input.built) vocabulary_note(session->model, vocabulary);
        TRY(vocabulary_check(session->model, "the model", vocabulary, what, at, diag));
    }
    for (const OtherModel *other = session->others; other != entry->compared;
         other = other->next)
        TRY(vocabulary_check(other->model, other->path, vocabulary, what, at, diag));
    entry->started = true;
    entry->compared = session->others;
    return STATUS_OK;
}

Status session_check_data(Session *session, DataEntry *entry, const Model *model, Loc at,
                          Diag *diag) {
    TRY(check_vocabulary(session, entry, at, diag));
    return check_classes(session, entry, model, at, diag);
}

/* ---- what the steps may ask for ---- */

/* Opens all data sets that are not open, reporting all errors. */
static Status open_data(Session *session, Diag *diag) {
    Status status = STATUS_OK;
    for (int i = 0; i < session->data.count; i++) {
        DataEntry *entry = &session->data.entries[i];
        if (entry->batches) continue;
        Status opened =
            dataset_open(&entry->batches, entry->format, entry->options, entry->at, diag);
        if (opened != STATUS_OK) diag_note(diag, "data set \"%s\"", entry->name);
        if (opened != STATUS_OK) diag_named(diag, entry->at);
        if (status == STATUS_OK) status = opened;
    }
    return status;
}

/* Resources.data. */
static Status find_data(Resources *self, const char *name, const Model *model, Loc at,
                        Batches **out, Diag *diag) {
    Session *session = (Session *)self;
    for (int i = 0; i < session->data.count; i++) {
        DataEntry *entry = &session->data.entries[i];
        if (strcmp(entry->name, name) != 0) continue;
        *out = entry->batches;
        if (!entry->used) entry->used = ++session->data.used;
        return *out ? session_check_data(session, entry, model, at, diag) : STATUS_OK;
    }
    return diag_fail(diag, STATUS_RECIPE, at, NULL, "unknown data set \"%s\"", name);
}

/* A model by path, read once; `shapes` = without weights. */
static Status other_model(Session *session, const char *path, bool shapes, Loc at,
                          Model **out, Diag *diag) {
    path = path_join(session->arena, session->recipe.folder, path);
    for (OtherModel *other = session->others; other; other = other->next) {
        if (strcmp(other->path, path) != 0 || other->shapes != shapes) continue;
        *out = other->model;
        return STATUS_OK;
    }
    Model *model = NULL;
    Status status = model_load(&model, path, ops_table(), !shapes, diag);
    if (status != STATUS_OK) diag_named(diag, at);
    TRY(status);
    if (shapes) session_strip(model);
    OtherModel *other = ARENA_NEW(session->arena, OtherModel);
    *other = (OtherModel){path, shapes, model, session->others};
    session->others = other;
    *out = model;
    return STATUS_OK;
}

/* The input model of a recipe of which one step alone runs. */
static Status find_input(Session *session, bool shapes, Loc at, Model **out, Diag *diag) {
    const char *path = session->options.input;
    const Tree *own = session->recipe.model;
    if (!path && own && own->kind == TREE_STRING) path = own->string;
    if (path) return other_model(session, path, shapes, at, out, diag);
    return diag_fail(diag, STATUS_MODEL, at, NULL,
                     "the step asks for the recipe's input model, which is no file");
}

/* Resources.model. */
static Status find_model(Resources *self, const char *path, bool shapes, Loc at,
                         Model **out, Diag *diag) {
    Session *session = (Session *)self;
    *out = shapes ? session->input.shapes : session->input.model;
    if (!path && session->options.only) return find_input(session, shapes, at, out, diag);
    return path ? other_model(session, path, shapes, at, out, diag) : STATUS_OK;
}

Status session_connect(Session *session, Diag *diag) {
    session->resources.data = find_data;
    session->resources.model = find_model;
    session->resources.arena = session->arena;
    return session->options.without_data ? STATUS_OK : open_data(session, diag);
}
