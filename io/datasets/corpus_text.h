/* Corpus text: files of text and of JSON Lines as one text that need not fit in memory,
 * read from any byte on. Files are mapped; nothing is read when they are opened.
 *
 * Places are counted in bytes over all files, one after another. A part of the corpus is
 * a ring: its first byte follows its last one. */
#ifndef COMPRESS_IO_DATASETS_CORPUS_TEXT_H
#define COMPRESS_IO_DATASETS_CORPUS_TEXT_H

#include "ir/arena.h"
#include "ir/status.h"
#include "ir/text.h"

#include <stdbool.h>
#include <stdint.h>

/* What a corpus consists of. */
typedef struct CorpusRules {
    double from, to; /* the part to read, as shares of the bytes: 0 <= from < to <= 1; it
                        begins and ends at line boundaries if possible */
    const char *field;     /* for lines of JSON Lines: the key of the text */
    const char *separator; /* for text: a line that separates documents and is left out;
                              NULL or empty = a file is a document */
    bool
        skip_damaged; /* what is not text is left out, with one warning about the first */
} CorpusRules;

typedef struct CorpusText CorpusText;

/* Where reading continues: private to corpus_text.c. */
typedef struct CorpusPlace {
    int file;
    int64_t byte;   /* within the file; for JSON Lines, the start of a line */
    int64_t within; /* of the line's text */
} CorpusPlace;

/* A piece of a document: valid UTF-8, from the start of a word to the end of one, if
 * words are shorter than 1,024 bytes. */
typedef struct CorpusPiece {
    TextSpan text; /* borrowed, from the corpus or the arena of the call */
    bool begins;   /* the document */
    bool ends;
    bool cut; /* followed by something left out */
} CorpusPiece;

/* Opens a file, or all files .txt, .jsonl and .ndjson of a folder in the order of their
 * names. Files of the last two kinds are JSON Lines, others text. Fails with STATUS_IO,
 * and with STATUS_FORMAT if there is no such file, or no text in the part. */
Status corpus_text_open(CorpusText **out, const char *path, const CorpusRules *rules,
                        Diag *diag);

/* NULL is allowed. */
void corpus_text_close(CorpusText *corpus);

/* Bytes of the part. */
int64_t corpus_text_bytes(const CorpusText *corpus);

/* The first word that starts at byte `at` of the part or after it; in JSON Lines, at
 * this share of the text of the line that contains the byte. The arena holds what is
 * parsed. Fails with STATUS_FORMAT for a line that is damaged, unless such lines are
 * skipped, or has more than 64 MiB. Any number of threads may read, each with its own
 * arena. */
Status corpus_text_seek(CorpusPlace *place, const CorpusText *corpus, int64_t at,
                        Arena *arena, Diag *diag);

/* The piece of at most about `bytes` bytes, at least 1, that starts at a place, which
 * then moves to its end. Empty documents are skipped; with `skip_damaged`, so are bytes
 * that are not UTF-8 and lines that are not JSON, and a piece ends before them. Without
 * it, fails with STATUS_FORMAT for invalid UTF-8, a NUL, and as corpus_text_seek
 * does. */
Status corpus_text_next(CorpusPiece *piece, CorpusPlace *place, const CorpusText *corpus,
                        int64_t bytes, Arena *arena, Diag *diag);

/* The file that a place is in, for messages. */
const char *corpus_text_file(const CorpusText *corpus, const CorpusPlace *place);

#endif
