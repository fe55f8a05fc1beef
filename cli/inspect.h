/* What `compress inspect` finds out about a model, shared by its two printers. */
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

/* A string of the provenance that is safe to print, "?" when it is none. */
const char *safe_string(Arena *arena, const Tree *tree);

/* "; 0, 2, 5 of the original" for a stack that lost layers, else "". */
const char *original_layers(const Inspection *it, const char *stack);

/* Print what pruning left, place by place; the early exits and their rule; the steps that
 * made the model. Nothing where there is nothing of the kind. */
void inspect_print_kept(const Inspection *it);
void inspect_print_exits(const Inspection *it);
void inspect_print_history(const Inspection *it);

/* Prints what is known of the weights' posterior, and adds that of one storage to its
 * entry for JSON; nothing where there is none. */
void inspect_print_posterior(const Inspection *it);
void inspect_put_posterior(Arena *arena, Tree *entry, const Storage *storage);

/* The inspection as a map, for JSON. */
Tree *inspection_tree(const Inspection *it);

#endif
