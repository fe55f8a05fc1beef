/* Assets: see assets.h. */
#include "io/formats/assets.h"

#include "io/files/file.h"

#include <string.h>

static const char *const NAMES[] = {"added_tokens.json",
                                    "chat_template.jinja",
                                    "config_sentence_transformers.json",
                                    "generation_config.json",
                                    "merges.txt",
                                    "preprocessor_config.json",
                                    "processor_config.json",
                                    "sentence_bert_config.json",
                                    "sentencepiece.bpe.model",
                                    "source.spm",
                                    "special_tokens_map.json",
                                    "spiece.model",
                                    "target.spm",
                                    "tokenizer.json",
                                    "tokenizer.model",
                                    "tokenizer_config.json",
                                    "vocab.json",
                                    "vocab.txt"};

bool asset_is_known(const char *name) {
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (strcmp(NAMES[i], name) == 0) return true;
    return false;
}

static void take(Model *model, const char *folder, const char *name, Diag *diag) {
    Arena *scratch = arena_create();
    const char *path = path_join(scratch, folder, name);
    Diag *fault = diag_create(); /* the reason in one warning */
    char *data;
    size_t length;
    if (path_is_file(path)) {
        Status status = path_check_inside(folder, path, fault);
        if (status == STATUS_OK)
            status = file_read(&data, &length, scratch, path, ASSET_BYTES_MAX, fault);
        if (status == STATUS_OK)
            model_put_asset(model, name, data, length);
        else
            diag_warn(diag, LOC_FILE(path), NULL,
                      "left out: expected a file within the folder of at most %zu MiB",
                      ASSET_BYTES_MAX >> 20);
    }
    diag_destroy(fault);
    arena_destroy(scratch);
}

void assets_read(Model *model, const char *folder, Diag *diag) {
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        take(model, folder, NAMES[i], diag);
}

Status assets_write(const Model *model, const char *folder, int64_t *bytes, int *files,
                    Diag *diag) {
    Arena *scratch = arena_create();
    Status status = STATUS_OK;
    for (int i = 0; i < model->asset_count && status == STATUS_OK; i++) {
        const ModelAsset *asset = &model->assets[i];
        status = file_write(path_join(scratch, folder, asset->name), asset->data,
                            asset->length, diag);
        *bytes += (int64_t)asset->length;
        *files += 1;
    }
    arena_destroy(scratch);
    return status;
}
