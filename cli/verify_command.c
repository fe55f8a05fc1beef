/* compress verify: whether a model is what it was when it was written, and what it says
 * of its past. */
#include "cli/command.h"
#include "cli/inspect.h"
#include "cli/text_table.h"
#include "exec/ops.h"
#include "io/files/yaml.h"
#include "io/formats/load.h"

#include <string.h>

/* What is known of formats that keep no hashes. */
static const char NO_HASHES[] =
    "the format keeps no hashes: structure and shapes were checked, and that every weight "
    "is finite";

/* Prints the recipe as YAML, indented. */
static void print_recipe(const Tree *recipe) {
    Text text = {0};
    if (!recipe) return;
    yaml_print(&text, recipe);
    printf("\nrecipe\n");
    for (char *line = text.data; line && *line;) {
        char *end = strchr(line, '\n');
        if (end) *end = 0;
        printf("  %s\n", text_clean(line));
        line = end ? end + 1 : NULL;
    }
    text_free(&text);
}

static void print_verified(const Inspection *it, const ModelFormat *format,
                           const char *hash) {
    Arena *arena = it->arena;
    const Model *model = it->model;
    printf("%-8s %s, %s bytes, %s\n", "file", it->path,
           text_grouped(arena, model->file_bytes), format->what);
    printf("%-8s %s\n", "checked",
           format->hashes ? arena_printf(arena, "%s: all hold", format->hashes)
                          : NO_HASHES);
    printf("%-8s %d, %s bytes\n", "weights", it->storage_count,
           text_grouped(arena, it->measure.bytes));
    for (int i = 0; i < model->asset_count; i++)
        printf("%-8s %s, %s bytes\n", i ? "" : "assets", model->assets[i].name,
               text_grouped(arena, (int64_t)model->assets[i].length));
    printf("%-8s %s\n", "model", hash);
    for (int s = 0; s < it->stack_count; s++)
        if (*original_layers(it, it->stacks[s]))
            printf("%-8s %s: %d%s\n", "layers", it->stacks[s],
                   graph_layer_count(model->graph, it->stacks[s]),
                   original_layers(it, it->stacks[s]));
    print_lineages(it);
    print_recipe(tree_get(model->provenance, "recipe"));
    print_history(it);
}

static void put_bytes(Arena *arena, Tree *list, const char *name, int64_t bytes) {
    Tree *row = tree_add_map(arena, list);
    tree_put_string(arena, row, "name", name);
    tree_put_int(arena, row, "bytes", bytes);
}

static Tree *verified_tree(const Inspection *it, const ModelFormat *format,
                           const char *hash) {
    Arena *arena = it->arena;
    const Model *model = it->model;
    Tree *map = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_put_string(arena, map, "path", it->path);
    tree_put_string(arena, map, "format", format->name);
    tree_put_int(arena, map, "file_bytes", model->file_bytes);
    tree_put_bool(arena, map, "hashed", format->hashes != NULL);
    tree_put_string(arena, map, "checked", format->hashes ? format->hashes : NO_HASHES);
    tree_put_string(arena, map, "hash", hash);
    tree_put_int(arena, map, "storages", it->storage_count);
    tree_put_int(arena, map, "bytes", it->measure.bytes);
    Tree *assets = tree_put_list(arena, map, "assets");
    for (int i = 0; i < model->asset_count; i++)
        put_bytes(arena, assets, model->assets[i].name, (int64_t)model->assets[i].length);
    tree_append(arena, map, "provenance", LOC_NONE, tree_copy(arena, model->provenance));
    return map;
}

static Status verify(const Cli *cli, Model *model, const ModelFormat *format,
                     Diag *diag) {
    Inspection it;
    char hash[HASH_TEXT_BYTES];
    const char *wanted = cli->flags.hash;
    model_hash(model, hash);
    if (wanted && strcmp(wanted, hash) != 0)
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(cli->args[0]), NULL,
                         "expected model %s, found %s", wanted, hash);
    TRY(inspection_make(&it, cli->arena, cli->args[0], model, diag));
    if (cli->flags.json) {
        Text text = {0};
        tree_print_json(&text, verified_tree(&it, format, hash), 2);
        puts(text.data);
        text_free(&text);
    } else {
        print_verified(&it, format, hash);
    }
    return STATUS_OK;
}

/* Whether a text may be a hash as reports name it. */
static bool is_hash(const char *text) {
    const size_t digits = HASH_TEXT_BYTES - 1;
    return strlen(text) == digits && strspn(text, "0123456789abcdef") == digits;
}

Status command_verify(const Cli *cli, Diag *diag) {
    Model *model;
    const char *hash = cli->flags.hash;
    if (hash && !is_hash(hash))
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, "--hash",
                         "expected 32 digits of 0 to 9 and a to f, found \"%s\"", hash);
    const ModelFormat *format = model_format_of(cli->args[0]);
    TRY(model_load(&model, cli->args[0], ops_table(), true, diag));
    const Status status = verify(cli, model, format, diag);
    model_destroy(model);
    return status;
}
