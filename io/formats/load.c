/* Load: dispatch on what the path holds. */
#include "io/formats/load.h"

#include "io/families/sentence.h"
#include "io/files/file.h"
#include "io/formats/assets.h"
#include "io/formats/hf.h"
#include "io/formats/model_vocabulary.h"
#include "io/formats/name_rules.h"
#include "io/formats/shards.h"
#include "io/pytorch/pytorch.h"
#include "ir/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* As reading it would find out, which more than the file's mode may forbid; errno says
 * what. */
static bool can_be_opened(const char *path) {
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

static Status not_a_model(const char *path, Diag *diag) {
    diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
              "expected a model file or folder, found none of the formats that are read");
    if (text_ends_with(path, ".safetensors"))
        diag_hint(diag, "these are weights alone: give the folder that holds them beside "
                        "config.json, or a configuration as well: `model: {config: ..., "
                        "weights: ...}`, or `compress convert` with --config");
    else if (pytorch_probe(path))
        diag_hint(diag, "weights of PyTorch need a configuration: `model: {config: ..., "
                        "weights: ...}`, or `compress convert` with --config");
    else
        diag_hint(diag, "`compress formats` lists what is read");
    return STATUS_FORMAT;
}

/* Whether nothing but the embedding of a model is asked for: that can be added to any. */
static bool asks_embedding(const HfOptions *options) {
    for (const Tree *key = options->overrides->first; key; key = key->next)
        if (strcmp(key->key, SENTENCE_POOLING) != 0 &&
            strcmp(key->key, SENTENCE_NORMALIZE) != 0)
            return false;
    return options->overrides->count > 0;
}

/* Gives a model that was read the keys of io/families/sentence.h and what they ask for.
 */
static Status add_embedding(Model *model, const Tree *keys, Diag *diag) {
    for (const Tree *key = keys->first; key; key = key->next)
        tree_put(model->arena, model->config, key->key, tree_copy(model->arena, key));
    return sentence_build(model, diag);
}

const ModelFormat *model_format_of(const char *path) {
    int code = 0;
    for (const ModelFormat *const *format = model_format_list(); *format; format++) {
        errno = 0;
        if ((*format)->read && (*format)->probe(path)) return *format;
        if (file_of_system(errno)) code = errno;
    }
    errno = code;
    return NULL;
}

Status model_load_with(Model **out, const char *path, const HfOptions *options,
                       const OpTable *ops, bool check, Diag *diag) {
    const ModelFormat *format = model_format_of(path);
    Model *model;
    if (!format && errno != 0) return file_fail(path, "read", errno, diag);
    if (!format && !can_be_opened(path)) return file_fail(path, "open", errno, diag);
    const bool changes = format && format->changes;
    const bool embeds = options && format && !changes && asks_embedding(options);
    if (options && !changes && !embeds)
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
                         "expected a Hugging Face folder, whose configuration can be "
                         "changed, found a file (pooling and normalize can be given to "
                         "any)");
    if (!format) return not_a_model(path, diag);
    TRY(format->read(&model, path, embeds ? NULL : options, ops, check, diag));
    Status status = check ? graph_verify_weights(model->graph, diag) : STATUS_OK;
    if (status == STATUS_OK && embeds)
        status = add_embedding(model, options->overrides, diag);
    struct stat info;
    if (status == STATUS_OK) {
        if (model->file_bytes == 0 && stat(path, &info) == 0 && S_ISREG(info.st_mode))
            model->file_bytes = (int64_t)info.st_size;
        if (check) vocabulary_note_own(model);
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

Status model_load_to_save(Model **out, const char *path, const OpTable *ops, Diag *diag) {
    const ModelFormat *format = model_format_of(path);
    const bool check = !format || format->hashes;
    TRY(model_load(out, path, ops, check, diag));
    if (!check) vocabulary_note_own(*out);
    return STATUS_OK;
}

/* The tensors under the names of the family. */
static Status read_renamed(Checkpoint **out, const SeparateFiles *files, Diag *diag) {
    NameRules *rules;
    Checkpoint *own;
    if (!files->names) return checkpoint_read_path(out, files->weights, NULL, diag);
    TRY(name_rules_read(&rules, files->names, diag));
    Status status =
        checkpoint_read_path(&own, files->weights, name_rules_from(rules), diag);
    if (status == STATUS_OK) {
        status = name_rules_apply(out, rules, own, diag);
        checkpoint_destroy(own);
    }
    name_rules_destroy(rules);
    return status;
}

Status model_load_separate(Model **out, const SeparateFiles *files, const OpTable *ops,
                           bool check, Diag *diag) {
    Model *model;
    Checkpoint *checkpoint;
    TRY(hf_build_from(&model, files->config,
                      files->written ? CONFIG_WRITTEN : CONFIG_FILE, ops, diag));
    Status status = read_renamed(&checkpoint, files, diag);
    if (status == STATUS_OK) {
        status = hf_bind(model, checkpoint, &files->options, diag);
        checkpoint_destroy(checkpoint);
    }
    if (status == STATUS_OK && check) {
        status = graph_verify_weights(model->graph, diag);
        if (status != STATUS_OK) diag_place(diag, LOC_FILE(files->weights), NULL);
    }
    if (status != STATUS_OK) {
        model_destroy(model);
        return status;
    }
    if (path_is_folder(files->weights)) assets_read(model, files->weights, diag);
    if (check) vocabulary_note_own(model);
    *out = model;
    return STATUS_OK;
}
