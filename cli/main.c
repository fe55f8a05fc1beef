/* compress: the command line. Results go to stdout, progress and diagnostics to stderr;
 * exit codes are those of ir/status.def. */
#include "cli/annotate.h"
#include "cli/command.h"
#include "cli/program.h"
#include "cli/progress.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "cli/untrusted.h"
#include "exec/linalg/blas.h"
#include "exec/linalg/products.h"
#include "exec/processor.h"
#include "exec/run/ranks.h"
#include "exec/run/reserve.h"
#include "io/files/file.h"
#include "session/job.h"
#include "session/perplexity.h"
#include "session/plugin.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* Most that is read of standard input, or of another pipe, in place of a file of texts.
 */
static const size_t TEXTS_BYTES_MAX = (size_t)256 << 20;

/* Lets a path of texts be - for standard input, and a pipe. NULL is allowed. */
static Status take_stream(const char **path, size_t limit, Diag *diag) {
    if (!*path) return STATUS_OK;
    if (strcmp(*path, "-") == 0) {
        *path = "/dev/stdin";
        return file_take_stream(STDIN_FILENO, limit, "standard input", diag);
    }
    const int descriptor = file_descriptor(*path);
    if (descriptor < 0) return STATUS_OK;
    return file_keep_stream(descriptor, limit, *path, diag);
}

static Status take_streams(Cli *cli, Diag *diag) {
    TRY(take_stream(&cli->flags.jsonl, TEXTS_BYTES_MAX, diag));
    TRY(take_stream(&cli->flags.prompts, TEXTS_BYTES_MAX, diag));
    if (cli->command->run != command_perplexity) return STATUS_OK;
    return take_stream(&cli->args[1], PERPLEXITY_BYTES_MAX, diag);
}

/* Passes of plug-ins, whose code runs from here on. */
static Status load_plugins(const Flags *flags, Diag *diag) {
    if (flags->plugin.count && flags->untrusted)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         "--plugin: not with --untrusted: a plug-in may do whatever the "
                         "program may");
    for (int i = 0; i < flags->plugin.count; i++)
        TRY(plugin_load(flags->plugin.items[i], diag));
    return STATUS_OK;
}

/* What must come before a rank joins the others: it may start the program anew. */
static Status begin_command(Cli *cli, int argc, char **argv, Diag *diag) {
    TRY(cli_parse(cli, argc, argv, diag));
    if (cli->flags.help || cli->flags.version) return STATUS_OK;
    TRY(take_streams(cli, diag));
    TRY(processor_fix((Processor)cli->flags.processor, diag));
    TRY(products_choose((Products)cli->flags.products, diag));
    TRY(load_plugins(&cli->flags, diag));
    const Status status = annotate_check(cli, diag);
    if (status != STATUS_OK) cli->flags.annotate = ANNOTATE_NEVER;
    TRY(status);
    return cli->flags.untrusted ? untrusted_confine(cli, argv, diag) : STATUS_OK;
}

/* Help or the version, told by rank 0. */
static Status tell(const Cli *cli) {
    if (job_leads() && cli->flags.help)
        cli_help(cli->command, stdout);
    else if (job_leads())
        printf("%s %s\n", program_name(), COMPRESS_VERSION_TEXT);
    return STATUS_OK;
}

/* Any other command: in the one rank that there is, unless ranks share it. */
static Status run_joined(const Cli *cli, Diag *diag) {
    if (ranks_count() == 1 || cli->command->run == command_bench)
        return cli->command->run(cli, diag);
    diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
              "`compress %s` runs in one process, found %d ranks", cli->command->name,
              ranks_count());
    diag_hint(diag,
              "mpirun is for recipes, `mpirun -n %d compress --recipe FILE`, and for "
              "`compress bench`; start other commands without it",
              ranks_count());
    return STATUS_USAGE;
}

/* Ranks join as soon as nothing can start the program anew: recipes may, when they are
 * open. */
static Status run_command(Cli *cli, int argc, char **argv, Diag *diag) {
    const Status begun = begin_command(cli, argc, argv, diag);
    const bool told = cli->flags.help || cli->flags.version;
    if (begun == STATUS_OK && !*cli->command->name && !told)
        return cli->command->run(cli, diag);
    TRY(job_join(begun, diag));
    return told ? tell(cli) : run_joined(cli, diag);
}

static void print_messages(const void *diag, FILE *out) {
    diag_print(diag, out);
}

/* Tells a CI service what was printed, where that is wanted. */
static Status tell_service(const Flags *flags, const Diag *told) {
    Diag *diag = diag_create();
    const Status status = annotate(told, (Annotate)flags->annotate, flags->annotate_file,
                                   flags->recipe, diag);
    program_tell(stderr, print_messages, diag);
    diag_destroy(diag);
    return status;
}

/* Standard streams that are closed stay so as far as reading and writing goes, but no
 * file that is opened gets their numbers. */
static void hold_streams(void) {
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv) {
    hold_streams();
    program_take_name(argv[0]);
    processor_require();
    threads_hold_in_limits(argv);
    blas_init();
    Diag *diag = diag_create();
    Cli cli = {.arena = arena_create(),
               .flags = {.length_penalty = -1, .heartbeat = -1, .max_drop = NAN}};
    signals_install();
    diag_on_warning(diag, progress_warn, NULL);
    Status status = run_command(&cli, argc, argv, diag);
    if (cli.flags.untrusted && status == STATUS_IO)
        diag_hint(diag, "with --untrusted only what the command line names is read and "
                        "written: --allow PATH adds to it");
    if (status == STATUS_OK || status == STATUS_DIFFERENT) {
        if (terminal_flush(stdout, diag) != STATUS_OK) status = STATUS_IO;
    } else {
        fflush(stdout); /* before the messages */
    }
    if (job_leads()) {
        program_tell(stderr, print_messages, diag);
        const Status annotated = tell_service(&cli.flags, diag);
        if (status == STATUS_OK) status = annotated;
    }
    if (ranks_count() > 1) signals_end();
    ranks_close();
    arena_destroy(cli.arena);
    diag_destroy(diag);
    return status_exit_code(status);
}
