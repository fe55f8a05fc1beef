/* compress --recipe: plan, run, write, read back, report. */
#include "cli/commands.h"
#include "cli/files.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/session.h"
#include "cli/signals.h"
#include "cli/table.h"
#include "exec/linalg/blas.h"
#include "exec/ops.h"
#include "io/files/file.h"
#include "io/formats/load.h"
#include "io/formats/modelfile.h"

#include <string.h>
#include <sys/stat.h>

/* One run of a recipe. */
typedef struct Job {
    const Cli *cli;
    Session session;
    Report plan, report;
    Progress progress;
    char hash[HASH_TEXT_BYTES]; /* of the result */
    size_t file_bytes;
} Job;

static void plan_step(void *self, const Recipe *recipe, int index,
                      const StepResult *result) {
    Job *job = self;
    report_add(&job->plan, recipe, index, result);
}

static void begin_step(void *self, const Recipe *recipe, int index) {
    Job *job = self;
    progress_begin(&job->progress, index, recipe->step_count,
                   step_title(job->cli->arena, &recipe->steps[index]));
}

static void end_step(void *self, const Recipe *recipe, int index,
                     const StepResult *result) {
    Job *job = self;
    Arena *arena = job->cli->arena;
    const Measure *measure = &result->measure;
    report_add(&job->report, recipe, index, result);
    progress_end(&job->progress, "%s parameters, %s, %s",
                 text_grouped(arena, measure->parameters),
                 text_size(arena, measure->bytes), text_seconds(arena, result->seconds));
}

static Status dump_step(void *self, int index, const char *pass, const char *when,
                        const char *text, size_t length, Diag *diag) {
    Job *job = self;
    Arena *arena = job->cli->arena;
    const char *name = arena_printf(arena, "%02d-%s-%s.ir", index + 1, pass, when);
    return file_write(path_join(arena, job->cli->flags.dump_dir, name), text, length,
                      diag);
}

/* Whether two paths name one file: the same text, or the same existing file. */
static bool same_file(const char *a, const char *b) {
    struct stat x, y;
    if (strcmp(a, b) == 0) return true;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

/* Checks everything that can be written before the long work. */
static Status check_outputs(const Job *job, Diag *diag) {
    const Flags *flags = &job->cli->flags;
    Arena *arena = job->cli->arena;
    if (flags->dump_ir != DUMP_NEVER && !flags->dump_dir)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         "--dump-ir needs --dump-dir FOLDER");
    TRY(output_check(arena, flags->output ? "--output" : "output", job->session.output,
                     diag));
    TRY(output_check(arena, "--report", flags->report, diag));
    if (flags->report && job->session.output &&
        same_file(flags->report, job->session.output))
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, "--report",
                         "expected another file than the model's output");
    if (flags->dump_dir) TRY(folder_check("--dump-dir", flags->dump_dir, diag));
    return STATUS_OK;
}

static Status plan_job(Job *job, Diag *diag) {
    PipelineHooks hooks = {.self = job, .step_end = plan_step};
    TRY(session_plan(&job->session, &job->plan.start, &hooks, diag));
    job->report.start = job->plan.start;
    if (!job->cli->flags.quiet) report_print_plan(&job->plan, stderr);
    return STATUS_OK;
}

static Status run_job(Job *job, Diag *diag) {
    Watch watch = progress_watch(&job->progress);
    PipelineHooks hooks = {.self = job, .step_begin = begin_step, .step_end = end_step};
    if (job->cli->flags.dump_dir) hooks.dump = dump_step;
    Status status = session_run(&job->session, (DumpWhen)job->cli->flags.dump_ir, &watch,
                                &hooks, diag);
    progress_clear(&job->progress);
    if (status == STATUS_OK && signals_interrupted(NULL))
        return diag_fail(diag, STATUS_INTERRUPTED, LOC_NONE, NULL, "interrupted");
    return status;
}

/* Reads the file that was written and compares it with the model. */
static Status compare_written(const Job *job, const char *path, Diag *diag) {
    Model *written = NULL;
    TRY(model_load(&written, path, ops_table(), true, diag));
    char hash[HASH_TEXT_BYTES];
    model_hash(written, hash);
    model_destroy(written);
    if (strcmp(hash, job->hash) == 0) return STATUS_OK;
    return diag_fail(diag, STATUS_INTERNAL, LOC_FILE(path), NULL,
                     "the file reads back as another model: expected hash %s, found %s",
                     job->hash, hash);
}

static Status write_model(Job *job, Diag *diag) {
    const char *path = job->session.output;
    model_hash(job->session.model, job->hash);
    if (!path) return STATUS_OK;
    TRY(modelfile_write(job->session.model, path, &job->file_bytes, diag));
    return compare_written(job, path, diag);
}

static Status write_report(const Job *job, Diag *diag) {
    const char *path = job->cli->flags.report;
    if (!path) return STATUS_OK;
    Arena *arena = job->cli->arena;
    Tree *map = report_tree(&job->report, true);
    Tree *output = tree_new(arena, TREE_MAP, LOC_NONE);
    if (job->session.output) {
        tree_put_string(arena, output, "path", job->session.output);
        tree_put_int(arena, output, "file_bytes", (int64_t)job->file_bytes);
    }
    tree_put_string(arena, output, "hash", job->hash);
    tree_append(arena, map, "output", LOC_NONE, output);
    Text text = {0};
    tree_print_json(&text, map, 2);
    text_add(&text, "\n");
    Status status = file_write(path, text.data, text.length, diag);
    text_free(&text);
    return status;
}

static Status job_run(Job *job, Diag *diag) {
    TRY(session_open(&job->session, job->cli, diag));
    TRY(check_outputs(job, diag));
    blas_init();
    TRY(session_load_model(&job->session, true, diag));
    TRY(plan_job(job, diag));
    TRY(session_open_data(&job->session, diag));
    TRY(run_job(job, diag));
    TRY(write_model(job, diag));
    TRY(write_report(job, diag));
    report_print_result(&job->report, stdout);
    if (job->session.output)
        printf("wrote %s, %s bytes\n", job->session.output,
               text_grouped(job->cli->arena, (int64_t)job->file_bytes));
    else
        printf("no output was named: nothing is written\n");
    return STATUS_OK;
}

Status command_recipe(const Cli *cli, Diag *diag) {
    Job job = {.cli = cli,
               .plan = {.arena = cli->arena},
               .report = {.arena = cli->arena},
               .progress = progress_create(cli->flags.quiet)};
    Status status = job_run(&job, diag);
    session_close(&job.session);
    return status;
}
