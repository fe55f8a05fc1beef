/* Encoder-decoder transformer (Vaswani et al., 2017) in the names of fairseq's
 * descendants: what Marian and BART have in common. Private to the families.
 *
 * See seq2seq.h for inputs and outputs. */
#ifndef COMPRESS_IO_FAMILIES_ENCODER_DECODER_H
#define COMPRESS_IO_FAMILIES_ENCODER_DECODER_H

#include "io/families/seq2seq.h"

/* Norms come before the blocks, after the residual sums, or on the branches. */
typedef enum NormPlace { NORM_PRE, NORM_POST, NORM_BRANCH } NormPlace;

/* Encoder or decoder. */
typedef struct CoderSide {
    const char *name; /* the stack, and part of the storages' names */
    int64_t layers, heads, hidden, vocabulary;
    Node *ids, *mask;
    bool decoder;
} CoderSide;

typedef struct EncoderDecoder {
    int64_t width;
    int64_t positions; /* of a learned table; 0 = sines and cosines */
    const char *act;
    double eps, dropout, act_dropout;
    NormPlace place;
    bool shared; /* one table of words for both sides */
    bool scaled, embedding_norm, final_norm;
    CoderSide encoder, decoder;
    const CoderSide *side; /* the one being built */
    Node *memory;          /* what the encoder passes to the decoder */
} EncoderDecoder;

/* Reads the keys of both; by default, vocab_size applies to both sides, their table is
 * shared, norms come after the sums, and positions are computed, unless a family says
 * otherwise. */
void encoder_decoder_read(Builder *b, EncoderDecoder *m);

/* Builds the graph; with a head unless `plain`, tied as the configuration says. */
void encoder_decoder_build(Builder *b, EncoderDecoder *m, bool plain);

/* Family.spare, heads, rows and sizes: copies of the shared table, the head (which is
 * the table) and its bias, which checkpoints hold as a row. */
bool encoder_decoder_spare(const char *tensor);
extern const char *const encoder_decoder_heads[];
extern const char *const encoder_decoder_rows[];
extern const SizeKey encoder_decoder_sizes[];

#endif
