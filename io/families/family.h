/* Families: model architectures of Hugging Face folders, one file each.
 *
 * A family turns a configuration into a graph whose storages have the checkpoint's
 * tensor names and shapes, and initial distributions. Reading a checkpoint and building
 * a new model then yield the same graph, with weights bound or drawn. */
#ifndef COMPRESS_IO_FAMILIES_FAMILY_H
#define COMPRESS_IO_FAMILIES_FAMILY_H

#include "ir/model.h"

/* An output that is dropped, with its nodes, when a checkpoint lacks the storage. */
typedef struct OptionalOutput {
    const char *output, *storage;
} OptionalOutput;

enum { SPLIT_MAX = 4 };

/* A tensor of checkpoints that holds several storages (GPT-2 keeps queries, keys and
 * values in one matrix): its name contains `whole` where theirs contain a part. */
typedef struct JoinedTensor {
    const char *whole, *parts[SPLIT_MAX];
} JoinedTensor;

/* Where a storage stands in a checkpoint: a tensor, or one of its slices. */
typedef struct TensorSlice {
    const char *tensor;
    int part, parts; /* which slice, of how many; 1 = all of it */
} TensorSlice;

/* What a key of the configuration counts or measures. */
typedef enum SizeKind {
    SIZE_LAYERS,     /* of a stack */
    SIZE_HEADS,      /* attention heads of a layer */
    SIZE_KV_HEADS,   /* heads of its keys and values */
    SIZE_HEAD_WIDTH, /* width of a head's query; matters if heads were removed */
    SIZE_FFN,        /* units of a layer's feed-forward block */
    SIZE_FFN_RATIO,  /* the same as a multiple of the layer's width */
    SIZE_REACH, /* whether a layer's attention has one: a list of transformers' names */
    SIZE_VOCABULARY, /* rows of the table of tokens */
    SIZE_EMBEDDING,  /* width of that table */
    SIZE_TYPES       /* token types */
} SizeKind;

/* A key that gives the size of a part of the model, so that the configuration in a model
 * file can describe the changed model (io/formats/model_config.h). */
typedef struct SizeKey {
    const char *key;
    SizeKind kind;
    const char *stack; /* where the layers, or the table, stand */
    bool staged;       /* for sizes of layers: one value per stage, not one for all */
} SizeKey;

/* A key that makes a family build more than the architecture it is named after. */
typedef struct OwnKey {
    const char *key, *usual; /* the value, as JSON, with which it builds only that */
} OwnKey;

typedef struct Family {
    const char *model_type; /* config.json's "model_type" */
    const char *summary;
    /* Classes of transformers that the family builds, ended by NULL; the first one if
     * the configuration names none. NULL = the family is this program's own. */
    const char *const *classes;
    /* Builds model->graph from model->config, shapes only. Fails with STATUS_MODEL
     * naming the key: missing, wrong type, out of range, not supported. */
    Status (*build)(Model *model, Diag *diag);
    /* Name that a tensor of the checkpoint has in the graph, or NULL when the family
     * leaves it out on purpose (such as saved position indices). */
    const char *(*rename)(Arena *arena, const char *tensor);
    /* Tensors that hold several storages, ended by a NULL `whole`; NULL = none. The
     * storages are equal slices of the last dimension or, with joined_rows, follow each
     * other along the first, each with its own number of rows. */
    const JoinedTensor *joined;
    bool joined_rows;
    /* Keys that this family supports and others refuse (io/families/config_keys.c),
     * ended by NULL; NULL = none. */
    const char *const *follows;
    /* Keys that transformers does not support, ended by NULL; NULL = none. */
    const OwnKey *own_keys;
    /* Storages with one axis that are tensors [1, n] in checkpoints, ended by NULL; NULL
     * = none. */
    const char *const *rows;
    /* Tensors of integers that checkpoints hold and `rename` leaves out, of a built
     * graph: fills `out` and `name` with number `i`, counted from 0; *name NULL = no
     * more. NULL = the family has none. Fails with STATUS_MEMORY. */
    Status (*constant)(const char **name, Tensor *out, Arena *arena, const Graph *graph,
                       int i, Diag *diag);
    /* Prefix of all names except heads' ("bert.") that checkpoints have or leave out;
     * both are found. NULL = names are as in the graph. */
    const char *prefix;
    /* Whether a tensor without a place in the graph may be left out with a warning: a
     * head that the checkpoint's class does not use. NULL = none may. */
    bool (*spare)(const char *tensor);
    const OptionalOutput *optional; /* ended by NULLs; NULL = none */
    const SizeKey *sizes; /* ended by NULL; NULL = the configuration gives none */
    /* Beginnings of the names of heads' storages, `prefix` left out, ended by NULL:
     * these may be created for a checkpoint that lacks them. NULL = none may. */
    const char *const *heads;
} Family;

/* Family.rename for families whose checkpoints have the graph's names. */
const char *family_same_name(Arena *arena, const char *tensor);

/* The names of the storages in a tensor, given the name that rename returned; returns
 * their number, 0 = it is itself a storage. */
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
