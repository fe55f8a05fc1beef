/* A run's own folder: when it is written, what stays in it, and what fits of what is
 * there. */
#include "session/reuse/run_checkpoint.h"

#include "exec/run/ticker.h"
#include "io/files/file.h"
#include "io/files/json.h"
#include "io/files/path.h"
#include "session/reuse/step_key.h"
#include "session/reuse/train_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COST_SHARE     0.01 /* of the time, at most, goes into checkpoints */
#define GUESS_SECONDS  0.05 /* what writing a model is expected to take at first, */
#define GUESS_SPEED    2e8  /* and bytes a second */
#define TRAINING_PARTS 4   /* bytes of a training state by those of the model, at first */
#define WORTH_SECONDS  5.0 /* work of an interrupted run that is worth a checkpoint */
#define RUN_LIMIT      ((size_t)256 << 20)

static const char RUN_FILE[] = "run.json", TRAINING[] = "training";
static const char LOCK_FILE[] =
    "checkpoint.lock"; /* also what tells whose folder it is */
static const char MODEL_COST[] = "model_seconds", TRAINING_COST[] = "training_seconds";
static const char *const OURS[] = {RUN_FILE, LOCK_FILE, TRAINING, "steps", "models"};

/* A step that is done. */
typedef struct NotedStep {
    char key[HASH_TEXT_BYTES];
    const Tree *parts; /* NULL = not noted */
    StepEntry entry;
    Model
        *snapshot; /* what it made that later steps name; NULL = nothing, or it is kept */
} NotedStep;

struct RunCheckpoint {
    RunCheckpointOptions options;
    Arena *arena;
    StepStore *store; /* NULL until the folder is there and ours */
    int lock;         /* -1 = not held */
    bool broken;      /* something went wrong with keeping: no more of it */
    bool kept;        /* something of this run is in the folder */
    NotedStep *steps;
    int running;                      /* step that has begun, -1 = none */
    char key[HASH_TEXT_BYTES];        /* its key */
    const Tree *parts;                /* and what that was made of */
    const Tree *earlier;              /* list of the steps of the run that is resumed */
    bool told;                        /* that it is another one */
    double last;                      /* when the last checkpoint was written */
    double model_cost, training_cost; /* in seconds, as the last one was or is expected */
    TrainKeeper keeper;
};

static double now(void) {
    return ticker_seconds();
}

static bool is_cancelled(const RunCheckpoint *checkpoint) {
    const Watch *watch = checkpoint->options.watch;
    return watch && watch->cancelled && watch->cancelled(watch->self);
}

static const char *in_folder(const RunCheckpoint *checkpoint, Arena *arena,
                             const char *name) {
    return path_join(arena, checkpoint->options.folder, name);
}

/* ---- the folder ---- */

static bool is_ours(const char *name) {
    for (size_t i = 0; i < sizeof OURS / sizeof *OURS; i++)
        if (strcmp(name, OURS[i]) == 0) return true;
    return false;
}

bool run_checkpoint_is_folder(const char *path) {
    Arena *arena = arena_create();
    const bool marked = path_is_file(path_join(arena, path, LOCK_FILE));
    arena_destroy(arena);
    return marked;
}

/* Whether a folder has what checkpoints have, or nothing, and nothing else. */
static Status check_ours(const char *path, Diag *diag) {
    const bool marked = run_checkpoint_is_folder(path);
    DIR *folder = opendir(path);
    Status status = STATUS_OK;
    if (!folder)
        return diag_fail(diag, STATUS_IO, LOC_FILE(path), "checkpoint",
                         "cannot open the folder: %s", strerror(errno));
    for (struct dirent *entry; (entry = readdir(folder)) && status == STATUS_OK;) {
        const char *name = entry->d_name;
        const bool hidden = name[0] == '.'; /* itself, its parent, unfinished files */
        if (hidden || (marked && is_ours(name))) continue;
        status = diag_fail(diag, STATUS_IO, LOC_FILE(path), "checkpoint",
                           "expected a folder of a run's checkpoints or none, found '%s' "
                           "in it",
                           name);
    }
    closedir(folder);
    return status;
}

/* Opens the lock's file and locks it; one that is no longer at the path, as the run that
 * had it removed it meanwhile, locks nothing. False with errno. */
static bool take_lock(RunCheckpoint *checkpoint, const char *path) {
    for (;;) {
        struct stat info;
        struct flock lock = {.l_type = F_WRLCK,
                             .l_whence = SEEK_SET}; /* the whole file */
        const int fd = checkpoint->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0 || fcntl(fd, F_SETLK, &lock) != 0 || fstat(fd, &info) != 0)
            return false;
        if (path_same(path, &(FileIdentity){info.st_dev, info.st_ino})) return true;
        close(fd);
    }
}

/* Takes the folder for this run. A lock of this kind ends with its process: the child
 * that was writing a killed run's model does not hold it. Fails with STATUS_IO. */
static Status lock_folder(RunCheckpoint *checkpoint, Diag *diag) {
    const char *path = in_folder(checkpoint, checkpoint->arena, LOCK_FILE);
    if (checkpoint->lock >= 0 || take_lock(checkpoint, path)) return STATUS_OK;
    const bool busy = checkpoint->lock >= 0 && (errno == EACCES || errno == EAGAIN);
    const char *why = busy ? "another run uses the folder" : strerror(errno);
    if (checkpoint->lock >= 0) close(checkpoint->lock);
    checkpoint->lock = -1;
    return diag_fail(diag, STATUS_IO, LOC_FILE(checkpoint->options.folder), "checkpoint",
                     "%s", why);
}

static void clear_folder(RunCheckpoint *checkpoint) {
    const char *training = in_folder(checkpoint, checkpoint->arena, TRAINING);
    const char *run = in_folder(checkpoint, checkpoint->arena, RUN_FILE);
    Diag *none = diag_create();
    OutFile *file = NULL;
    step_store_clear(checkpoint->store);
    hashed_files_remove(training, NULL, 0);
    rmdir(training);
    if (outfile_open(&file, NULL, run, none) == STATUS_OK) /* removes unfinished ones */
        outfile_abandon(file);
    unlink(run);
    diag_destroy(none);
}

/* Makes the folder this run's, before the first write. Fails with STATUS_IO. */
static Status claim_folder(RunCheckpoint *checkpoint, Diag *diag) {
    if (checkpoint->store) return STATUS_OK;
    StepStore *store = NULL;
    TRY(step_store_open(&store, checkpoint->options.folder, 0, true, diag));
    const Status status = lock_folder(checkpoint, diag);
    if (status != STATUS_OK) {
        step_store_close(store);
        return status;
    }
    checkpoint->store = store;
    clear_folder(checkpoint); /* an earlier run's */
    return STATUS_OK;
}

/* Seconds that an earlier run measured; 0 where it did not. */
static double read_cost(const Tree *run, const char *key) {
    double seconds = 0;
    const bool known = tree_number(tree_get(run, key), &seconds);
    return known && seconds >= 0 && seconds < 3600 ? seconds : 0;
}

/* Reads what an earlier run left. */
static Status read_run(RunCheckpoint *checkpoint, Diag *diag) {
    const char *path = in_folder(checkpoint, checkpoint->arena, RUN_FILE);
    Tree *run = NULL;
    TRY(json_read(&run, checkpoint->arena, path, RUN_LIMIT, diag));
    const Tree *steps = tree_get(run, "steps");
    if (!steps || steps->kind != TREE_LIST)
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), "steps", "expected a list");
    checkpoint->earlier = steps;
    checkpoint->model_cost = read_cost(run, MODEL_COST);
    checkpoint->training_cost = read_cost(run, TRAINING_COST);
    return STATUS_OK;
}

/* Whether another run uses the folder. */
static bool is_in_use(const RunCheckpoint *checkpoint) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    const int lock =
        open(in_folder(checkpoint, checkpoint->arena, LOCK_FILE), O_RDWR | O_CLOEXEC);
    const bool used =
        lock >= 0 && fcntl(lock, F_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
    if (lock >= 0) close(lock);
    return used;
}

/* Nothing is there to be gone on with: the run never began, or it ended. */
static void warn_none(const RunCheckpoint *checkpoint) {
    const RunCheckpointOptions *options = &checkpoint->options;
    const char *text = "no checkpoint is kept here: the run starts from the beginning";
    if (options->ended)
        diag_warn(options->diag, LOC_FILE(options->folder), NULL,
                  "%s, also if it is the one that has written %s; --cache FOLDER keeps "
                  "finished steps",
                  text, options->ended);
    else
        diag_warn(options->diag, LOC_FILE(options->folder), NULL, "%s", text);
}

static Status open_earlier(RunCheckpoint *checkpoint) {
    Diag *diag = checkpoint->options.diag, *own = diag_create();
    const char *folder = checkpoint->options.folder;
    const bool there = path_is_file(in_folder(checkpoint, checkpoint->arena, RUN_FILE));
    Status status = path_is_folder(folder) ? check_ours(folder, diag) : STATUS_OK;
    if (status == STATUS_OK && there && !checkpoint->options.resume &&
        !is_in_use(checkpoint))
        diag_warn(diag, LOC_FILE(folder), NULL,
                  "a run that did not end is kept here; this one replaces it, --resume "
                  "of `compress` would go on with it");
    if (status == STATUS_OK && !there && checkpoint->options.resume)
        warn_none(checkpoint);
    if (status == STATUS_OK && there && checkpoint->options.resume) {
        status = lock_folder(checkpoint, diag);
        if (status == STATUS_OK)
            status = step_store_open(&checkpoint->store, folder, 0, false, diag);
        if (status == STATUS_OK && read_run(checkpoint, own) != STATUS_OK)
            diag_take_warnings(diag, own, "the run starts from the beginning");
    }
    diag_destroy(own);
    return status;
}

static bool train_due(void *self, int64_t done, int64_t total);
static Status train_save(void *self, const TrainState *state, Diag *diag);
static Status train_load(void *self, int serial, TrainState **state, Diag *diag);

Status run_checkpoint_open(RunCheckpoint **out, const RunCheckpointOptions *options) {
    Arena *arena = arena_create();
    RunCheckpoint *checkpoint = ARENA_NEW(arena, RunCheckpoint);
    const size_t steps = (size_t)options->recipe->step_count + 1;
    *checkpoint =
        (RunCheckpoint){.options = *options,
                        .arena = arena,
                        .lock = -1,
                        .running = -1,
                        .steps = ARENA_ARRAY(arena, NotedStep, steps),
                        .last = now(),
                        .keeper = {checkpoint, train_due, train_save, train_load}};
    const Status status = open_earlier(checkpoint);
    if (status == STATUS_OK)
        *out = checkpoint;
    else
        run_checkpoint_close(checkpoint, false);
    return status;
}

void run_checkpoint_close(RunCheckpoint *checkpoint, bool done) {
    if (!checkpoint) return;
    if (done && path_is_folder(checkpoint->options.folder)) {
        Diag *none = diag_create();
        if (claim_folder(checkpoint, none) == STATUS_OK) {
            clear_folder(checkpoint);
            unlink(in_folder(checkpoint, checkpoint->arena, LOCK_FILE));
            rmdir(checkpoint->options.folder);
        }
        diag_destroy(none);
    }
    for (int i = 0; i < checkpoint->options.recipe->step_count; i++)
        model_destroy(checkpoint->steps[i].snapshot);
    step_store_close(checkpoint->store);
    if (checkpoint->lock >= 0) close(checkpoint->lock);
    arena_destroy(checkpoint->arena);
}

bool run_checkpoint_exists(const RunCheckpoint *checkpoint) {
    return checkpoint->kept;
}

const char *run_checkpoint_folder(const RunCheckpoint *checkpoint) {
    return checkpoint->options.folder;
}

/* ---- what is there ---- */

bool run_checkpoint_find(RunCheckpoint *checkpoint, const char *key, Arena *arena,
                         StepEntry *entry) {
    const bool found =
        checkpoint->earlier && step_store_find(checkpoint->store, key, arena, entry, NULL,
                                               checkpoint->options.diag);
    checkpoint->kept |= found;
    return found;
}

Model *run_checkpoint_model(RunCheckpoint *checkpoint, const char *state,
                            const OpTable *ops) {
    if (!checkpoint->earlier) return NULL;
    return step_store_model(checkpoint->store, state, ops, checkpoint->options.diag);
}

const char *run_checkpoint_model_path(const RunCheckpoint *checkpoint, Arena *arena,
                                      const char *state) {
    return checkpoint->store ? step_store_model_path(checkpoint->store, arena, state)
                             : NULL;
}

/* The step at `index` of the run that is resumed, NULL = it did not come so far. */
static const Tree *earlier_step(const RunCheckpoint *checkpoint, int index) {
    const Tree *step = checkpoint->earlier ? checkpoint->earlier->first : NULL;
    while (step && index-- > 0) step = step->next;
    return step;
}

/* Says once that a step is not the one that the resumed run had there. */
static Status check_same_run(RunCheckpoint *checkpoint, int index, const Tree *parts) {
    const Tree *step = earlier_step(checkpoint, index);
    const Recipe *recipe = checkpoint->options.recipe;
    const char *name = recipe->steps[index].pass->name;
    Diag *diag = checkpoint->options.diag;
    Text text = {0};
    Status status = STATUS_OK;
    if (step && !checkpoint->told &&
        step_parts_differ(&text, index, tree_get(step, "parts"), parts)) {
        checkpoint->told = true;
        if (index == 0) {
            status = diag_fail(
                diag, STATUS_USAGE, LOC_FILE(checkpoint->options.folder), "--resume",
                "the checkpoint is of another run: step 1, %s: %s", name, text.data);
            diag_hint(diag, "without --resume the run starts from the beginning");
        } else {
            diag_warn(diag, LOC_FILE(checkpoint->options.folder), "--resume",
                      "step %d, %s, is not what it was and runs again: %s", index + 1,
                      name, text.data);
        }
    }
    text_free(&text);
    return status;
}

/* ---- writing ---- */

/* Whether nothing is kept, or no more. */
static bool is_off(const RunCheckpoint *checkpoint) {
    return checkpoint->broken || checkpoint->options.never;
}

/* Whether something that is expected to take so long may be written now. */
static bool is_cheap(const RunCheckpoint *checkpoint, double cost) {
    return cost <= COST_SHARE * (now() - checkpoint->last);
}

static bool is_worth(const RunCheckpoint *checkpoint) {
    return checkpoint->kept || now() - checkpoint->last >= WORTH_SECONDS;
}

/* Writes the list of steps so far, `count` of them that are done and the running one. */
static Status write_run(RunCheckpoint *checkpoint, int count, Diag *diag) {
    Arena *arena = arena_create();
    Tree *run = tree_new(arena, TREE_MAP, LOC_NONE);
    Tree *steps = tree_put_list(arena, run, "steps");
    for (int i = 0; i < count + (checkpoint->running == count); i++) {
        const bool done = i < count;
        const Tree *parts = done ? checkpoint->steps[i].parts : checkpoint->parts;
        Tree *step = tree_add_map(arena, steps);
        tree_put_string(arena, step, "key",
                        done ? checkpoint->steps[i].key : checkpoint->key);
        if (parts) tree_put(arena, step, "parts", tree_copy(arena, parts));
    }
    tree_put_real(arena, run, MODEL_COST, checkpoint->model_cost);
    tree_put_real(arena, run, TRAINING_COST, checkpoint->training_cost);
    const Status status = json_write(run, in_folder(checkpoint, arena, RUN_FILE), diag);
    arena_destroy(arena);
    return status;
}

/* Tells what went wrong, and gives up keeping. */
static void give_up(RunCheckpoint *checkpoint, Diag *own) {
    checkpoint->broken = true;
    diag_take_warnings(checkpoint->options.diag, own,
                       "the run goes on without checkpoints");
}

static void tell_kept(const RunCheckpoint *checkpoint, int index, bool training,
                      double seconds) {
    const RunCheckpointOptions *options = &checkpoint->options;
    if (options->kept && !checkpoint->broken)
        options->kept(options->self, index, training, seconds);
}

/* Keeps a model and the snapshots that steps after `index` name, and nothing else. */
static Status write_models(RunCheckpoint *checkpoint, int index, Model *model,
                           Diag *diag) {
    const Recipe *recipe = checkpoint->options.recipe;
    const char **states =
        ARENA_ARRAY(checkpoint->arena, const char *, (size_t)recipe->step_count + 1);
    int count = 0;
    states[count++] = checkpoint->steps[index].entry.state;
    TRY(step_store_put_model(checkpoint->store, states[0], model, diag));
    for (int i = 0; i <= index; i++) {
        NotedStep *step = &checkpoint->steps[i];
        if (!recipe_snapshot_made(&recipe->steps[i]) ||
            !recipe_snapshot_needed(recipe, i, index + 1))
            continue;
        states[count++] = step->entry.state;
        if (!step->snapshot) continue;
        TRY(step_store_put_model(checkpoint->store, step->entry.state, step->snapshot,
                                 diag));
    }
    for (int i = 0; i <= index; i++)
        if (checkpoint->steps[i].parts)
            TRY(step_store_put(checkpoint->store, checkpoint->steps[i].key,
                               checkpoint->steps[i].parts, &checkpoint->steps[i].entry,
                               diag));
    TRY(write_run(checkpoint, index + 1, diag));
    step_store_keep_models(checkpoint->store, states, count);
    return STATUS_OK;
}

static void write_step(RunCheckpoint *checkpoint, int index, Model *model) {
    const double start = now();
    Diag *own = diag_create();
    Status status = claim_folder(checkpoint, own);
    if (status == STATUS_OK) status = write_models(checkpoint, index, model, own);
    if (status == STATUS_OK) {
        hashed_files_remove(in_folder(checkpoint, checkpoint->arena, TRAINING), NULL, 0);
        checkpoint->kept = true;
    } else {
        give_up(checkpoint, own);
    }
    diag_destroy(own);
    checkpoint->last = now();
    checkpoint->model_cost = checkpoint->last - start;
    tell_kept(checkpoint, index, false, checkpoint->model_cost);
}

/* ---- steps ---- */

void run_checkpoint_note(RunCheckpoint *checkpoint, int index, const char *key,
                         const Tree *parts, const StepEntry *entry) {
    NotedStep *step = &checkpoint->steps[index];
    strcpy(step->key, key);
    step->parts = tree_copy(checkpoint->arena, parts);
    step->entry = *entry;
    step->entry.record = tree_copy(checkpoint->arena, entry->record);
    step->entry.times = tree_copy(checkpoint->arena, entry->times);
    step->entry.warnings = tree_copy(checkpoint->arena, entry->warnings);
}

Status run_checkpoint_begin(RunCheckpoint *checkpoint, int index, const char *key,
                            const Tree *parts, int64_t bytes) {
    checkpoint->running = index;
    strcpy(checkpoint->key, key);
    checkpoint->parts = parts;
    const double guess = (double)bytes / GUESS_SPEED;
    if (checkpoint->model_cost == 0) checkpoint->model_cost = GUESS_SECONDS + guess;
    if (checkpoint->training_cost == 0)
        checkpoint->training_cost = GUESS_SECONDS + TRAINING_PARTS * guess;
    return check_same_run(checkpoint, index, parts);
}

void run_checkpoint_step(RunCheckpoint *checkpoint, int index, Model *model) {
    const Recipe *recipe = checkpoint->options.recipe;
    const int64_t every = recipe->checkpoint.every;
    checkpoint->running = -1;
    if (is_off(checkpoint)) return;
    if (recipe_snapshot_made(&recipe->steps[index]) &&
        recipe_snapshot_needed(recipe, index, index + 1))
        checkpoint->steps[index].snapshot = model_copy(model);
    const bool due = every > 0 ? (index + 1) % every == 0
                               : is_cheap(checkpoint, checkpoint->model_cost);
    if (due || (is_cancelled(checkpoint) && is_worth(checkpoint)))
        write_step(checkpoint, index, model);
}

/* ---- inside training ---- */

const TrainKeeper *run_checkpoint_train_keeper(const RunCheckpoint *checkpoint) {
    return &checkpoint->keeper;
}

static bool train_due(void *self, int64_t done, int64_t total) {
    const RunCheckpoint *checkpoint = self;
    const double minutes = checkpoint->options.recipe->checkpoint.minutes;
    (void)done, (void)total;
    if (is_off(checkpoint)) return false;
    if (minutes > 0) return now() - checkpoint->last >= 60 * minutes;
    return is_cheap(checkpoint, checkpoint->training_cost);
}

const char *run_checkpoint_train_path(const RunCheckpoint *checkpoint, Arena *arena,
                                      int64_t serial) {
    const char *name = arena_printf(arena, "%s/%s-%lld.state", TRAINING, checkpoint->key,
                                    (long long)serial);
    return in_folder(checkpoint, arena, name);
}

static Status write_training(RunCheckpoint *checkpoint, const TrainState *state,
                             int64_t serial, Diag *diag) {
    Arena *arena = arena_create();
    const char *folder = in_folder(checkpoint, arena, TRAINING);
    Status status = claim_folder(checkpoint, diag);
    if (status == STATUS_OK && mkdir(folder, 0777) != 0 && errno != EEXIST)
        status = diag_fail(diag, STATUS_IO, LOC_FILE(folder), NULL,
                           "cannot make the folder: %s", strerror(errno));
    if (status == STATUS_OK) status = write_run(checkpoint, checkpoint->running, diag);
    if (status == STATUS_OK)
        status = train_file_write(run_checkpoint_train_path(checkpoint, arena, serial),
                                  state, diag);
    arena_destroy(arena);
    return status;
}

/* TrainKeeper.save: also called when training is interrupted, and between trainings,
 * which is not always worth a file. */
static Status train_save(void *self, const TrainState *state, Diag *diag) {
    RunCheckpoint *checkpoint = self;
    const Tree *serial = tree_get(state->numbers, "serial");
    const bool known = serial && serial->kind == TREE_INT;
    const double start = now();
    (void)diag;
    if (is_off(checkpoint) || checkpoint->running < 0) return STATUS_OK;
    if (!train_due(checkpoint, 0, 0) &&
        !(is_cancelled(checkpoint) && is_worth(checkpoint)))
        return STATUS_OK;
    Diag *own = diag_create();
    if (write_training(checkpoint, state, known ? serial->integer : 0, own) == STATUS_OK)
        checkpoint->kept = true;
    else
        give_up(checkpoint, own);
    diag_destroy(own);
    checkpoint->last = now();
    checkpoint->training_cost = checkpoint->last - start;
    tell_kept(checkpoint, checkpoint->running, true, checkpoint->training_cost);
    return STATUS_OK;
}

static Status train_load(void *self, int serial, TrainState **state, Diag *diag) {
    RunCheckpoint *checkpoint = self;
    Arena *arena = arena_create();
    const char *path = run_checkpoint_train_path(checkpoint, arena, serial);
    *state = NULL;
    if (checkpoint->earlier && checkpoint->running >= 0 && path_is_file(path)) {
        Diag *own = diag_create();
        if (train_file_read(state, path, own) != STATUS_OK) unlink(path);
        checkpoint->kept |= *state != NULL;
        diag_take_warnings(diag, own, "a kept state of training is left out");
        diag_destroy(own);
    }
    arena_destroy(arena);
    return STATUS_OK;
}
