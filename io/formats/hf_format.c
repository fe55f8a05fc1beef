/* Hugging Face folders: their record among the formats. */
#include "io/files/path.h"
#include "io/formats/assets.h"
#include "io/formats/hf.h"
#include "io/formats/hf_write.h"
#include "io/formats/stock_tensors.h"

static Status read_format(Model **out, const char *path, const HfOptions *options,
                          const OpTable *ops, bool check, Diag *diag) {
    (void)check;
    TRY(hf_read_with(out, path, options, ops, diag));
    assets_read(*out, path, diag);
    for (int i = 0; i < (*out)->asset_count; i++)
        (*out)->file_bytes += (int64_t)(*out)->assets[i].length;
    return STATUS_OK;
}

const ModelFormat model_format_hf = {
    .name = "huggingface",
    .what = "a Hugging Face folder",
    .ending = "/",
    .summary = "config.json, weights and tokenizer of an architecture of transformers",
    .probe = path_is_folder,
    .read = read_format,
    .changes = true,
    .is_ours = hf_is_ours,
    .fields = hf_write_fields,
    .options_size = sizeof(HfWriteOptions),
    .defaults = &hf_write_defaults,
    .check = hf_check,
    .pieces = stock_tensors_whole,
    .verifies = true,
    .write = hf_write};
