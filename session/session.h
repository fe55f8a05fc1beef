/* Session: one recipe from its file to the model that it makes. Everything that
 * `compress` does with a recipe, for programs without a command line:
 *
 *     const SessionOptions options = {.recipe = "minivit.yaml", .output = "small.h5"};
 *     Session session;
 *     Status status = session_open(&session, &options, diag);
 *     if (status == STATUS_OK) status = session_load(&session, true, diag);
 *     if (status == STATUS_OK) status = session_plan(&session, diag);
 *     if (status == STATUS_OK) status = session_run(&session, diag);
 *     if (status == STATUS_OK) status = session_write(&session, diag);
 *     status = session_finish(&session, status, diag);
 *     session_close(&session);
 *
 * `session.planned` says what each step will leave, `session.report` what it left, and
 * `session.model` is the result. Nothing is printed, and no signal is caught.
 *
 * In a job of several ranks (exec/run/ranks.h), joined after session_open, every rank
 * does the same. From session_load on the functions are collective: all ranks continue,
 * or all fail with one message. Only rank 0 writes files and reports events. */
#ifndef COMPRESS_SESSION_SESSION_H
#define COMPRESS_SESSION_SESSION_H

#include "exec/run/ranks.h"
#include "io/datasets/dataset.h"
#include "io/files/path.h"
#include "io/formats/save.h"
#include "session/report/events.h"
#include "session/report/report.h"

/* Options. Paths are relative to the working directory; all are borrowed and must
 * outlive the session. NULL and 0 = not given. */
typedef struct SessionOptions {
    const char *recipe;   /* file of the recipe */
    const Tree *document; /* the recipe itself, as if it had been read from there */
    const char *folder;   /* of relative paths in it; default: the file's */
    StringList env;       /* "NAME", "NAME=VALUE": session/recipe_document.h */
    StringList sets;      /* "key=value": changes of the recipe, the value in YAML */
    const char *model;    /* to start from, instead of the recipe's */
    const char *output;   /* path for the model, instead of all of the recipe's */
    const char *report;   /* file for the report as JSON; "-" = standard output */
    const char *events;   /* file for events as JSON Lines, likewise */
    bool force; /* outputs may replace files that are not models, and files that are read
                 */
    int64_t threads;         /* instead of the recipe's */
    bool resume;             /* continue the run whose checkpoint is there */
    bool no_checkpoint;      /* keep none, whatever the recipe says */
    bool keeps_model;        /* the resulting model is used, though none is written */
    const char *cache;       /* folder of finished steps that runs share */
    const char *cache_limit; /* its size: "500M", "10G" (the default) */
    const char *memory;      /* bound on the predicted memory of the run: "600M" */
    DumpWhen dump;           /* which IR texts to write */
    const char *dump_folder; /* where to: NN-PASS-WHEN.ir */
    bool dump_values;        /* with statistics of the weights (graph_print_named) */
    bool without_data;  /* only for planning: data sets are neither opened nor checked */
    const Watch *watch; /* progress inside steps, and whether to stop */
    int only; /* number of the only step to run, from 1, on `model`; 0 = run all */
    const char *input; /* with that: the recipe's input model, if it is not the
                          recipe's own; read when the step asks for it */

    /* Called around the steps of session_run, on its thread. Members may be NULL. */
    void *self;
    void (*step_begin)(void *self, const Recipe *recipe, int index);
    void (*step_end)(void *self, const Recipe *recipe, int index,
                     const StepResult *result);
} SessionOptions;

typedef struct OtherModel OtherModel;
typedef struct StepReuse StepReuse;
typedef struct Companions Companions;

/* One entry of the recipe's `data:`. */
typedef struct DataEntry {
    const char *name;
    Loc at;
    const DataFormat *format;
    void *options;
    Batches *batches;           /* NULL until opened */
    char hash[HASH_TEXT_BYTES]; /* of its files; "" until session_run */
    int used;                   /* order of first use by a step, from 1; 0 = not used */
    const OtherModel *compared; /* the latest model read when its vocabulary was compared;
                                   NULL = only the input model */
    bool started;               /* it was compared with that one */
    bool warned;                /* warned that its class names give no order */
    bool compared_images;       /* its preprocessing was compared with the model's */
} DataEntry;

/* A model requested by a step, by path. */
struct OtherModel {
    const char *path;
    bool shapes; /* without weights */
    Model *model;
    OtherModel *next;
};

/* The starting point of the run. */
typedef struct SessionInput {
    const char *path;           /* or what it is built from */
    bool built;                 /* from a configuration, with new weights */
    Model *model;               /* as it was before the first step */
    Model *shapes;              /* the same without weights */
    int64_t bytes;              /* of the files that it was read from; 0 = none */
    char hash[HASH_TEXT_BYTES]; /* "" until session_run */
} SessionInput;

typedef struct SessionData {
    DataEntry *entries;
    int count;
    int used; /* how many of them steps have used */
} SessionData;

/* The model's outputs; their actual places, if a gate did not hold. */
typedef struct SessionOutputs {
    ModelOutput *items;
    FileState *before; /* what existed at their paths when the run began; NULL until
                          session_check_outputs */
    int count;         /* 0 = nothing is written */
    int written;       /* how many of them, from the first, are in place */
    char hash[HASH_TEXT_BYTES]; /* of the model that was written */
} SessionOutputs;

/* What ended the run. */
typedef struct SessionFailure {
    int step;       /* from 0; -1 = none of them */
    GateFault gate; /* that did not hold; metric NULL = none */
    bool known;     /* it failed, and all ranks know it */
} SessionFailure;

/* What is reported about the run besides its model. */
typedef struct SessionTold {
    bool checked;    /* the places of report and events were checked */
    bool may_report; /* writing the report destroys nothing else */
    Events *events;  /* NULL = none are wanted, or not opened yet */
} SessionTold;

/* The step that runs. */
typedef struct SessionStep {
    int index;            /* from 0 */
    double start;         /* when it began, in seconds of the ticker */
    RanksTraffic traffic; /* with other ranks before it */
} SessionStep;

/* Members are there to be read; the functions below set them. */
typedef struct Session {
    Resources resources; /* what the steps may request; first, so that a pointer to it is
                            the session */
    SessionOptions options;
    Arena *arena; /* owned: the recipe and the reports */
    Recipe recipe;
    bool bound; /* the recipe has no errors */
    int threads;
    int64_t memory_limit; /* of options.memory, in bytes */
    double start;         /* when it was opened, in seconds of the ticker */
    SessionInput input;
    SessionData data;
    SessionOutputs outputs;
    Model *model; /* the model that the steps change */
    OtherModel *others;
    Companions *companions; /* files that accompany the model (session/companions.h),
                               known at the end of the plan */
    RunReport planned, report;
    bool measured;    /* the start of the reports is known */
    StepReuse *reuse; /* where finished steps are kept; NULL = nowhere */
    Watch watch;      /* of the steps: events, and the watch of the options */
    SessionStep step;
    SessionFailure failed;
    SessionTold told;
} Session;

/* Reads the recipe as a document, with the changes of options->sets; other options are
 * ignored. Fails with STATUS_RECIPE, STATUS_USAGE, STATUS_IO. */
Status session_document(Tree **out, Arena *arena, const SessionOptions *options,
                        Diag *diag);

/* Reads and binds the recipe with its data sets, reporting all errors together. To be
 * closed whatever it returns. Fails with STATUS_RECIPE, STATUS_USAGE, STATUS_IO. */
Status session_open(Session *session, const SessionOptions *options, Diag *diag);

/* Reads the input model, or builds it. With `weights` session_run can follow: first it
 * is checked that the output files can be written, then every byte is checked, or the
 * new weights are drawn. Without, the storages have only shapes. Fails with STATUS_IO,
 * STATUS_USAGE, STATUS_RECIPE, STATUS_FORMAT, STATUS_MODEL. */
Status session_load(Session *session, bool weights, Diag *diag);

/* Opens all data sets, reporting all errors, and runs the steps on the model's shapes
 * only, without changing the model: this checks every step's options, and all samples of
 * its data set against the model as the steps before leave it; then whether the
 * resulting model can be written to every output; and how much memory the run takes
 * (session/memory.h). Fills session->planned. Fails as the steps do, with STATUS_MODEL,
 * and with STATUS_MEMORY if options.memory is less than that. */
Status session_plan(Session *session, Diag *diag);

/* Runs the steps on the model; fills session->report. Fails with STATUS_FORMAT if ranks
 * read different files. Only session_plan finds problems with the data sets of later
 * steps in advance; without it nothing is stored or reused either. Fails as the steps
 * do, with STATUS_INTERRUPTED if the watch says so, and with STATUS_USAGE if the
 * checkpoint to continue from is another run's. */
Status session_run(Session *session, Diag *diag);

/* Hashes the input model and the files of the data sets that are open, each once:
 * session->input.hash and DataEntry.hash. To be called after session_plan, which opens
 * them; session_run does it if it was not done. Not collective. Fails with STATUS_IO. */
Status session_hash_inputs(Session *session, Diag *diag);

/* Writes the model to the outputs (model_save), in order; then the run's checkpoint is
 * removed. Fails with STATUS_IO, and with STATUS_MODEL if a weight does not fit the
 * requested type. */
Status session_write(Session *session, Diag *diag);

/* Ends a run, however it went: to be called once after session_open, with the status of
 * the first of the above that failed. Writes the report and the last event, if
 * requested. Returns `status` or, if that is STATUS_OK, the failure of writing these two
 * (STATUS_IO). Adds a note to an error saying which outputs are in place
 * nevertheless. */
Status session_finish(Session *session, Status status, Diag *diag);

/* Writes a warning to the events; fits diag_on_warning with the session as `self`. */
void session_warn(void *self, const char *line);

/* Frees models, data sets, recipe and reports, and leaves the session zeroed; a zeroed
 * session may be closed as well. */
void session_close(Session *session);

/* Checks that the report can be written and opens the events, once: they report on a run
 * however it ends. Fails with STATUS_IO, STATUS_USAGE. */
Status session_check_told(Session *session, Diag *diag);

/* The same for everything that the run will write, including the model's outputs. Fails
 * with STATUS_IO, STATUS_USAGE, STATUS_RECIPE. */
Status session_check_outputs(Session *session, Diag *diag);

/* The part needed by a plan: outputs do not overlap. Fails with STATUS_RECIPE. */
Status session_check_apart(const Session *session, Diag *diag);

/* Reduces a model that was read to its shapes; it knows its vocabulary like one that is
 * read with weights. */
void session_strip(Model *model);

/* Provides what the steps may request, session->resources; opens all data sets, unless
 * the options leave them out, reporting all errors. Fails as their readers do. */
Status session_connect(Session *session, Diag *diag);

/* Checks a data set that `model`, as the steps have left it so far, will read. Its
 * vocabulary is compared, once, with those of the input model, which takes it over if it
 * was built, and of all other models read so far; if it names its classes, they are
 * compared with the model's head and with the names and order of its configuration's
 * id2label. Warns, once, about images that it prepares differently from the model's
 * preprocessor_config.json. Fails with STATUS_MODEL at `at`. */
Status session_check_data(Session *session, DataEntry *entry, const Model *model, Loc at,
                          Diag *diag);

/* Checks a teacher against the model that a step changes and its data set: if their
 * predictions are compared, the names and order of the classes. Warns about images
 * prepared differently from the teacher's preprocessor_config.json, and about a teacher
 * whose weights are drawn. Fails with STATUS_MODEL at `at`. */
Status session_check_teacher(Session *session, const DataEntry *entry,
                             const TeacherUse *use, Loc at, Diag *diag);

/* Threads to use: `wanted`, or as many as the process may keep busy (threads_available);
 * at most blas_threads_most. */
int threads_choose(int64_t wanted);

#endif
