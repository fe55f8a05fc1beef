/* Tagged words: sentences already cut into words with one label each, from CoNLL columns
 * or JSON Lines. */
#ifndef COMPRESS_IO_DATASETS_TAGGED_WORDS_H
#define COMPRESS_IO_DATASETS_TAGGED_WORDS_H

#include "ir/status.h"
#include "ir/text.h"

#include <stdbool.h>
#include <stdint.h>

/* by_name: .jsonl, .ndjson and .json are JSON Lines, the rest is CoNLL.
 * conll: one word per line, columns separated by spaces or tabs; an empty line ends a
 * sentence, and so does a line whose first column is -DOCSTART-, which is left out.
 * jsonl: one object per line, with a list of words and a list of labels of the same
 * length. */
#define TAGGED_NAMES "by_name|conll|jsonl"
typedef enum TaggedFormat { TAGGED_BY_NAME, TAGGED_CONLL, TAGGED_JSONL } TaggedFormat;

/* Which columns to read: numbers from 0, keys of JSON. */
typedef struct TaggedColumns {
    TaggedFormat format;
    const char *word; /* NULL: the first, "tokens" */
    const char *tag;  /* NULL: the last, "ner_tags"; "": none is read */
} TaggedColumns;

/* Start with zeros; free with tagged_words_free. Words and labels are zero-terminated
 * texts, one after another. */
typedef struct TaggedWords {
    const char *path; /* borrowed */
    Text text;
    size_t *word, *tag; /* [words]: offsets in `text`; without a tag: that of "" */
    int64_t *first;     /* [sentences + 1]: words of a sentence are first[i] up to */
    int *line;          /* [sentences]: where each begins */
    int64_t words, sentences;
    int64_t word_room, sentence_room;
    bool numbers; /* labels are numbers of JSON */
} TaggedWords;

/* Reads a file of at most 4 GiB of UTF-8. Sentences without words are left out. Fails
 * with STATUS_IO; STATUS_RECIPE, at `at`, for a column that is not a number; with
 * STATUS_FORMAT at the line that lacks a column, whose lists have different lengths or
 * hold anything but texts (labels: texts or integers), and if there are no words. */
Status tagged_words_read(TaggedWords *out, const char *path, const TaggedColumns *columns,
                         Loc at, Diag *diag);

/* Word and label of a place below `words`, with their lengths; borrowed. */
TextSpan tagged_word(const TaggedWords *words, int64_t i);
const char *tagged_tag(const TaggedWords *words, int64_t i);

/* Where a sentence begins, for messages. */
Loc tagged_loc(const TaggedWords *words, int64_t sentence);

/* Frees the memory and empties the words. */
void tagged_words_free(TaggedWords *words);

#endif
