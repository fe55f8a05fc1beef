/* compress convert: a model in another format; compress formats: which there are. */
#include "cli/command.h"
#include "cli/report_tables.h"
#include "cli/text_table.h"
#include "exec/ops.h"
#include "io/files/json.h"
#include "io/files/yaml.h"
#include "io/formats/load.h"
#include "ir/resident.h"
#include "session/output_files.h"

#include <string.h>

#define CONFIG_LIMIT ((size_t)16 << 20)

/* Puts `key=value`, the value in YAML, into the map of an output. */
static Status put_option(Arena *arena, Tree *map, const char *text, Diag *diag) {
    const char *equals = strchr(text, '=');
    if (!equals || equals == text)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         "expected --option KEY=VALUE, found \"%s\"", text);
    const char *key = arena_strndup(arena, text, (size_t)(equals - text));
    const char *flag = arena_printf(arena, "--option %s", key);
    Tree *value;
    TRY(yaml_parse(&value, arena, flag, equals + 1, strlen(equals + 1), diag));
    tree_append(arena, map, key, (Loc){flag, 1, 1}, value);
    return STATUS_OK;
}

/* The output that the command line describes. */
static Status bind_output(ModelOutput *output, const Cli *cli, Diag *diag) {
    const Flags *flags = &cli->flags;
    Tree *map = tree_new(cli->arena, TREE_MAP, LOC_NONE);
    tree_put_string(cli->arena, map, "path", cli->args[1]);
    if (flags->dtype) tree_put_string(cli->arena, map, "dtype", flags->dtype);
    for (int i = 0; i < flags->option.count; i++)
        TRY(put_option(cli->arena, map, flags->option.items[i], diag));
    TRY(output_bind(output, cli->arena, map, STATUS_USAGE, diag));
    TRY(output_path_check(cli->arena, "OUTPUT", output, diag));
    const char *items[] = {cli->args[0], flags->config, flags->names};
    const StringList read = {items, sizeof items / sizeof *items};
    if (flags->force) return STATUS_OK;
    return output_replace_check("OUTPUT", output->path, OUTPUT_MODEL, &read, diag);
}

/* The model to convert: a path that says all, or weights with a configuration. */
static Status read_model(Model **out, const Cli *cli, Diag *diag) {
    const Flags *flags = &cli->flags;
    Tree *config;
    if (!flags->config) return model_load_to_save(out, cli->args[0], ops_table(), diag);
    TRY(json_read(&config, cli->arena, flags->config, CONFIG_LIMIT, diag));
    const SeparateFiles files = {
        .config = config, .weights = cli->args[0], .names = flags->names};
    return model_load_separate(out, &files, ops_table(), true, diag);
}

Status command_convert(const Cli *cli, Diag *diag) {
    ModelOutput output;
    Model *model = NULL;
    TRY(bind_output(&output, cli, diag));
    resident_bound(RESIDENT_BYTES, output_folder(cli->arena, &output));
    Status status = read_model(&model, cli, diag);
    if (status == STATUS_OK) {
        status = model_save(model, &output, diag);
        if (status == STATUS_MODEL) diag_place(diag, LOC_FILE(cli->args[0]), NULL);
    }
    if (status == STATUS_OK && !cli->flags.quiet) {
        print_written(cli->arena, &output, stdout);
        printf("read %s, %s bytes\n", cli->args[0],
               text_grouped(cli->arena, model->file_bytes));
    }
    model_destroy(model);
    resident_bound(0, NULL);
    return status;
}

Status command_formats(const Cli *cli, Diag *diag) {
    Text text = {0};
    (void)cli, (void)diag;
    output_document(&text);
    fputs(text.data, stdout);
    text_free(&text);
    return STATUS_OK;
}
