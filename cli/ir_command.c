/* compress ir: a model's graph as IR text. */
#include "cli/commands.h"
#include "exec/ops.h"
#include "io/formats/load.h"
#include "ir/irtext.h"

Status command_ir(const Cli *cli, Diag *diag) {
    Model *model = NULL;
    TRY(model_load(&model, cli->args[0], ops_table(), false, diag));
    Text text = {0};
    (cli->flags.values ? graph_print_values : graph_print)(&text, model->graph);
    fwrite(text.data, 1, text.length, stdout);
    text_free(&text);
    model_destroy(model);
    return STATUS_OK;
}
