/* Assets: see assets.h. */
#include "io/formats/assets.h"

#include "io/files/file.h"

#include <string.h>

/* name, kept, read, part */
const AssetKind asset_kinds[] = {
    {"added_tokens.json", true, true, ASSET_SETTINGS},
    {"chat_template.jinja", true, false, ASSET_SETTINGS},
    {"config.json", false, true, ASSET_OTHER},
    {"config_sentence_transformers.json", true, false, ASSET_OTHER},
    {"generation_config.json", true, false, ASSET_OTHER},
    {"merges.txt", true, true, ASSET_TOKENS},
    {"preprocessor_config.json", true, true, ASSET_OTHER},
    {"processor_config.json", true, false, ASSET_OTHER},
    {"sentence_bert_config.json", true, false, ASSET_OTHER},
    {"sentencepiece.bpe.model", true, true, ASSET_TOKENS},
    {"source.spm", true, true, ASSET_TOKENS},
    {"source_tokenizer.json", true, false, ASSET_OTHER},
    {"special_tokens_map.json", true, false, ASSET_SETTINGS},
    {"spiece.model", true, true, ASSET_TOKENS},
    {"target.spm", true, true, ASSET_TOKENS},
    {"target_tokenizer.json", true, false, ASSET_OTHER},
    {"tokenizer.json", true, true, ASSET_TOKENS},
    {"tokenizer.model", true, true, ASSET_TOKENS},
    {"tokenizer_config.json", true, true, ASSET_SETTINGS},
    {"vocab.json", true, true, ASSET_TOKENS},
    {"vocab.txt", true, true, ASSET_TOKENS},
    {NULL},
};

bool asset_is_known(const char *name) {
    for (const AssetKind *kind = asset_kinds; kind->name; kind++)
        if (kind->kept && strcmp(kind->name, name) == 0) return true;
    return false;
}

/* Takes the file at `path`, if there is one, as the asset `name`. */
static void take(Model *model, const char *folder, const char *path, const char *name,
                 Diag *diag) {
    Arena *scratch = arena_create();
    Diag *fault = diag_create(); /* the reason in one warning */
    char *data;
    size_t length;
    if (path_is_file(path)) {
        Status status = folder ? path_check_inside(folder, path, fault) : STATUS_OK;
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

/* Takes those of the folder's files that are one of these parts. */
static void take_parts(Model *model, const char *folder, unsigned parts, Diag *diag) {
    Arena *scratch = arena_create();
    for (const AssetKind *kind = asset_kinds; kind->name; kind++)
        if (kind->kept && (parts & kind->part))
            take(model, folder, path_join(scratch, folder, kind->name), kind->name, diag);
    arena_destroy(scratch);
}

void assets_read(Model *model, const char *folder, Diag *diag) {
    take_parts(model, folder, ASSET_OTHER | ASSET_TOKENS | ASSET_SETTINGS, diag);
}

void assets_read_file(Model *model, const char *path, const char *name, Diag *diag) {
    take(model, NULL, path, name, diag);
}

/* Name of the asset that a tokenizer's file becomes: its own, or what its ending is read
 * as (tokenizer_read). */
static const char *tokens_name(const char *path) {
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    if (text_ends_with(name, ".json")) return "tokenizer.json";
    for (const AssetKind *kind = asset_kinds; kind->name; kind++)
        if (kind->part == ASSET_TOKENS && strcmp(kind->name, name) == 0)
            return kind->name;
    if (text_ends_with(name, ".model") || text_ends_with(name, ".spm"))
        return "tokenizer.model";
    return "vocab.txt";
}

void assets_read_tokenizer(Model *model, const char *path, Diag *diag) {
    if (path_is_folder(path)) {
        take_parts(model, path, ASSET_TOKENS | ASSET_SETTINGS, diag);
        return;
    }
    Arena *scratch = arena_create();
    take(model, NULL, path, tokens_name(path), diag);
    take_parts(model, path_folder(scratch, path), ASSET_SETTINGS, diag);
    arena_destroy(scratch);
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
