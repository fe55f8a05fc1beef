/* The keeper of a session's pipeline: keys, then the checkpoint, then the cache. */
#include "session/reuse/step_reuse.h"

#include "exec/ops.h"
#include "io/files/file.h"
#include "io/files/path.h"
#include "session/reuse/run_checkpoint.h"
#include "session/reuse/step_key.h"
#include "session/units.h"

#include <string.h>

struct StepReuse {
    Session *session;
    Arena *arena;
    StepKeys *keys;
    RunCheckpoint *checkpoint; /* NULL = none is kept */
    StepStore *cache;          /* NULL = there is none */
    bool reads_cache;          /* finished steps are taken from it, too */
    bool told;                 /* that the cache cannot be written to */
    int index;                 /* step whose key was made last, -1 = none */
    bool keyed;                /* it has one */
    const char *model_path;    /* of the model found last */
    char state[HASH_TEXT_BYTES], key[HASH_TEXT_BYTES];
    Tree *parts;
    StepKeeper keeper;
};

/* Makes the key of a step, unless it was the last one made. False, and told as a warning:
 * a step without a key is neither kept nor reused. */
static bool make_key(StepReuse *reuse, int index, const char *state, Diag *diag) {
    if (reuse->index == index && strcmp(reuse->state, state) == 0) return reuse->keyed;
    Diag *own = diag_create();
    reuse->index = index;
    strcpy(reuse->state, state);
    reuse->keyed =
        step_key(reuse->keys, index, state, &reuse->parts, reuse->key, own) == STATUS_OK;
    diag_take_warnings(diag, own, "the step is neither kept nor reused");
    diag_destroy(own);
    return reuse->keyed;
}

static bool reuse_find(void *self, int index, const char *state, Arena *arena,
                       StepEntry *entry, Diag *diag) {
    StepReuse *reuse = self;
    if (!make_key(reuse, index, state, diag)) return false;
    bool found = reuse->checkpoint &&
                 run_checkpoint_find(reuse->checkpoint, reuse->key, arena, entry);
    if (!found && reuse->reads_cache && !step_parts_timed(reuse->parts))
        found = step_store_find(reuse->cache, reuse->key, arena, entry, NULL, diag);
    if (found && reuse->checkpoint)
        run_checkpoint_note(reuse->checkpoint, index, reuse->key, reuse->parts, entry);
    return found;
}

static Model *reuse_model(void *self, const char *state, const OpTable *ops, Diag *diag) {
    StepReuse *reuse = self;
    Arena *arena = reuse->session->arena;
    Model *model =
        reuse->checkpoint ? run_checkpoint_model(reuse->checkpoint, state, ops) : NULL;
    if (model) {
        reuse->model_path = run_checkpoint_model_path(reuse->checkpoint, arena, state);
    } else if (reuse->reads_cache) {
        model = step_store_model(reuse->cache, state, ops, diag);
        reuse->model_path = step_store_model_path(reuse->cache, arena, state);
    }
    return model;
}

const char *step_reuse_model_path(const StepReuse *reuse) {
    return reuse->model_path;
}

const char *step_reuse_train_path(const StepReuse *reuse, int serial) {
    return run_checkpoint_train_path(reuse->checkpoint, reuse->session->arena, serial);
}

static Status reuse_begin(void *self, int index, const char *state, Diag *diag) {
    StepReuse *reuse = self;
    if (!reuse->checkpoint || !make_key(reuse, index, state, diag)) return STATUS_OK;
    const RunReport *planned = &reuse->session->planned;
    return run_checkpoint_begin(reuse->checkpoint, index, reuse->key, reuse->parts,
                                planned->steps[index].result.measure.bytes);
}

/* Puts a step into the cache. */
static void cache_step(StepReuse *reuse, StepEntry entry, Model *model, Diag *diag) {
    Diag *own = diag_create();
    Status status = step_store_put_model(reuse->cache, entry.state, model, own);
    if (status == STATUS_OK)
        status = step_store_put(reuse->cache, reuse->key, reuse->parts, &entry, own);
    if (status == STATUS_OK)
        step_store_evict(reuse->cache);
    else if (!reuse->told)
        diag_take_warnings(diag, own, "finished steps do not go into the cache");
    reuse->told |= status != STATUS_OK;
    diag_destroy(own);
}

static void reuse_keep(void *self, int index, const char *state, const StepEntry *entry,
                       Model *model, Diag *diag) {
    StepReuse *reuse = self;
    if (!make_key(reuse, index, state, diag)) return;
    if (reuse->cache && !reuse->told && !step_parts_timed(reuse->parts))
        cache_step(reuse, *entry, model, diag);
    if (!reuse->checkpoint) return;
    run_checkpoint_note(reuse->checkpoint, index, reuse->key, reuse->parts, entry);
    run_checkpoint_step(reuse->checkpoint, index, model);
}

/* ---- opening ---- */

/* Whether no checkpoint is to be written. */
static bool is_off(const Session *session) {
    return session->options.no_checkpoint || session->recipe.checkpoint.every == 0;
}

const char *step_reuse_checkpoint(const Session *session) {
    const char *folder = session->recipe.checkpoint.folder;
    if (is_off(session) && !session->options.resume) return NULL;
    if (folder || session->outputs.count == 0) return folder;
    Arena *arena = session->arena;
    const char *output = path_trim(arena, session->outputs.items[0].path);
    const char *last = strrchr(output, '/');
    last = last ? last + 1 : output;
    if (strcmp(last, ".") == 0 || strcmp(last, "..") == 0) { /* beside it, by its name */
        const char *above = path_join(arena, output, "..");
        output = path_join(arena, above, path_base(arena, output));
    }
    return arena_printf(arena, "%s.checkpoint", output);
}

/* Event: a checkpoint was written. */
static void tell_kept(void *self, int index, bool training, double seconds) {
    const StepReuse *reuse = self;
    Arena *arena = arena_create();
    Tree *values = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_put_int(arena, values, "step", index + 1);
    tree_put_bool(arena, values, "training", training);
    tree_put_real(arena, values, "seconds", seconds);
    events_put(reuse->session->told.events, "checkpoint", values);
    arena_destroy(arena);
}

/* The output that is there, as it is after a run that ended; NULL where that is taken
 * over from the cache, or is not asked for. */
static const char *ended_output(const StepReuse *reuse) {
    const Session *session = reuse->session;
    if (!session->options.resume || reuse->cache || session->outputs.count == 0)
        return NULL;
    const char *output = session->outputs.items[0].path;
    return path_is_file(output) || path_is_folder(output) ? output : NULL;
}

static Status open_checkpoint(StepReuse *reuse, Diag *diag) {
    const Session *session = reuse->session;
    const SessionOptions *wanted = &session->options;
    const RunCheckpointOptions options = {.folder = step_reuse_checkpoint(session),
                                          .resume = wanted->resume,
                                          .never = is_off(session),
                                          .ended = ended_output(reuse),
                                          .recipe = &session->recipe,
                                          .watch = wanted->watch,
                                          .diag = diag,
                                          .self = reuse,
                                          .kept = tell_kept};
    if (wanted->resume && !options.folder) {
        diag_fail(
            diag, STATUS_USAGE, LOC_NONE, "--resume",
            "expected a recipe that writes a model, whose checkpoint lies beside it");
        diag_hint(diag, "`checkpoint: {folder: PATH}` in the recipe names a folder");
        return STATUS_USAGE;
    }
    if (!options.folder) return STATUS_OK;
    return run_checkpoint_open(&reuse->checkpoint, &options);
}

static Status open_cache(StepReuse *reuse, Diag *diag) {
    const SessionOptions *wanted = &reuse->session->options;
    int64_t limit = CACHE_LIMIT;
    if (wanted->cache_limit && !size_parse(wanted->cache_limit, &limit))
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, "--cache-limit",
                         "expected a size like 500M or 10G, found \"%s\"",
                         wanted->cache_limit);
    if (wanted->cache_limit && !wanted->cache)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, "--cache-limit",
                         "expected --cache FOLDER with it");
    if (!wanted->cache) return STATUS_OK;
    if (run_checkpoint_is_folder(wanted->cache))
        return diag_fail(diag, STATUS_USAGE, LOC_FILE(wanted->cache), "--cache",
                         "expected a folder of its own, found a run's checkpoint");
    /* a folder for each step's text before and after it wants the steps to run */
    reuse->reads_cache = !wanted->dump_folder;
    return step_store_open(&reuse->cache, wanted->cache, limit, true, diag);
}

Status step_reuse_open(StepReuse **out, Session *session, Diag *diag) {
    StepReuse *reuse = ARENA_NEW(session->arena, StepReuse);
    *reuse = (StepReuse){.session = session, .index = -1};
    reuse->keeper = (StepKeeper){reuse, reuse_find, reuse_model, reuse_begin, reuse_keep};
    Status status = open_cache(reuse, diag);
    if (status == STATUS_OK) status = open_checkpoint(reuse, diag);
    if (status == STATUS_OK && (reuse->cache || reuse->checkpoint)) {
        reuse->keys = step_keys_create(session);
        *out = reuse;
        return STATUS_OK;
    }
    step_reuse_close(reuse, false);
    return status;
}

const StepKeeper *step_reuse_keeper(const StepReuse *reuse) {
    return reuse ? &reuse->keeper : NULL;
}

const TrainKeeper *step_reuse_train_keeper(const StepReuse *reuse) {
    if (!reuse || !reuse->checkpoint) return NULL;
    return run_checkpoint_train_keeper(reuse->checkpoint);
}

void step_reuse_hint(const StepReuse *reuse, Diag *diag) {
    if (!reuse || !reuse->checkpoint || !run_checkpoint_exists(reuse->checkpoint)) return;
    diag_hint(diag, "the same run with --resume of `compress` goes on from %s",
              run_checkpoint_folder(reuse->checkpoint));
}

void step_reuse_close(StepReuse *reuse, bool done) {
    if (!reuse) return;
    run_checkpoint_close(reuse->checkpoint, done);
    if (reuse->cache) step_store_evict(reuse->cache);
    step_store_close(reuse->cache);
}
