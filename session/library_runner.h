/* Runners of the library: what else is done with one than compress_run_prepared. */
#ifndef COMPRESS_SESSION_LIBRARY_RUNNER_H
#define COMPRESS_SESSION_LIBRARY_RUNNER_H

#include "io/tokenizers/tokenizer.h"
#include "session/early_exits.h"
#include "session/graph_results.h"
#include "session/library.h"

/* The model as it was made ready. */
const Model *runner_model(const CompressRunner *runner);

/* All outputs of the model, which must be real, for samples; to be released, also after a
 * failure. */
Status runner_compute(GraphResults *results, const LibraryCall *call,
                      CompressRunner *runner, const Checkpoint *inputs);

/* What samples give that leave at the model's exits; `run` is to be released, also after
 * a failure. Calls of this with the same runner wait for each other. */
Status runner_leave_early(EarlyRun *run, const LibraryCall *call, CompressRunner *runner,
                          const Checkpoint *inputs);

/* The tokenizer that the runner keeps, NULL = none yet, and unless `path` is NULL where
 * it is from, "" = from the model. */
Tokenizer *runner_tokenizer(CompressRunner *runner, const char **path);

/* Has the runner keep, and own, a tokenizer: once, by a call that does LIBRARY_FILES, of
 * which one is under way at a time. */
void runner_keep_tokenizer(CompressRunner *runner, Tokenizer *tokenizer,
                           const char *path);

#endif
