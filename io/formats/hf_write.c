/* Hugging Face folders out: see hf_write.h. */
#include "io/formats/hf_write.h"

#include "io/files/file.h"
#include "io/files/json.h"
#include "io/files/outfolder.h"
#include "io/formats/assets.h"
#include "io/formats/densify.h"
#include "io/formats/model_config.h"
#include "io/formats/safetensors.h"
#include "io/formats/sentence_files.h"
#include "io/formats/stock_tensors.h"
#include "ir/storage.h"
#include "ir/verify.h"

#include <stdlib.h>
#include <string.h>

#define CONFIG_FILE  "config.json"
#define WEIGHTS_FILE "model.safetensors"
#define INDEX_FILE   "model.safetensors.index.json"

const Field hf_write_fields[] = {
    F_BOOL(HfWriteOptions, densify,
           "multiply out a factored embedding and factored projections, and copy weights "
           "that layers share, so that the architecture is one that transformers has"),
    F_INT(HfWriteOptions, shard_bytes, 1, 1e15,
          "weights of one file at most; more go into several, with an index"),
    F_END,
};

const HfWriteOptions hf_write_defaults = {.shard_bytes = 5000000000};

/* ---- config.json ---- */

/* Appends the text of config.json. */
static void print_config(Text *text, Arena *arena, const Stock *stock,
                         const StockTensor *tensors, int count) {
    static const char *const TYPES[DTYPE_COUNT] = {
        [DTYPE_F32] = "float32", [DTYPE_F16] = "float16", [DTYPE_BF16] = "bfloat16"};
    Tree *config = sentence_config_strip(arena, stock->config);
    const Graph *graph = stock->built->graph;
    DType dtype = count > 0 ? tensors[0].shape.dtype : DTYPE_F32;
    for (int i = 1; i < count; i++) /* one type of all weights, F32 of several */
        if (tensors[i].shape.dtype != dtype) dtype = DTYPE_F32;
    const char *type = TYPES[dtype];
    if (!tree_get_nonnull(config, "architectures"))
        tree_add_string(arena, tree_put_list(arena, config, "architectures"),
                        stock->family->classes[0]);
    config_put_task(arena, config, graph);
    tree_put_string(arena, config, "torch_dtype", type);
    if (tree_get(config, "dtype")) tree_put_string(arena, config, "dtype", type);
    tree_print_json(text, config, 2);
    text_add(text, "\n");
}

/* ---- weights ---- */

typedef struct HfFolder {
    Arena *arena;
    const char *path; /* that is written into */
    const Stock *stock;
    StockTensor *tensors;
    int count;
    Diag *diag;
} HfFolder;

/* Constants of the architecture behind the weights of the first file. */
static Status add_constants(HfFolder *folder, NamedTensor *out, int *count, int most) {
    const Family *family = folder->stock->family;
    for (int i = 0; family->constant && *count < most; i++) {
        NamedTensor *named = &out[*count];
        TRY(family->constant(&named->name, &named->tensor, folder->arena,
                             folder->stock->built->graph, i, folder->diag));
        if (!named->name) break;
        ++*count;
    }
    return STATUS_OK;
}

/* Writes tensors [first, end) as one file; with the constants when `first` is 0. */
static Status write_shard(HfFolder *folder, const char *name, int first, int end) {
    const int most = 2 * folder->count; /* constants are fewer than weights */
    NamedTensor *named = ARENA_ARRAY(folder->arena, NamedTensor, (size_t)most + 1);
    Tree *metadata = tree_new(folder->arena, TREE_MAP, LOC_NONE);
    tree_put_string(folder->arena, metadata, "format", "pt");
    Status status = STATUS_OK;
    int count = 0;
    for (int i = first; i < end && status == STATUS_OK; i++, count++) {
        named[count].name = folder->tensors[i].name;
        status =
            stock_tensor_values(&named[count].tensor, &folder->tensors[i], folder->diag);
    }
    if (status == STATUS_OK && first == 0)
        status = add_constants(folder, named, &count, most);
    if (status == STATUS_OK)
        status = safetensors_write_with(path_join(folder->arena, folder->path, name),
                                        named, count, metadata, folder->diag);
    for (int i = 0; i < count; i++) tensor_release(&named[i].tensor);
    return status;
}

/* The tensor behind the last one that goes into a file with tensor `first`. */
static int shard_end(const HfFolder *folder, int first, int64_t limit) {
    int64_t bytes = 0;
    int end = first;
    do {
        bytes += (int64_t)tensor_bytes(&folder->tensors[end++].shape);
    } while (end < folder->count &&
             bytes + (int64_t)tensor_bytes(&folder->tensors[end].shape) <= limit);
    return end;
}

static Status write_shards(HfFolder *folder, int64_t limit, int files) {
    Arena *arena = folder->arena;
    Tree *index = tree_new(arena, TREE_MAP, LOC_NONE);
    Tree *metadata = tree_put_map(arena, index, "metadata");
    Tree *places = tree_put_map(arena, index, "weight_map");
    int64_t total = 0;
    for (int first = 0, file = 1, end; first < folder->count; first = end, file++) {
        const char *name =
            arena_printf(arena, "model-%05d-of-%05d.safetensors", file, files);
        end = shard_end(folder, first, limit);
        TRY(write_shard(folder, name, first, end));
        for (int i = first; i < end; i++) {
            tree_put_string(arena, places, folder->tensors[i].name, name);
            total += (int64_t)tensor_bytes(&folder->tensors[i].shape);
        }
    }
    tree_put_int(arena, metadata, "total_size", total);
    return json_write(index, path_join(arena, folder->path, INDEX_FILE), folder->diag);
}

static Status write_weights(HfFolder *folder, int64_t limit) {
    int files = 0;
    for (int first = 0; first < folder->count; files++)
        first = shard_end(folder, first, limit);
    if (files > 1) return write_shards(folder, limit, files);
    return write_shard(folder, WEIGHTS_FILE, 0, folder->count);
}

/* ---- the folder ---- */

bool hf_is_ours(const char *name) {
    int file, files, end = 0;
    const bool shard =
        sscanf(name, "model-%5d-of-%5d.safetensors%n", &file, &files, &end) == 2 &&
        end > 0 && name[end] == 0;
    return shard || strcmp(name, CONFIG_FILE) == 0 || strcmp(name, WEIGHTS_FILE) == 0 ||
           strcmp(name, INDEX_FILE) == 0 || asset_is_known(name) ||
           sentence_file_is_known(name);
}

static Status fill_folder(HfFolder *folder, const Model *model,
                          const HfWriteOptions *options) {
    Text config = {0};
    int64_t bytes = 0;
    int files = 0;
    print_config(&config, folder->arena, folder->stock, folder->tensors, folder->count);
    Status status = file_write(path_join(folder->arena, folder->path, CONFIG_FILE),
                               config.data, config.length, folder->diag);
    text_free(&config);
    if (status == STATUS_OK) status = write_weights(folder, options->shard_bytes);
    if (status == STATUS_OK) status = graph_verify_weights(model->graph, folder->diag);
    const Node *embedding = graph_output(model->graph, OUTPUT_EMBEDDING);
    if (status == STATUS_OK && embedding)
        status = sentence_files_write(folder->stock->config, folder->path,
                                      node_width(embedding), folder->arena, folder->diag);
    if (status == STATUS_OK)
        status = assets_write(model, folder->path, &bytes, &files, folder->diag);
    return status;
}

/* Puts the files of a matched model into a folder. */
static Status write_stock(const Model *model, const Stock *stock, Arena *arena,
                          const char *path, const HfWriteOptions *options,
                          Written *written, Diag *diag) {
    OutFolder *out;
    HfFolder folder = {.arena = arena, .stock = stock, .diag = diag};
    folder.count = stock_tensors(&folder.tensors, arena, stock);
    TRY(outfolder_open(&out, &folder.path, path, hf_is_ours, diag));
    const Status status = fill_folder(&folder, model, options);
    outfolder_measure(out, &written->bytes, &written->files);
    return outfolder_end(out, status, diag);
}

/* ---- the model ---- */

/* The types that checkpoints have. */
static Status check_dtypes(const Model *model, Diag *diag) {
    for (int i = 0; i < model->graph->storage_count; i++) {
        const Storage *storage = model->graph->storages[i];
        const DType dtype = storage->tensor.dtype;
        if (dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16) continue;
        diag_fail(diag, STATUS_MODEL, LOC_NONE, storage->name,
                  "expected weights of type f32, f16 or bf16, found %s",
                  dtype_name(dtype));
        diag_hint(diag, dtype_is_quantised(dtype)
                            ? "`dtype: f32` at the output makes them real numbers; an "
                              ".onnx, .gguf or .h5 file holds them as they are"
                            : "`dtype: f32` at the output converts them");
        return STATUS_MODEL;
    }
    return STATUS_OK;
}

/* Turns matrices that the checkpoint has the other way round; layers may share one. */
static Status turn_back(const Stock *stock, Graph *graph, Diag *diag) {
    for (int i = 0; i < stock->built->graph->storage_count; i++) {
        Storage *storage = graph_storage(graph, stock->weights[i]->name);
        bool done = !stock->turned[i];
        for (int j = 0; j < i && !done; j++) done = stock->weights[j] == storage;
        if (!done)
            TRY(storage_turn(graph, graph_param(graph, storage), STORAGE_ALL_USERS,
                             diag));
    }
    return STATUS_OK;
}

/* What the model is. `*dense`, owned by the caller, is the copy that was matched: with
 * `densify` it is multiplied out. Its weights are turned as the checkpoint has them; how
 * its linear layers read them stays as it was. */
static Status match_model(Stock *stock, Model **dense, Arena *arena, const Model *model,
                          bool densify, DenseReport *report, Diag *diag) {
    *dense = model_copy(model);
    Status status = densify ? model_densify(*dense, report, diag) : STATUS_OK;
    if (status == STATUS_OK) status = stock_match(stock, arena, *dense, densify, diag);
    if (status == STATUS_OK) {
        status = turn_back(stock, (*dense)->graph, diag);
        if (status != STATUS_OK) stock_release(stock);
    }
    if (status == STATUS_OK) return STATUS_OK;
    model_destroy(*dense);
    return status;
}

/* Whether the model could be written with `densify`. */
static bool densify_helps(const Model *model) {
    Diag *aside = diag_create();
    Arena *arena = arena_create();
    Model *shapes = model_copy(model), *dense;
    DenseReport report = {0};
    Stock stock;
    model_strip(shapes);
    const bool helps =
        match_model(&stock, &dense, arena, shapes, true, &report, aside) == STATUS_OK;
    if (helps) {
        stock_release(&stock);
        model_destroy(dense);
    }
    model_destroy(shapes);
    arena_destroy(arena);
    diag_destroy(aside);
    return helps;
}

static const HfWriteOptions *given(const WriteOptions *options) {
    return options && options->options ? options->options : &hf_write_defaults;
}

Status hf_check(const Model *model, const WriteOptions *options, Diag *diag) {
    const HfWriteOptions *own = given(options);
    const bool keep = !options || !options->dtype || strcmp(options->dtype, "keep") == 0;
    if (keep) TRY(check_dtypes(model, diag)); /* else they are cast first */
    Arena *arena = arena_create();
    Model *shapes = model_copy(model), *dense;
    DenseReport report = {0};
    Stock stock;
    model_strip(shapes);
    const Status status =
        match_model(&stock, &dense, arena, shapes, own->densify, &report, diag);
    if (status == STATUS_OK) {
        stock_release(&stock);
        model_destroy(dense);
    } else if (!own->densify && densify_helps(shapes)) {
        diag_hint(diag, "`densify: true` at the output undoes that, and the model grows "
                        "again; an .onnx or .h5 file holds it as it is");
    } else {
        diag_hint(diag, "an .onnx file holds any model for others to run, an .h5 file "
                        "all that is known of it");
    }
    model_destroy(shapes);
    arena_destroy(arena);
    return status;
}

/* Says what densify did. */
static void tell_dense(const DenseReport *report, const Stock *stock, const char *path,
                       Diag *diag) {
    const int factors = report->factors + report->linears;
    const char *one = report->linears ? "projection" : "embedding";
    const char *kind = report->factors && report->linears ? "matrices" : NULL;
    if (factors > 0)
        diag_warn(diag, LOC_FILE(path), NULL,
                  "%d factored %s%s multiplied out: %+lld parameters", factors,
                  kind ? kind : one, kind || factors == 1 ? "" : "s",
                  (long long)report->parameters);
    if (stock->copies > 0)
        diag_warn(diag, LOC_FILE(path), NULL,
                  "%d weights that parts of the model share are written for each of "
                  "them: %lld bytes more",
                  stock->copies, (long long)stock->copied_bytes);
}

Status hf_write(Model *model, const char *path, const WriteOptions *options,
                Written *written, Diag *diag) {
    const HfWriteOptions *own = given(options);
    TRY(check_dtypes(model, diag));
    Arena *arena = arena_create();
    DenseReport report = {0};
    Model *dense;
    Stock stock;
    Status status =
        match_model(&stock, &dense, arena, model, own->densify, &report, diag);
    if (status == STATUS_OK) {
        status = write_stock(dense, &stock, arena, path, own, written, diag);
        if (status == STATUS_OK) tell_dense(&report, &stock, path, diag);
        stock_release(&stock);
        model_destroy(dense);
    }
    arena_destroy(arena);
    return status;
}
