/* compress replay: a model file made again and compared, or a failed step run again. */
#include "cli/command.h"
#include "cli/progress.h"
#include "exec/processor.h"
#include "io/files/path.h"
#include "session/report/replay.h"
#include "session/report/reproducer.h"

/* Characters of two values that are shown, and how many of them before the difference. */
enum { SHOWN = 64, CONTEXT = 24 };

/* What is told while a file is made again. */
typedef struct Teller {
    Arena *arena;
    Progress progress;
} Teller;

static void begin_step(void *self, const Recipe *recipe, int index) {
    Teller *teller = self;
    progress_begin(&teller->progress, index, recipe->step_count,
                   recipe->steps[index].pass->name);
}

/* Prints what two texts say where they begin to differ. */
static void print_values(const ReplayRow *row) {
    size_t same = 0;
    while (row->then[same] && row->then[same] == row->now[same]) same++;
    const size_t from = same >= HASH_TEXT_BYTES ? same - CONTEXT : 0;
    const char *dots = from > 0 ? "..." : "";
    printf("    recorded: %s%.*s\n    now:      %s%.*s\n", dots, SHOWN, row->then + from,
           dots, SHOWN, row->now + from);
}

static void tell_row(void *self, const ReplayRow *row) {
    Teller *teller = self;
    progress_clear(&teller->progress);
    if (row->same)
        printf("same       %s\n", row->what);
    else
        printf("different  %s\n", row->what);
    if (!row->same) print_values(row);
    fflush(stdout);
}

/* Makes the file again, with the kernels that it was made with. */
static Status check_file(const Cli *cli, Teller *teller, Diag *diag) {
    const Flags *flags = &cli->flags;
    const Watch watch = progress_watch(&teller->progress);
    const ReplayOptions options = {.path = cli->args[0],
                                   .folder = flags->folder,
                                   .model = flags->model,
                                   .sets = flags->set,
                                   .threads = flags->threads,
                                   .watch = &watch,
                                   .self = teller,
                                   .begin = begin_step,
                                   .row = tell_row};
    Processor level = PROCESSOR_AUTO;
    if (!flags->check) {
        diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                  "expected --check with a model file");
        diag_hint(diag, "without it `compress replay FOLDER` runs the step of a "
                        "compress-reproducer folder again");
        return STATUS_USAGE;
    }
    TRY(replay_processor(&level, cli->args[0], diag));
    TRY(processor_fix(level, diag));
    return replay_check(&options, diag);
}

static Status run_step(const Cli *cli, Teller *teller, Diag *diag) {
    const Watch watch = progress_watch(&teller->progress);
    const SessionOptions with = {
        .sets = cli->flags.set, .threads = cli->flags.threads, .watch = &watch};
    const char *step = "the step";
    if (cli->flags.check || cli->flags.model || cli->flags.folder)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         "--check, --model and --folder are for model files, found a "
                         "folder");
    const Status status = reproducer_replay(&step, cli->arena, cli->args[0], &with, diag);
    progress_clear(&teller->progress);
    if (status == STATUS_OK)
        printf("%s: the failure did not come again\n", step);
    else if (status == STATUS_INTERNAL)
        printf("%s: the failure came again\n", step);
    return status;
}

Status command_replay(const Cli *cli, Diag *diag) {
    Teller teller = {.arena = cli->arena, .progress = progress_create(cli->flags.quiet)};
    diag_on_warning(diag, progress_warn, &teller.progress);
    const Status status = path_is_folder(cli->args[0]) ? run_step(cli, &teller, diag)
                                                       : check_file(cli, &teller, diag);
    progress_clear(&teller.progress);
    diag_on_warning(diag, progress_warn, NULL);
    return status;
}
