/* What `compress inspect` finds out about a model, for its two printers. */
#ifndef COMPRESS_CLI_INSPECT_H
#define COMPRESS_CLI_INSPECT_H

#include "passes/measure.h"

/* A storage and how much it is used. */
typedef struct StorageUse {
    const Storage *storage;
    int users;  /* operands that name it */
    int layers; /* different places among them */
} StorageUse;

typedef struct Inspection {
    Arena *arena;
    const char *path;
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

/* A string of the provenance that is safe to print, "?" when it is none; in the arena. */
const char *safe_string(Arena *arena, const Tree *tree);

/* "; 0, 2, 5 of the original" for a stack that lost layers, else "". */
const char *original_layers(const Inspection *it, const char *stack);

/* Prints what pruning left, place by place; nothing where it left all. */
void print_lineages(const Inspection *it);

/* Prints the steps that made the model, and what they began with; nothing where there
 * were none. */
void print_history(const Inspection *it);

/* The inspection as a map, for JSON. */
Tree *inspection_tree(const Inspection *it);

#endif
