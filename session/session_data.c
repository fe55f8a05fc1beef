/* Sessions: data sets against the model that reads them, and what the steps may ask for.
 */
#include "exec/ops.h"
#include "io/datasets/class_names.h"
#include "io/datasets/preprocess_compare.h"
#include "io/files/file.h"
#include "io/formats/load.h"
#include "io/formats/model_vocabulary.h"
#include "session/session.h"

#include <inttypes.h>
#include <string.h>

static const char PREPROCESSOR[] = "preprocessor_config.json";

/* ---- names of classes ---- */

/* Two lists of names for the same classes, and where they are compared. */
typedef struct Classes {
    const char *whose, *other; /* for messages: data set "x", the model */
    StringList own, theirs;    /* by label, as many */
    bool *warned;              /* that they tell no order */
    Loc at;
    Diag *diag;
} Classes;

/* Names that differ in one place, where others are the same on both sides. When no name
 * of one is one of the other's, nothing can be said of their order. */
static Status check_names(const Classes *c, const char *hint) {
    int other = -1, known = 0;
    for (int i = 0; i < c->own.count; i++) {
        if (strcmp(c->own.items[i], c->theirs.items[i]) != 0 && other < 0) other = i;
        known += class_names_find(&c->theirs, c->own.items[i]) >= 0;
    }
    if (other < 0) return STATUS_OK;
    if (known > 0) {
        diag_fail(c->diag, STATUS_MODEL, c->at, NULL,
                  "%s: class %d is '%.64s', in %s it is '%.64s'", c->whose, other,
                  c->own.items[other], c->other, c->theirs.items[other]);
        diag_hint(c->diag, "%s", hint);
        return STATUS_MODEL;
    }
    if (*c->warned) return STATUS_OK;
    *c->warned = true;
    diag_warn(c->diag, c->at, NULL,
              "%s and %s name their classes differently ('%.64s', '%.64s'): their order "
              "is not checked",
              c->whose, c->other, c->own.items[0], c->theirs.items[0]);
    return STATUS_OK;
}

static const char *name_of(Arena *arena, const DataEntry *entry) {
    return arena_printf(arena, "data set \"%s\"", entry->name);
}

/* The names of a data set's classes, none where it does not give them. */
static StringList names_of_data(Arena *arena, const Batches *data) {
    const bool named = data && data->class_names;
    const int count = named ? (int)data->classes : 0;
    StringList names = {ARENA_ARRAY(arena, const char *, (size_t)count + 1), count};
    for (int i = 0; i < count; i++) names.items[i] = data->class_names[i];
    return names;
}

static Status check_classes(Session *session, DataEntry *entry, const Model *model,
                            Loc at, Diag *diag) {
    static const char HINT[] = "`labels: [...]` or `config` under the data set gives the "
                               "order of the model";
    const Batches *data = entry->batches;
    const int64_t classes = graph_classes(model->graph);
    if (!data->class_names || classes == 0) return STATUS_OK;
    Classes c = {.whose = name_of(session->arena, entry),
                 .other = "the model",
                 .own = names_of_data(session->arena, data),
                 .warned = &entry->warned,
                 .at = at,
                 .diag = diag};
    if (data->classes != classes) {
        diag_fail(diag, STATUS_MODEL, at, NULL,
                  "data set \"%s\" has %d classes, the model's head %" PRId64,
                  entry->name, c.own.count, classes);
        diag_hint(diag,
                  "`labels: [...]` or `config` under the data set names all classes "
                  "of the head, in order");
        return STATUS_MODEL;
    }
    TRY(class_names_of(&c.theirs, model->config, session->input.path, session->arena,
                       diag));
    return c.theirs.count == c.own.count ? check_names(&c, HINT) : STATUS_OK;
}

/* ---- vocabularies ---- */

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

/* ---- how images are prepared ---- */

/* The images of a data set; false where it has none of one size. */
static bool images_of(PreparedImages *out, const Batches *data) {
    const int column = batches_column(data, INPUT_PIXELS);
    if (!data->preparation || column < 0) return false;
    const Type *type = &data->columns[column].type;
    if (type->rank != 3 || type->dim[0] > 3) return false;
    *out = (PreparedImages){type->dim[0], type->dim[1], type->dim[2], data->augments};
    return true;
}

/* What a data set makes of images otherwise than a model's file says; NULL = nothing. */
static Status find_difference(const char **out, Arena *arena, const Batches *data,
                              const PreparedImages *images, const ModelAsset *file,
                              Diag *diag) {
    Preprocess own, other;
    TRY(preprocess_parse(&own, data->name, data->preparation, strlen(data->preparation),
                         arena, diag));
    TRY(preprocess_parse(&other, file->name, (const char *)file->data, file->length,
                         arena, diag));
    *out = preprocess_difference(arena, &own, &other, images);
    return STATUS_OK;
}

/* A model whose file says how images are prepared for it. */
typedef struct Wanted {
    const Model *model;
    const char *file; /* for messages: whose it is */
    const char *fate; /* what becomes of it */
    Loc at;
} Wanted;

/* Warns of a data set that does not prepare images as the file says. */
static void warn_preparation(const Session *session, const DataEntry *entry,
                             const Wanted *wanted, Diag *diag) {
    const ModelAsset *file = model_asset(wanted->model, PREPROCESSOR);
    PreparedImages images;
    const char *difference = NULL;
    if (!file || !images_of(&images, entry->batches)) return;
    Diag *aside = diag_create();
    const Status status = find_difference(&difference, session->arena, entry->batches,
                                          &images, file, aside);
    if (status != STATUS_OK)
        diag_take_warnings(diag, aside,
                           arena_printf(session->arena,
                                        "%s is not compared with data set \"%s\"",
                                        wanted->file, entry->name));
    else if (difference)
        diag_warn(diag, wanted->at, NULL,
                  "data set \"%s\" prepares images otherwise than %s: %s%s", entry->name,
                  wanted->file, difference, wanted->fate);
    diag_destroy(aside);
}

static void check_preparation(const Session *session, DataEntry *entry,
                              const Model *model, Diag *diag) {
    const Wanted wanted = {model, "the model's preprocessor_config.json",
                           "; the file stays as it is", entry->at};
    if (entry->compared_images) return;
    entry->compared_images = true;
    warn_preparation(session, entry, &wanted, diag);
}

Status session_check_data(Session *session, DataEntry *entry, const Model *model, Loc at,
                          Diag *diag) {
    TRY(check_vocabulary(session, entry, at, diag));
    TRY(check_classes(session, entry, model, at, diag));
    check_preparation(session, entry, model, diag);
    return STATUS_OK;
}

/* ---- teachers ---- */

/* The names that a model's configuration gives its classes; none where it gives none, or
 * what is none. */
static StringList names_of_model(Arena *arena, const Model *model) {
    StringList names;
    Diag *aside = diag_create();
    if (class_names_of(&names, model->config, "", arena, aside) != STATUS_OK)
        names = (StringList){0};
    diag_destroy(aside);
    return names;
}

/* Whether the predictions of teacher and student are about the same classes, which both,
 * or the data set for a student that names none, may name. */
static Status check_teacher_classes(Session *session, const DataEntry *entry,
                                    const TeacherUse *use, const char *whose, Loc at,
                                    Diag *diag) {
    static const char HINT[] =
        "a student learns classes by their numbers: expected a teacher whose id2label "
        "has them in the order of the student";
    Arena *arena = session->arena;
    bool warned = false;
    Classes c = {.other = whose,
                 .theirs = names_of_model(arena, use->teacher),
                 .warned = &warned,
                 .at = at,
                 .diag = diag};
    const int64_t classes = graph_classes(use->teacher->graph);
    if (c.theirs.count == 0 || c.theirs.count != classes) return STATUS_OK;
    c.whose = "the model";
    c.own = names_of_model(arena, use->model);
    if (c.own.count == c.theirs.count) TRY(check_names(&c, HINT));
    c.whose = name_of(arena, entry);
    c.own = names_of_data(arena, entry->batches);
    return c.own.count == c.theirs.count ? check_names(&c, HINT) : STATUS_OK;
}

static bool same_file(const Model *a, const Model *b, const char *name) {
    const ModelAsset *one = model_asset(a, name), *two = model_asset(b, name);
    if (!one || !two) return one == two;
    return one->length == two->length && memcmp(one->data, two->data, one->length) == 0;
}

Status session_check_teacher(Session *session, const DataEntry *entry,
                             const TeacherUse *use, Loc at, Diag *diag) {
    const char *whose = use->path
                            ? arena_printf(session->arena, "the teacher, %s,", use->path)
                            : "the teacher";
    const bool drawn = !use->path && session->input.built;
    if (drawn && use->trains && entry->batches) /* without data a plan is about sizes */
        diag_warn(diag, at, NULL,
                  "the teacher is the recipe's input model, whose weights are drawn: "
                  "`teacher` names a model that was trained, or a snapshot of one");
    if (use->predictions)
        TRY(check_teacher_classes(session, entry, use, whose, at, diag));
    if (!entry->batches || same_file(use->model, use->teacher, PREPROCESSOR))
        return STATUS_OK;
    warn_preparation(
        session, entry,
        &(Wanted){use->teacher, "the teacher's preprocessor_config.json", "", at}, diag);
    return STATUS_OK;
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

static DataEntry *find_entry(const Session *session, const char *name) {
    for (int i = 0; i < session->data.count; i++)
        if (strcmp(session->data.entries[i].name, name) == 0)
            return &session->data.entries[i];
    return NULL;
}

/* Resources.data. */
static Status find_data(Resources *self, const char *name, const Model *model, Loc at,
                        Batches **out, Diag *diag) {
    Session *session = (Session *)self;
    DataEntry *entry = find_entry(session, name);
    if (!entry)
        return diag_fail(diag, STATUS_RECIPE, at, NULL, "unknown data set \"%s\"", name);
    *out = entry->batches;
    if (!entry->used) entry->used = ++session->data.used;
    return *out ? session_check_data(session, entry, model, at, diag) : STATUS_OK;
}

/* Resources.teacher. */
static Status check_teacher(Resources *self, const TeacherUse *use, Loc at, Diag *diag) {
    Session *session = (Session *)self;
    const DataEntry *entry = find_entry(session, use->data);
    return entry ? session_check_teacher(session, entry, use, at, diag) : STATUS_OK;
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
    session->resources.teacher = check_teacher;
    session->resources.arena = session->arena;
    return session->options.without_data ? STATUS_OK : open_data(session, diag);
}
