/* Native model file, writing: a child writes it with HDF5 (whose state a full disk would
 * leave broken), the parent reads it back, compares and puts it in place. */
#include "io/files/file.h"
#include "io/files/sandbox.h"
#include "io/formats/model_config.h"
#include "io/formats/modelfile.h"
#include "io/formats/modelfile_gaussians.h"
#include "io/formats/modelfile_quantised.h"
#include "ir/irtext.h"
#include "ir/mapped.h"
#include "ir/text.h"
#include "ir/verify.h"

#include <stdlib.h>
#include <string.h>

/* A text that is empty is left out: the original configuration where it is the present
 * one. */
enum { TEXT_IR, TEXT_CONFIG, TEXT_ORIGINAL, TEXT_PROVENANCE, TEXT_INDEX, TEXT_COUNT };

static const char *const TEXT_NAMES[TEXT_COUNT] = {"ir", "config", MODELFILE_ORIGINAL,
                                                   "provenance", "index"};

/* One storage under its name in the file. */
typedef struct Weight {
    const char *link;
    const Storage *storage;
} Weight;

/* One part of a Gaussian under its name in the file. */
typedef struct Part {
    const char *link;
    const Tensor *tensor;
} Part;

typedef struct ModelWriter {
    Model *model;
    const char *path, *temporary;
    Arena *scratch;
    Text texts[TEXT_COUNT];
    Weight *weights; /* sorted by link */
    int weight_count;
    Part *parts; /* sorted by link */
    int part_count;
    Hdf5Set *sets;
    int set_count;
    size_t file_bytes;
    bool unread;     /* hashes are found while the weights are written */
    Status verified; /* what was found then */
    uint64_t index;  /* where the index is in the file, if they are */
    Diag *diag;
} ModelWriter;

static Status weights_collect(ModelWriter *w) {
    const Graph *graph = w->model->graph;
    w->weight_count = graph->storage_count;
    w->weights = ARENA_ARRAY(w->scratch, Weight, (size_t)w->weight_count + 1);
    for (int i = 0; i < w->weight_count; i++) {
        const Storage *storage = graph->storages[i];
        if (!storage->tensor.buf)
            return diag_fail(w->diag, STATUS_MODEL, LOC_FILE(w->path), storage->name,
                             "cannot write a storage without weights");
        w->weights[i] = (Weight){modelfile_link(w->scratch, storage->name), storage};
    }
    qsort(w->weights, (size_t)w->weight_count, sizeof *w->weights, text_order);
    return STATUS_OK;
}

static Status parts_collect(ModelWriter *w) {
    const size_t most = (size_t)w->weight_count * GAUSSIAN_PARTS_MAX;
    w->parts = ARENA_ARRAY(w->scratch, Part, most + 1);
    for (int i = 0; i < w->weight_count; i++) {
        const Storage *storage = w->weights[i].storage;
        GaussianPart part[GAUSSIAN_PARTS_MAX];
        if (!storage->gaussian) continue;
        if (!gaussian_fits(storage->gaussian, &storage->tensor) ||
            !gaussian_has_data(storage->gaussian))
            return diag_fail(w->diag, STATUS_MODEL, LOC_FILE(w->path), storage->name,
                             "cannot write a Gaussian without numbers");
        const int count = gaussian_parts(storage->gaussian, part);
        for (int p = 0; p < count; p++)
            w->parts[w->part_count++] =
                (Part){modelfile_part_link(w->scratch, storage->name, part[p].name),
                       part[p].tensor};
    }
    qsort(w->parts, (size_t)w->part_count, sizeof *w->parts, text_order);
    return STATUS_OK;
}

/* The hash of a weight that nobody has read yet is put in later. */
static void index_add(Tree *rows, Arena *arena, const Storage *storage) {
    const Tensor *tensor = &storage->tensor;
    char hash[HASH_TEXT_BYTES] = "00000000000000000000000000000000";
    char form[FORM_TEXT_BYTES];
    if (!tensor_is_unread(tensor)) tensor_hash(tensor, hash);
    Tree *row = tree_new(arena, TREE_MAP, LOC_NONE);
    Tree *shape = tree_new(arena, TREE_LIST, LOC_NONE);
    for (int i = 0; i < tensor->rank; i++) {
        Tree *dim = tree_new(arena, TREE_INT, LOC_NONE);
        dim->integer = tensor->dim[i];
        tree_append(arena, shape, NULL, LOC_NONE, dim);
    }
    tree_put_string(arena, row, "name", storage->name);
    tree_put_string(arena, row, "dtype", tensor_form_text(form, tensor));
    tree_append(arena, row, "shape", LOC_NONE, shape);
    tree_put_string(arena, row, "hash", hash);
    tree_append(arena, rows, NULL, LOC_NONE, row);
}

/* {"format", "texts": hashes by name, "storages": rows, and where there are some
 * "priors", "assets": hashes by name}. */
static void index_print(ModelWriter *w) {
    Arena *arena = w->scratch;
    Tree *index = tree_new(arena, TREE_MAP, LOC_NONE);
    Tree *texts = tree_new(arena, TREE_MAP, LOC_NONE);
    Tree *rows = tree_new(arena, TREE_LIST, LOC_NONE);
    char hash[HASH_TEXT_BYTES];
    for (int i = 0; i < TEXT_INDEX; i++) {
        if (w->texts[i].length == 0) continue;
        bytes_hash(w->texts[i].data, w->texts[i].length, hash);
        tree_put_string(arena, texts, TEXT_NAMES[i], hash);
    }
    for (int i = 0; i < w->weight_count; i++)
        index_add(rows, arena, w->weights[i].storage);
    tree_put_int(arena, index, "format", MODELFILE_VERSION);
    tree_append(arena, index, "texts", LOC_NONE, texts);
    tree_append(arena, index, "storages", LOC_NONE, rows);
    const Storage **sorted =
        ARENA_ARRAY(arena, const Storage *, (size_t)w->weight_count + 1);
    for (int i = 0; i < w->weight_count; i++) sorted[i] = w->weights[i].storage;
    modelfile_put_gaussians(index, arena, sorted, w->weight_count);
    Tree *assets = tree_new(arena, TREE_MAP, LOC_NONE);
    for (int i = 0; i < w->model->asset_count; i++) {
        const ModelAsset *asset = &w->model->assets[i];
        bytes_hash(asset->data, asset->length, hash);
        tree_put_string(arena, assets, asset->name, hash);
    }
    if (assets->count > 0) tree_append(arena, index, MODELFILE_ASSETS, LOC_NONE, assets);
    tree_print_json(&w->texts[TEXT_INDEX], index, 0);
}

static void map_print(Text *text, const Tree *map) {
    if (map)
        tree_print_json(text, map, 0);
    else
        text_add(text, "{}");
}

static void sets_add(ModelWriter *w, const char *group, const char *link,
                     const Tensor *tensor) {
    Hdf5Set *set = &w->sets[w->set_count++];
    *set =
        (Hdf5Set){.group = group,
                  .name = link,
                  .dtype = tensor->dtype,
                  .rank = tensor->rank,
                  .data = tensor_piece(tensor, 0, 0)}; /* counted when they are written */
    memcpy(set->dim, tensor->dim, sizeof set->dim);
}

/* Part `part` of the quantised storages, the parts of a group together. */
static void sets_add_quantised(ModelWriter *w, int part) {
    for (int i = 0; i < w->weight_count; i++) {
        const Tensor *tensor = &w->weights[i].storage->tensor;
        Hdf5Set sets[QUANTISED_SETS];
        if (!dtype_is_quantised(tensor->dtype)) continue;
        if (part < modelfile_quantised_sets(sets, w->weights[i].link, tensor))
            w->sets[w->set_count++] = sets[part];
    }
}

static void sets_collect(ModelWriter *w) {
    static const int32_t version = MODELFILE_VERSION;
    const size_t most = (size_t)w->weight_count * QUANTISED_SETS + (size_t)w->part_count +
                        TEXT_COUNT + (size_t)w->model->asset_count + 1;
    w->sets = ARENA_ARRAY(w->scratch, Hdf5Set, most);
    w->sets[w->set_count++] =
        (Hdf5Set){.name = "format", .dtype = DTYPE_I32, .data = &version};
    for (int i = 0; i < TEXT_COUNT; i++)
        if (w->texts[i].length > 0)
            w->sets[w->set_count++] = (Hdf5Set){.name = TEXT_NAMES[i],
                                                .dtype = DTYPE_U8,
                                                .rank = 1,
                                                .dim = {(int64_t)w->texts[i].length},
                                                .data = w->texts[i].data,
                                                .tell = i == TEXT_INDEX};
    for (int i = 0; i < w->model->asset_count; i++) {
        const ModelAsset *asset = &w->model->assets[i];
        w->sets[w->set_count++] = (Hdf5Set){.group = MODELFILE_ASSETS,
                                            .name = asset->name,
                                            .dtype = DTYPE_U8,
                                            .rank = 1,
                                            .dim = {(int64_t)asset->length},
                                            .data = asset->data};
    }
    for (int i = 0; i < w->part_count; i++)
        sets_add(w, MODELFILE_PRIORS, w->parts[i].link, w->parts[i].tensor);
    for (int i = 0; i < w->weight_count; i++) {
        const Tensor *tensor = &w->weights[i].storage->tensor;
        Hdf5Set sets[QUANTISED_SETS];
        if (!dtype_is_quantised(tensor->dtype)) {
            sets_add(w, MODELFILE_WEIGHTS, w->weights[i].link, tensor);
            continue;
        }
        modelfile_quantised_sets(sets, w->weights[i].link, tensor);
        w->sets[w->set_count++] = sets[0];
    }
    for (int part = 1; part < QUANTISED_SETS; part++) sets_add_quantised(w, part);
}

static bool write_work(void *state, Text *reply) {
    const ModelWriter *w = state;
    return hdf5_write(w->temporary, w->sets, w->set_count, reply);
}

/* Finds the hashes of weights beside the child, which reads the same pages. */
static void verify_work(void *state) {
    ModelWriter *w = state;
    if (w->unread) w->verified = graph_verify_weights(w->model->graph, w->diag);
}

static Status file_write_sets(ModelWriter *w) {
    Text reply = {0};
    const SandboxLimits unlimited = {0};
    Status status = STATUS_OK;
    const SandboxEnd end =
        sandbox_run_beside(&reply, write_work, verify_work, w, &unlimited);
    switch (end) {
    case SANDBOX_DONE: w->index = strtoull(reply.data, NULL, 10); break;
    case SANDBOX_FAULT:
        status = diag_fail(w->diag, STATUS_IO, LOC_FILE(w->path), NULL,
                           "cannot write the file: %s", reply.data ? reply.data : "?");
        break;
    case SANDBOX_DIED:
        status = sandbox_died(&reply, STATUS_IO, LOC_FILE(w->path), "write", w->diag);
        break;
    case SANDBOX_LATE:
    case SANDBOX_MEMORY:
    case SANDBOX_NONE: status = sandbox_fail(end, LOC_FILE(w->path), "write", w->diag);
    }
    text_free(&reply);
    return w->verified != STATUS_OK ? w->verified : status;
}

/* Prints the index anew, now that all hashes are known, over the first. */
static Status seal_index(ModelWriter *w, OutFile *file) {
    Text *index = &w->texts[TEXT_INDEX];
    const size_t length = index->length;
    text_free(index);
    index_print(w);
    if (index->length != length)
        return diag_fail(w->diag, STATUS_INTERNAL, LOC_FILE(w->path), "index",
                         "%zu bytes have become %zu", length, index->length);
    return outfile_rewrite(file, (size_t)w->index, index->data, length, w->diag);
}

static Status not_equal(ModelWriter *w, const char *what) {
    return diag_fail(w->diag, STATUS_IO, LOC_FILE(w->path), what,
                     "what was written does not read back equal");
}

static bool same_gaussian(const Gaussian *a, const Gaussian *b) {
    if (!a || !b) return a == b;
    Text one = {0}, two = {0};
    gaussian_describe(&one, a);
    gaussian_describe(&two, b);
    const bool same = strcmp(one.data, two.data) == 0;
    text_free(&one);
    text_free(&two);
    return same;
}

/* Compares a model read back with the one written: graph, every byte of weights, hashes
 * of the Gaussians. */
static Status compare(ModelWriter *w, Model *copy) {
    Text ir = {0};
    graph_print(&ir, copy->graph);
    const Text *wanted = &w->texts[TEXT_IR];
    bool equal =
        ir.length == wanted->length && memcmp(ir.data, wanted->data, ir.length) == 0;
    text_free(&ir);
    if (!equal) return not_equal(w, "ir");
    for (int i = 0; i < w->weight_count; i++) {
        const Storage *from = w->weights[i].storage;
        const Storage *to = graph_storage(copy->graph, from->name);
        if (!to || tensor_bytes(&to->tensor) != tensor_bytes(&from->tensor) ||
            !tensor_same_bytes(&from->tensor, &to->tensor))
            return not_equal(w, from->name);
        if (!same_gaussian(from->gaussian, to->gaussian)) return not_equal(w, from->name);
    }
    /* reading has compared their hashes */
    if (copy->asset_count != w->model->asset_count) return not_equal(w, MODELFILE_ASSETS);
    return STATUS_OK;
}

static Status read_back(ModelWriter *w) {
    Model *copy = NULL;
    Status status =
        modelfile_read(&copy, w->temporary, w->model->graph->ops, true, w->diag);
    if (status == STATUS_OK)
        status = compare(w, copy);
    else
        diag_note(w->diag, "while reading back what was written for %s", w->path);
    model_destroy(copy);
    Buf *map = NULL;
    if (status == STATUS_OK) status = file_map(&map, w->temporary, w->diag);
    if (map) w->file_bytes = buf_bytes(map);
    buf_release(map);
    return status;
}

static Status writer_run(ModelWriter *w) {
    OutFile *file = NULL;
    TRY(weights_collect(w));
    for (int i = 0; i < w->weight_count; i++)
        w->unread = w->unread || tensor_is_unread(&w->weights[i].storage->tensor);
    if (!w->unread) TRY(graph_verify_weights(w->model->graph, w->diag));
    TRY(parts_collect(w));
    graph_print(&w->texts[TEXT_IR], w->model->graph);
    const Tree *config = model_config_now(w->scratch, w->model);
    map_print(&w->texts[TEXT_CONFIG], config);
    if (config != w->model->config) map_print(&w->texts[TEXT_ORIGINAL], w->model->config);
    map_print(&w->texts[TEXT_PROVENANCE], w->model->provenance);
    index_print(w);
    sets_collect(w);
    TRY(outfile_open(&file, &w->temporary, w->path, w->diag));
    Status status = file_write_sets(w);
    if (status == STATUS_OK && w->unread) status = seal_index(w, file);
    if (status == STATUS_OK) status = read_back(w);
    if (status == STATUS_OK) return outfile_commit(file, w->diag);
    outfile_abandon(file);
    return status;
}

Status modelfile_write(Model *model, const char *path, size_t *file_bytes, Diag *diag) {
    ModelWriter w = {
        .model = model, .path = path, .diag = diag, .scratch = arena_create()};
    Status status = writer_run(&w);
    if (status == STATUS_OK && file_bytes) *file_bytes = w.file_bytes;
    for (int i = 0; i < TEXT_COUNT; i++) text_free(&w.texts[i]);
    arena_destroy(w.scratch);
    return status;
}
