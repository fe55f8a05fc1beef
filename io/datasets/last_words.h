/* Last words: texts whose last word is to be predicted (LAMBADA, Paperno et al., 2016).
 */
#ifndef COMPRESS_IO_DATASETS_LAST_WORDS_H
#define COMPRESS_IO_DATASETS_LAST_WORDS_H

#include "io/tokenizers/tokenizer.h"
#include "ir/batches.h"

/* Opens a file as the data format `endings` without choices does, with a tokenizer that
 * is there: each line a text whose last word is its ending, or a text, a tab and the
 * ending; of a file called .jsonl or .ndjson the key "text" of each line. Labels are on
 * the ending's tokens alone. Texts lose their beginning where they have more than
 * `max_length` tokens, with a warning at `length_name`, what the caller calls it, which
 * is borrowed for the call. Fails with STATUS_IO, STATUS_FORMAT. */
Status last_words_open(Batches **out, const char *path, const Tokenizer *tokenizer,
                       int64_t max_length, const char *length_name, Diag *diag);

#endif
