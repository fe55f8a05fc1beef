/* Hugging Face folders: config.json with model.safetensors (or its sharded index). */
#ifndef COMPRESS_IO_FORMATS_HF_H
#define COMPRESS_IO_FORMATS_HF_H

#include "io/formats/checkpoint.h"
#include "io/formats/format.h"

/* Reads a folder: builds the graph from config.json by its family and binds every weight
 * (mapped, f32/f16/bf16), checking shapes; missing and unexpected tensors are errors that
 * name the tensor. No weight is touched: model_load checks that they are finite. Fails
 * with STATUS_FORMAT, STATUS_MODEL or STATUS_IO. */
Status hf_read(Model **out, const char *folder, const OpTable *ops, Diag *diag);

/* hf_read with a changed configuration: the model keeps the merged one. `num_labels`
 * also replaces the names of labels. Keys that are neither in config.json nor read by
 * the family get a warning. Created heads (Family.heads), and those with another number
 * of labels that they replace, are named in warnings; anything else missing is still an
 * error. NULL = no options. */
Status hf_read_with(Model **out, const char *folder, const HfOptions *options,
                    const OpTable *ops, Diag *diag);

/* Builds a model from a configuration map (copied), shapes only; weights come from
 * model_init_weights. */
Status hf_build(Model **out, const Tree *config, const OpTable *ops, Diag *diag);

/* Where a configuration comes from, which decides about keys that nothing reads. */
typedef enum ConfigOrigin {
    CONFIG_DERIVED, /* from a model: no warning */
    CONFIG_FILE,    /* a given config.json: one warning names those that may matter */
    CONFIG_WRITTEN  /* by hand: each is more often than not a mistake */
} ConfigOrigin;

/* hf_build with warnings about keys that nothing reads. */
Status hf_build_from(Model **out, const Tree *config, ConfigOrigin origin,
                     const OpTable *ops, Diag *diag);

/* Gives a model that hf_build made the weights of a checkpoint, as hf_read does; all
 * options except `overrides` count. */
Status hf_bind(Model *model, const Checkpoint *checkpoint, const HfOptions *options,
               Diag *diag);

#endif
