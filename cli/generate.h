/* What the forms of `compress generate` share: one text shown while it is generated
 * (cli/generate_command.c), many texts at once (cli/generate_samples.c), and
 * translations (cli/generate_translations.c). */
#ifndef COMPRESS_CLI_GENERATE_H
#define COMPRESS_CLI_GENERATE_H

#include "cli/command.h"
#include "exec/generate/sample.h"
#include "session/prompt.h"

enum { GENERATE_TOKENS = 128 }; /* unless --max-tokens says otherwise */

/* Whether the command line asks for many texts, or for a file of them. */
bool generate_asks_samples(const Flags *flags);

/* Generates what it asks for, and writes it. Fails with STATUS_USAGE, STATUS_MODEL,
 * STATUS_IO and STATUS_FORMAT for --prompts, and STATUS_INTERRUPTED, which leaves no
 * file. */
Status generate_samples(const Cli *cli, const Model *model, Diag *diag);

/* Translates --prompt and prints the translation, or translates the lines of --prompts
 * and writes them to --output or prints them: as JSON Lines, or in a .txt one per line,
 * empty if that of --prompts is blank. Fails with STATUS_USAGE, and as prompts_read and
 * text_translator_open do; STATUS_INTERRUPTED leaves no file. */
Status generate_translations(const Cli *cli, const Model *model, Diag *diag);

/* The lines of --prompts, else --prompt or an empty text; in the command line's arena.
 * *all: lines of the file, blank ones included; 0 without a file. Fails as prompts_read
 * does. */
Status generate_prompts(Line **out, int64_t *count, int64_t *all, const Cli *cli,
                        Diag *diag);

/* Where --output puts many texts: a path, or NULL for standard output; `plain`: as
 * texts, not JSON. Fails if they cannot be written there, or something would be lost. */
Status generate_output(const char **path, bool *plain, const Cli *cli, Diag *diag);

/* The sampling options that the flags give. */
Sampling generate_sampling(const Flags *flags);

#endif
