/* Load: dispatch on what the path holds. */
#include "io/formats/load.h"

#include "io/files/file.h"
#include "io/formats/model_vocabulary.h"
#include "io/formats/modelfile.h"
#include "ir/verify.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static Status not_a_model(const char *path, Diag *diag) {
    size_t length = strlen(path);
    const char *suffix = ".safetensors";
    if (access(path, R_OK) != 0)
        return diag_fail(diag, STATUS_IO, LOC_FILE(path), NULL, "cannot open: %s",
                         strerror(errno));
    diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
              "expected a model file of this program or a Hugging Face folder");
    if (length >= strlen(suffix) && strcmp(path + length - strlen(suffix), suffix) == 0)
        diag_hint(diag, "give the folder that holds config.json and the weights");
    return STATUS_FORMAT;
}

Status model_load_with(Model **out, const char *path, const HfOptions *options,
                       const OpTable *ops, bool check, Diag *diag) {
    Model *model;
    const bool folder = path_is_folder(path);
    if (folder)
        TRY(hf_read_with(&model, path, options, ops, diag));
    else if (options && access(path, R_OK) == 0)
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
                         "expected a Hugging Face folder, whose configuration can be "
                         "changed, found a file");
    else if (modelfile_probe(path))
        TRY(modelfile_read(&model, path, ops, check, diag));
    else
        return not_a_model(path, diag);
    Status status = check ? graph_verify_weights(model->graph, diag) : STATUS_OK;
    if (status == STATUS_OK) {
        if (folder && check) vocabulary_note_folder(model, path);
        *out = model;
        return STATUS_OK;
    }
    diag_place(diag, LOC_FILE(path), NULL);
    model_destroy(model);
    return status;
}

Status model_load(Model **out, const char *path, const OpTable *ops, bool check,
                  Diag *diag) {
    return model_load_with(out, path, NULL, ops, check, diag);
}
