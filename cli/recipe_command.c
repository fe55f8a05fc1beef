/* compress --recipe: plan, run, write, read back, report; compress plan: the plan alone.
 */
#include "cli/command.h"
#include "cli/progress.h"
#include "cli/report_tables.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "cli/text_table.h"
#include "exec/processor.h"
#include "session/job.h"
#include "session/recipe_document.h"
#include "session/report/run_report.h"

#include <string.h>

/* One run of a recipe. */
typedef struct RecipeRun {
    Arena *arena;
    Progress progress;
    Session session;
    bool joined;   /* it is known which rank this is */
    Text withheld; /* warnings until then, each terminated */
} RecipeRun;

/* diag_on_warning while the run lasts: rank 0 tells, and the others have the same. */
static void tell_warning(void *self, const char *line) {
    RecipeRun *run = self;
    if (!run->joined) text_bytes(&run->withheld, line, strlen(line) + 1);
    if (!run->joined || !job_leads()) return;
    progress_warn(&run->progress, line);
    session_warn(&run->session, line);
}

/* Joins the other ranks, whatever came of opening the session: the program may have been
 * started anew by it, for a level of processor. */
static Status join_ranks(RecipeRun *run, Status status, Diag *diag) {
    const Text *lines = &run->withheld;
    status = job_join(status, diag);
    run->joined = true;
    if (!job_leads()) run->progress = (Progress){.quiet = true};
    for (size_t at = 0; at < lines->length; at += strlen(lines->data + at) + 1)
        tell_warning(run, lines->data + at);
    return status;
}

static void begin_step(void *self, const Recipe *recipe, int index) {
    RecipeRun *run = self;
    progress_begin(&run->progress, index, recipe->step_count,
                   step_title(run->arena, &recipe->steps[index]));
}

static void end_step(void *self, const Recipe *recipe, int index,
                     const StepResult *result) {
    RecipeRun *run = self;
    const Measure *measure = &result->measure;
    (void)recipe, (void)index;
    progress_end(&run->progress, "%s parameters, %s, %s",
                 text_grouped(run->arena, measure->parameters),
                 text_size(run->arena, measure->bytes),
                 result->reused ? "reused" : text_seconds(run->arena, result->seconds));
}

/* Opens the session that the flags ask for; `with` has what else it needs. */
static Status open_session(Session *session, const Cli *cli, SessionOptions with,
                           Diag *diag) {
    const Flags *flags = &cli->flags;
    if (!flags->recipe) {
        diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL, "expected --recipe FILE");
        diag_hint(diag, "`compress --help` shows the usage");
        return STATUS_USAGE;
    }
    with.recipe = flags->recipe;
    with.sets = flags->set;
    with.env = flags->env;
    with.model = flags->model;
    with.output = flags->output;
    with.force = flags->force;
    with.report = flags->report;
    with.events = flags->events;
    with.threads = flags->threads;
    with.resume = flags->resume;
    with.no_checkpoint = flags->no_checkpoint;
    with.cache = flags->cache;
    with.cache_limit = flags->cache_limit;
    with.memory = flags->memory;
    with.dump = (DumpWhen)flags->dump_ir;
    with.dump_folder = flags->dump_dir;
    with.dump_values = flags->values;
    TRY(session_open(session, &with, diag));
    if (flags->dump_ir == DUMP_NEVER || flags->dump_dir) return STATUS_OK;
    return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                     "--dump-ir needs --dump-dir FOLDER");
}

static bool is_standard(const char *path) {
    return path && strcmp(path, "-") == 0;
}

/* Prints what came of a run: to stderr where standard output is the report's or the
 * events'. */
static Status print_result(const Session *session, Diag *diag) {
    const SessionOptions *options = &session->options;
    const bool taken = is_standard(options->report) || is_standard(options->events);
    FILE *out = taken ? stderr : stdout;
    report_print_result(session, out);
    return terminal_flush(out, diag);
}

static Status run_recipe(RecipeRun *run, const Cli *cli, Diag *diag) {
    Session *session = &run->session;
    const Watch watch = progress_watch(&run->progress);
    const SessionOptions options = {
        .watch = &watch, .self = run, .step_begin = begin_step, .step_end = end_step};
    Status status = open_session(session, cli, options, diag);
    if (status == STATUS_OK && cli->flags.processor == PROCESSOR_AUTO)
        status = processor_fix(session->recipe.processor, diag);
    status = join_ranks(run, status, diag);
    if (status == STATUS_OK) status = session_load(session, true, diag);
    if (status == STATUS_OK) status = session_plan(session, diag);
    if (status == STATUS_OK && !cli->flags.quiet && job_leads())
        report_print_plan(&session->planned, stderr);
    if (status == STATUS_OK) status = session_run(session, diag);
    progress_clear(&run->progress);
    if (status == STATUS_OK && signals_interrupted_before())
        status = diag_fail(diag, STATUS_INTERRUPTED, LOC_NONE, NULL, "interrupted");
    if (status == STATUS_OK) status = session_write(session, diag);
    if (status == STATUS_OK && job_leads()) status = print_result(session, diag);
    return session->arena ? session_finish(session, status, diag) : status;
}

Status command_recipe(const Cli *cli, Diag *diag) {
    RecipeRun run = {.arena = cli->arena, .progress = progress_create(cli->flags.quiet)};
    if (cli->flags.heartbeat >= 0) run.progress.heartbeat = cli->flags.heartbeat;
    signals_ignore_pipe(); /* what is printed is not what the run is for */
    diag_on_warning(diag, tell_warning, &run);
    Status status = run_recipe(&run, cli, diag);
    diag_on_warning(diag, job_leads() ? progress_warn : NULL, NULL);
    session_close(&run.session);
    text_free(&run.withheld);
    return status;
}

/* Prints the document that the steps were bound from. */
static void print_resolved(const Recipe *recipe, bool json) {
    Text text = {0};
    if (json) {
        tree_print_json(&text, recipe->source, 2);
        text_add(&text, "\n");
    } else {
        recipe_document_print(&text, recipe->source);
    }
    fputs(text.data, stdout);
    text_free(&text);
}

/* Whether a data set could not be opened. */
static bool data_is_missing(const Session *session) {
    for (int i = 0; i < session->data.count; i++)
        if (!session->data.entries[i].batches) return !session->options.without_data;
    return false;
}

static Status plan_recipe(Session *session, const Cli *cli, Diag *diag) {
    const SessionOptions options = {.without_data = cli->flags.no_data};
    TRY(open_session(session, cli, options, diag));
    if (cli->flags.resolved) {
        print_resolved(&session->recipe, cli->flags.json);
        return STATUS_OK;
    }
    TRY(session_load(session, false, diag));
    const Status status = session_plan(session, diag);
    if (status == STATUS_IO && data_is_missing(session))
        diag_hint(diag, "--no-data plans without data sets, which are not checked then");
    if (status != STATUS_OK && status != STATUS_GATE && status != STATUS_MEMORY)
        return status;
    if (cli->flags.json) /* where a bound does not hold, what there is up to it */
        TRY(run_report_write(run_report_plan(session), "-", diag));
    else
        report_print_plan(&session->planned, stdout);
    if (status == STATUS_MEMORY && cli->flags.memory && !cli->flags.json)
        printf("refused: more than --memory %s\n", cli->flags.memory);
    return status;
}

Status command_plan(const Cli *cli, Diag *diag) {
    Session session = {0};
    Status status = plan_recipe(&session, cli, diag);
    session_close(&session);
    return status;
}
