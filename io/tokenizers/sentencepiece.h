/* SentencePiece: its model files (`spiece.model`, `tokenizer.model`,
 * `sentencepiece.bpe.model`, `source.spm`, `target.spm`), protocol buffers of the message
 * ModelProto of sentencepiece_model.proto (Kudo and Richardson 2018), read by hand.
 *
 * Only what is needed to tokenize texts is read; unknown fields are skipped. */
#ifndef COMPRESS_IO_TOKENIZERS_SENTENCEPIECE_H
#define COMPRESS_IO_TOKENIZERS_SENTENCEPIECE_H

#include "io/tokenizers/charsmap.h"
#include "io/tokenizers/vocabulary.h"

/* Names of these files in Hugging Face's folders, ended by NULL; if several are present,
 * the first counts. */
extern const char *const PIECES_FILES[];

/* Marian's two: for the texts that it translates, and for its output. */
#define PIECES_SOURCE "source.spm"
#define PIECES_TARGET "target.spm"

/* What a piece is, by its number in a file. */
typedef enum PieceType {
    PIECE_NORMAL = 1,
    PIECE_UNKNOWN,
    PIECE_CONTROL,      /* never found in a text */
    PIECE_USER_DEFINED, /* found literally, before anything else */
    PIECE_UNUSED,
    PIECE_BYTE
} PieceType;

typedef enum PieceAlgorithm { PIECES_UNIGRAM = 1, PIECES_BPE } PieceAlgorithm;

typedef struct PieceModel {
    Token *texts;   /* [count] valid UTF-8 */
    double *scores; /* [count] finite, values of f32 */
    uint8_t *types; /* [count] PieceType */
    int32_t count;
    PieceAlgorithm algorithm;
    bool byte_fallback;
    bool dummy_prefix; /* a space comes before every text */
    bool trim;         /* spaces at both ends, and all but one of a run, are left out */
    bool has_map;
    Charsmap map;
} PieceModel;

/* Reads a model; all in the arena. Fails with STATUS_FORMAT for damaged files, and for
 * settings that are not supported, which it names: words or characters as pieces, white
 * space as a suffix or not escaped, a denormalizer, unused pieces with BPE. */
Status pieces_parse(PieceModel *out, Arena *arena, const void *bytes, size_t length,
                    Loc at, Diag *diag);

#endif
