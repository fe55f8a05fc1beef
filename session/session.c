/* Session: the recipe as a document, its model and data entries, what the pipeline asks
 * of them, running it, and writing what comes of it. */
#include "session/session.h"

#include "exec/linalg/blas.h"
#include "exec/ops.h"
#include "exec/run/parallel.h"
#include "exec/run/ticker.h"
#include "io/datasets/class_names.h"
#include "io/datasets/dataset_hash.h"
#include "io/files/file.h"
#include "io/files/json.h"
#include "io/files/yaml.h"
#include "io/formats/hf.h"
#include "io/formats/load.h"
#include "io/formats/model_vocabulary.h"
#include "io/formats/modelfile.h"
#include "ir/version.h"
#include "session/output_files.h"
#include "session/recipe_document.h"
#include "session/reproducer.h"
#include "session/run_report.h"
#include "session/step_reuse.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CONFIG_LIMIT ((size_t)16 << 20)

int threads_choose(int64_t wanted) {
    return wanted > 0 ? (int)wanted : threads_available();
}

/* ---- opening: the document and its data entries ---- */

/* Whether a value is plain text in which YAML would take " #" for the start of a comment.
 * A value on the command line has none. */
static bool is_text_with_hash(const char *value) {
    value += strspn(value, " ");
    if (*value && strchr("[{\"'", *value)) return false;
    const char *hash = strchr(value, '#');
    while (hash && hash > value && hash[-1] != ' ') hash = strchr(hash + 1, '#');
    return hash != NULL;
}

/* Applies one `--set key=value`; the value is YAML, or text as it is. How it is written
 * is a matter of usage; where it does not fit the recipe, the recipe that it makes is
 * wrong (STATUS_RECIPE). */
static Status apply_set(Arena *arena, Tree *document, const char *text, Diag *diag) {
    const char *equals = strchr(text, '=');
    if (!equals || equals == text)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         "expected --set key=value, found \"%s\"", text);
    const char *key = arena_strndup(arena, text, (size_t)(equals - text));
    const char *flag = arena_printf(arena, "--set %s", key);
    const char *written = equals + 1;
    Tree *value = NULL;
    if (is_text_with_hash(written)) {
        value = tree_new(arena, TREE_STRING, (Loc){flag, 1, 1});
        value->string = arena_strdup(arena, written);
    } else {
        TRY(yaml_parse(&value, arena, flag, written, strlen(written), diag));
    }
    return tree_set(arena, document, key, value, diag);
}

/* Binds every entry of `data:`; errors are only reported. */
static void bind_data(Session *session, const Tree *data, Diag *diag) {
    if (!data || data->kind != TREE_MAP) return;
    Arena *arena = session->arena;
    session->data = ARENA_ARRAY(arena, DataEntry, (size_t)data->count + 1);
    for (const Tree *spec = data->first; spec; spec = spec->next) {
        DataEntry *entry = &session->data[session->data_count++];
        entry->name = spec->key;
        entry->at = spec->loc;
        dataset_bind(&entry->format, &entry->options, arena, spec, session->recipe.folder,
                     diag);
    }
}

/* Binds where the model is to go. */
static Status bind_outputs(Session *session, Diag *diag) {
    const char *path = session->options.output;
    const Tree *output = session->recipe.output;
    const bool is_list = !path && output && output->kind == TREE_LIST;
    const int most = is_list ? output->count : 1;
    session->outputs = ARENA_ARRAY(session->arena, ModelOutput, (size_t)most + 1);
    if (path) {
        Tree *given = tree_new(session->arena, TREE_STRING, LOC_NONE);
        given->string = path;
        session->output_count = 1;
        return output_bind(&session->outputs[0], session->arena, given, STATUS_USAGE,
                           diag);
    }
    for (const Tree *own = is_list ? output->first : output; own; own = own->next) {
        output_bind(&session->outputs[session->output_count++], session->arena, own,
                    STATUS_RECIPE, diag);
        if (!is_list) break; /* what follows is the recipe's next key */
    }
    return diag_status(diag);
}

Status session_document(Tree **out, Arena *arena, const SessionOptions *options,
                        Diag *diag) {
    if (options->document)
        *out = tree_copy(arena, options->document);
    else
        TRY(recipe_document_read(out, arena, options->recipe, &options->env, diag));
    const bool is_map = *out && (*out)->kind == TREE_MAP;
    for (int i = 0; i < options->sets.count && is_map; i++)
        TRY(apply_set(arena, *out, options->sets.items[i], diag));
    return STATUS_OK;
}

/* Reads the document and reports everything that is wrong with it. */
static Status bind_document(Session *session, Diag *diag) {
    Arena *arena = session->arena;
    const char *path = session->options.recipe;
    const char *folder = session->options.folder;
    if (!folder) folder = file_descriptor(path) < 0 ? path_folder(arena, path) : ".";
    Tree *document = NULL;
    TRY(session_document(&document, arena, &session->options, diag));
    session->recipe.folder = folder;
    bind_data(session, tree_get(document, "data"), diag);
    recipe_bind(&session->recipe, arena, document, path, folder, diag);
    bind_outputs(session, diag);
    const bool is_map = document && document->kind == TREE_MAP;
    if (is_map && !tree_get_nonnull(document, "model") && !session->options.model)
        diag_fail(diag, STATUS_RECIPE, document->loc, "model",
                  "expected the model to start from in the recipe or as --model");
    return diag_status(diag);
}

Status session_open(Session *session, const SessionOptions *options, Diag *diag) {
    Arena *arena = arena_create();
    *session = (Session){.options = *options,
                         .arena = arena,
                         .start = ticker_seconds(),
                         .failed_step = -1,
                         .planned = {.arena = arena},
                         .report = {.arena = arena}};
    TRY(bind_document(session, diag));
    session->bound = true;
    session->threads =
        threads_choose(options->threads ? options->threads : session->recipe.threads);
    return STATUS_OK;
}

/* ---- what is to be written ---- */

/* Whether two paths name one file: the same existing file, or the same name in one
 * folder. */
static bool same_file(const char *a, const char *b) {
    struct stat x, y;
    Arena *arena = arena_create();
    const char *last = strrchr(a, '/'), *other = strrchr(b, '/');
    if (stat(a, &x) != 0 || stat(b, &y) != 0) {
        const bool named = strcmp(last ? last + 1 : a, other ? other + 1 : b) == 0;
        if (!named || stat(path_folder(arena, a), &x) != 0 ||
            stat(path_folder(arena, b), &y) != 0)
            x.st_ino = y.st_ino + 1;
    }
    arena_destroy(arena);
    return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static bool is_standard(const char *path) {
    return strcmp(path, "-") == 0;
}

/* Whether two files that the run reads or writes are one; NULL and standard streams are
 * none. */
static bool is_one_file(const char *a, const char *b) {
    return a && b && !is_standard(a) && !is_standard(b) && same_file(a, b);
}

static Status fail_told(const char *flag, const char *whose, Diag *diag) {
    return diag_fail(diag, STATUS_USAGE, LOC_NONE, flag, "expected another file than %s",
                     whose);
}

/* Checks one of the files that tell of a run, which `flag` names: that it is nothing that
 * the run reads or writes. */
static Status check_told(const Session *session, const char *flag, const char *path,
                         Diag *diag) {
    const SessionOptions *options = &session->options;
    if (is_one_file(path, options->recipe)) return fail_told(flag, "the recipe", diag);
    if (is_one_file(path, options->model)) return fail_told(flag, "the model", diag);
    bool taken = is_one_file(path, options->output);
    for (int i = 0; i < session->output_count; i++)
        taken |= is_one_file(path, session->outputs[i].path);
    return taken ? fail_told(flag, "the model's output", diag) : STATUS_OK;
}

/* Checks the report's place, so that it can be written however the run ends. */
static Status check_report(Session *session, Diag *diag) {
    const char *path = session->options.report;
    if (session->may_report || !path) return STATUS_OK;
    if (!is_standard(path)) TRY(output_check(session->arena, "--report", path, diag));
    TRY(check_told(session, "--report", path, diag));
    session->may_report = true;
    return STATUS_OK;
}

/* Opens the events, once the report's place is known to be another. */
static Status open_events(Session *session, Diag *diag) {
    const char *path = session->options.events, *report = session->options.report;
    if (session->events || !path) return STATUS_OK;
    if (report && (strcmp(path, report) == 0 || is_one_file(path, report)))
        return fail_told("--events", "the report's", diag);
    TRY(check_told(session, "--events", path, diag));
    return events_open(&session->events, path, diag);
}

/* Checks everything that can be written before the long work. Keys are those of the
 * command line. */
static Status check_outputs(Session *session, Diag *diag) {
    const SessionOptions *options = &session->options;
    Arena *arena = session->arena;
    session->checked = true;
    TRY(check_report(session, diag));
    TRY(open_events(session, diag));
    for (int i = 0; i < session->output_count; i++) {
        const ModelOutput *output = &session->outputs[i];
        const char *what = options->output ? "--output" : "output";
        const ModelOutput failed = output_of_failed(arena, output);
        TRY(output_path_check(arena, what, output, diag));
        if (session->recipe.keep == KEEP_ON_FAILURE)
            TRY(output_path_check(arena, what, &failed, diag));
        for (int j = 0; j < i; j++)
            if (same_file(session->outputs[j].path, output->path))
                return diag_fail(diag, STATUS_RECIPE, output->at, "output",
                                 "two outputs have the path '%s'", output->path);
    }
    if (options->dump_folder) TRY(folder_check("--dump-dir", options->dump_folder, diag));
    return STATUS_OK;
}

/* ---- the input model ---- */

/* Options of `model:` when it is a map with `config`. */
typedef struct BuildKeys {
    const Tree *config;
    const char *weights, *names;
    int64_t seed;
} BuildKeys;

static const Field build_fields[] = {
    F_TREE(BuildKeys, config, "string|map",
           "path of a config.json, or the configuration itself",
           .expect = "a path or a map"),
    F_STRING(BuildKeys, weights, "file or folder of its weights, which are drawn else",
             .nullable = true),
    F_STRING(BuildKeys, names, "name map of the weights: docs/name-maps.md",
             .nullable = true),
    F_INT(BuildKeys, seed, 0, 1e15, "seed of the new weights"),
    F_END,
};

/* `model:` as a map with `path`: every key but these two is one of the configuration. */
typedef struct PathKeys {
    const char *path;
    int64_t seed;
} PathKeys;

static const Field path_fields[] = {
    F_STRING(PathKeys, path, "Hugging Face folder"),
    F_INT(PathKeys, seed, 0, 1e15, "seed of the weights of new heads"),
    F_END,
};

/* Sorts a map's keys into `keys` and the rest. */
static Status split_keys(PathKeys *keys, Tree *rest, const Tree *map, Arena *arena,
                         Diag *diag) {
    for (const Tree *value = map->first; value; value = value->next) {
        const Field *field = field_find(path_fields, value->key);
        if (field)
            TRY(field_set(field, value, keys, arena, STATUS_RECIPE, diag));
        else
            tree_append(arena, rest, value->key, value->key_loc, tree_copy(arena, value));
    }
    if (keys->path && !tree_get(rest, "config")) return STATUS_OK;
    return diag_fail(diag, STATUS_RECIPE, map->loc, "model",
                     "expected either `path`, a folder, or `config`");
}

/* Leaves a model that was read its shapes; it knows its vocabulary as one that is read
 * with weights does. */
static void strip_weights(Model *model) {
    model_strip(model);
    vocabulary_note_own(model);
}

/* Reads the folder that a `model:` map names, with the map's configuration. */
static Status adapt_model(Session *session, const Tree *map, bool weights, Diag *diag) {
    Arena *arena = session->arena;
    PathKeys keys = {.seed = session->recipe.seed};
    Tree *overrides = tree_new(arena, TREE_MAP, map->loc);
    TRY(split_keys(&keys, overrides, map, arena, diag));
    const HfOptions options = {overrides, true, (uint64_t)keys.seed};
    session->source = path_join(arena, session->recipe.folder, keys.path);
    TRY(model_load_with(&session->model, session->source, &options, ops_table(), weights,
                        diag));
    if (!weights) strip_weights(session->model);
    return STATUS_OK;
}

/* Reads the weights of a configuration from a file of their own. */
static Status read_separate(Session *session, const BuildKeys *keys, const Tree *config,
                            bool weights, Diag *diag) {
    Arena *arena = session->arena;
    const char *folder = session->recipe.folder;
    const SeparateFiles files = {
        .config = config,
        .written = keys->config->kind == TREE_MAP,
        .weights = path_join(arena, folder, keys->weights),
        .names = keys->names ? path_join(arena, folder, keys->names) : NULL,
        .options = {.create_heads = true, .seed = (uint64_t)keys->seed}};
    session->source = files.weights;
    TRY(model_load_separate(&session->model, &files, ops_table(), weights, diag));
    if (!weights) strip_weights(session->model);
    return STATUS_OK;
}

/* Builds the model that a `model:` map describes. */
static Status build_model(Session *session, const Tree *map, bool weights, Diag *diag) {
    BuildKeys keys = {.seed = session->recipe.seed};
    const Tree *config = map;
    if (tree_get(map, "config")) {
        TRY(fields_bind(build_fields, map, &keys, session->arena, STATUS_RECIPE, diag));
        config = keys.config;
    }
    const bool from_file = config->kind == TREE_STRING;
    if (from_file) {
        const char *path =
            path_join(session->arena, session->recipe.folder, config->string);
        Tree *read = NULL;
        TRY(json_read(&read, session->arena, path, CONFIG_LIMIT, diag));
        config = read;
    }
    if (config->kind != TREE_MAP)
        return diag_fail(diag, STATUS_RECIPE, config->loc, "model.config",
                         "expected a path or a map, found %s",
                         tree_kind_name(config->kind));
    if (keys.weights) return read_separate(session, &keys, config, weights, diag);
    if (keys.names)
        return diag_fail(diag, STATUS_RECIPE, map->loc, "model.names",
                         "expected `weights`, whose names these are");
    session->source = "configuration";
    session->built = true;
    TRY(hf_build_from(&session->model, config, from_file ? CONFIG_FILE : CONFIG_WRITTEN,
                      ops_table(), diag));
    if (!weights) return STATUS_OK;
    return model_init_weights(session->model, (uint64_t)keys.seed, diag);
}

/* Reads or builds the model that the recipe or the options name. */
static Status load_model(Session *session, bool weights, Diag *diag) {
    const char *path = session->options.model;
    const Tree *model = session->recipe.model;
    if (!path && tree_get(model, "path"))
        return adapt_model(session, model, weights, diag);
    if (!path && model->kind == TREE_MAP)
        return build_model(session, model, weights, diag);
    if (!path) path = path_join(session->arena, session->recipe.folder, model->string);
    session->source = path;
    TRY(model_load(&session->model, path, ops_table(), weights, diag));
    if (!weights) strip_weights(session->model);
    return STATUS_OK;
}

/* Whether somebody wants the run to end: asked where a report or events are to tell of
 * it, also before the first step. */
static Status check_stop(const Session *session, Diag *diag) {
    const Watch *watch = session->options.watch;
    const bool told = session->options.report || session->options.events;
    if (!told || !watch || !watch->cancelled || !watch->cancelled(watch->self))
        return STATUS_OK;
    return diag_fail(diag, STATUS_INTERRUPTED, LOC_NONE, NULL, "interrupted");
}

/* Event: the run begins. */
static void tell_begin(Session *session) {
    Arena *arena = session->arena;
    Tree *values = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_put_string(arena, values, "recipe", session->options.recipe);
    tree_put_int(arena, values, "steps", session->recipe.step_count);
    events_put(session->events, "run_begin", values);
}

Status session_load(Session *session, bool weights, Diag *diag) {
    if (weights) {
        TRY(check_outputs(session, diag));
        tell_begin(session);
        TRY(check_stop(session, diag));
        blas_init();
    }
    TRY(load_model(session, weights, diag));
    session->input_bytes = session->model->file_bytes;
    return weights ? check_stop(session, diag) : STATUS_OK;
}

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
    const Node *logits = graph_output(model->graph, OUTPUT_LOGITS);
    const int rank = logits ? logits->type.rank : 0;
    const bool labels =
        rank == 2 || (rank == 3 && graph_task(model->graph) == TASK_LABEL_TOKENS);
    if (!data->class_names || !labels) return STATUS_OK;
    Classes c = {.entry = entry, .at = at, .diag = diag};
    c.data =
        (StringList){ARENA_ARRAY(session->arena, const char *, (size_t)data->classes),
                     (int)data->classes};
    for (int i = 0; i < c.data.count; i++) c.data.items[i] = data->class_names[i];
    const int64_t classes = logits->type.dim[rank - 1];
    if (data->classes != classes) {
        diag_fail(diag, STATUS_MODEL, at, NULL,
                  "data set \"%s\" has %d classes, the model's head %" PRId64,
                  entry->name, c.data.count, classes);
        diag_hint(diag,
                  "`labels: [...]` or `config` under the data set names all classes "
                  "of the head, in order");
        return STATUS_MODEL;
    }
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

/* ---- what the steps may ask for ---- */

/* Opens all data sets that are not open, reporting all errors. */
static Status open_data(Session *session, Diag *diag) {
    Status status = STATUS_OK;
    for (int i = 0; i < session->data_count; i++) {
        DataEntry *entry = &session->data[i];
        if (entry->batches) continue;
        Status opened =
            dataset_open(&entry->batches, entry->format, entry->options, entry->at, diag);
        if (opened != STATUS_OK) diag_note(diag, "data set \"%s\"", entry->name);
        if (status == STATUS_OK) status = opened;
    }
    return status;
}

/* Resources.data. */
static Status find_data(Resources *self, const char *name, const Model *model, Loc at,
                        Batches **out, Diag *diag) {
    Session *session = (Session *)self;
    for (int i = 0; i < session->data_count; i++) {
        DataEntry *entry = &session->data[i];
        if (strcmp(entry->name, name) != 0) continue;
        *out = entry->batches;
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
    if (status != STATUS_OK) {
        diag_note(diag, "named in %s:%d", at.file ? at.file : "the recipe", at.line);
        return status;
    }
    if (shapes) strip_weights(model);
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
    *out = shapes ? session->input_shapes : session->input;
    if (!path && session->options.only) return find_input(session, shapes, at, out, diag);
    return path ? other_model(session, path, shapes, at, out, diag) : STATUS_OK;
}

/* ---- plan and run ---- */

/* PipelineHooks.step_end when planning. */
static void keep_planned(void *self, const Recipe *recipe, int index,
                         const StepResult *result) {
    report_add(&((Session *)self)->planned, recipe, index, result);
}

/* PipelineHooks.step_failed, also when planning: which step ended the run, and the gate
 * that did not hold. */
static void keep_failure(void *self, const Recipe *recipe, int index,
                         const StepFailure *failure, Diag *diag) {
    Session *session = self;
    Arena *arena = session->arena;
    (void)recipe, (void)diag;
    session->failed_step = index;
    if (!failure->gate) return;
    session->gate = *failure->gate;
    session->gate.metric = arena_strdup(arena, failure->gate->metric);
    session->gate.bound = arena_strdup(arena, failure->gate->bound);
    session->gate.detail = arena_strdup(arena, failure->gate->detail);
}

/* Gives the steps what they may ask for. */
static Status connect(Session *session, Diag *diag) {
    session->resources.data = find_data;
    session->resources.model = find_model;
    session->resources.arena = session->arena;
    return session->options.without_data ? STATUS_OK : open_data(session, diag);
}

Status session_plan(Session *session, Diag *diag) {
    TRY(connect(session, diag));
    session->input_shapes = model_copy(session->model);
    model_strip(session->input_shapes);
    Model *model = model_copy(session->input_shapes);
    const PipelineOptions options = {
        .plan = true,
        .threads = session->threads,
        .hooks = {.self = session, .step_end = keep_planned, .step_failed = keep_failure},
        .resources = &session->resources};
    Status status = model_measure(&session->planned.start, model, diag);
    session->report.start = session->planned.start;
    session->report.task = session->planned.task = graph_task(model->graph);
    session->measured = status == STATUS_OK;
    if (status == STATUS_OK)
        status = pipeline_run(model, &session->recipe, &options, diag);
    for (int i = 0; i < session->output_count && status == STATUS_OK; i++)
        status = output_check_model(&session->outputs[i], model, diag);
    model_destroy(model);
    return status;
}

/* Event of a step: which one it is, and `record`'s numbers as its values, unless NULL. */
static void tell_step(Session *session, const char *name, int index, const Tree *record) {
    if (!session->events) return;
    Arena *arena = arena_create();
    const Step *step = &session->recipe.steps[index];
    Tree *values = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_put_int(arena, values, "step", index + 1);
    tree_put_string(arena, values, "pass", step->pass->name);
    if (step->label) tree_put_string(arena, values, "label", step->label);
    Tree *metrics = record ? tree_put_map(arena, values, "values") : NULL;
    double number;
    for (const Tree *value = record ? record->first : NULL; value; value = value->next)
        if (tree_number(value, &number))
            tree_put_real(arena, metrics, value->key, number);
    if (!record || metrics->count > 0) events_put(session->events, name, values);
    arena_destroy(arena);
}

/* PipelineHooks when running. */
static void begin_step(void *self, const Recipe *recipe, int index) {
    Session *session = self;
    const SessionOptions *options = &session->options;
    session->step = index;
    session->step_start = ticker_seconds();
    tell_step(session, "step_begin", index, NULL);
    if (options->step_begin) options->step_begin(options->self, recipe, index);
}

/* Event: a step ended; of one that measures, what it measured comes before. */
static void tell_end(Session *session, const ReportStep *row) {
    if (!session->events) return;
    Arena *arena = arena_create();
    Tree *values = tree_new(arena, TREE_MAP, LOC_NONE);
    if (row->step->pass->flags & PASS_MEASURES)
        tell_step(session, "metric", session->step, row->result.record);
    tree_put_int(arena, values, "step", session->step + 1);
    tree_put_real(arena, values, "seconds", row->result.seconds);
    measure_put(arena, values, &row->result.measure);
    tree_put_bool(arena, values, "reused", row->result.reused);
    if (row->failed) tree_put_bool(arena, values, "failed", true);
    events_put(session->events, "step_end", values);
    arena_destroy(arena);
}

static void end_step(void *self, const Recipe *recipe, int index,
                     const StepResult *result) {
    Session *session = self;
    const SessionOptions *options = &session->options;
    tell_end(session, report_add(&session->report, recipe, index, result));
    report_note_structure(&session->report, session->model);
    if (options->step_end) options->step_end(options->self, recipe, index, result);
}

/* Leaves what is needed to run a step again that failed by a defect, and says where. */
static void leave_reproducer(const Session *session, int index,
                             const StepFailure *failure, Diag *diag) {
    const char *path = NULL;
    Diag *own = diag_create();
    const Status status =
        reproducer_write(&path, session, index, failure->before, diag, own);
    if (status == STATUS_OK)
        diag_hint(diag,
                  "this is a defect of compress; `compress replay %s` runs the step "
                  "again, and the folder is what a report of it needs",
                  path);
    else
        diag_take_warnings(diag, own, "no reproducer is left");
    diag_destroy(own);
}

/* The same of a step that failed. A gate that did not hold has measured the model, which
 * it leaves as it is. */
static void fail_step(void *self, const Recipe *recipe, int index,
                      const StepFailure *failure, Diag *diag) {
    Session *session = self;
    keep_failure(session, recipe, index, failure, diag);
    if (failure->status == STATUS_INTERNAL && !session->options.only)
        leave_reproducer(session, index, failure, diag);
    if (!failure->gate) return;
    StepResult result = {.record = failure->record,
                         .times = failure->times,
                         .threads = session->threads,
                         .seconds = failure->seconds};
    if (model_measure(&result.measure, session->model, diag) != STATUS_OK) return;
    ReportStep *row = report_add(&session->report, recipe, index, &result);
    row->failed = true;
    tell_end(session, row);
}

/* Watch.progress and Watch.cancelled of the steps. */
static void tell_progress(void *self, int64_t done, int64_t total, const char *text) {
    Session *session = self;
    const Watch *watch = session->options.watch;
    events_progress(session->events, session->step + 1, done, total, text,
                    ticker_seconds() - session->step_start);
    if (watch && watch->progress) watch->progress(watch->self, done, total, text);
}

static bool is_cancelled(void *self) {
    const Watch *watch = ((const Session *)self)->options.watch;
    return watch && watch->cancelled && watch->cancelled(watch->self);
}

void session_warn(void *self, const char *line) {
    events_warning(((const Session *)self)->events, line);
}

static Status dump_step(void *self, int index, const char *pass, const char *when,
                        const char *text, size_t length, Diag *diag) {
    const Session *session = self;
    const char *name =
        arena_printf(session->arena, "%02d-%s-%s.ir", index + 1, pass, when);
    const char *path = path_join(session->arena, session->options.dump_folder, name);
    return file_write(path, text, length, diag);
}

Status session_hash_inputs(Session *session, Diag *diag) {
    if (!*session->input_hash) model_hash(session->model, session->input_hash);
    for (int i = 0; i < session->data_count; i++) {
        DataEntry *entry = &session->data[i];
        if (!*entry->hash && entry->batches)
            TRY(dataset_hash(entry->hash, entry->format, entry->options, diag));
    }
    return STATUS_OK;
}

/* Writes the model of a gate that did not hold under other names, and says so behind the
 * gate's error. */
static Status write_failed(Session *session, Diag *diag) {
    model_hash(session->model, session->hash);
    for (int i = 0; i < session->output_count; i++) {
        session->outputs[i] = output_of_failed(session->arena, &session->outputs[i]);
        TRY(model_save(session->model, &session->outputs[i], diag));
        diag_note(diag, "the model is kept as %s", session->outputs[i].path);
    }
    return STATUS_OK;
}

/* Notes in the model's provenance what a replay needs beside recipe and input's hash. */
static void note_run(Session *session) {
    Arena *arena = session->model->arena;
    Tree *run = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_put_string(arena, run, "tool", "compress " COMPRESS_VERSION_TEXT);
    tree_put_string(arena, run, "processor", processor_name(processor_level()));
    tree_put_bool(arena, run, "fixed", getenv("COMPRESS_PROCESSOR") != NULL);
    tree_put_string(arena, run, "recipe", session->options.recipe);
    if (session->options.model)
        tree_put_string(arena, run, "model", session->options.model);
    Tree *data = tree_put_map(arena, run, "data");
    for (int i = 0; i < session->data_count; i++)
        tree_put_string(arena, data, session->data[i].name, session->data[i].hash);
    tree_put(arena, session->model->provenance, "run", run);
}

Status session_run(Session *session, Diag *diag) {
    const SessionOptions *wanted = &session->options;
    TRY(connect(session, diag));
    TRY(session_hash_inputs(session, diag));
    note_run(session);
    session->input = model_copy(session->model);
    report_note_structure(&session->report, session->model);
    session->watch = (Watch){session, tell_progress, is_cancelled};
    PipelineOptions options = {.dump = wanted->dump,
                               .dump_values = wanted->dump_values,
                               .only = wanted->only,
                               .threads = session->threads,
                               .watch = &session->watch,
                               .hooks = {.self = session,
                                         .step_begin = begin_step,
                                         .step_end = end_step,
                                         .step_failed = fail_step},
                               .resources = &session->resources};
    if (wanted->dump_folder) options.hooks.dump = dump_step;
    const bool planned = session->planned.count == session->recipe.step_count;
    if (planned) TRY(step_reuse_open(&session->reuse, session, diag));
    options.keeper = step_reuse_keeper(session->reuse);
    options.train_keeper = step_reuse_train_keeper(session->reuse);
    Status status = pipeline_run(session->model, &session->recipe, &options, diag);
    if (status == STATUS_GATE && session->recipe.keep == KEEP_ON_FAILURE)
        write_failed(session, diag);
    if (status == STATUS_OK && is_cancelled(session))
        status = diag_fail(diag, STATUS_INTERRUPTED, LOC_NONE, NULL, "interrupted");
    if (status != STATUS_OK) step_reuse_hint(session->reuse, diag);
    return status;
}

/* ---- writing ---- */

Status session_write(Session *session, Diag *diag) {
    model_hash(session->model, session->hash);
    for (int i = 0; i < session->output_count; i++)
        TRY(model_save(session->model, &session->outputs[i], diag));
    step_reuse_close(session->reuse, true);
    session->reuse = NULL;
    return STATUS_OK;
}

/* Event: the run ended. */
static void tell_finish(Session *session, Status status) {
    Arena *arena = session->arena;
    Tree *values = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_put_string(arena, values, "status", run_status_name(status));
    tree_put_int(arena, values, "exit_code", status_exit_code(status));
    tree_put_real(arena, values, "seconds", ticker_seconds() - session->start);
    events_put(session->events, "run_end", values);
}

/* The first of two things that went wrong. */
static Status first_of(Status status, Status other) {
    return status == STATUS_OK ? other : status;
}

Status session_finish(Session *session, Status status, Diag *diag) {
    const char *path = session->options.report;
    if (!session->checked) { /* a recipe that does not bind: nothing was written yet */
        status = first_of(status, check_report(session, diag));
        status = first_of(status, open_events(session, diag));
    }
    status = first_of(status, events_check(session->events, diag));
    if (session->may_report)
        status = first_of(
            status, run_report_write(run_report(session, status, diag), path, diag));
    tell_finish(session, status);
    status = first_of(status, events_check(session->events, diag));
    events_close(session->events);
    session->events = NULL;
    return status;
}

void session_close(Session *session) {
    step_reuse_close(session->reuse, false);
    for (OtherModel *other = session->others; other; other = other->next)
        model_destroy(other->model);
    for (int i = 0; i < session->data_count; i++)
        batches_destroy(session->data[i].batches);
    model_destroy(session->input_shapes);
    model_destroy(session->input);
    model_destroy(session->model);
    arena_destroy(session->arena);
}
