/* Load: dispatch on what the path holds. */
#include "io/formats/load.h"

#include "ir/verify.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static Status not_a_model(const char *path, Diag *diag) {
    static const char SUFFIX[] = ".safetensors";
    const size_t length = strlen(path), end = strlen(SUFFIX);
    Text formats = {0};
    for (const ModelFormat *const *format = model_format_list(); *format; format++)
        if ((*format)->read)
            text_add(&formats, "%s%s", formats.length ? " or " : "", (*format)->what);
    diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL, "expected %s", formats.data);
    text_free(&formats);
    if (length >= end && strcmp(path + length - end, SUFFIX) == 0)
        diag_hint(diag, "give the folder that holds config.json and the weights");
    return STATUS_FORMAT;
}

Status model_load_with(Model **out, const char *path, const HfOptions *options,
                       const OpTable *ops, bool check, Diag *diag) {
    const ModelFormat *const *format = model_format_list();
    Model *model;
    while (*format && !((*format)->read && (*format)->probe(path))) format++;
    if (!*format && access(path, R_OK) != 0)
        return diag_fail(diag, STATUS_IO, LOC_FILE(path), NULL, "cannot open: %s",
                         strerror(errno));
    if (options && !(*format && (*format)->changes))
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
                         "expected a Hugging Face folder, whose configuration can be "
                         "changed, found a file");
    if (!*format) return not_a_model(path, diag);
    TRY((*format)->read(&model, path, options, ops, check, diag));
    const Status status = check ? graph_verify_weights(model->graph, diag) : STATUS_OK;
    if (status == STATUS_OK) {
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
