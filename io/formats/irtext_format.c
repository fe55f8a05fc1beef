/* IR text as a format of models: what `compress ir` prints and --dump-ir writes. Weights
 * lie beside it, under the names of its storages: NAME.h5, a model file or any other that
 * keeps storages, or NAME.safetensors. Without them the model has shapes alone, which is
 * enough for whoever reads no weights. */
#include "io/files/file.h"
#include "io/formats/format.h"
#include "io/formats/load.h"
#include "io/formats/safetensors.h"
#include "ir/irtext.h"
#include "ir/storage.h"

#include <string.h>
#include <sys/stat.h>

#define TEXT_BYTES_MAX ((size_t)64 << 20)
#define PROBE_BYTES    4096

/* Whether the text begins as IR text does: comments and blank lines, then "ir" and a
 * number. */
static bool begins_as_ir(const char *text, size_t length) {
    size_t i = 0;
    while (i < length && strchr("# \t\r\n", text[i]) && text[i]) {
        if (text[i] == '#')
            while (i < length && text[i] != '\n') i++;
        else
            i++;
    }
    return length - i >= 4 && memcmp(text + i, "ir ", 3) == 0 && text[i + 3] >= '0' &&
           text[i + 3] <= '9';
}

static bool probe(const char *path) {
    char text[PROBE_BYTES];
    return begins_as_ir(text, file_start(text, sizeof text, path));
}

/* `path` with another ending in place of ".ir". */
static const char *beside(Arena *arena, const char *path, const char *ending) {
    const size_t length = strlen(path) - (text_ends_with(path, ".ir") ? 3 : 0);
    return arena_printf(arena, "%.*s%s", (int)length, path, ending);
}

/* Gives a storage the values that the file at `path` has for it. */
static Status take_values(Storage *storage, const Tensor *found, const char *path,
                          Diag *diag) {
    const Tensor *own = &storage->tensor;
    char want[SHAPE_TEXT_BYTES], have[SHAPE_TEXT_BYTES];
    char want_form[FORM_TEXT_BYTES], have_form[FORM_TEXT_BYTES];
    if (!found)
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), storage->name,
                         "the IR text has this weight, the file beside it has not");
    if (!tensor_same_form(own, found))
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), storage->name,
                         "expected %s%s as in the IR text, found %s%s",
                         tensor_form_text(want_form, own),
                         shape_text(want, own->rank, own->dim),
                         tensor_form_text(have_form, found),
                         shape_text(have, found->rank, found->dim));
    storage_set_values(storage, tensor_retain(found));
    return STATUS_OK;
}

/* Takes weights, configuration and assets of a model whose storages have these names. */
static Status take_model(Model *model, const char *path, bool check, Diag *diag) {
    Model *other;
    Status status = STATUS_OK;
    TRY(model_load(&other, path, model->graph->ops, check, diag));
    for (int i = 0; i < model->graph->storage_count && status == STATUS_OK; i++) {
        Storage *storage = model->graph->storages[i];
        const Storage *from = graph_storage(other->graph, storage->name);
        status = take_values(storage, from ? &from->tensor : NULL, path, diag);
    }
    if (status == STATUS_OK) {
        model->config = tree_copy(model->arena, other->config);
        model->file_bytes += other->file_bytes;
        for (int i = 0; i < other->asset_count; i++)
            model_put_asset(model, other->assets[i].name, other->assets[i].data,
                            other->assets[i].length);
    }
    model_destroy(other);
    return status;
}

static Status take_tensors(Model *model, const char *path, Diag *diag) {
    Checkpoint *file;
    struct stat info = {0};
    Status status = STATUS_OK;
    TRY(safetensors_read(&file, path, diag));
    for (int i = 0; i < model->graph->storage_count && status == STATUS_OK; i++) {
        Storage *storage = model->graph->storages[i];
        status = take_values(storage, checkpoint_find(file, storage->name), path, diag);
    }
    if (stat(path, &info) == 0) model->file_bytes += (int64_t)info.st_size;
    checkpoint_destroy(file);
    return status;
}

static Status take_weights(Model *model, const char *path, bool check, Diag *diag) {
    const char *h5 = beside(model->arena, path, ".h5");
    const char *tensors = beside(model->arena, path, ".safetensors");
    if (path_is_file(h5)) return take_model(model, h5, check, diag);
    if (path_is_file(tensors))
        return model_format_of(tensors) ? take_model(model, tensors, check, diag)
                                        : take_tensors(model, tensors, diag);
    if (!check) return STATUS_OK;
    diag_fail(diag, STATUS_MODEL, LOC_FILE(path), NULL,
              "expected weights beside the IR text, found neither %s nor %s", h5,
              tensors);
    diag_hint(diag,
              "without weights it can be inspected, planned and compared: `compress "
              "inspect`, `plan`, `ir`, `diff --structure`");
    return STATUS_MODEL;
}

static Status read_text(Model *model, const char *path, bool check, Diag *diag) {
    char *text;
    size_t length;
    Graph *graph;
    TRY(file_read(&text, &length, model->arena, path, TEXT_BYTES_MAX, diag));
    TRY(graph_parse(&graph, model->arena, model->graph->ops, path, text, length, diag));
    model->graph = graph;
    model->file_bytes = (int64_t)length;
    return take_weights(model, path, check, diag);
}

static Status read_format(Model **out, const char *path, const HfOptions *options,
                          const OpTable *ops, bool check, Diag *diag) {
    Model *model = model_create(ops);
    (void)options;
    const Status status = read_text(model, path, check, diag);
    if (status == STATUS_OK)
        *out = model;
    else
        model_destroy(model);
    return status;
}

const ModelFormat model_format_irtext = {
    .name = "ir",
    .what = "IR text",
    .ending = ".ir",
    .summary = "the graph as `compress ir` prints it; weights in NAME.h5 or "
               "NAME.safetensors beside NAME.ir, or none",
    .probe = probe,
    .read = read_format};
