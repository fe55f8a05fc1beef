/* Model: a graph with its weights, its configuration and its history. */
#ifndef COMPRESS_IR_MODEL_H
#define COMPRESS_IR_MODEL_H

#include "ir/graph.h"

typedef struct Model {
    Arena *arena; /* owned: everything below */
    Graph *graph;
    Tree *config;     /* the architecture's configuration (Hugging Face keys), a map */
    Tree *provenance; /* a map: "steps" is a list with one map per pass that ran */
} Model;

/* New model with an empty graph, empty config and provenance; never NULL. */
Model *model_create(const OpTable *ops);

/* Frees the model and drops its weights. NULL is allowed. */
void model_destroy(Model *model);

/* Deep copy; weights are shared until written. */
Model *model_copy(const Model *model);

/* Gives every storage without weights its initial values by Storage.init, from
 * counter-based random numbers keyed by `seed` and the storage's name, so that the same
 * seed gives the same bytes in any order. Fails with STATUS_MEMORY. */
Status model_init_weights(Model *model, uint64_t seed, Diag *diag);

/* Hash over IR text and weights: equal models have equal hashes. Shape-only storages
 * count by shape. */
void model_hash(Model *model, char out[HASH_TEXT_BYTES]);

#endif
