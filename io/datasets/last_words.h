/* Last words: texts whose last word is to be predicted (LAMBADA, Paperno et al., 2016).
 */
#ifndef COMPRESS_IO_DATASETS_LAST_WORDS_H
#define COMPRESS_IO_DATASETS_LAST_WORDS_H

#include "io/tokenizers/tokenizer.h"
#include "ir/batches.h"

/* Opens a file as the data format `endings` without choices does, with a given
 * tokenizer: each line is a text whose last word is its ending, or a text, a tab and the
 * ending; for a file named .jsonl or .ndjson, the key "text" of each line. Labels are
 * only on the ending's tokens. Texts of more than `max_length` tokens lose their
 * beginning, with a warning at `length_name`, the caller's name for that limit, which is
 * borrowed for the call. Fails with STATUS_IO, STATUS_FORMAT. */
Status last_words_open(Batches **out, const char *path, const Tokenizer *tokenizer,
                       int64_t max_length, const char *length_name, Diag *diag);

#endif
