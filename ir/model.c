/* Model: creating, copying, initialising and hashing. */
#include "ir/model.h"

#include "ir/half.h"
#include "ir/irtext.h"
#include "ir/quantised.h"
#include "ir/random.h"
#include "ir/rewrite.h"
#include "ir/storage.h"

#include <stdlib.h>
#include <string.h>

Model *model_create(const OpTable *ops) {
    Arena *arena = arena_create();
    Model *model = memory_alloc(1, sizeof *model);
    model->arena = arena;
    model->graph = graph_create(arena, ops);
    model->config = tree_new(arena, TREE_MAP, LOC_NONE);
    model->provenance = tree_new(arena, TREE_MAP, LOC_NONE);
    return model;
}

void model_destroy(Model *model) {
    if (!model) return;
    graph_release(model->graph);
    for (int i = 0; i < model->asset_count; i++) buf_release(model->assets[i].buf);
    arena_destroy(model->arena);
    free(model);
}

void model_swap(Model *a, Model *b) {
    const Model was = *a;
    *a = *b;
    *b = was;
}

Model *model_copy(const Model *model) {
    Arena *arena = arena_create();
    Model *copy = memory_alloc(1, sizeof *copy);
    copy->arena = arena;
    copy->graph = graph_copy(arena, model->graph);
    copy->config = tree_copy(arena, model->config);
    copy->provenance = tree_copy(arena, model->provenance);
    copy->file_bytes = model->file_bytes;
    for (const LeftOut *left = model->left_out; left; left = left->next)
        model_leave_out(copy, left->at, left->key, left->what);
    copy->asset_count = model->asset_count;
    copy->assets = ARENA_ARRAY(arena, ModelAsset, (size_t)model->asset_count);
    for (int i = 0; i < model->asset_count; i++) {
        copy->assets[i] = model->assets[i];
        copy->assets[i].name = arena_strdup(arena, model->assets[i].name);
        buf_retain(copy->assets[i].buf);
    }
    return copy;
}

void model_leave_out(Model *model, Loc at, const char *key, const char *what) {
    LeftOut **end = &model->left_out;
    while (*end) end = &(*end)->next;
    *end = ARENA_NEW(model->arena, LeftOut);
    if (at.file) at.file = arena_strdup(model->arena, at.file);
    **end = (LeftOut){at, arena_strdup(model->arena, key),
                      arena_strdup(model->arena, what), NULL};
}

void model_warn_left_out(const Model *model, Diag *diag) {
    for (const LeftOut *left = model->left_out; left; left = left->next)
        diag_warn(diag, left->at, left->key, "%s is left out", left->what);
}

const ModelAsset *model_asset(const Model *model, const char *name) {
    for (int i = 0; i < model->asset_count; i++)
        if (strcmp(model->assets[i].name, name) == 0) return &model->assets[i];
    return NULL;
}

static void free_asset(void *data, size_t bytes) {
    (void)bytes;
    free(data);
}

void model_put_asset(Model *model, const char *name, const void *data, size_t length) {
    Arena *arena = model->arena;
    int at = 0;
    while (at < model->asset_count && strcmp(model->assets[at].name, name) < 0) at++;
    const bool known =
        at < model->asset_count && strcmp(model->assets[at].name, name) == 0;
    if (!known) {
        ModelAsset *assets =
            ARENA_ARRAY(arena, ModelAsset, (size_t)model->asset_count + 1);
        for (int i = 0; i < model->asset_count; i++)
            assets[i + (i >= at)] = model->assets[i];
        model->assets = assets;
        model->asset_count++;
    }
    char *bytes = memory_alloc(length + 1, 1); /* ended by a zero, as texts are */
    if (length) memcpy(bytes, data, length);
    bytes[length] = 0;
    if (known) buf_release(model->assets[at].buf);
    model->assets[at] = (ModelAsset){arena_strdup(arena, name), bytes, length,
                                     buf_wrap(bytes, length + 1, free_asset)};
}

void model_remove_asset(Model *model, const char *name) {
    int at = 0;
    while (at < model->asset_count && strcmp(model->assets[at].name, name) != 0) at++;
    if (at == model->asset_count) return;
    buf_release(model->assets[at].buf);
    model->asset_count--;
    for (; at < model->asset_count; at++) model->assets[at] = model->assets[at + 1];
}

void model_strip(Model *model) {
    Graph *graph = model->graph;
    for (int i = 0; i < graph->storage_count; i++) {
        Storage *storage = graph->storages[i];
        tensor_drop_data(&storage->tensor, storage->tensor.dtype);
        gaussian_release(storage->gaussian);
    }
}

/* Initial values. */

/* Writes one element of any dtype. */
static void store(void *data, DType dtype, int64_t i, double value) {
    switch (dtype) {
    case DTYPE_F32: ((float *)data)[i] = (float)value; break;
    case DTYPE_F64: ((double *)data)[i] = value; break;
    case DTYPE_F16: ((uint16_t *)data)[i] = f16_from_float((float)value); break;
    case DTYPE_BF16: ((uint16_t *)data)[i] = bf16_from_float((float)value); break;
    case DTYPE_I64: ((int64_t *)data)[i] = (int64_t)value; break;
    case DTYPE_I32: ((int32_t *)data)[i] = (int32_t)value; break;
    case DTYPE_I8: ((int8_t *)data)[i] = (int8_t)value; break;
    case DTYPE_U8: ((uint8_t *)data)[i] = (uint8_t)value; break;
    case DTYPE_BOOL: ((uint8_t *)data)[i] = value != 0; break;
    case DTYPE_Q8:
    case DTYPE_Q4:
    case DTYPE_COUNT: break;
    }
}

/* Value of element `i` by the storage's init. */
static double init_value(const Storage *storage, uint64_t key, int64_t i) {
    const Tensor *tensor = &storage->tensor;
    switch (storage->init.kind) {
    case INIT_ZEROS: return 0;
    case INIT_ONES: return 1;
    case INIT_NORMAL: return storage->init.std * random_normal(key, (uint64_t)i);
    case INIT_TRUNC_NORMAL:
        return storage->init.std * random_trunc_normal(key, (uint64_t)i);
    case INIT_IDENTITY:
        return tensor->rank == 2 && i / tensor->dim[1] == i % tensor->dim[1];
    }
    return 0;
}

/* Draws rows of floats and rounds them. */
static void init_quantised(Storage *storage, uint64_t key) {
    const int64_t rows = quantised_rows(&storage->tensor);
    const int64_t width = quantised_width(&storage->tensor);
    float *row = memory_alloc((size_t)width + 1, sizeof *row);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < width; i++)
            row[i] = (float)init_value(storage, key, r * width + i);
        quantised_round_row(&storage->tensor, r, row);
    }
    free(row);
}

static Status init_storage(Storage *storage, uint64_t key, Diag *diag) {
    Tensor *tensor = &storage->tensor;
    TRY(tensor_allocate(tensor, diag));
    if (storage->init.kind == INIT_ZEROS) return STATUS_OK;
    if (dtype_is_quantised(tensor->dtype)) {
        init_quantised(storage, key);
        return STATUS_OK;
    }
    void *data;
    TRY(tensor_writable(tensor, &data, diag));
    int64_t count = tensor_count(tensor);
    for (int64_t i = 0; i < count; i++)
        store(data, tensor->dtype, i, init_value(storage, key, i));
    return STATUS_OK;
}

Status graph_init_weights(Graph *graph, uint64_t seed, Diag *diag) {
    for (int i = 0; i < graph->storage_count; i++) {
        Storage *storage = graph->storages[i];
        if (storage->tensor.buf) continue;
        TRY(init_storage(storage, random_key_name(seed, storage->name), diag));
    }
    return STATUS_OK;
}

Status model_init_weights(Model *model, uint64_t seed, Diag *diag) {
    return graph_init_weights(model->graph, seed, diag);
}

/* Appends the IR text and a line for every leaf's weights. */
static void describe_content(Text *text, Model *model) {
    graph_print(text, model->graph);
    for (const Node *n = model->graph->first; n; n = n->next) {
        if (!n->storage) continue;
        char hash[HASH_TEXT_BYTES] = "none";
        if (n->storage->tensor.buf) tensor_hash(&n->storage->tensor, hash);
        text_add(text, "%s ", hash);
        text_quoted(text, n->storage->name);
        text_add(text, "\n");
    }
}

void model_content_hash(Model *model, char out[HASH_TEXT_BYTES]) {
    Text text = {0};
    describe_content(&text, model);
    bytes_hash(text.data, text.length, out);
    text_free(&text);
}

void model_hash(Model *model, char out[HASH_TEXT_BYTES]) {
    Text text = {0};
    describe_content(&text, model);
    for (const Node *n = model->graph->first; n; n = n->next) {
        if (!n->storage || !n->storage->gaussian) continue;
        text_quoted(&text, n->storage->name);
        text_add(&text, " ");
        gaussian_describe(&text, n->storage->gaussian);
    }
    bytes_hash(text.data, text.length, out);
    text_free(&text);
}

/* Gaussians of another model. */

static Status check_taking(Model *model, const Graph *from, Diag *diag) {
    char hash[HASH_TEXT_BYTES];
    if (graph_gaussian_count(from) == 0)
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                         "expected a model with a posterior, found one without");
    TRY(graph_check_gaussians(from, STATUS_MODEL, diag));
    model_content_hash(model, hash);
    for (int i = 0; i < from->storage_count; i++) {
        const Storage *source = from->storages[i];
        if (!source->gaussian) continue;
        const Storage *target = graph_storage(model->graph, source->name);
        if (strcmp(source->gaussian->origin, hash) == 0 && target &&
            gaussian_fits(source->gaussian, &target->tensor))
            continue;
        Status status = diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                                  "the posterior belongs to another model: expected that "
                                  "of %s, found that of %s",
                                  hash, source->gaussian->origin);
        diag_hint(diag,
                  "a posterior is of the weights it was estimated for, and of no others");
        return status;
    }
    return STATUS_OK;
}

Status model_take_gaussians(Model *model, const Model *from, Diag *diag) {
    TRY(check_taking(model, from->graph, diag));
    graph_take_gaussians(model->graph, from->graph);
    return STATUS_OK;
}
