/* Sessions: planning and running the steps, telling of them, and writing what comes of
 * it. */
#include "exec/linalg/products.h"
#include "exec/run/ticker.h"
#include "io/datasets/dataset_hash.h"
#include "io/files/file.h"
#include "ir/resident.h"
#include "ir/version.h"
#include "session/companions.h"
#include "session/job.h"
#include "session/memory.h"
#include "session/output_files.h"
#include "session/report/reproducer.h"
#include "session/report/run_report.h"
#include "session/reuse/job_reuse.h"

#include <stdlib.h>
#include <string.h>

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
    session->failed.step = index;
    if (!failure->gate) return;
    session->failed.gate = *failure->gate;
    session->failed.gate.metric = arena_strdup(arena, failure->gate->metric);
    session->failed.gate.bound = arena_strdup(arena, failure->gate->bound);
    session->failed.gate.detail = arena_strdup(arena, failure->gate->detail);
}

/* What training does not do that the model's configuration asks for. */
static void warn_left_out(const Session *session, Diag *diag) {
    bool trains = false;
    for (int i = 0; i < session->recipe.step_count; i++)
        trains = trains || session->recipe.steps[i].pass->flags & PASS_TRAINS;
    if (trains) model_warn_left_out(session->model, diag);
}

/* The first of two things that went wrong. */
static Status first_of(Status status, Status other) {
    return status == STATUS_OK ? other : status;
}

static Status plan_steps(Session *session, Diag *diag) {
    TRY(session_connect(session, diag));
    warn_left_out(session, diag);
    session->input.shapes = model_copy(session->model);
    model_strip(session->input.shapes);
    Model *model = model_copy(session->input.shapes);
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
    const int outputs = status == STATUS_OK ? session->outputs.count : 0;
    for (int i = 0; i < outputs; i++) /* all that refuse it are told */
        status =
            first_of(status, output_check_model(&session->outputs.items[i], model, diag));
    if (status == STATUS_OK &&
        (session->outputs.count > 0 || session->options.keeps_model))
        companions_find(session, model, diag);
    model_destroy(model);
    if (status == STATUS_OK) job_warn_idle(session, diag);
    if (session->measured) memory_foretell(session);
    return status == STATUS_OK ? memory_check(session, diag) : status;
}

Status session_plan(Session *session, Diag *diag) {
    return job_agree(session, plan_steps(session, diag), diag);
}

/* Event of a step: which one it is, and `record`'s numbers as its values, unless NULL. */
static void tell_step(Session *session, const char *name, int index, const Tree *record) {
    if (!session->told.events) return;
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
    if (!record || metrics->count > 0) events_put(session->told.events, name, values);
    arena_destroy(arena);
}

/* PipelineHooks when running. */
static void begin_step(void *self, const Recipe *recipe, int index) {
    Session *session = self;
    const SessionOptions *options = &session->options;
    session->step.index = index;
    session->step.start = ticker_seconds();
    session->step.traffic = ranks_traffic();
    tell_step(session, "step_begin", index, NULL);
    if (options->step_begin) options->step_begin(options->self, recipe, index);
}

/* What talking to other ranks took since the step began: bytes that this one sent, and
 * seconds, waiting included. */
static void put_traffic(Arena *arena, Tree *values, const RanksTraffic *before) {
    if (ranks_count() == 1) return;
    const RanksTraffic now = ranks_traffic();
    Tree *map = tree_put_map(arena, values, "ranks");
    tree_put_int(arena, map, "count", ranks_count());
    tree_put_int(arena, map, "sent_bytes", (int64_t)(now.bytes - before->bytes));
    tree_put_real(arena, map, "seconds", now.seconds - before->seconds);
}

/* Event: a step ended; of one that measures, what it measured comes before. */
static void tell_end(Session *session, const ReportStep *row) {
    if (!session->told.events) return;
    Arena *arena = arena_create();
    Tree *values = tree_new(arena, TREE_MAP, LOC_NONE);
    if (row->step->pass->flags & PASS_MEASURES)
        tell_step(session, "metric", session->step.index, row->result.record);
    tree_put_int(arena, values, "step", session->step.index + 1);
    tree_put_real(arena, values, "seconds", row->result.seconds);
    measure_put(arena, values, &row->result.measure);
    tree_put_bool(arena, values, "reused", row->result.reused);
    put_traffic(arena, values, &session->step.traffic);
    if (row->failed) tree_put_bool(arena, values, "failed", true);
    events_put(session->told.events, "step_end", values);
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
    if (failure->status == STATUS_INTERNAL && !session->options.only && job_leads())
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
    events_progress(session->told.events, session->step.index + 1, done, total, text,
                    ticker_seconds() - session->step.start);
    if (watch && watch->progress) watch->progress(watch->self, done, total, text);
}

static bool is_cancelled(void *self) {
    const Watch *watch = ((const Session *)self)->options.watch;
    return watch && watch->cancelled && watch->cancelled(watch->self);
}

void session_warn(void *self, const char *line) {
    events_warning(((const Session *)self)->told.events, line);
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
    if (!*session->input.hash) model_hash(session->model, session->input.hash);
    for (int i = 0; i < session->data.count; i++) {
        DataEntry *entry = &session->data.entries[i];
        if (!*entry->hash && entry->batches)
            TRY(dataset_hash(entry->hash, entry->format, entry->options, diag));
    }
    return STATUS_OK;
}

/* A data set's files, for messages: "a.idx, b.idx". */
static const char *data_files(Arena *arena, const DataEntry *entry) {
    const char *files = "";
    for (const Field *field = entry->format->fields; field->name; field++) {
        const char *at = (const char *)entry->options + field->offset;
        StringList list = {(const char **)(uintptr_t)at, 1};
        if (!dataset_is_path(entry->format, field->name)) continue;
        if (field->kind == FIELD_STRINGS) memcpy(&list, at, sizeof list);
        for (int i = 0; i < list.count; i++)
            if (list.items[i])
                files = arena_printf(arena, "%s%s%s", files, *files ? ", " : "",
                                     list.items[i]);
    }
    return files;
}

/* Whether all ranks read the same model and data. */
static Status compare_inputs(Session *session, Diag *diag) {
    static const char HINT[] =
        "every rank reads its files by itself: a shared folder, or "
        "the same copies, give all of them the same";
    Arena *arena = session->arena;
    const Loc at = LOC_FILE(session->options.recipe);
    if (ranks_count() == 1) return STATUS_OK;
    TRY(job_same(session->input.hash, STATUS_FORMAT, at,
                 arena_printf(arena, "the model (%s)", session->input.path), HINT, diag));
    for (int i = 0; i < session->data.count; i++) {
        const DataEntry *entry = &session->data.entries[i];
        const char *what = arena_printf(arena, "data set \"%s\" (%s)", entry->name,
                                        data_files(arena, entry));
        TRY(job_same(entry->hash, STATUS_FORMAT, entry->at, what, HINT, diag));
    }
    return STATUS_OK;
}

/* Writes the model with what goes along. */
static Status write_output(Session *session, int i, Diag *diag) {
    companions_give(session);
    companions_fit(session, i);
    session->outputs.items[i].hashed = true;
    return model_save(session->model, &session->outputs.items[i], diag);
}

/* Writes the model of a gate that did not hold under other names, and says so behind the
 * gate's error. */
static Status write_failed(Session *session, Diag *diag) {
    model_hash(session->model, session->outputs.hash);
    for (int i = 0; i < session->outputs.count; i++) {
        session->outputs.items[i] =
            output_of_failed(session->arena, &session->outputs.items[i]);
        TRY(write_output(session, i, diag));
        diag_note(diag, "the model is kept as %s", session->outputs.items[i].path);
    }
    return STATUS_OK;
}

/* What the recipe is called, whatever folder it is in: bytes do not depend on that. */
static const char *recipe_name(const Session *session) {
    const char *path = session->options.recipe;
    return file_descriptor(path) >= 0 ? "-" : path_base(session->arena, path);
}

/* Notes in the model's provenance what a replay needs beside recipe and input's hash. */
static void note_run(Session *session) {
    Arena *arena = session->model->arena;
    Tree *run = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_put_string(arena, run, "tool", "compress " COMPRESS_VERSION_TEXT);
    tree_put_string(arena, run, "processor", processor_name(processor_level()));
    if (products_name()) tree_put_string(arena, run, "products", products_name());
    tree_put_bool(arena, run, "fixed", getenv("COMPRESS_PROCESSOR") != NULL);
    tree_put_string(arena, run, "recipe", recipe_name(session));
    if (session->options.model)
        tree_put_string(arena, run, "model", path_base(arena, session->options.model));
    Tree *data = tree_put_map(arena, run, "data");
    for (int i = 0; i < session->data.count; i++)
        tree_put_string(arena, data, session->data.entries[i].name,
                        session->data.entries[i].hash);
    tree_put(arena, session->model->provenance, "run", run);
}

/* Opens where finished steps are kept, and makes the pipeline's keepers. */
static Status open_reuse(Session *session, PipelineOptions *options, Diag *diag) {
    if (job_leads()) TRY(step_reuse_open(&session->reuse, session, diag));
    options->keeper = step_reuse_keeper(session->reuse);
    options->train_keeper = step_reuse_train_keeper(session->reuse);
    if (ranks_count() == 1) return STATUS_OK;
    JobReuse *all = NULL;
    TRY(job_reuse_open(&all, session->arena, session->reuse, diag));
    options->keeper = job_reuse_keeper(all);
    options->train_keeper = job_reuse_train_keeper(all);
    return STATUS_OK;
}

static Status run_steps(Session *session, Diag *diag) {
    const SessionOptions *wanted = &session->options;
    TRY(session_connect(session, diag));
    TRY(session_hash_inputs(session, diag));
    TRY(compare_inputs(session, diag));
    note_run(session);
    session->input.model = model_copy(session->model);
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
    if (wanted->dump_folder && job_leads()) options.hooks.dump = dump_step;
    const bool planned = session->planned.count == session->recipe.step_count;
    if (planned) TRY(open_reuse(session, &options, diag));
    Status status = pipeline_run(session->model, &session->recipe, &options, diag);
    if (status == STATUS_GATE && session->recipe.keep == KEEP_ON_FAILURE && job_leads())
        write_failed(session, diag);
    if (status == STATUS_OK && is_cancelled(session))
        status = diag_fail(diag, STATUS_INTERRUPTED, LOC_NONE, NULL, "interrupted");
    return status;
}

Status session_run(Session *session, Diag *diag) {
    const Status status = job_agree(session, run_steps(session, diag), diag);
    if (status != STATUS_OK) step_reuse_hint(session->reuse, diag);
    return status;
}

/* ---- writing ---- */

/* What another program wrote to an output's path since the run began goes, and that is
 * told. */
static void warn_written_since(const Session *session, int i, Diag *diag) {
    const char *path = session->outputs.items[i].path;
    const FileState now = path_state(path);
    if (now.identity.inode == 0 || file_state_same(&now, &session->outputs.before[i]))
        return;
    diag_warn(diag, LOC_FILE(path), NULL,
              "another program has written it since this run began: that is replaced");
}

/* Writes the outputs, unless ranks have come to different models. */
static Status write_outputs(Session *session, Diag *diag) {
    model_hash(session->model, session->outputs.hash);
    TRY(job_same(session->outputs.hash, STATUS_INTERNAL, LOC_NONE,
                 "the model that came out",
                 "this is a defect of compress, or of the machine", diag));
    if (!job_leads()) return STATUS_OK;
    for (; session->outputs.written < session->outputs.count;
         session->outputs.written++) {
        warn_written_since(session, session->outputs.written, diag);
        TRY(write_output(session, session->outputs.written, diag));
    }
    return STATUS_OK;
}

Status session_write(Session *session, Diag *diag) {
    TRY(job_agree(session, write_outputs(session, diag), diag));
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
    events_put(session->told.events, "run_end", values);
}

Status session_finish(Session *session, Status status, Diag *diag) {
    const char *path = session->options.report;
    if (!session->told.checked) /* a recipe that does not bind: nothing was written yet */
        status = first_of(status, session_check_told(session, diag));
    status = first_of(status, events_check(session->told.events, diag));
    if (session->told.may_report)
        status = first_of(
            status, run_report_write(run_report(session, status, diag), path, diag));
    tell_finish(session, status);
    status = first_of(status, events_check(session->told.events, diag));
    for (int i = 0; status != STATUS_OK && i < session->outputs.written; i++)
        diag_note(diag, "the model is written all the same: %s is complete",
                  session->outputs.items[i].path);
    events_close(session->told.events);
    session->told.events = NULL;
    return session->failed.known ? status : job_agree(session, status, diag);
}

void session_close(Session *session) {
    if (!session->arena) return;
    step_reuse_close(session->reuse, false);
    for (OtherModel *other = session->others; other; other = other->next)
        model_destroy(other->model);
    for (int i = 0; i < session->data.count; i++)
        batches_destroy(session->data.entries[i].batches);
    companions_destroy(session->companions);
    model_destroy(session->input.shapes);
    model_destroy(session->input.model);
    model_destroy(session->model);
    resident_bound(0, NULL);
    arena_destroy(session->arena);
    *session = (Session){0};
}
