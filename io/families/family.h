/* Families: model architectures of Hugging Face folders, one file each.
 *
 * A family turns a configuration into a graph whose storages carry the checkpoint's
 * tensor names, shapes and initial distributions. Reading a checkpoint and building a
 * new model are then the same graph, with weights bound or drawn. */
#ifndef COMPRESS_IO_FAMILIES_FAMILY_H
#define COMPRESS_IO_FAMILIES_FAMILY_H

#include "ir/model.h"

/* An output that goes, with its nodes, when a checkpoint lacks the storage. */
typedef struct OptionalOutput {
    const char *output, *storage;
} OptionalOutput;

enum { SPLIT_MAX = 4 };

/* A tensor of checkpoints that holds several storages (GPT-2 keeps queries, keys and
 * values in one matrix): its name has `whole` where theirs have a part. */
typedef struct JoinedTensor {
    const char *whole, *parts[SPLIT_MAX];
} JoinedTensor;

/* Where a storage stands in a checkpoint: a tensor, or one of its slices. */
typedef struct TensorSlice {
    const char *tensor;
    int part, parts; /* which of how many slices; 1 = all of it */
} TensorSlice;

/* What a key of the configuration counts or measures. */
typedef enum SizeKind {
    SIZE_LAYERS,     /* of a stack */
    SIZE_HEADS,      /* attention heads of a layer */
    SIZE_KV_HEADS,   /* heads of its keys and values */
    SIZE_HEAD_WIDTH, /* numbers of a head's query; matters where heads were taken out */
    SIZE_FFN,        /* units of a layer's feed-forward block */
    SIZE_FFN_RATIO,  /* the same as a multiple of the layer's width */
    SIZE_REACH, /* whether a layer's attention has one: a list of transformers' names */
    SIZE_VOCABULARY, /* rows of the table of tokens */
    SIZE_EMBEDDING,  /* width of that table */
    SIZE_TYPES       /* token types */
} SizeKind;

/* A key that says how large a part of the model is, so that the configuration in a model
 * file can tell what a model has become (io/formats/model_config.h). */
typedef struct SizeKey {
    const char *key;
    SizeKind kind;
    const char *stack; /* where the layers, or the table, stand */
    bool staged;       /* of sizes of layers: one value a stage, not one for all */
} SizeKey;

/* A key with which a family builds more than the architecture that it is named after. */
typedef struct OwnKey {
    const char *key, *usual; /* the value, as JSON, with which it does not */
} OwnKey;

typedef struct Family {
    const char *model_type; /* config.json's "model_type" */
    const char *summary;
    /* Classes of transformers that the family builds, ended by NULL; the first one where
     * the configuration names none. NULL = the family is this program's own. */
    const char *const *classes;
    /* Builds model->graph from model->config, shapes only. Fails with STATUS_MODEL
     * naming the key: missing, wrong type, out of range, not supported. */
    Status (*build)(Model *model, Diag *diag);
    /* Name that a tensor of the checkpoint has in the graph, or NULL when the family
     * leaves it out on purpose (for instance saved position indices). */
    const char *(*rename)(Arena *arena, const char *tensor);
    /* Tensors that hold several storages, ended by a NULL `whole`; NULL = none. The
     * storages are equal slices of the last dimension or, with joined_rows, stand one
     * after another along the first, as many rows as each has. */
    const JoinedTensor *joined;
    bool joined_rows;
    /* Keys that this family follows and others refuse (io/families/config_keys.c), ended
     * by NULL; NULL = none. */
    const char *const *follows;
    /* Keys that transformers does not follow, ended by NULL; NULL = none. */
    const OwnKey *own_keys;
    /* Storages with one axis that are tensors [1, n] in checkpoints, ended by NULL; NULL
     * = none. */
    const char *const *rows;
    /* Tensors of integers that checkpoints hold and `rename` leaves out, of a built
     * graph: fills `out` and `name` with number `i`, counted from 0; *name NULL = there
     * are no more. NULL = there are none. Fails with STATUS_MEMORY. */
    Status (*constant)(const char **name, Tensor *out, Arena *arena, const Graph *graph,
                       int i, Diag *diag);
    /* What checkpoints put in front of the names of all but heads ("bert.") or leave out;
     * both are found. NULL = names are as in the graph. */
    const char *prefix;
    /* Whether a tensor that the graph has no place for may be left out with a warning:
     * a head that the checkpoint's class does not use. NULL = none may. */
    bool (*spare)(const char *tensor);
    const OptionalOutput *optional; /* ended by NULLs; NULL = none */
    const SizeKey *sizes; /* ended by NULL; NULL = the configuration tells none */
    /* Beginnings of the names of heads' storages, `prefix` left out, ended by NULL: what
     * may be created for a checkpoint that has no such tensor. NULL = none may. */
    const char *const *heads;
} Family;

/* Family.rename of families whose checkpoints have the graph's names. */
const char *family_same_name(Arena *arena, const char *tensor);

/* The names of the storages in a tensor, which has the name that rename gave; returns
 * their number, 0 = it is a storage of its own. */
int family_split(const Family *family, Arena *arena, const char *tensor,
                 const char *parts[SPLIT_MAX]);

/* The reverse: where a storage stands in checkpoints. */
TensorSlice family_join(const Family *family, Arena *arena, const char *storage);

/* Family by model_type, NULL when unknown. Families are listed in
 * io/families/families.def. */
const Family *family_find(const char *model_type);

/* All families, ended by NULL. */
const Family *const *family_list(void);

#endif
