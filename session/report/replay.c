/* Replay: see replay.h. */
#include "session/report/replay.h"

#include "exec/linalg/products.h"
#include "exec/ops.h"
#include "io/files/file.h"
#include "io/files/folder.h"
#include "io/files/path.h"
#include "io/files/unfinished.h"
#include "io/formats/load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Ways in which a file may have been written: as an output of its recipe, or as one named
 * on the command line. */
enum { WAYS_MAX = 2 };

/* One replay of a model file. */
typedef struct Replay {
    const ReplayOptions *options;
    Arena *arena;
    Model *file;        /* as it is there */
    const Tree *recipe; /* in its provenance */
    const Tree *run;    /* likewise */
    const char *folder; /* temporary, for what comes out */
    Session session;
    int skipped; /* steps in the provenance from before the recipe */
    bool differs;
    Watch watch;
} Replay;

/* ---- what is recorded ---- */

Status replay_processor(Processor *out, const char *path, Diag *diag) {
    Model *model = NULL;
    *out = PROCESSOR_AUTO;
    TRY(model_load(&model, path, ops_table(), false, diag));
    const Tree *run = tree_get(model->provenance, "run"), *fixed = tree_get(run, "fixed");
    const bool is_fixed = fixed && fixed->kind == TREE_BOOL && fixed->boolean;
    const char *name = is_fixed ? tree_string(run, "processor") : NULL;
    for (int level = PROCESSOR_AUTO + 1; name && level < PROCESSOR_COUNT; level++)
        if (strcmp(processor_name((Processor)level), name) == 0) *out = (Processor)level;
    model_destroy(model);
    return STATUS_OK;
}

static Status read_file(Replay *r, Diag *diag) {
    const char *path = r->options->path;
    TRY(model_load(&r->file, path, ops_table(), true, diag));
    r->recipe = tree_get(r->file->provenance, "recipe");
    r->run = tree_get(r->file->provenance, "run");
    const bool has_recipe = r->recipe && r->recipe->kind == TREE_MAP;
    if (has_recipe && tree_string(r->run, "recipe")) return STATUS_OK;
    return diag_fail(diag, STATUS_MODEL, LOC_FILE(path), NULL,
                     "expected a model that a recipe made, %s",
                     has_recipe
                         ? "with the hashes of the run, found a recipe alone, as an "
                           "older version kept it"
                         : "found none in its provenance");
}

/* The entry of the provenance for step `index` of the recipe, NULL when there is none. */
static const Tree *step_entry(const Model *model, int index) {
    const Tree *steps = tree_get(model->provenance, "steps");
    if (!steps || steps->kind != TREE_LIST) return NULL;
    const Tree *entry = steps->first;
    while (entry && index-- > 0) entry = entry->next;
    return entry;
}

/* ---- comparing ---- */

static void compare(Replay *r, const char *what, const char *then, const char *now) {
    const ReplayRow row = {what, then ? then : "nothing", now ? now : "nothing",
                           then && now && strcmp(then, now) == 0};
    r->differs = r->differs || !row.same;
    r->options->row(r->options->self, &row);
}

/* Compares what a key of two maps has, as JSON. */
static void compare_key(Replay *r, const char *what, const char *key, const Tree *then,
                        const Tree *now) {
    Text texts[2] = {0};
    const Tree *values[] = {tree_get(then, key), tree_get(now, key)};
    for (int i = 0; i < 2; i++)
        if (values[i]) tree_print_json(&texts[i], values[i], 0);
    compare(r, what, texts[0].data, texts[1].data);
    text_free(&texts[0]);
    text_free(&texts[1]);
}

/* The input model and the files of the data sets. */
static Status compare_inputs(Replay *r, Diag *diag) {
    Session *session = &r->session;
    const Tree *data = tree_get(r->run, "data");
    TRY(session_hash_inputs(session, diag));
    compare(r, "input model", tree_string(r->file->provenance, "input_hash"),
            session->input.hash);
    for (int i = 0; i < session->data.count; i++) {
        const DataEntry *entry = &session->data.entries[i];
        if (!r->differs)
            compare(r, arena_printf(r->arena, "data set \"%s\"", entry->name),
                    tree_string(data, entry->name), entry->hash);
    }
    return STATUS_OK;
}

/* SessionOptions.step_end: the model after the step, and the step's record. */
static void compare_step(void *self, const Recipe *recipe, int index,
                         const StepResult *result) {
    Replay *r = self;
    const Tree *then = step_entry(r->file, r->skipped + index);
    const Tree *now = step_entry(r->session.model, r->skipped + index);
    const char *name = arena_printf(r->arena, "step %d of %d, %s", index + 1,
                                    recipe->step_count, recipe->steps[index].pass->name);
    (void)result;
    compare(r, name, tree_string(then, "hash"), tree_string(now, "hash"));
    if (!r->differs)
        compare_key(r, arena_printf(r->arena, "%s: record", name), "record", then, now);
}

static void tell_begin(void *self, const Recipe *recipe, int index) {
    const ReplayOptions *options = ((const Replay *)self)->options;
    if (options->begin) options->begin(options->self, recipe, index);
}

/* ---- making it again ---- */

static void pass_progress(void *self, int64_t done, int64_t total, const char *text) {
    const Watch *watch = ((const Replay *)self)->options->watch;
    if (watch && watch->progress) watch->progress(watch->self, done, total, text);
}

/* The first difference ends the run. */
static bool is_over(void *self) {
    const Replay *r = self;
    const Watch *watch = r->options->watch;
    return r->differs || (watch && watch->cancelled && watch->cancelled(watch->self));
}

/* The entry of the recipe's `output` that the file is of, by its name or else its ending;
 * NULL where it has none. */
static const Tree *own_output(const Tree *output, const char *name) {
    const bool is_list = output && output->kind == TREE_LIST;
    const Tree *found = NULL;
    const char *ending = strrchr(name, '.');
    for (const Tree *own = is_list ? output->first : output; own; own = own->next) {
        const Tree *value = own->kind == TREE_MAP ? tree_get(own, "path") : own;
        const char *path = value && value->kind == TREE_STRING ? value->string : "";
        const char *slash = strrchr(path, '/');
        if (strcmp(slash ? slash + 1 : path, name) == 0) return own;
        if (!found && ending && text_ends_with(path, ending)) found = own;
        if (!is_list) break;
    }
    return found;
}

/* The recipe with outputs in the temporary folder, each under the file's own name, which
 * a file that has weights beside it holds. */
static Tree *temporary_document(Replay *r) {
    Arena *arena = r->arena;
    const char *slash = strrchr(r->options->path, '/');
    const char *name = slash ? slash + 1 : r->options->path;
    Tree *document = tree_copy(arena, r->recipe);
    Tree *checkpoint = tree_new(arena, TREE_MAP, LOC_NONE); /* none */
    const Tree *own = own_output(tree_get(document, "output"), name);
    const bool keyed = own && own->kind == TREE_MAP;
    Tree *first = keyed ? tree_copy(arena, own) : NULL;
    tree_put_int(arena, checkpoint, "every", 0);
    tree_put_real(arena, checkpoint, "minutes", 1e9);
    tree_put(arena, document, "checkpoint", checkpoint);
    Tree *outputs = tree_put_list(arena, document, "output");
    if (keyed) {
        tree_put_string(arena, first, "path",
                        arena_printf(arena, "%s/0/%s", r->folder, name));
        tree_append(arena, outputs, NULL, LOC_NONE, first);
    }
    tree_add_string(arena, outputs, arena_printf(arena, "%s/1/%s", r->folder, name));
    return document;
}

/* Whether the recipe is the recorded one: else its new text is in the file as well. */
static bool is_unchanged(const Replay *r) {
    const bool moved = r->options->model && !tree_string(r->run, "model");
    return !moved && r->options->sets.count == 0;
}

/* Where files are looked for that were not found. */
static void hint_places(const Replay *r, Diag *diag) {
    if (tree_string(r->run, "model") && !r->options->model)
        diag_hint(diag, "the run was given a model, '%s': --model says where it is",
                  tree_string(r->run, "model"));
    if (!r->options->folder)
        diag_hint(diag,
                  "--folder says where the recipe's relative paths begin: the folder "
                  "that the recipe was in");
}

/* Where a pass was a plug-in's. */
static void hint_plugin(const Replay *r, Diag *diag) {
    const Tree *steps = tree_get(r->file->provenance, "steps");
    for (const Tree *step = steps ? steps->first : NULL; step; step = step->next) {
        const char *pass = tree_string(step, "pass"),
                   *plugin = tree_string(step, "plugin");
        if (!pass || !plugin || pass_find(pass)) continue;
        diag_hint(diag, "\"%s\" was a pass of the plug-in %.*s: --plugin FILE loads it",
                  pass, (int)strcspn(plugin, ","), plugin);
        return;
    }
}

static Status open_session(Replay *r, Diag *diag) {
    const ReplayOptions *wanted = r->options;
    const char *recipe = tree_string(r->run, "recipe"),
               *model = tree_string(r->run, "model");
    const SessionOptions options = {
        .recipe = recipe,
        .document = temporary_document(r),
        .folder = wanted->folder ? wanted->folder : path_folder(r->arena, recipe),
        .sets = wanted->sets,
        .model = wanted->model ? wanted->model : model,
        .threads = wanted->threads,
        .watch = &r->watch,
        .self = r,
        .step_begin = tell_begin,
        .step_end = compare_step};
    r->watch = (Watch){r, pass_progress, is_over};
    const Status opened = session_open(&r->session, &options, diag);
    if (opened == STATUS_RECIPE) hint_plugin(r, diag);
    TRY(opened);
    const Status status = session_load(&r->session, true, diag);
    if (status == STATUS_IO) hint_places(r, diag);
    TRY(status);
    const Tree *steps = tree_get(r->session.model->provenance, "steps");
    r->skipped = steps ? steps->count : 0;
    const Status planned = session_plan(&r->session, diag);
    if (planned == STATUS_IO) hint_places(r, diag);
    return planned;
}

/* Notes in the model's provenance what the file does: the recipe, and what it and the
 * model of the command line were called then. */
static void note_names(Replay *r, Diag *diag) {
    Model *model = r->session.model;
    static const char *const NAMES[] = {"recipe", "model"};
    tree_set(model->arena, model->provenance, "recipe",
             tree_copy(model->arena, r->recipe), diag);
    for (int i = 0; i < 2; i++)
        if (tree_string(r->run, NAMES[i]))
            tree_put_string(model->arena, tree_get(model->provenance, "run"), NAMES[i],
                            tree_string(r->run, NAMES[i]));
}

static void compare_bytes(Replay *r, const char *what, const char *then, const char *now,
                          Diag *diag) {
    char hashes[2][HASH_TEXT_BYTES] = {"", ""};
    if (path_is_file(then)) file_hash(then, hashes[0], diag);
    if (path_is_file(now)) file_hash(now, hashes[1], diag);
    compare(r, what, hashes[0], hashes[1]);
}

/* Compares the file with one that was written, and the files beside that one, in whose
 * folder there is nothing else, with those of the same names. */
static Status compare_written(Replay *r, const char *written, Diag *diag) {
    const char *own = r->options->path, **names;
    const char *folder = path_folder(r->arena, written);
    int64_t count;
    compare_bytes(r, "bytes of the file", own, written, diag);
    TRY(folder_names(&names, &count, r->arena, folder, diag));
    for (int64_t i = 0; i < count; i++) {
        const char *now = path_join(r->arena, folder, names[i]);
        const char *then = path_join(r->arena, path_folder(r->arena, own), names[i]);
        if (strcmp(now, written) != 0)
            compare_bytes(r, "bytes of the weights beside it", then, now, diag);
    }
    return diag_status(diag);
}

/* Writes the model in the ways in which the file may have been, and compares the one that
 * is most like it. */
static Status compare_files(Replay *r, Diag *diag) {
    Session *session = &r->session;
    char then[HASH_TEXT_BYTES], now[HASH_TEXT_BYTES] = "";
    const ModelOutput *output = session->outputs.items;
    Diag *none = diag_create();
    if (is_unchanged(r)) note_names(r, none);
    diag_destroy(none);
    TRY(session_write(session, diag));
    model_hash(r->file, then);
    for (int i = 0; i < session->outputs.count && strcmp(then, now) != 0; i++) {
        Model *written = NULL;
        output = &session->outputs.items[i];
        TRY(model_load(&written, output->path, ops_table(), true, diag));
        model_hash(written, now);
        model_destroy(written);
    }
    compare(r, "model as it is written", then, now);
    return r->differs || !is_unchanged(r) ? STATUS_OK
                                          : compare_written(r, output->path, diag);
}

/* Kernels of another level may differ in last bits. */
static void warn_level(const Replay *r, Diag *diag) {
    const char *then = tree_string(r->run, "processor");
    const char *now = processor_name(processor_level());
    if (then && strcmp(then, now) != 0)
        diag_warn(diag, LOC_FILE(r->options->path), NULL,
                  "made with the kernels of processor level %s, made again with those of "
                  "%s: last bits may differ",
                  then, now);
}

/* So may the products of another library. */
static void warn_products(const Replay *r, Diag *diag) {
    const char *then = tree_string(r->run, "products");
    const char *now = products_name();
    if (!then && !now) return;
    if (then && now && strcmp(then, now) == 0) return;
    diag_warn(
        diag, LOC_FILE(r->options->path), NULL,
        "made with products by %s, made again with those by %s: last bits may differ",
        then ? then : "OpenBLAS", now ? now : "OpenBLAS");
}

static Status replay_run(Replay *r, Diag *diag) {
    TRY(read_file(r, diag));
    warn_level(r, diag);
    warn_products(r, diag);
    TRY(open_session(r, diag));
    TRY(compare_inputs(r, diag));
    if (r->differs) return STATUS_OK;
    const Status status = session_run(&r->session, diag);
    if (r->differs) return STATUS_OK; /* which ended the run */
    TRY(status);
    return compare_files(r, diag);
}

/* Makes the temporary folder, with one for each output. */
static Status make_folder(Replay *r, Diag *diag) {
    const char *place = getenv("TMPDIR");
    char *folder = arena_printf(r->arena, "%s/compress-replay-XXXXXX",
                                place && *place ? place : "/tmp");
    r->folder = mkdtemp(folder);
    bool made = r->folder != NULL;
    for (int i = 0; i < 2 && made; i++)
        made = mkdir(arena_printf(r->arena, "%s/%d", folder, i), 0700) == 0;
    if (made) return STATUS_OK;
    return diag_fail(diag, STATUS_IO, LOC_FILE(folder), NULL,
                     "cannot make a temporary folder: %s", strerror(errno));
}

Status replay_check(const ReplayOptions *options, Diag *diag) {
    Replay r = {.options = options, .arena = arena_create()};
    Diag *own = diag_create();
    if (!path_is_file(options->path))
        diag_fail(diag, STATUS_IO, LOC_FILE(options->path), NULL,
                  "expected a model file, found %s",
                  path_is_folder(options->path) ? "a folder" : "nothing");
    Status status = diag_status(diag);
    if (status == STATUS_OK) status = make_folder(&r, diag);
    if (status == STATUS_OK) {
        status = replay_run(&r, own);
        if (r.differs)
            status = STATUS_DIFFERENT;
        else
            diag_take(diag, own);
    }
    if (r.folder) path_remove(r.folder);
    session_close(&r.session);
    model_destroy(r.file);
    diag_destroy(own);
    arena_destroy(r.arena);
    return status;
}
