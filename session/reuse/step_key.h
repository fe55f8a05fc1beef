/* Step keys: what a finished step depends on. Two steps with the same key leave the same
 * bytes, whatever recipes they are in, so one of them need not run.
 *
 * A key is the hash of its parts, a map:
 *
 *     tool       version of compress
 *     program    hash of the running program: another build may compute otherwise
 *     processor  level of the kernels, the linear-algebra library's kernels, oneDNN
 *                where it was chosen, what multiplies bfloat16, C library
 *     pass, options   the step, its options as bound
 *     seed       of the step
 *     model      state of the model before it (passes/pipeline/step_entry.h)
 *     uses       what the step asks for, as its plan has shown: data sets by format,
 *                options and hash of their files, other models by their state
 *
 * Not in it, because results do not depend on them: labels, threads, names and places of
 * recipes, outputs. */
#ifndef COMPRESS_SESSION_REUSE_STEP_KEY_H
#define COMPRESS_SESSION_REUSE_STEP_KEY_H

#include "session/session.h"

/* The part of keys that is the same for all steps of a session; opaque. */
typedef struct StepKeys StepKeys;

/* For a session that is planned and connected to its data sets; lives in its arena. */
StepKeys *step_keys_create(Session *session);

/* The parts of step `index` for a model of `state`, as a new map; `key` receives their
 * hash. Must be called for the steps in order, at least once each: snapshots are
 * identified by the states of the steps that made them. Reads the other models that the
 * step names, the first time. Fails as reading them does. */
Status step_key(StepKeys *keys, int index, const char *state, Tree **parts,
                char key[HASH_TEXT_BYTES], Diag *diag);

/* Whether the step's result depends on the speed of the machine, so that it is valid
 * only for its own run. */
bool step_parts_timed(const Tree *parts);

/* Appends the first difference between the parts of a stored step and those of step
 * `index`, as a sentence without its full stop: "option epochs was 3 and is 4". False if
 * nothing differs.
 */
bool step_parts_differ(Text *text, int index, const Tree *kept, const Tree *wanted);

#endif
