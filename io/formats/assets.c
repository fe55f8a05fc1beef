/* Assets: see assets.h. */
#include "io/formats/assets.h"

#include "io/files/file.h"

#include <string.h>

/* name, kept, read */
const AssetKind asset_kinds[] = {
    {"added_tokens.json", true, true},
    {"chat_template.jinja", true, false},
    {"config.json", false, true},
    {"config_sentence_transformers.json", true, false},
    {"generation_config.json", true, false},
    {"merges.txt", true, true},
    {"preprocessor_config.json", true, true},
    {"processor_config.json", true, false},
    {"sentence_bert_config.json", true, false},
    {"sentencepiece.bpe.model", true, true},
    {"source.spm", true, true},
    {"special_tokens_map.json", true, false},
    {"spiece.model", true, true},
    {"target.spm", true, true},
    {"tokenizer.json", true, true},
    {"tokenizer.model", true, true},
    {"tokenizer_config.json", true, true},
    {"vocab.json", true, true},
    {"vocab.txt", true, true},
    {NULL},
};

bool asset_is_known(const char *name) {
    for (const AssetKind *kind = asset_kinds; kind->name; kind++)
        if (kind->kept && strcmp(kind->name, name) == 0) return true;
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
    for (const AssetKind *kind = asset_kinds; kind->name; kind++)
        if (kind->kept) take(model, folder, kind->name, diag);
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
