/* Plug-ins: see session/plugin.h. */
#include "session/plugin.h"

#include "io/files/file.h"
#include "io/files/yaml.h"
#include "ir/half.h"
#include "ir/quantised.h"
#include "ir/storage.h"
#include "passes/fault.h"
#include "passes/pipeline/inner_step.h"
#include "passes/pipeline/recipe.h"
#include "session/compress_plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A pass with where it is from. `pass` is first: what the pipeline hands over is one. */
typedef struct PluginPass {
    Pass pass;
    const CompressPluginPass *own;
} PluginPass;

/* The value of an option in the options of a pass: so many bytes apart. */
typedef union OptionValue {
    double real;
    int64_t integer;
    bool flag;
    const char *text;
    StringList names;
} OptionValue;

struct CompressStep {
    PassContext *ctx;
    Model *model;
    Diag *diag;
    const PluginPass *pass;
    const OptionValue *options;
    Node **leaves; /* of weights */
    CompressWeight *weights;
    size_t count;
    Status status; /* of the first fault */
};

/* Names of passes, options and numbers: lower case, digits and _. */
static bool is_name(const char *name) {
    return name && name[0] >= 'a' && name[0] <= 'z' &&
           name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0';
}

/* ---- options, as the pass asks for them ---- */

static const OptionValue *find_value(const CompressStep *step, const char *option,
                                     CompressOptionKind *kind) {
    const CompressPluginOption *row = option ? step->pass->own->options : NULL;
    for (int i = 0; row && row[i].name; i++)
        if (strcmp(row[i].name, option) == 0) {
            *kind = row[i].kind;
            return &step->options[i];
        }
    return NULL;
}

static double host_number(const CompressStep *step, const char *option) {
    CompressOptionKind kind;
    const OptionValue *value = find_value(step, option, &kind);
    if (!value) return 0;
    switch (kind) {
    case COMPRESS_OPTION_REAL: return value->real;
    case COMPRESS_OPTION_INTEGER: return (double)value->integer;
    case COMPRESS_OPTION_FLAG: return value->flag;
    default: return 0;
    }
}

static const char *host_text(const CompressStep *step, const char *option) {
    CompressOptionKind kind;
    const OptionValue *value = find_value(step, option, &kind);
    return value && kind == COMPRESS_OPTION_TEXT ? value->text : NULL;
}

static int host_names(const CompressStep *step, const char *option, const char *name) {
    CompressOptionKind kind;
    const OptionValue *value = find_value(step, option, &kind);
    return !value || kind != COMPRESS_OPTION_NAMES || value->names.count == 0 ||
           (name && name_matches_any(&value->names, name));
}

static int host_planned(const CompressStep *step) {
    return step->ctx->plan;
}

static uint64_t host_seed(const CompressStep *step) {
    return step->ctx->seed;
}

/* ---- weights ---- */

/* What is known of a weight by its first reader. */
static void describe_reader(CompressWeight *weight, const Node *node, int operand) {
    enum { WEIGHT = 1 };
    if (!weight->role) {
        weight->stack = node->stack;
        weight->layer = node->layer;
        weight->role = role_name(node->role);
    }
    if (node->op != &op_linear || operand != WEIGHT || weight->rank != 2) return;
    weight->turned = ((const LinearAttrs *)node->attrs)->transposed;
    weight->linear = 1;
}

static CompressWeight describe_weight(const Graph *graph, const Node *leaf) {
    const Tensor *tensor = &leaf->storage->tensor;
    CompressWeight weight = {.name = leaf->storage->name,
                             .rank = tensor->rank,
                             .count = tensor_count(tensor),
                             .layer = -1};
    memcpy(weight.dim, tensor->dim, sizeof *tensor->dim * (size_t)tensor->rank);
    for (const Node *node = graph->first; node; node = node->next)
        for (int i = 0; i < node->in_count; i++)
            if (node->in[i] == leaf) describe_reader(&weight, node, i);
    if (!weight.role) weight.role = "";
    return weight;
}

static void list_weights(CompressStep *step) {
    Arena *arena = step->ctx->arena;
    const Graph *graph = step->model->graph;
    const size_t most = (size_t)graph->node_count;
    step->count = 0;
    step->leaves = arena_array(arena, most, sizeof *step->leaves);
    step->weights = arena_array(arena, most, sizeof *step->weights);
    for (Node *leaf = graph->first; leaf; leaf = leaf->next) {
        if (!leaf->storage || !dtype_is_real(leaf->storage->tensor.dtype)) continue;
        step->leaves[step->count] = leaf;
        step->weights[step->count++] = describe_weight(graph, leaf);
    }
}

static size_t host_weight_count(const CompressStep *step) {
    return step->count;
}

static CompressWeight host_weight(const CompressStep *step, size_t index) {
    return index < step->count ? step->weights[index] : (CompressWeight){.name = ""};
}

/* Keeps the first fault. */
static int hold(CompressStep *step, Status status) {
    if (step->status == STATUS_OK) step->status = status;
    return status != STATUS_OK;
}

/* Whether there is such a weight and an array for its values. */
static bool is_weight(CompressStep *step, size_t index, const float *values) {
    if (index < step->count && values) return true;
    if (index < step->count)
        hold(step, step_fail(step->ctx, step->diag,
                             "%s: expected an array of its values, found NULL",
                             step->weights[index].name));
    else
        hold(step, step_fail(step->ctx, step->diag, "weight %zu of %zu was asked for",
                             index, step->count));
    return false;
}

static int host_read(CompressStep *step, size_t index, float *values) {
    if (!is_weight(step, index, values)) return 1;
    const Tensor *tensor = storage_tensor(step->leaves[index]->storage);
    const int64_t count = step->weights[index].count;
    if (tensor_data(tensor))
        tensor_read_f32(tensor, 0, count, values);
    else
        memset(values, 0, (size_t)count * sizeof *values);
    return 0;
}

static void put_values(void *data, DType dtype, int64_t count, const float *values) {
    uint16_t *half = data;
    if (dtype == DTYPE_F32) memcpy(data, values, (size_t)count * sizeof *values);
    for (int64_t i = 0; dtype == DTYPE_F16 && i < count; i++)
        half[i] = f16_from_float(values[i]);
    for (int64_t i = 0; dtype == DTYPE_BF16 && i < count; i++)
        half[i] = bf16_from_float(values[i]);
}

static Status write_weight(CompressStep *step, size_t index, const float *values) {
    Node *leaf = step->leaves[index];
    const CompressWeight *weight = &step->weights[index];
    const DType old = leaf->storage->tensor.dtype;
    const bool half = old == DTYPE_F16 || old == DTYPE_BF16;
    Tensor tensor;
    void *data;
    TRY(storage_blank(&tensor, &data, leaf->storage, half ? old : DTYPE_F32, weight->rank,
                      weight->dim, step->diag));
    if (data) {
        put_values(data, tensor.dtype, weight->count, values);
        const int64_t wrong = tensor_find_nonfinite(&tensor);
        if (wrong >= 0) {
            tensor_release(&tensor);
            return step_fail(step->ctx, step->diag,
                             "%s: element %lld is not finite after the pass",
                             weight->name, (long long)wrong);
        }
    }
    return storage_replace(step->model->graph, leaf, STORAGE_ALL_USERS, tensor, -1,
                           step->diag);
}

static int host_write(CompressStep *step, size_t index, const float *values) {
    return !is_weight(step, index, values) ||
           hold(step, write_weight(step, index, values));
}

/* ---- other passes ---- */

static Status apply_pass(CompressStep *step, const char *name, const char *options) {
    Arena *arena = step->ctx->arena;
    if (!name)
        return step_fail(step->ctx, step->diag,
                         "expected the name of a pass to apply, found NULL");
    const char *place = arena_printf(arena, "%s in %s", name, step->pass->own->name);
    Tree *tree = NULL;
    Status status = STATUS_OK;
    if (options)
        status = yaml_parse(&tree, arena, place, options, strlen(options), step->diag);
    if (status != STATUS_OK) return inner_step_fail(step->ctx, status, step->diag);
    status = inner_step_run(step->ctx, step->model, name, tree, step->diag);
    list_weights(step);
    return status;
}

static int host_apply(CompressStep *step, const char *pass, const char *options) {
    return hold(step, apply_pass(step, pass, options));
}

/* ---- what the step leaves ---- */

static void host_record(CompressStep *step, const char *name, double value) {
    Arena *arena = step->ctx->arena;
    if (!is_name(name) || strcmp(name, INNER_STEPS_KEY) == 0) {
        hold(step, step_fail(step->ctx, step->diag,
                             "the plug-in notes a number under a name that is none, or "
                             "\"" INNER_STEPS_KEY "\""));
        return;
    }
    const char *key = arena_strdup(arena, name);
    if (step->ctx->plan) return; /* of values that are not known */
    if (!isfinite(value)) {
        hold(step, step_fail(step->ctx, step->diag,
                             "the plug-in notes a number that is not finite under \"%s\"",
                             name));
        return;
    }
    if (value == floor(value) && fabs(value) < 1e15)
        tree_put_int(arena, step->ctx->record, key, (int64_t)value);
    else
        tree_put_real(arena, step->ctx->record, key, value);
}

static int host_fail(CompressStep *step, const char *message) {
    return hold(step, step_fail(step->ctx, step->diag, "%s",
                                message ? message : "the plug-in failed"));
}

static const CompressHost HOST = {
    .interface = COMPRESS_PLUGIN_INTERFACE,
    .number = host_number,
    .text = host_text,
    .names = host_names,
    .planned = host_planned,
    .seed = host_seed,
    .weight_count = host_weight_count,
    .weight = host_weight,
    .read = host_read,
    .write = host_write,
    .record = host_record,
    .fail = host_fail,
    .apply = host_apply,
};

static Status plugin_run(PassContext *ctx, Model *model, const void *options,
                         Diag *diag) {
    const PluginPass *pass = (const PluginPass *)ctx->pass;
    CompressStep step = {
        .ctx = ctx, .model = model, .diag = diag, .pass = pass, .options = options};
    list_weights(&step);
    ctx->unsure = true;
    const int failed = pass->own->run(&step, &HOST);
    if (step.status != STATUS_OK || !failed) return step.status;
    return step_fail(ctx, diag, "the plug-in failed without saying why");
}

/* ---- loading ---- */

static int row_count(const CompressPluginOption *rows) {
    int count = 0;
    while (rows && rows[count].name) count++;
    return count;
}

static Status bad_plugin(const char *path, Diag *diag, const char *pass,
                         const char *option, const char *what) {
    return diag_fail(diag, STATUS_USAGE, LOC_FILE(path), NULL, "pass \"%s\"%s%s%s: %s",
                     pass ? pass : "", option ? ", option \"" : "", option ? option : "",
                     option ? "\"" : "", what);
}

/* Whether an option of whole numbers can have this value. */
static bool is_whole(double value) {
    return value == floor(value) && fabs(value) <= 1e15;
}

static Status check_option(const char *path, const CompressPluginPass *pass,
                           const CompressPluginOption *rows, int index, Diag *diag) {
    const CompressPluginOption *row = &rows[index];
    const bool number =
        row->kind == COMPRESS_OPTION_REAL || row->kind == COMPRESS_OPTION_INTEGER;
    const bool bounded = row->least != 0 || row->most != 0;
    if (!is_name(row->name))
        return bad_plugin(path, diag, pass->name, row->name,
                          "expected a name of lower case, digits and _");
    for (int i = 0; i < index; i++)
        if (strcmp(rows[i].name, row->name) == 0)
            return bad_plugin(path, diag, pass->name, row->name, "is there twice");
    if (row->kind < COMPRESS_OPTION_REAL || row->kind > COMPRESS_OPTION_NAMES)
        return bad_plugin(path, diag, pass->name, row->name,
                          "is of no kind that there is");
    if (number && !(isfinite(row->number) && isfinite(row->least) && isfinite(row->most)))
        return bad_plugin(path, diag, pass->name, row->name,
                          "expected a finite default and bounds");
    if (row->kind == COMPRESS_OPTION_INTEGER &&
        !(is_whole(row->number) && is_whole(row->least) && is_whole(row->most)))
        return bad_plugin(path, diag, pass->name, row->name,
                          "expected a whole default and bounds");
    if (number && bounded && !(row->least <= row->number && row->number <= row->most))
        return bad_plugin(path, diag, pass->name, row->name,
                          "expected a default within its bounds");
    if (row->kind == COMPRESS_OPTION_FLAG && row->number != 0 && row->number != 1)
        return bad_plugin(path, diag, pass->name, row->name,
                          "expected a default of 0 or 1");
    return row->help ? STATUS_OK
                     : bad_plugin(path, diag, pass->name, row->name, "expected help");
}

static Status check_pass(const char *path, const CompressPluginPass *passes, int index,
                         Diag *diag) {
    const CompressPluginPass *pass = &passes[index];
    if (!is_name(pass->name))
        return bad_plugin(path, diag, pass->name, NULL,
                          "expected a name of lower case, digits and _");
    if (recipe_reserves(pass->name))
        return bad_plugin(path, diag, pass->name, NULL,
                          "expected a name that means nothing else in a list of steps");
    if (pass_find(pass->name))
        return bad_plugin(path, diag, pass->name, NULL, "another pass has this name");
    for (int i = 0; i < index; i++)
        if (strcmp(passes[i].name, pass->name) == 0)
            return bad_plugin(path, diag, pass->name, NULL, "is there twice");
    if (!pass->summary || !pass->run)
        return bad_plugin(path, diag, pass->name, NULL, "expected a summary and run");
    for (int i = 0; i < row_count(pass->options); i++)
        TRY(check_option(path, pass, pass->options, i, diag));
    return STATUS_OK;
}

/* A row of a pass's options as the binder knows them, and its default. */
static Field field_of(const CompressPluginOption *row, int index, OptionValue *value) {
    static const FieldKind KINDS[] = {
        [COMPRESS_OPTION_REAL] = FIELD_REAL,     [COMPRESS_OPTION_INTEGER] = FIELD_INT,
        [COMPRESS_OPTION_FLAG] = FIELD_BOOL,     [COMPRESS_OPTION_TEXT] = FIELD_STRING,
        [COMPRESS_OPTION_NAMES] = FIELD_STRINGS,
    };
    switch (row->kind) {
    case COMPRESS_OPTION_REAL: value->real = row->number; break;
    case COMPRESS_OPTION_INTEGER: value->integer = (int64_t)row->number; break;
    case COMPRESS_OPTION_FLAG: value->flag = row->number != 0; break;
    case COMPRESS_OPTION_TEXT: value->text = row->text; break;
    case COMPRESS_OPTION_NAMES: break;
    }
    return (Field){.name = row->name,
                   .kind = KINDS[row->kind],
                   .offset = (size_t)index * sizeof(OptionValue),
                   .min = row->least,
                   .max = row->most,
                   .nullable = row->kind == COMPRESS_OPTION_TEXT,
                   .help = row->help};
}

/* Lives as long as the process. */
static void add_pass(const CompressPluginPass *own, const char *origin) {
    const int count = row_count(own->options);
    Field *fields = memory_alloc((size_t)count + 1, sizeof *fields);
    OptionValue *defaults = memory_alloc((size_t)count + 1, sizeof *defaults);
    for (int i = 0; i < count; i++)
        fields[i] = field_of(&own->options[i], i, &defaults[i]);
    PluginPass *pass = memory_alloc(1, sizeof *pass);
    *pass = (PluginPass){.own = own,
                         .pass = {.name = own->name,
                                  .summary = own->summary,
                                  .paper = own->paper,
                                  .origin = origin,
                                  .fields = fields,
                                  .options_size = (size_t)count * sizeof *defaults,
                                  .defaults = defaults,
                                  .exactness = PASS_LOSSY,
                                  .run = plugin_run}};
    pass_add(&pass->pass);
}

/* Loads a shared object; NULL after an error. */
static void *open_object(const char *path, Diag *diag) {
    char *real = realpath(path, NULL);
    const int cause = errno;
    void *object = real ? dlopen(real, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!object)
        diag_fail(diag, real ? STATUS_FORMAT : STATUS_IO, LOC_FILE(path), NULL,
                  "expected a shared object for this machine: %s",
                  real ? dlerror() : strerror(cause));
    free(real);
    return object;
}

/* The plug-in that a shared object is; NULL after an error. */
static const CompressPlugin *find_plugin(const char *path, void *object, Diag *diag) {
    const CompressPlugin *(*ask)(void) = NULL;
    void *symbol = dlsym(object, "compress_plugin");
    memcpy(&ask, &symbol, sizeof ask);
    const CompressPlugin *plugin = ask ? ask() : NULL;
    const bool fits = plugin && plugin->interface >= 1 &&
                      plugin->interface <= COMPRESS_PLUGIN_INTERFACE;
    const bool named =
        fits && plugin->name && *plugin->name && plugin->version && *plugin->version;
    if (!named || !plugin->passes) {
        diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
                  "expected a plug-in for interfaces 1 to %d of compress, found %s",
                  COMPRESS_PLUGIN_INTERFACE,
                  !ask      ? "no function compress_plugin"
                  : !plugin ? "none"
                  : !fits   ? "one for another interface"
                            : "one without name, version or passes");
        return NULL;
    }
    return plugin;
}

/* "NAME VERSION, HASH of the file": what a step's result depends on; to be freed. */
static char *origin_of(const CompressPlugin *plugin, const char *hash) {
    Text text = {0};
    text_add(&text, "%s %s, %s", plugin->name, plugin->version, hash);
    return text.data;
}

/* Whether passes of this origin are there. */
static bool is_loaded(const char *origin) {
    for (const Pass *const *pass = pass_list(); *pass; pass++)
        if ((*pass)->origin && strcmp((*pass)->origin, origin) == 0) return true;
    return false;
}

/* Adds the passes of a plug-in, all or none. */
static Status add_passes(const char *path, const CompressPlugin *plugin,
                         const char *origin, Diag *diag) {
    for (int i = 0; plugin->passes[i].name; i++)
        TRY(check_pass(path, plugin->passes, i, diag));
    for (int i = 0; plugin->passes[i].name; i++) add_pass(&plugin->passes[i], origin);
    return STATUS_OK;
}

Status plugin_load(const char *path, Diag *diag) {
    char hash[HASH_TEXT_BYTES];
    TRY(file_hash(path, hash, diag));
    void *object = open_object(path, diag);
    if (!object) return diag_status(diag);
    const CompressPlugin *plugin = find_plugin(path, object, diag);
    char *origin = plugin ? origin_of(plugin, hash) : NULL;
    const bool loaded = plugin && is_loaded(origin);
    Status status = plugin ? STATUS_OK : STATUS_FORMAT;
    if (plugin && !loaded) status = add_passes(path, plugin, origin, diag);
    if (status == STATUS_OK && !loaded) return STATUS_OK; /* which keeps both */
    free(origin);
    dlclose(object);
    return status;
}
