/* Data sets against the model: their vocabulary, and the classes of those that name them.
 */
#include "session/session.h"

#include "io/datasets/class_names.h"
#include "io/formats/model_vocabulary.h"

#include <inttypes.h>
#include <string.h>

/* What is checked, and where it is asked for. */
typedef struct Classes {
    DataEntry *entry;
    StringList data, model; /* names by label; those of the model may be missing */
    Loc at;
    Diag *diag;
} Classes;

static Status fail_count(const Classes *c, int64_t head) {
    Status status = diag_fail(c->diag, STATUS_MODEL, c->at, NULL,
                              "data set \"%s\" has %d classes, the model's head %" PRId64,
                              c->entry->name, c->data.count, head);
    diag_hint(c->diag, "`labels: [...]` or `config` under the data set names all classes "
                       "of the head, in order");
    return status;
}

static Status fail_order(const Classes *c, int label) {
    Status status =
        diag_fail(c->diag, STATUS_MODEL, c->at, NULL,
                  "data set \"%s\": class %d is '%.64s', in the model it is '%.64s'",
                  c->entry->name, label, c->data.items[label], c->model.items[label]);
    diag_hint(c->diag, "`labels: [...]` or `config` under the data set gives the order "
                       "of the model");
    return status;
}

/* Names that differ in one place, where others are the same on both sides. When no name
 * of the data is one of the model's, nothing can be said of their order. */
static Status check_names(const Classes *c) {
    int other = -1, known = 0;
    for (int i = 0; i < c->data.count; i++) {
        if (strcmp(c->data.items[i], c->model.items[i]) != 0 && other < 0) other = i;
        known += class_names_find(&c->model, c->data.items[i]) >= 0;
    }
    if (other < 0) return STATUS_OK;
    if (known > 0) return fail_order(c, other);
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
    const Node *logits = graph_output(model->graph, OUTPUT_LOGITS);
    if (!data->class_names || !logits || logits->type.rank != 2) return STATUS_OK;
    Classes c = {.entry = entry, .at = at, .diag = diag};
    c.data =
        (StringList){ARENA_ARRAY(session->arena, const char *, (size_t)data->classes),
                     (int)data->classes};
    for (int i = 0; i < c.data.count; i++) c.data.items[i] = data->class_names[i];
    if (data->classes != logits->type.dim[1]) return fail_count(&c, logits->type.dim[1]);
    TRY(class_names_of(&c.model, model->config, session->source, session->arena, diag));
    return c.model.count == c.data.count ? check_names(&c) : STATUS_OK;
}

static Status check_vocabulary(Session *session, DataEntry *entry, Loc at, Diag *diag) {
    const TokenNames *vocabulary = entry->batches->vocabulary;
    const char *what =
        arena_printf(session->arena, "tokenizer of data set \"%s\"", entry->name);
    if (!entry->started) {
        if (session->built) vocabulary_note(session->model, vocabulary);
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
