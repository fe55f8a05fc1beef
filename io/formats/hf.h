/* Hugging Face folders: config.json beside model.safetensors (or its sharded index). */
#ifndef COMPRESS_IO_FORMATS_HF_H
#define COMPRESS_IO_FORMATS_HF_H

#include "io/formats/checkpoint.h"
#include "io/formats/format.h"

/* Reads a folder: builds the graph from config.json by its family and binds every weight
 * (mapped, f32/f16/bf16), checking shapes; missing and unexpected tensors are errors that
 * name the tensor. No weight is touched: model_load checks that they are finite. Fails
 * with STATUS_FORMAT, STATUS_MODEL or STATUS_IO. */
Status hf_read(Model **out, const char *folder, const OpTable *ops, Diag *diag);

/* hf_read with the configuration changed: the model keeps the merged one. `num_labels`
 * takes the place of the names of labels too. Keys that neither config.json has nor the
 * family reads get a warning. Heads (Family.heads) that were created, and those of
 * another number of labels that they replace, are named in warnings; anything else
 * missing is an error still. NULL = no options. */
Status hf_read_with(Model **out, const char *folder, const HfOptions *options,
                    const OpTable *ops, Diag *diag);

/* Builds a model from a configuration map (copied), shapes only; weights come from
 * model_init_weights. */
Status hf_build(Model **out, const Tree *config, const OpTable *ops, Diag *diag);

/* Where a configuration comes from: what keys that nothing reads mean. */
typedef enum ConfigOrigin {
    CONFIG_DERIVED, /* from a model: nothing is said */
    CONFIG_FILE,    /* somebody's config.json: one warning names those that may matter */
    CONFIG_WRITTEN  /* by hand: each is a mistake more often than not */
} ConfigOrigin;

/* hf_build with warnings of keys that nothing reads. */
Status hf_build_from(Model **out, const Tree *config, ConfigOrigin origin,
                     const OpTable *ops, Diag *diag);

/* Gives a model that hf_build made the weights of a checkpoint, as hf_read does; of the
 * options all but `overrides` count. */
Status hf_bind(Model *model, const Checkpoint *checkpoint, const HfOptions *options,
               Diag *diag);

#endif
