/* compress report: runs as a page, as Markdown, or as pictures and tables. */
#include "cli/command.h"
#include "session/output_files.h"
#include "session/page/page.h"

Status command_report(const Cli *cli, Diag *diag) {
    Text text = {0};
    const StringList read = {cli->args, cli->arg_count};
    if (!cli->flags.force)
        TRY(output_replace_check("--output", cli->flags.output, OUTPUT_PAGE, &read,
                                 diag));
    const Status status =
        page_make(cli->args, cli->arg_count, cli->flags.output, &text, diag);
    if (status == STATUS_OK) fwrite(text.data, 1, text.length, stdout);
    text_free(&text);
    return status;
}
