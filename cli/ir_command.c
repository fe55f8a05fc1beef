/* compress ir: a model's graph as IR text, or as a drawing. */
#include "cli/command.h"
#include "exec/ops.h"
#include "io/files/outfile.h"
#include "io/formats/load.h"
#include "ir/irtext.h"
#include "session/output_files.h"
#include "session/page/dot.h"

/* Draws the graph into a file. */
static Status write_svg(Graph *graph, const char *path, Diag *diag) {
    Text dot = {0}, svg = {0};
    graph_dot(&dot, graph);
    Status status = dot_svg(&svg, &dot, diag);
    if (status == STATUS_OK) status = file_write(path, svg.data, svg.length, diag);
    text_free(&dot);
    text_free(&svg);
    return status;
}

static void print_graph(Graph *graph, const Flags *flags) {
    Text text = {0};
    if (flags->dot)
        graph_dot(&text, graph);
    else
        graph_print_named(&text, graph, flags->values);
    fwrite(text.data, 1, text.length, stdout);
    text_free(&text);
}

Status command_ir(const Cli *cli, Diag *diag) {
    const Flags *flags = &cli->flags;
    Model *model = NULL;
    Status status = STATUS_OK;
    if (flags->values && (flags->dot || flags->svg))
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, "--values",
                         "expected IR text, which --dot and --svg do not print");
    TRY(output_check(cli->arena, "--svg", flags->svg, diag));
    if (!flags->force)
        TRY(output_replace_check("--svg", flags->svg, OUTPUT_DRAWING,
                                 &(StringList){cli->args, 1}, diag));
    TRY(model_load(&model, cli->args[0], ops_table(), false, diag));
    if (flags->svg) status = write_svg(model->graph, flags->svg, diag);
    if (status == STATUS_OK && (flags->dot || !flags->svg))
        print_graph(model->graph, flags);
    model_destroy(model);
    return status;
}
