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
#include "session/session.h"

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

/* Whether the type is one that the pass `quantize` makes. */
static bool quantises(const Flags *flags) {
    return flags->dtype &&
           (strcmp(flags->dtype, "int8") == 0 || strcmp(flags->dtype, "int4") == 0);
}

/* The output that the command line describes, as a recipe has it. */
static Status put_output(Tree **map, const Cli *cli, Diag *diag) {
    const Flags *flags = &cli->flags;
    *map = tree_new(cli->arena, TREE_MAP, LOC_NONE);
    tree_put_string(cli->arena, *map, "path", cli->args[1]);
    if (flags->dtype && !quantises(flags))
        tree_put_string(cli->arena, *map, "dtype", flags->dtype);
    for (int i = 0; i < flags->option.count; i++)
        TRY(put_option(cli->arena, *map, flags->option.items[i], diag));
    return STATUS_OK;
}

static Status bind_output(ModelOutput *output, const Cli *cli, Diag *diag) {
    const Flags *flags = &cli->flags;
    Tree *map;
    TRY(put_output(&map, cli, diag));
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

/* What a recipe would say: the model, `quantize`, and the output. */
static Status make_recipe(Tree **out, const Cli *cli, Diag *diag) {
    const Flags *flags = &cli->flags;
    Arena *arena = cli->arena;
    Tree *output, *recipe = *out = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_put_int(arena, recipe, "version", 1);
    Tree *model = tree_put_map(arena, recipe, "model");
    const bool alone = flags->config != NULL;
    tree_put_string(arena, model, alone ? "weights" : "path", cli->args[0]);
    if (alone) tree_put_string(arena, model, "config", flags->config);
    if (flags->names) tree_put_string(arena, model, "names", flags->names);
    Tree *step = tree_add_map(arena, tree_put_list(arena, recipe, "passes"));
    tree_put_string(arena, tree_put_map(arena, step, "quantize"), "dtype", flags->dtype);
    TRY(put_output(&output, cli, diag));
    tree_put(arena, recipe, "output", output);
    return STATUS_OK;
}

static void print_converted(const Cli *cli, const ModelOutput *output, int64_t bytes) {
    if (cli->flags.quiet) return;
    print_written(cli->arena, output, stdout);
    printf("read %s, %s bytes\n", cli->args[0], text_grouped(cli->arena, bytes));
}

/* Weights of few bits: a recipe of one step. */
static Status convert_quantised(const Cli *cli, Diag *diag) {
    Session session;
    Tree *recipe;
    TRY(make_recipe(&recipe, cli, diag));
    const SessionOptions options = {.recipe = "convert",
                                    .document = recipe,
                                    .folder = ".",
                                    .force = cli->flags.force,
                                    .no_checkpoint = true};
    Status status = session_open(&session, &options, diag);
    if (status == STATUS_OK) status = session_load(&session, true, diag);
    if (status == STATUS_OK) status = session_plan(&session, diag);
    if (status == STATUS_OK) status = session_run(&session, diag);
    if (status == STATUS_OK) status = session_write(&session, diag);
    status = session_finish(&session, status, diag);
    if (status == STATUS_OK)
        print_converted(cli, &session.outputs.items[0], session.input.bytes);
    session_close(&session);
    return status;
}

Status command_convert(const Cli *cli, Diag *diag) {
    ModelOutput output;
    Model *model = NULL;
    if (quantises(&cli->flags)) return convert_quantised(cli, diag);
    TRY(bind_output(&output, cli, diag));
    resident_bound(RESIDENT_BYTES, output_folder(cli->arena, &output));
    Status status = read_model(&model, cli, diag);
    if (status == STATUS_OK) {
        status = model_save(model, &output, diag);
        if (status == STATUS_MODEL) diag_place(diag, LOC_FILE(cli->args[0]), NULL);
    }
    if (status == STATUS_OK) print_converted(cli, &output, model->file_bytes);
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
