/* Word vocabulary: a tokenizer of whole words made from a training text.
 *
 * The file is a tokenizer.json that tokenizer_read reads and that the `tokenizers`
 * library of Hugging Face understands: model WordLevel, special tokens <pad>, <unk>, <s>
 * and </s> with numbers 0 to 3, the end </s> after every text. Words follow, the most
 * frequent first, equally frequent ones in the order of their bytes: the same texts and
 * options give the same bytes. */
#ifndef COMPRESS_IO_TOKENIZERS_WORD_VOCABULARY_H
#define COMPRESS_IO_TOKENIZERS_WORD_VOCABULARY_H

#include "io/tokenizers/word_split.h"
#include "ir/field.h"

/* Names of WordSplit, in its order. */
#define WORD_SPLIT_NAMES "words|punctuation|spaces"

typedef struct WordVocabularyOptions {
    const char *path;   /* of the texts: TSV, CSV or JSON Lines, by its name */
    StringList columns; /* whose texts count; none = every line is a text */
    WordSplit split;
    bool lowercase;
    int64_t min_count; /* fewest occurrences of a word in the vocabulary */
    int64_t max_size;  /* most tokens, including special ones; 0 = no limit except
                          TOKENS_MAX */
} WordVocabularyOptions;

/* What came of it. */
typedef struct WordVocabularyReport {
    int64_t texts, words; /* read: texts, words in them */
    int64_t different;    /* words that differ */
    int64_t size;         /* tokens written, including special ones */
    int64_t covered;      /* of `words`, those that are tokens */
} WordVocabularyReport;

/* Reads the texts and writes a tokenizer.json to `output`. Words of more than
 * TOKEN_BYTES_MAX bytes and those spelt like a special token are left out. Fails with
 * STATUS_IO; with STATUS_FORMAT at the line of a damaged file, or when it has no words or
 * none is frequent enough;
 * with STATUS_RECIPE for a missing column, naming the existing ones. */
Status word_vocabulary_write(WordVocabularyReport *report, const char *output,
                             const WordVocabularyOptions *options, Diag *diag);

#endif
