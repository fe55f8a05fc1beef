/* The half of `compress generate` for encoder-decoder models: a sentence and its
 * translation. */
#ifndef COMPRESS_CLI_GENERATE_TRANSLATION_H
#define COMPRESS_CLI_GENERATE_TRANSLATION_H

#include "cli/command.h"
#include "ir/model.h"

enum { GENERATE_TOKENS = 128 }; /* unless --max-tokens says otherwise */

/* Translates --prompt and prints what comes out. Tokenizers are --tokenizer, of the
 * source, and --target-tokenizer, the same one if not given; without both, in the model's
 * folder or beside its file, source_tokenizer.json and target_tokenizer.json, or one for
 * both. Fails with STATUS_USAGE, with STATUS_MODEL when model and tokenizers do not fit,
 * or as tokenizer_read. */
Status generate_translation(const Cli *cli, const Model *model, Diag *diag);

#endif
