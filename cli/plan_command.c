/* compress plan: what every step of a recipe leaves, from shapes alone. */
#include "cli/commands.h"
#include "cli/report.h"
#include "cli/session.h"

static void keep_step(void *self, const Recipe *recipe, int index,
                      const StepResult *result) {
    report_add(self, recipe, index, result);
}

static void print_json(const Report *report) {
    Text text = {0};
    tree_print_json(&text, report_tree(report, false), 2);
    puts(text.data);
    text_free(&text);
}

static Status plan_session(Session *session, const Cli *cli, Diag *diag) {
    Report report = {.arena = cli->arena};
    PipelineHooks hooks = {.self = &report, .step_end = keep_step};
    TRY(session_open(session, cli, diag));
    TRY(session_load_model(session, false, diag));
    TRY(session_plan(session, &report.start, &hooks, diag));
    if (cli->flags.json)
        print_json(&report);
    else
        report_print_plan(&report, stdout);
    return STATUS_OK;
}

Status command_plan(const Cli *cli, Diag *diag) {
    Session session = {0};
    Status status = plan_session(&session, cli, diag);
    session_close(&session);
    return status;
}
