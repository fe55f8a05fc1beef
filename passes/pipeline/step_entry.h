/* Step entries: everything that the rest of a run needs to know about a finished step,
 * so that it need not run again. The model that the step left is kept separately, under
 * its state.
 *
 * A model's state is everything that a later step may read or change: graph, weights,
 * Gaussians, configuration, assets, and what passes note in the provenance (scores,
 * exits, lineage of layers). The run's own notes there (recipe, hash of the input,
 * records of steps) are not part of it: the same steps of another recipe lead to the same
 * state. */
#ifndef COMPRESS_PASSES_PIPELINE_STEP_ENTRY_H
#define COMPRESS_PASSES_PIPELINE_STEP_ENTRY_H

#include "passes/measure.h"
#include "passes/step_source.h"

typedef struct StepEntry {
    char state[HASH_TEXT_BYTES]; /* of the model after the step */
    char hash[HASH_TEXT_BYTES];  /* model_hash of the same */
    bool changed;                /* the step changed the model */
    Measure measure;             /* of the model after the step */
    const Tree *record, *times;  /* see PassContext */
    const Tree *warnings;        /* a list: step_entry_warnings */
    double seconds;              /* that the step took */
} StepEntry;

/* The entry as a map; its trees are not copied. */
Tree *step_entry_tree(Arena *arena, StepEntry *entry);

/* Reads such a map, whose trees the entry borrows. Fails with STATUS_FORMAT: it may come
 * from a damaged file. */
Status step_entry_read(StepEntry *out, const Tree *map, Diag *diag);

/* The warnings that `diag` recorded from number `first` on, in a form that does not
 * depend on where the step stands in its recipe. */
Tree *step_entry_warnings(Arena *arena, const Diag *diag, int first,
                          const StepSource *source);

/* Issues them again, for the step at `source`. */
void step_entry_warn(const Tree *warnings, const StepSource *source, Diag *diag);

/* Hash of a model's state. */
void model_state_hash(Model *model, char out[HASH_TEXT_BYTES]);

/* A copy of the model without the run's notes, to be kept. It shares the weights. */
Model *model_state_copy(const Model *model);

/* Gives `model` the state of `kept`, which is freed; the run's notes stay. */
void model_take_state(Model *model, Model *kept);

#endif
