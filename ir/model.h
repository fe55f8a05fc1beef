/* Model: a graph with its weights, its configuration and its history. */
#ifndef COMPRESS_IR_MODEL_H
#define COMPRESS_IR_MODEL_H

#include "ir/graph.h"

/* A small file that accompanies a model: its tokenizer, its label names, how its images
 * are prepared. Kept unchanged, byte for byte. */
typedef struct ModelAsset {
    const char *name; /* a plain file name: "tokenizer.json" */
    const void *data;
    size_t length;
    Buf *buf; /* holds the data, which copies of the model share */
} ModelAsset;

/* A key of a configuration that asks for something in training that no op does: "dropout
 * of attention probabilities". */
typedef struct LeftOut {
    Loc at;
    const char *key, *what;
    struct LeftOut *next;
} LeftOut;

typedef struct Model {
    Arena *arena; /* owned: everything below */
    Graph *graph;
    Tree *config;       /* the architecture's configuration (Hugging Face keys), a map */
    Tree *provenance;   /* a map: "steps" is a list with one map per pass that ran */
    ModelAsset *assets; /* sorted by name */
    int asset_count;
    int64_t file_bytes; /* of the files that it was read from; 0 = none */
    LeftOut *left_out;  /* of the configuration that its graph was built from */
} Model;

/* New model with an empty graph, empty config and provenance; never NULL. */
Model *model_create(const OpTable *ops);

/* Frees the model and drops its weights. NULL is allowed. */
void model_destroy(Model *model);

/* Deep copy; weights are shared until written, assets for good. */
Model *model_copy(const Model *model);

/* Swaps the contents of two models; pointers to one then refer to the other's content.
 */
void model_swap(Model *a, Model *b);

/* Asset by name, NULL if the model has none. */
const ModelAsset *model_asset(const Model *model, const char *name);

/* Adds an asset, copied, replacing any of this name. */
void model_put_asset(Model *model, const char *name, const void *data, size_t length);

/* Removes the asset of this name, if there is one. */
void model_remove_asset(Model *model, const char *name);

/* Notes a key that asks for something that no op does; the strings are copied. */
void model_leave_out(Model *model, Loc at, const char *key, const char *what);

/* Warns about what is left out of the model's training; to be called by passes that
 * train. */
void model_warn_left_out(const Model *model, Diag *diag);

/* Drops the data of every storage, so that the model has only shapes. */
void model_strip(Model *model);

/* Gives every storage without weights its initial values by Storage.init, from
 * counter-based random numbers keyed by `seed` and the storage's name, so that the same
 * seed gives the same bytes in any order. Fails with STATUS_MEMORY. */
Status model_init_weights(Model *model, uint64_t seed, Diag *diag);
Status graph_init_weights(Graph *graph, uint64_t seed, Diag *diag);

/* Hash over IR text, weights and Gaussians: equal models have equal hashes. Shape-only
 * storages count by shape. */
void model_hash(Model *model, char out[HASH_TEXT_BYTES]);

/* The same without Gaussians: the hash that a Gaussian's origin holds. */
void model_content_hash(Model *model, char out[HASH_TEXT_BYTES]);

/* Gives `model` the Gaussians of `from`, sharing their data, instead of its own. `model`
 * must be the one they were estimated for: its content hash is their origin, and every
 * storage that has one in `from` exists with the same shape. Fails with STATUS_MODEL,
 * also when `from` has none; nothing is changed then. */
Status model_take_gaussians(Model *model, const Model *from, Diag *diag);

#endif
