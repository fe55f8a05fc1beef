/* Companions: see companions.h. */
#include "session/companions.h"

#include "io/datasets/class_names.h"
#include "io/files/path.h"
#include "io/formats/assets.h"
#include "io/formats/model_vocabulary.h"
#include "io/tokenizers/tokenizer.h"

#include <string.h>

static const char PREPROCESSOR[] = "preprocessor_config.json";

struct Companions {
    Model *model;               /* has the files as assets; without weights */
    const DataEntry *tokenizer; /* where they come from; NULL = there is none */
    const DataEntry *images, *names;
    bool *unfit; /* by output: it cannot hold the tokenizer */
};

/* ---- the data sets that steps read ---- */

/* What the data sets are asked for: whether one has it, and whether it is the same in two
 * that have. */
typedef struct Asked {
    const char *what;
    bool (*has)(const DataEntry *entry);
    bool (*same)(const DataEntry *a, const DataEntry *b);
    const char *remedy; /* what helps where two differ; "" = nothing is said */
} Asked;

/* Whether a step reads a data set that has what is asked for. */
static bool answers(const DataEntry *entry, const Asked *asked) {
    return entry->used && entry->batches && asked->has(entry);
}

static bool is_answered(const Session *session, const Asked *asked) {
    bool found = false;
    for (int i = 0; i < session->data.count; i++)
        found = found || answers(&session->data.entries[i], asked);
    return found;
}

/* The first one in the order of use that has it. NULL where none has, and, with a
 * warning, where two differ. */
static const DataEntry *first_used(const Session *session, const Asked *asked,
                                   Diag *diag) {
    const DataEntry *first = NULL;
    for (int i = 0; i < session->data.count; i++) {
        const DataEntry *entry = &session->data.entries[i];
        if (answers(entry, asked) && (!first || entry->used < first->used)) first = entry;
    }
    for (int i = 0; first && i < session->data.count; i++) {
        const DataEntry *entry = &session->data.entries[i];
        if (entry == first || !answers(entry, asked) || asked->same(first, entry))
            continue;
        diag_warn(diag, first->at, NULL,
                  "data sets \"%s\" and \"%s\" have other %s: none go with the model%s",
                  first->name, entry->name, asked->what, asked->remedy);
        return NULL;
    }
    return first;
}

/* ---- tokenizers ---- */

/* The text of an option of a data set, NULL when not given or not its format's. */
static const char *option_of(const DataEntry *entry, const char *name) {
    for (const Field *field = entry->format->fields; field->name; field++)
        if (field->kind == FIELD_STRING && strcmp(field->name, name) == 0)
            return *(const char *const *)((const char *)entry->options + field->offset);
    return NULL;
}

static const char *source_of(const DataEntry *entry) {
    const char *source = option_of(entry, "source_tokenizer");
    return source ? source : option_of(entry, "tokenizer");
}

static const char *target_of(const DataEntry *entry) {
    const char *target = option_of(entry, "target_tokenizer");
    return target ? target : option_of(entry, "tokenizer");
}

/* Whose texts a tokenizer cuts: only Marian's folders have two. */
typedef enum Side { SIDE_SOURCE, SIDE_TARGET } Side;

/* Reads a tokenizer; NULL where that fails, which those that need it have told. */
static Tokenizer *read_tokenizer(const char *path, Side side) {
    Tokenizer *tokenizer = NULL;
    Diag *own = diag_create();
    const Status status = side == SIDE_TARGET
                              ? tokenizer_read_beside(&tokenizer, path, NULL, own)
                              : tokenizer_read(&tokenizer, path, own);
    diag_destroy(own);
    return status == STATUS_OK ? tokenizer : NULL;
}

/* The same of a model: of one asset, which lies alone, or (NULL) of all of them. */
static Tokenizer *read_own(const Model *model, const char *asset, Side side) {
    Tokenizer *tokenizer = NULL;
    Status status = STATUS_OK;
    Diag *aside = diag_create();
    if (asset)
        status = tokenizer_read_asset(&tokenizer, model, asset, "", aside);
    else if (side == SIDE_TARGET)
        status = tokenizer_read_model_target(&tokenizer, model, "", aside);
    if (status == STATUS_OK && !tokenizer)
        status = tokenizer_read_model(&tokenizer, model, "", aside);
    diag_destroy(aside);
    return status == STATUS_OK ? tokenizer : NULL;
}

/* Whether two tokenizers are there and cut texts alike; frees them. */
static bool cut_alike(Tokenizer *a, Tokenizer *b) {
    const bool alike = a && b && tokenizer_cuts_alike(a, b);
    tokenizer_destroy(a);
    tokenizer_destroy(b);
    return alike;
}

/* Whether two files are the same tokenizer. */
static bool same_tokenizer(const char *a, const char *b, Side side) {
    if (!a || !b) return a == b;
    return strcmp(a, b) == 0 ||
           cut_alike(read_tokenizer(a, side), read_tokenizer(b, side));
}

static bool has_tokenizer(const DataEntry *entry) {
    return entry->batches->vocabulary && source_of(entry) && target_of(entry);
}

static bool same_tokenizers(const DataEntry *a, const DataEntry *b) {
    return same_tokenizer(source_of(a), source_of(b), SIDE_SOURCE) &&
           same_tokenizer(target_of(a), target_of(b), SIDE_TARGET);
}

/* Whether a data set's tokens are the model's. */
static bool tokens_fit(const Model *model, const DataEntry *entry) {
    const TokenNames *tokens = entry->batches->vocabulary;
    if (vocabulary_has_note(model)) return vocabulary_is_noted(model, tokens);
    return tokens->count <= graph_vocabulary(model->graph);
}

/* Whether the model, to which files were added, cuts texts as the data set does: by two
 * assets, or (NULL) by all of them. */
static bool cuts_alike(const Model *model, const char *source, const char *target,
                       const DataEntry *entry) {
    return cut_alike(read_own(model, source, SIDE_SOURCE),
                     read_tokenizer(source_of(entry), SIDE_SOURCE)) &&
           cut_alike(read_own(model, target, SIDE_TARGET),
                     read_tokenizer(target_of(entry), SIDE_TARGET));
}

/* Puts a model's assets into another one. */
static void put_assets(Model *to, const Model *from) {
    for (int i = 0; i < from->asset_count; i++) {
        const ModelAsset *asset = &from->assets[i];
        model_put_asset(to, asset->name, asset->data, asset->length);
    }
}

/* The tokenizer.json of one of two languages; NULL where it is another kind of file. */
static const char *pair_file(Arena *arena, const char *path) {
    if (path_is_folder(path)) path = path_join(arena, path, "tokenizer.json");
    return text_ends_with(path, ".json") && path_is_file(path) ? path : NULL;
}

/* Adds the two tokenizers of sentence pairs; returns why they do not go along, or NULL.
 */
static const char *add_pair(Model *model, Arena *arena, const DataEntry *entry,
                            Diag *diag) {
    const char *source = pair_file(arena, source_of(entry));
    const char *target = pair_file(arena, target_of(entry));
    if (!source || !target) return "of two languages only a tokenizer.json can";
    assets_read_file(model, source, SOURCE_TOKENIZER, diag);
    assets_read_file(model, target, TARGET_TOKENIZER, diag);
    return cuts_alike(model, SOURCE_TOKENIZER, TARGET_TOKENIZER, entry)
               ? NULL
               : "alone it would cut texts otherwise";
}

/* Whether the folder or file of the sources cuts the targets, too: it is named for both,
 * or the target's is the one that lies in the folder beside the source's. */
static bool is_for_both(const char *source, const char *target) {
    Tokenizer *beside = NULL;
    if (strcmp(source, target) == 0) return true;
    Diag *aside = diag_create();
    const Status status = tokenizer_read_target(&beside, source, aside);
    diag_destroy(aside);
    return status == STATUS_OK && cut_alike(beside, read_tokenizer(target, SIDE_TARGET));
}

/* Adds the files of a data set's tokenizer, or tokenizers, to the model, whose own ones
 * stay; returns why they do not go along, or NULL. */
static const char *add_tokenizer(Model *model, const Session *session,
                                 const DataEntry *entry, Diag *diag) {
    const char *source = source_of(entry);
    if (!is_for_both(source, target_of(entry)))
        return add_pair(model, session->arena, entry, diag);
    assets_read_tokenizer(model, source, diag);
    put_assets(model, session->model);
    if (cuts_alike(model, NULL, NULL, entry)) return NULL;
    return "with the model's configuration and files it would cut texts otherwise";
}

static void find_tokenizer(Session *session, Companions *c, Diag *diag) {
    static const Asked asked = {"tokenizers", has_tokenizer, same_tokenizers, ""};
    const DataEntry *entry = first_used(session, &asked, diag);
    if (!entry || !tokens_fit(session->model, entry)) return;
    Model *with = model_copy(c->model);
    const char *why = add_tokenizer(with, session, entry, diag);
    if (why) {
        diag_warn(diag, entry->at, NULL,
                  "the tokenizer of data set \"%s\" does not go with the model: %s",
                  entry->name, why);
    } else {
        c->tokenizer = entry;
        model_swap(with, c->model);
    }
    model_destroy(with);
}

/* ---- images and classes ---- */

static bool has_preparation(const DataEntry *entry) {
    return entry->batches->preparation != NULL;
}

static bool same_preparation(const DataEntry *a, const DataEntry *b) {
    return strcmp(a->batches->preparation, b->batches->preparation) == 0;
}

/* Whether it is prepared as images are that are looked at, not trained on alone. */
static bool has_plain_preparation(const DataEntry *entry) {
    return has_preparation(entry) && !entry->batches->augments;
}

static void find_images(const Session *session, Companions *c, Diag *diag) {
    static const char WHAT[] = "ways to prepare images";
    static const char REMEDY[] =
        "; they do where data sets without `augment` are all prepared alike";
    static const Asked asked = {WHAT, has_preparation, same_preparation, REMEDY};
    static const Asked plain = {WHAT, has_plain_preparation, same_preparation, REMEDY};
    const DataEntry *entry =
        first_used(session, is_answered(session, &plain) ? &plain : &asked, diag);
    if (!entry) return;
    const char *text = entry->batches->preparation;
    model_put_asset(c->model, PREPROCESSOR, text, strlen(text));
    c->images = entry;
}

static bool has_names(const DataEntry *entry) {
    return entry->batches->class_names != NULL;
}

static bool same_names(const DataEntry *a, const DataEntry *b) {
    bool same = a->batches->classes == b->batches->classes;
    for (int i = 0; same && i < a->batches->classes; i++)
        same = strcmp(a->batches->class_names[i], b->batches->class_names[i]) == 0;
    return same;
}

static void find_names(const Session *session, Companions *c, const Model *planned,
                       Diag *diag) {
    static const Asked asked = {"names of classes", has_names, same_names, ""};
    const DataEntry *entry = first_used(session, &asked, diag);
    if (entry && entry->batches->classes == graph_classes(planned->graph))
        c->names = entry;
}

static void put_names(Model *model, const Batches *data) {
    Arena *arena = model->arena;
    Tree *names = tree_put_map(arena, model->config, "id2label");
    Tree *labels = tree_put_map(arena, model->config, "label2id");
    for (int i = 0; i < data->classes; i++) {
        const char *name = data->class_names[i];
        tree_put_string(arena, names, arena_printf(arena, "%d", i), name);
        tree_put_int(arena, labels, name, i);
    }
}

/* ---- all of it ---- */

/* Which outputs cannot hold the model with the tokenizer, though they can without. */
static void find_unfit(const Session *session, Companions *c, const Model *planned,
                       Diag *diag) {
    c->unfit = ARENA_ARRAY(session->arena, bool, (size_t)session->outputs.count + 1);
    if (!c->tokenizer) return;
    Model *with = model_copy(planned);
    put_assets(with, c->model);
    for (int i = 0; i < session->outputs.count; i++) {
        ModelOutput output = session->outputs.items[i];
        Diag *own = diag_create();
        c->unfit[i] = output_check_model(&output, with, own) != STATUS_OK;
        diag_destroy(own);
        if (c->unfit[i])
            diag_warn(diag, output.at, NULL,
                      "%s: the tokenizer of data set \"%s\" is left out, as %s cannot "
                      "hold it",
                      output.path, c->tokenizer->name, output.format->what);
    }
    model_destroy(with);
}

void companions_find(Session *session, const Model *planned, Diag *diag) {
    const Model *model = session->model;
    Companions *c = ARENA_NEW(session->arena, Companions);
    c->model = model_copy(session->input.shapes);
    if (!tokenizer_of_model(model) && !model_asset(model, SOURCE_TOKENIZER))
        find_tokenizer(session, c, diag);
    if (!model_asset(model, PREPROCESSOR)) find_images(session, c, diag);
    if (!class_names_given(model->config)) find_names(session, c, planned, diag);
    find_unfit(session, c, planned, diag);
    session->companions = c;
}

/* Whether an asset of the companions is part of the tokenizer. */
static bool is_of_tokenizer(const ModelAsset *asset) {
    return strcmp(asset->name, PREPROCESSOR) != 0;
}

void companions_give(Session *session) {
    const Companions *c = session->companions;
    Model *model = session->model;
    for (int i = 0; c && i < c->model->asset_count; i++) {
        const ModelAsset *asset = &c->model->assets[i];
        if (!model_asset(model, asset->name))
            model_put_asset(model, asset->name, asset->data, asset->length);
    }
    if (c && c->names) put_names(model, c->names->batches);
}

void companions_fit(Session *session, int output) {
    const Companions *c = session->companions;
    if (!c || !c->unfit[output]) return;
    for (int i = 0; i < c->model->asset_count; i++) {
        const ModelAsset *asset = &c->model->assets[i];
        if (is_of_tokenizer(asset) && !model_asset(session->input.model, asset->name))
            model_remove_asset(session->model, asset->name);
    }
}

/* How many outputs were written, and how many of them with the tokenizer; the model alone
 * where there is none. */
static void count_written(const Session *session, int *all, int *whole) {
    *all = *whole = session->outputs.count == 0;
    for (int i = 0; i < session->outputs.count; i++) {
        if (session->outputs.items[i].written.files == 0) continue;
        *all += 1;
        *whole += !session->companions->unfit[i];
    }
}

void companions_report(const Session *session, Tree *map) {
    const Companions *c = session->companions;
    int written, whole;
    if (!c || !(c->tokenizer || c->images || c->names)) return;
    count_written(session, &written, &whole);
    if (written == 0) return;
    Tree *taken = tree_put_map(session->arena, map, "taken");
    if (c->tokenizer && whole > 0)
        tree_put_string(session->arena, taken, "tokenizer", c->tokenizer->name);
    if (c->images)
        tree_put_string(session->arena, taken, "preprocessor", c->images->name);
    if (c->names) tree_put_string(session->arena, taken, "class_names", c->names->name);
}

void companions_destroy(Companions *self) {
    if (self) model_destroy(self->model);
}
