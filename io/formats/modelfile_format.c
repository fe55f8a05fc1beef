/* Native model file: its record among the formats. */
#include "io/formats/format.h"
#include "io/formats/modelfile.h"

static Status read_format(Model **out, const char *path, const HfOptions *options,
                          const OpTable *ops, bool check, Diag *diag) {
    (void)options;
    return modelfile_read(out, path, ops, check, diag);
}

static Status write_format(Model *model, const char *path, const WriteOptions *options,
                           Written *written, Diag *diag) {
    size_t bytes;
    (void)options;
    TRY(modelfile_write(model, path, &bytes, diag));
    *written = (Written){(int64_t)bytes, 1};
    return STATUS_OK;
}

/* Numbers of few bits lie beside their scales in memory, and apart in the file. */
static bool keeps_types(const Model *model) {
    for (int i = 0; i < model->graph->storage_count; i++)
        if (dtype_is_quantised(model->graph->storages[i]->tensor.dtype)) return false;
    return true;
}

const ModelFormat model_format_modelfile = {
    .name = "native",
    .what = "a model file of this program",
    .ending = ".h5",
    .summary = "every model, with its history and what it knows of its weights; HDF5",
    .probe = modelfile_probe,
    .read = read_format,
    .hashes = "hashes of every text, weight, asset and posterior",
    .pieces = keeps_types,
    .verifies = true,
    .write = write_format};
