/* Runners of the library: uses other than compress_run_prepared. */
#ifndef COMPRESS_SESSION_LIBRARY_RUNNER_H
#define COMPRESS_SESSION_LIBRARY_RUNNER_H

#include "io/tokenizers/tokenizer.h"
#include "session/early_exits.h"
#include "session/graph_results.h"
#include "session/library.h"

/* The model as it was prepared. */
const Model *runner_model(const CompressRunner *runner);

/* All outputs of the model, which must be real, for samples; to be released, also after a
 * failure. */
Status runner_compute(GraphResults *results, const LibraryCall *call,
                      CompressRunner *runner, const Checkpoint *inputs);

/* Outputs of samples that leave at the model's exits; `run` is to be released, also
 * after a failure. Calls with the same runner wait for each other. */
Status runner_leave_early(EarlyRun *run, const LibraryCall *call, CompressRunner *runner,
                          const Checkpoint *inputs);

/* The tokenizer that the runner keeps, NULL = none yet, and unless `path` is NULL its
 * source, "" = the model. */
Tokenizer *runner_tokenizer(CompressRunner *runner, const char **path);

/* Makes the runner keep, and own, a tokenizer: once, in a LIBRARY_FILES call, of which
 * only one runs at a time. */
void runner_keep_tokenizer(CompressRunner *runner, Tokenizer *tokenizer,
                           const char *path);

#endif
