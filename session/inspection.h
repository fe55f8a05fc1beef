/* Inspection: what a model is made of, ready for printing. */
#ifndef COMPRESS_SESSION_INSPECTION_H
#define COMPRESS_SESSION_INSPECTION_H

#include "passes/measure.h"

/* A storage and how much it is used. */
typedef struct StorageUse {
    const Storage *storage;
    int users;  /* operands that name it */
    int layers; /* different places among them */
} StorageUse;

typedef struct Inspection {
    Arena *arena;
    const char *path; /* NULL = of no file */
    Model *model;
    Measure measure;
    StorageUse *storages;
    int storage_count;
    int *use_of;         /* by Node.id of a leaf: index into storages */
    const char **stacks; /* names of places, in order of first use */
    int stack_count;
} Inspection;

/* Gathers everything; no weight is touched. Fails with STATUS_MODEL. */
Status inspection_make(Inspection *out, Arena *arena, const char *path, Model *model,
                       Diag *diag);

/* Use of the storage that a leaf names. */
const StorageUse *inspection_use(const Inspection *it, const Node *leaf);

/* Name of an operand by position. */
const char *operand_name(const Op *op, int index);

/* The inspection as a map, for JSON. */
Tree *inspection_tree(const Inspection *it);

#endif
