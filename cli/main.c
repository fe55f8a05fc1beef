/* compress: the command line. Results go to stdout, progress and diagnostics to stderr;
 * exit codes are those of ir/status.def. */
#include "cli/annotate.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "cli/signals.h"
#include "exec/linalg/products.h"
#include "exec/processor.h"
#include "exec/run/reserve.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static Status run_command(Cli *cli, int argc, char **argv, Diag *diag) {
    TRY(cli_parse(cli, argc, argv, diag));
    if (cli->flags.help) {
        cli_help(cli->command, stdout);
        return STATUS_OK;
    }
    if (cli->flags.version) {
        printf("compress %s\n", COMPRESS_VERSION_TEXT);
        return STATUS_OK;
    }
    TRY(processor_fix((Processor)cli->flags.processor, diag));
    TRY(products_choose((Products)cli->flags.products, diag));
    return cli->command->run(cli, diag);
}

/* Tells a CI service what was printed, where that is wanted. */
static Status tell_service(const Flags *flags, const Diag *told) {
    Diag *diag = diag_create();
    const Status status = annotate(told, (Annotate)flags->annotate, flags->annotate_file,
                                   flags->recipe, diag);
    diag_print(diag, stderr);
    diag_destroy(diag);
    return status;
}

int main(int argc, char **argv) {
    processor_require();
    threads_hold_library(argv);
    Diag *diag = diag_create();
    Cli cli = {.arena = arena_create(), .flags = {.length_penalty = -1, .heartbeat = -1}};
    signals_install();
    diag_on_warning(diag, progress_warn, NULL);
    Status status = run_command(&cli, argc, argv, diag);
    if ((fflush(stdout) != 0 || ferror(stdout)) &&
        (status == STATUS_OK || status == STATUS_DIFFERENT))
        status = diag_fail(diag, STATUS_IO, LOC_NONE, NULL,
                           "cannot write to standard output: %s", strerror(errno));
    diag_print(diag, stderr);
    const Status annotated = tell_service(&cli.flags, diag);
    if (status == STATUS_OK) status = annotated;
    arena_destroy(cli.arena);
    diag_destroy(diag);
    return status_exit_code(status);
}
