/* compress diff: what differs between two models, for people or as JSON. Names come from
 * files and may hold anything: tables clean them. */
#include "cli/command.h"
#include "cli/progress.h"
#include "cli/text_table.h"
#include "exec/ops.h"
#include "io/formats/load.h"
#include "session/compare/compare.h"
#include "session/session.h"

#include <math.h>
#include <string.h>

#define RANGES_SHOWN 6
#define VALUE_SHOWN  60 /* characters of a configuration's value */

/* "a -> b", and "none" where there is none. */
static const char *change_text(Arena *arena, const char *a, const char *b) {
    return arena_printf(arena, "%s -> %s", a ? a : "none", b ? b : "none");
}

/* ---- sizes ---- */

static void size_row(TextTable *table, const char *name, const char *a, const char *b,
                     double before, double after) {
    table_add(table, "%s", name);
    table_add(table, "%s", before > 0 ? a : "-");
    table_add(table, "%s", after > 0 ? b : "-");
    if (before <= 0 || after <= 0)
        table_add(table, "-");
    else if (before == after)
        table_add(table, "same");
    else
        table_add(table, "%.4g %%", 100 * after / before);
}

static void print_sizes(Arena *arena, const Comparison *it) {
    const Measure *a = &it->measure[0], *b = &it->measure[1];
    TextTable table = table_create(arena, "lrrr");
    table_add(&table, "%s", "");
    table_add(&table, "A");
    table_add(&table, "B");
    table_add(&table, "B of A");
    size_row(&table, "parameters", text_grouped(arena, a->parameters),
             text_grouped(arena, b->parameters), (double)a->parameters,
             (double)b->parameters);
    size_row(&table, "weight bytes", text_grouped(arena, a->bytes),
             text_grouped(arena, b->bytes), (double)a->bytes, (double)b->bytes);
    size_row(&table, "FLOPs", text_flops(arena, a->flops), text_flops(arena, b->flops),
             a->flops, b->flops);
    size_row(&table, "on disk", text_grouped(arena, it->file_bytes[0]),
             text_grouped(arena, it->file_bytes[1]), (double)it->file_bytes[0],
             (double)it->file_bytes[1]);
    table_print(&table, 0, stdout);
}

/* ---- structure ---- */

/* Layers that one side has alone: "layers 1, 3 of A are gone". */
static void add_own_layers(Text *text, const StackPair *stack, int side) {
    Text numbers = {0};
    int count = 0;
    for (int layer = 0; layer < stack->layers[side]; layer++) {
        bool matched = side == 1 && stack->of_b[layer] >= 0;
        for (int j = 0; side == 0 && j < stack->layers[1] && !matched; j++)
            matched = stack->of_b[j] == layer;
        if (matched) continue;
        text_add(&numbers, "%s%d", count++ ? ", " : "", layer);
    }
    if (count > 0)
        text_add(text, "%slayer%s %s of %s %s %s", text->length ? "; " : "",
                 count > 1 ? "s" : "", numbers.data, side == 0 ? "A" : "B",
                 count > 1 ? "are" : "is", side == 0 ? "gone" : "new");
    text_free(&numbers);
}

static void add_layers(TextTable *table, const NodeComparison *nodes) {
    static const char *const HOW[] = {[LAYERS_BY_NUMBER] = "",
                                      [LAYERS_BY_LINEAGE] = "",
                                      [LAYERS_BY_WEIGHTS] = ", by their weights"};
    for (int i = 0; i < nodes->stack_count; i++) {
        const StackPair *stack = &nodes->stacks[i];
        Text text = {0};
        for (int side = 0; side < 2; side++) add_own_layers(&text, stack, side);
        if (text.data) {
            table_add(table, "%s", "");
            table_add(table, "%s", stack->stack);
            table_add(table, "%d layers -> %d: %s%s", stack->layers[0], stack->layers[1],
                      text.data, HOW[stack->match]);
        }
        text_free(&text);
    }
}

static void add_pair(TextTable *table, const NodePair *pair) {
    const Node *alone = !pair->b ? pair->a : !pair->a ? pair->b : NULL;
    if (alone) {
        table_add(table, "%s", pair->a ? "-" : "+");
        table_add(table, "%s", pair->name);
        table_add(table, "%s", alone->op->name);
    }
    for (int i = 0; i < pair->differences.count; i++) {
        const Difference *item = &pair->differences.items[i];
        table_add(table, "%s", "");
        table_add(table, "%s", i == 0 ? pair->name : "");
        table_add(table, "%s %s", item->what,
                  change_text(table->arena, item->a, item->b));
    }
}

static void print_structure(Arena *arena, const Comparison *it) {
    const NodeComparison *nodes = &it->nodes;
    TextTable table = table_create(arena, "lll");
    if (!it->structure_differs) {
        printf("\nstructure: the same, %d nodes\n", nodes->count);
        return;
    }
    printf("\nstructure: of %d nodes %d changed, %d removed, %d added\n",
           nodes->count - nodes->added, nodes->changed, nodes->removed, nodes->added);
    for (int i = 0; i < nodes->ends.count; i++) {
        const Difference *end = &nodes->ends.items[i];
        table_add(&table, "%s", end->b ? end->a ? "" : "+" : "-");
        table_add(&table, "%s", end->what);
        table_add(&table, "%s",
                  end->a && end->b ? change_text(arena, end->a, end->b)
                  : end->a         ? end->a
                                   : end->b);
    }
    add_layers(&table, nodes);
    for (int i = 0; i < nodes->count; i++)
        if (!pair_in_own_layer(nodes, &nodes->pairs[i]))
            add_pair(&table, &nodes->pairs[i]);
    table_print(&table, 0, stdout);
}

/* ---- weights ---- */

/* Appends the first ranges of a lineage, and how many there are. */
static void add_ranges(Text *text, const Lineage *kept) {
    Lineage shown = *kept;
    if (shown.count > RANGES_SHOWN) shown.count = RANGES_SHOWN;
    lineage_print(text, &shown);
    if (shown.count == kept->count) return;
    text->data[--text->length] = 0; /* the bracket */
    text_add(text, ", ...: %lld]", (long long)lineage_size(kept));
}

/* What a weight is, and whether it is shared where it was not. */
static const char *change_of(Arena *arena, const StoragePair *pair) {
    const char *name = storage_change_name(pair->change);
    if (pair->merged > 1)
        return arena_printf(arena, "%s, %d of A are one", name, pair->merged);
    if (pair->split > 1)
        return arena_printf(arena, "%s, one of A is %d", name, pair->split);
    return name;
}

static const char *kept_text(Arena *arena, const StoragePair *pair) {
    Text text = {0};
    if (pair->change != STORAGE_CUT) return change_of(arena, pair);
    if (pair->heads > 0) {
        text_add(&text, "kept heads ");
        add_ranges(&text, &pair->kept_heads);
        text_add(&text, " of %lld", (long long)pair->heads);
    }
    for (int axis = pair->heads > 0; axis < pair->b->tensor.rank; axis++) {
        if (pair->kept[axis].count == 0) continue;
        text_add(&text, "%s%s ", text.length ? ", " : "kept ",
                 axis == 0   ? "rows"
                 : axis == 1 ? "columns"
                             : "entries");
        add_ranges(&text, &pair->kept[axis]);
    }
    if (pair->by_values) text_add(&text, ", found by their values");
    const char *copy = arena_strdup(arena, text.data ? text.data : "");
    text_free(&text);
    return copy;
}

static const char *stored_text(Arena *arena, const Storage *storage) {
    char shape[SHAPE_TEXT_BYTES], form[FORM_TEXT_BYTES];
    const Tensor *tensor = &storage->tensor;
    return arena_printf(arena, "%s%s", tensor_form_text(form, tensor),
                        shape_text(shape, tensor->rank, tensor->dim));
}

static void storage_row(TextTable *table, const StoragePair *pair) {
    Arena *arena = table->arena;
    const Storage *own = pair->a ? pair->a : pair->b;
    const char *a = pair->a ? stored_text(arena, pair->a) : NULL;
    const char *b = pair->b ? stored_text(arena, pair->b) : NULL;
    table_add(table, "%s", pair->where ? pair->where : own->name);
    table_add(table, "%s", a && b && strcmp(a, b) == 0 ? a : change_text(arena, a, b));
    if (pair->measured) {
        table_add(table, "%.3g", pair->relative);
        table_add(table, "%.3g", pair->largest);
    } else {
        table_add(table, "-");
        table_add(table, "-");
    }
    table_add(table, "%s", kept_text(arena, pair));
}

static void print_storages(Arena *arena, const Comparison *it) {
    static const char *const heads[] = {"weight", "stored as", "relative error",
                                        "largest", "is"};
    const StorageComparison *storages = &it->storages;
    TextTable table = table_create(arena, "llrrl");
    int layers = 0; /* of storages that went, or came, with their layer */
    const char *separator = ":";
    printf("\nweights: %d", storages->count);
    for (int i = 0; i < STORAGE_CHANGE_COUNT; i++) {
        if (storages->counts[i] == 0) continue;
        printf("%s %d %s", separator, storages->counts[i],
               storage_change_name((StorageChange)i));
        separator = ",";
    }
    printf("\n");
    for (int i = 0; i < 5; i++) table_add(&table, "%s", heads[i]);
    for (int i = 0; i < storages->count; i++) {
        const StoragePair *pair = &storages->pairs[i];
        const bool gone = pair->at && pair_in_own_layer(&it->nodes, pair->at);
        layers += gone;
        const bool told =
            (pair->change != STORAGE_EQUAL && pair->change != STORAGE_CLOSE) ||
            pair->merged > 1 || pair->split > 1;
        if (!gone && told) storage_row(&table, pair);
    }
    if (table.count > 5) table_print(&table, 0, stdout);
    if (layers > 0) printf("and %d of layers that one model alone has\n", layers);
}

/* ---- outputs ---- */

static void print_outputs(Arena *arena, const OutputComparison *outputs) {
    TextTable table = table_create(arena, "lrrl");
    printf("\noutputs of %s\n", outputs->inputs);
    table_add(&table, "output");
    table_add(&table, "relative error");
    table_add(&table, "largest");
    table_add(&table, "%s", "");
    for (int i = 0; i < outputs->count; i++) {
        const OutputPair *pair = &outputs->pairs[i];
        table_add(&table, "%s", pair->name);
        if (pair->reason) {
            table_add(&table, "-");
            table_add(&table, "-");
            table_add(&table, "not compared: %s", pair->reason);
            continue;
        }
        table_add(&table, "%.3g", pair->relative);
        table_add(&table, "%.3g", pair->largest);
        if (pair->agreement >= 0)
            table_add(&table, "%.4g %% have the same largest", 100 * pair->agreement);
        else
            table_add(&table, "%s", "");
    }
    table_print(&table, 0, stdout);
}

/* ---- configuration ---- */

/* A value that fits on a line. */
static const char *value_text(Arena *arena, const char *json) {
    size_t length = VALUE_SHOWN;
    if (!json || strlen(json) <= VALUE_SHOWN) return json ? json : "none";
    while (length > 0 && ((unsigned char)json[length] & 0xc0) == 0x80) length--;
    return arena_printf(arena, "%.*s...", (int)length, json);
}

static void print_config(Arena *arena, const Comparison *it) {
    const DifferenceList *config = &it->config;
    TextTable table = table_create(arena, "lll");
    if (!it->has_config) printf("\nconfiguration: not compared, one model has none\n");
    if (config->count == 0) return;
    printf("\nconfiguration\n");
    table_add(&table, "key");
    table_add(&table, "A");
    table_add(&table, "B");
    for (int i = 0; i < config->count; i++) {
        table_add(&table, "%s", config->items[i].what);
        table_add(&table, "%s", value_text(arena, config->items[i].a));
        table_add(&table, "%s", value_text(arena, config->items[i].b));
    }
    table_print(&table, 0, stdout);
}

static void print_verdict(const Comparison *it) {
    const struct {
        const char *name;
        bool differs;
    } parts[] = {{"structure", it->structure_differs},
                 {"weights", it->storages_differ},
                 {"outputs", it->outputs_differ},
                 {"configuration", it->config_differs}};
    const char *separator = "\ndifferent: ";
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (!parts[i].differs) continue;
        printf("%s%s", separator, parts[i].name);
        separator = ", ";
    }
    printf("%s\n", it->differs ? "" : "\nequal");
}

/* ---- the command ---- */

static void print_comparison(Arena *arena, const Comparison *it) {
    printf("A  %s\nB  %s\n\n", it->path[0], it->path[1]);
    print_sizes(arena, it);
    print_structure(arena, it);
    if (it->has_storages) print_storages(arena, it);
    if (it->has_outputs) print_outputs(arena, &it->outputs);
    print_config(arena, it);
    print_verdict(it);
}

static Status check_flags(const Flags *flags, Diag *diag) {
    const int kinds = (flags->input != NULL) + (flags->text.count > 0) +
                      (flags->jsonl != NULL) + (flags->image.count > 0);
    if (kinds > 1)
        return diag_fail(
            diag, STATUS_USAGE, LOC_NONE, NULL,
            "expected one of --input, --text, --jsonl and --image, found several");
    if (kinds > 0 && (flags->structure || flags->no_outputs))
        return diag_fail(
            diag, STATUS_USAGE, LOC_NONE, NULL,
            "%s runs nothing: expected no --input, --text, --jsonl or --image",
            flags->structure ? "--structure" : "--no-outputs");
    return STATUS_OK;
}

static Status compare(Comparison *out, const Cli *cli, Model *const models[2],
                      Diag *diag) {
    const Flags *flags = &cli->flags;
    const char *const paths[] = {cli->args[0], cli->args[1]};
    Progress progress = progress_create(flags->quiet);
    const Watch watch = progress_watch(&progress);
    const CompareOptions options = {.tolerance = flags->tolerance,
                                    .structure = flags->structure,
                                    .no_outputs = flags->no_outputs,
                                    .inputs = {.file = flags->input,
                                               .jsonl = flags->jsonl,
                                               .texts = flags->text,
                                               .images = flags->image,
                                               .tokenizer = flags->tokenizer,
                                               .preprocessor = flags->preprocessor,
                                               .seed = (uint64_t)flags->seed},
                                    .threads = threads_choose(flags->threads),
                                    .watch = &watch};
    progress_begin(&progress, 0, 0, "diff");
    diag_on_warning(diag, progress_warn, &progress);
    const Status status = compare_models(out, cli->arena, models, paths, &options, diag);
    progress_clear(&progress);
    diag_on_warning(diag, progress_warn, NULL);
    return status;
}

Status command_diff(const Cli *cli, Diag *diag) {
    Model *models[2] = {NULL, NULL};
    Comparison it;
    TRY(check_flags(&cli->flags, diag));
    Status status = STATUS_OK;
    for (int side = 0; side < 2 && status == STATUS_OK; side++)
        status = model_load(&models[side], cli->args[side], ops_table(),
                            !cli->flags.structure, diag);
    if (status == STATUS_OK) status = compare(&it, cli, models, diag);
    if (status == STATUS_OK && cli->flags.json) {
        Text text = {0};
        tree_print_json(&text, comparison_tree(cli->arena, &it), 2);
        puts(text.data);
        text_free(&text);
    } else if (status == STATUS_OK) {
        print_comparison(cli->arena, &it);
    }
    for (int side = 0; side < 2; side++) model_destroy(models[side]);
    if (status == STATUS_OK && it.differs) status = STATUS_DIFFERENT;
    return status;
}
