/* Sequence to sequence: what encoder-decoder models have in common. Private to the
 * families.
 *
 * Inputs, all integers: input_ids and attention_mask [N, S] of the source,
 * decoder_input_ids and decoder_attention_mask [N, T] of the target, which is shifted by
 * one token to the right: it starts with the token that every target starts with, and
 * the prediction at token t is token t + 1 of the target. Masks are 0 at padding tokens.
 * Outputs: logits [N, T, vocabulary], last_hidden_state of the decoder,
 * encoder_last_hidden_state [N, S, width]. Stacks: encoder and decoder. */
#ifndef COMPRESS_IO_FAMILIES_SEQ2SEQ_H
#define COMPRESS_IO_FAMILIES_SEQ2SEQ_H

#include "io/families/build.h"
#include "io/families/family.h"

/* Largest vocabulary. */
enum { SEQ2SEQ_VOCABULARY_MAX = 1 << 24 };

/* The four inputs. */
void seq2seq_inputs(Builder *b, Node **source, Node **source_mask, Node **target,
                    Node **target_mask);

/* Rows of the table `name` [rows, width] by ids; stack and prefix are the builder's. */
Node *seq2seq_embed(Builder *b, Node *ids, const char *name, int64_t rows, int64_t width);

#endif
