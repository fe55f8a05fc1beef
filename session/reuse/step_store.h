/* Step store: a folder of finished steps that several programs may use at the same time.
 *
 * - steps/KEY.json: an entry (passes/pipeline/step_entry.h) with the parts of its key and
 *   a hash over both
 * - models/STATE.h5: the model that steps left, in the native format, once for each state
 * - lock: held while files are removed
 *
 * Files are written under temporary names and renamed, so none is ever incomplete. What
 * is read is checked against its hash; damaged files are ignored with a warning, and
 * written anew. A file's modification time is that of its last use. */
#ifndef COMPRESS_SESSION_REUSE_STEP_STORE_H
#define COMPRESS_SESSION_REUSE_STEP_STORE_H

#include "passes/pipeline/step_entry.h"

typedef struct StepStore {
    Arena *arena; /* owned */
    const char *folder;
    int64_t limit; /* total bytes that the files may take; 0 = unlimited */
} StepStore;

/* Opens a folder; with `create` it is made if its parent exists. To be closed. Fails
 * with STATUS_IO. */
Status step_store_open(StepStore **out, const char *folder, int64_t limit, bool create,
                       Diag *diag);

/* NULL is allowed. */
void step_store_close(StepStore *store);

/* The entry of a key, its trees in the arena. `parts` (may be NULL) receives the parts
 * of the key. False: there is no usable one. */
bool step_store_find(StepStore *store, const char *key, Arena *arena, StepEntry *entry,
                     const Tree **parts, Diag *diag);

/* The model of a state, owned by the caller; NULL: there is no usable one. */
Model *step_store_model(StepStore *store, const char *state, const OpTable *ops,
                        Diag *diag);

/* File of the model of a state, whether or not it exists; in the arena. */
const char *step_store_model_path(const StepStore *store, Arena *arena,
                                  const char *state);

/* Stores an entry, and a model under its state; an existing one is not written again.
 * Fails with STATUS_IO. */
Status step_store_put(StepStore *store, const char *key, const Tree *parts,
                      StepEntry *entry, Diag *diag);
Status step_store_put_model(StepStore *store, const char *state, Model *model,
                            Diag *diag);

/* Removes files, least recently used first, until the rest is within the limit; does
 * nothing while another program does so. Models that are being read stay readable for
 * their readers. */
void step_store_evict(StepStore *store);

/* Removes all models except those of `count` states. */
void step_store_keep_models(StepStore *store, const char *const *states, int count);

/* Removes everything in the store. */
void step_store_clear(StepStore *store);

/* Removes the files of a folder whose names begin with a hash, other than those in
 * keep[0..count). */
void hashed_files_remove(const char *folder, const char *const *keep, int count);

#endif
