/* Model: a graph with its weights, its configuration and its history. */
#ifndef COMPRESS_IR_MODEL_H
#define COMPRESS_IR_MODEL_H

#include "ir/graph.h"

/* A small file that goes with a model wherever it is taken: its tokenizer, its names of
 * labels, how its images are prepared. Kept as it is, byte for byte. */
typedef struct ModelAsset {
    const char *name; /* a plain file name: "tokenizer.json" */
    const void *data;
    size_t length;
    Buf *buf; /* holds the data, which copies of the model share */
} ModelAsset;

/* A key of a configuration that asks for something in training which no op does: "dropout
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
    int64_t file_bytes; /* of the files that it was read from; 0 = of none */
    LeftOut *left_out;  /* of the configuration that its graph was built from */
} Model;

/* New model with an empty graph, empty config and provenance; never NULL. */
Model *model_create(const OpTable *ops);

/* Frees the model and drops its weights. NULL is allowed. */
void model_destroy(Model *model);

/* Deep copy; weights are shared until written, assets for good. */
Model *model_copy(const Model *model);

/* Exchanges all that two models are, so that who holds a pointer to one finds the other.
 */
void model_swap(Model *a, Model *b);

/* Asset by name, NULL when the model has none. */
const ModelAsset *model_asset(const Model *model, const char *name);

/* Adds an asset, copied, in place of the one of this name. */
void model_put_asset(Model *model, const char *name, const void *data, size_t length);

/* Takes an asset out, if there is one of this name. */
void model_remove_asset(Model *model, const char *name);

/* Notes a key that asks for what no op does; the strings are copied. */
void model_leave_out(Model *model, Loc at, const char *key, const char *what);

/* Warns of what is left out of the model's training, which is for who trains it. */
void model_warn_left_out(const Model *model, Diag *diag);

/* Drops the data of every storage, so that the model has shapes alone. */
void model_strip(Model *model);

/* Gives every storage without weights its initial values by Storage.init, from
 * counter-based random numbers keyed by `seed` and the storage's name, so that the same
 * seed gives the same bytes in any order. Fails with STATUS_MEMORY. */
Status model_init_weights(Model *model, uint64_t seed, Diag *diag);
Status graph_init_weights(Graph *graph, uint64_t seed, Diag *diag);

/* Hash over IR text, weights and Gaussians: equal models have equal hashes. Shape-only
 * storages count by shape. */
void model_hash(Model *model, char out[HASH_TEXT_BYTES]);

/* The same without Gaussians: what a Gaussian's origin names. */
void model_content_hash(Model *model, char out[HASH_TEXT_BYTES]);

/* Gives `model` the Gaussians of `from`, sharing their data, in place of those it has.
 * `model` must be what they were estimated for: its content hash is their origin, and
 * every storage that has one in `from` is there with the same shape. Fails with
 * STATUS_MODEL, also when `from` has none; nothing is changed then. */
Status model_take_gaussians(Model *model, const Model *from, Diag *diag);

#endif
