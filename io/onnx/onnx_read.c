/* ONNX in: see onnx_read.h. */
#include "io/onnx/onnx_read.h"

#include "io/families/family.h"
#include "io/files/file.h"
#include "io/files/json.h"
#include "io/formats/assets.h"
#include "io/formats/stock.h"
#include "io/onnx/lift/lift_match.h"
#include "io/onnx/lift/lift_plain.h"
#include "io/onnx/lift/places.h"
#include "io/onnx/lift/places_config.h"
#include "io/onnx/net/probe.h"
#include "io/onnx/net/reopen.h"
#include "io/onnx/onnx_notes.h"
#include "ir/rewrite.h"
#include "ir/text.h"
#include "ir/verify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const size_t CONFIG_BYTES_MAX = (size_t)16 << 20;

/* Fields of ModelProto begin with the version of the format (a varint below 128), and its
 * graph or an operator set follows among few others. */
bool onnx_probe(const char *path) {
    unsigned char head[2] = {0, 0};
    const char *dot = strrchr(path, '.');
    const bool found = file_start(head, sizeof head, path) == sizeof head;
    return found && dot && strcmp(dot, ".onnx") == 0 && (head[0] & 7) <= 2;
}

/* ---- what stands beside the file ---- */

/* The folder of a file's config.json: its own or the one above; NULL when neither has
 * one. */
static const char *config_folder(Arena *arena, const char *path) {
    const char *folder = path_folder(arena, path);
    const char *above = path_join(arena, folder, "..");
    if (path_is_file(path_join(arena, folder, "config.json"))) return folder;
    return path_is_file(path_join(arena, above, "config.json")) ? above : NULL;
}

/* The configuration beside the file, NULL when there is none that can be read. */
static Tree *read_config(Arena *arena, const char *folder, Diag *diag) {
    Tree *config = NULL;
    Diag *aside = diag_create();
    const char *path = path_join(arena, folder, "config.json");
    if (json_read(&config, arena, path, CONFIG_BYTES_MAX, aside) != STATUS_OK ||
        config->kind != TREE_MAP) {
        diag_warn(diag, LOC_FILE(path), NULL, "not a configuration: left out");
        config = NULL;
    }
    diag_destroy(aside);
    return config;
}

static int64_t config_size(const Tree *config, const char *key) {
    const Tree *value = tree_get(config, key);
    if (value && value->kind == TREE_LIST && value->count > 0) value = value->first;
    return value && value->kind == TREE_INT && value->integer > 0 &&
                   value->integer <= 1 << 14
               ? value->integer
               : 0;
}

/* Sizes of images by the weights: channels from the filters of the first Conv, a square
 * of as many patches as a stored table has positions beside one or two tokens. */
static void sizes_of_weights(const Net *net, ProbeSizes *sizes) {
    const OnnxTensor *filters = NULL;
    for (int i = 0; i < net->node_count && !filters; i++)
        if (net_is(net->nodes[i], "Conv") && net->nodes[i]->in_count > 1 &&
            net->nodes[i]->in[1])
            filters = net->nodes[i]->in[1]->stored;
    if (!filters || filters->n_dims != 4) return;
    if (!sizes->channels) sizes->channels = filters->dims[1];
    for (int i = 0; i < net->value_count && !sizes->height; i++) {
        const OnnxTensor *t = net->values[i]->stored;
        if (!t || t->n_dims != 3 || t->dims[0] != 1 || t->dims[2] != filters->dims[0])
            continue;
        for (int tokens = 1; tokens <= 2 && t->dims[1] < 1 << 20; tokens++) {
            const int64_t side = (int64_t)llround(sqrt((double)(t->dims[1] - tokens)));
            if (side > 0 && side * side == t->dims[1] - tokens &&
                filters->dims[2] < 1 << 12)
                sizes->height = sizes->width = side * filters->dims[2];
        }
    }
}

static ProbeSizes find_sizes(const Net *net, const Tree *config) {
    const int64_t image = config_size(config, "image_size");
    ProbeSizes sizes = {config_size(config, "num_channels"), image, image};
    const Tree *list = tree_get(config, "image_size");
    if (list && list->kind == TREE_LIST && list->count == 2 &&
        list->last->kind == TREE_INT && list->last->integer > 0)
        sizes.width = list->last->integer <= 1 << 14 ? list->last->integer : 0;
    sizes_of_weights(net, &sizes);
    return sizes;
}

/* ---- the model ---- */

/* The configuration beside the file is the model's where it is of its family. */
static void choose_config(Model *model, const Tree *beside, const char *path,
                          Diag *diag) {
    Tree *found = places_config(model->arena, model->graph);
    const Tree *type = tree_get(found, "model_type"),
               *other = tree_get_nonnull(beside, "model_type");
    const bool same = type && other && other->kind == TREE_STRING &&
                      strcmp(type->string, other->string) == 0;
    model->config = found;
    if (same)
        model->config = tree_copy(model->arena, beside);
    else if (beside)
        diag_warn(diag, LOC_FILE(path), NULL,
                  "the config.json beside it is not of the family that the graph is like "
                  "(%s): left out",
                  type ? type->string : "none that is known");
}

/* Files do not say how weights are drawn anew; the configuration does, where the graph is
 * the one that it builds. */
static void take_inits(Model *model) {
    Arena *scratch = arena_create();
    Diag *aside = diag_create();
    Stock stock;
    if (stock_match(&stock, scratch, model, true, aside) == STATUS_OK) {
        const Graph *built = stock.built->graph;
        for (int i = 0; i < built->storage_count; i++)
            graph_storage(model->graph, stock.weights[i]->name)->init =
                built->storages[i]->init;
        stock_release(&stock);
    }
    diag_destroy(aside);
    arena_destroy(scratch);
}

/* ---- sizes that the file fixes ---- */

/* Whether an input has a fixed number of samples or tokens, opened or not. */
static bool fixes_sizes(const Net *net) {
    for (int i = 0; i < net->input_count; i++)
        for (int d = 0; d < 2; d++)
            if (reopen_counted(net, net->inputs[i], d) >= 0 &&
                reopen_fixed(net->inputs[i], d) > 0)
                return true;
    return false;
}

static void report_sizes(const Net *net, Diag *diag) {
    static const char *const NAMES[COUNTED] = {"samples", "tokens", "tokens of a source"};
    Text text = {0};
    for (int i = 0; i < COUNTED; i++)
        if (net->fixed[i] > 0)
            text_add(&text, "%s%s: %lld", text.length ? ", " : "", NAMES[i],
                     (long long)net->fixed[i]);
    if (text.length)
        diag_warn(diag, LOC_FILE(net->path), NULL,
                  "the file fixes sizes (%s), which are open here", text.data);
    text_free(&text);
}

static Status lift_model(Model *model, Net *net, const Tree *beside, Diag *diag) {
    ArrayPool pool = {arena_create(), ARRAY_POOL_MAX};
    Lift lift = {.net = net,
                 .match = match_value,
                 .pool = &pool,
                 .graph = model->graph,
                 .arena = model->arena};
    const ProbeSizes sizes = find_sizes(net, beside);
    Status status = probe_run(net, &pool, &sizes, diag);
    if (status == STATUS_OK) status = lift_outputs(&lift, lift_plain, diag);
    if (status != STATUS_OK && fixes_sizes(net))
        diag_hint(diag,
                  "the file fixes how many samples there are: export it with a batch "
                  "(and, of text, a sequence) of any size, dynamic_axes in PyTorch");
    if (status == STATUS_OK) {
        graph_remove_dead(model->graph);
        plain_report(&lift, diag);
        report_sizes(net, diag);
    }
    free(lift.leaves);
    free(lift.plains);
    arena_destroy(pool.arena);
    if (status != STATUS_OK) return status;
    const int layers = places_find(model->graph, lift.decoder);
    if (layers == 0)
        diag_warn(diag, LOC_FILE(net->path), NULL,
                  "no layer of a transformer was found in its graph: it runs, but passes "
                  "that work on layers have nothing to work on");
    TRY(graph_infer(model->graph, diag));
    choose_config(model, beside, net->path, diag);
    take_inits(model);
    return graph_verify(model->graph, STATUS_MODEL, diag);
}

/* The encoder's file beside a decoder's of the same kind ("decoder_model_fp16.onnx"
 * beside "encoder_model_fp16.onnx"), NULL when the path is of no decoder's. */
static const char *encoder_beside(Arena *arena, const char *path) {
    static const char *const DECODERS[] = {"decoder_model_merged", "decoder_model"};
    const char *folder = path_folder(arena, path);
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    for (size_t i = 0; i < sizeof DECODERS / sizeof *DECODERS; i++) {
        const size_t length = strlen(DECODERS[i]);
        if (strncmp(name, DECODERS[i], length) != 0) continue;
        const char *encoder = path_join(
            arena, folder, arena_printf(arena, "encoder_model%s", name + length));
        return path_is_file(encoder) ? encoder : NULL;
    }
    return NULL;
}

/* Reads a file's graph, or where it notes the model that it was, that. */
static Status read_net(Model **out, Net *net, const Tree *beside, const OpTable *ops,
                       Diag *diag) {
    *out = model_create(ops);
    if (onnx_notes_read(*out, net)) return STATUS_OK;
    model_destroy(*out);
    *out = model_create(ops);
    TRY(net_settle(net, diag));
    if (net->dequantised > 0)
        diag_warn(diag, LOC_FILE(net->path), NULL,
                  "%d weights of 8 bits or fewer become f32, and activations are not "
                  "rounded any more",
                  net->dequantised);
    return lift_model(*out, net, beside, diag);
}

Status onnx_read(Model **out, const char *path, const OpTable *ops, Diag *diag) {
    Net *net;
    Arena *arena = arena_create();
    const char *encoder = encoder_beside(arena, path);
    Status status = net_open(&net, path, encoder, diag);
    if (status == STATUS_OK) {
        const char *folder = config_folder(arena, path);
        const Tree *beside = folder ? read_config(arena, folder, diag) : NULL;
        status = read_net(out, net, beside, ops, diag);
        (*out)->file_bytes = net_file_bytes(net);
        if (status == STATUS_OK && folder) assets_read(*out, folder, diag);
        if (status != STATUS_OK) model_destroy(*out);
        net_destroy(net);
    }
    arena_destroy(arena);
    return status;
}
