/* Session: one recipe with its data sets and models, from the command line to the
 * pipeline. */
#ifndef COMPRESS_CLI_SESSION_H
#define COMPRESS_CLI_SESSION_H

#include "cli/command.h"
#include "io/datasets/dataset.h"
#include "passes/pipeline/pipeline.h"

/* One entry of the recipe's `data:`. */
typedef struct DataEntry {
    const char *name;
    Loc at;
    const DataFormat *format;
    void *options;
    Batches *batches; /* NULL until opened */
    bool compared;    /* its vocabulary with that of the models */
    bool checked;     /* its classes are those of the model */
} DataEntry;

/* A model that a step asked for, by path. */
typedef struct OtherModel OtherModel;
struct OtherModel {
    const char *path;
    bool shapes; /* without weights */
    Model *model;
    OtherModel *next;
};

typedef struct Session {
    const Cli *cli;
    Arena *arena;
    Recipe recipe;
    DataEntry *data;
    int data_count;
    const char *source;  /* path of the input model, or what it is built from */
    bool built;          /* from a configuration, with new weights */
    Model *model;        /* the one that the steps change */
    Model *input;        /* as it was before the first step */
    Model *input_shapes; /* the same without weights */
    OtherModel *others;
    const char *output; /* NULL = nothing is written */
    int threads;
} Session;

/* Reads and binds the recipe with --set, --model, --output and its data sets, reporting
 * all errors together. Fails with STATUS_RECIPE, STATUS_USAGE, STATUS_IO. */
Status session_open(Session *session, const Cli *cli, Diag *diag);

/* Reads the input model, or builds it. With `weights` every byte is checked, or the new
 * weights are drawn; without, the storages have shapes only. */
Status session_load_model(Session *session, bool weights, Diag *diag);

/* Opens all data sets, reporting all errors. */
Status session_open_data(Session *session, Diag *diag);

/* Checks a data set, once. Its vocabulary is compared with those of the model, unless it
 * was built, which then takes it over, and of all other models read so far; where it
 * names its classes, they are compared with the model's head and with the names and order
 * of its configuration's id2label. Fails with STATUS_MODEL at `at`. */
Status session_check_data(Session *session, DataEntry *entry, Loc at, Diag *diag);

/* Runs the steps on the model's shapes alone, leaving the model as it is. `start` (may
 * be NULL) receives the measure of the input. */
Status session_plan(Session *session, Measure *start, const PipelineHooks *hooks,
                    Diag *diag);

/* Runs the steps. */
Status session_run(Session *session, DumpWhen dump, const Watch *watch,
                   const PipelineHooks *hooks, Diag *diag);

/* Frees models and data sets. */
void session_close(Session *session);

/* The model's copy without weights; weights are dropped in place by model_strip. */
void model_strip(Model *model);

/* Threads to use: `wanted`, or as many as the process may run on. */
int threads_choose(int64_t wanted);

#endif
