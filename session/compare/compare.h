/* Compare: what differs between two models, in structure, weights, outputs and
 * configuration. Works for any two that can be read; if layers, heads or units were
 * removed, the remaining ones are compared with their originals. */
#ifndef COMPRESS_SESSION_COMPARE_COMPARE_H
#define COMPRESS_SESSION_COMPARE_COMPARE_H

#include "passes/measure.h"
#include "session/compare/compare_outputs.h"
#include "session/compare/compare_storages.h"

typedef struct CompareOptions {
    double
        tolerance;  /* relative errors of weights and outputs up to this count as equal */
    bool structure; /* weights are neither read nor compared, and nothing is run */
    bool no_outputs; /* nothing is run */
    CompareInputs inputs;
    int threads;
    const Watch *watch;
} CompareOptions;

typedef struct Comparison {
    const char *path[2];
    Measure measure[2];
    int64_t file_bytes[2];
    NodeComparison nodes;
    /* Whether these were compared; a model that is only IR text has no configuration. */
    bool has_storages, has_outputs, has_config;
    StorageComparison storages;
    OutputComparison outputs;
    DifferenceList config; /* keys, as "a.b"; the values as JSON */

    /* Whether each part differs, and whether any does. */
    bool structure_differs, storages_differ, outputs_differ, config_differs, differs;
} Comparison;

/* Compares model `a` with `b`, which were read from those paths, with weights unless
 * `options->structure`. If one of the models has none they are compared without values.
 * Everything is in the arena and borrows from the models. Fails with STATUS_MODEL for a
 * model that cannot be measured, and as compare_outputs does. */
Status compare_models(Comparison *out, Arena *arena, Model *const models[2],
                      const char *const paths[2], const CompareOptions *options,
                      Diag *diag);

/* The comparison as a map, for JSON. */
Tree *comparison_tree(Arena *arena, const Comparison *it);

#endif
