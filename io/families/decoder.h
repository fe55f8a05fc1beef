/* Decoders: what GPT-2, Llama and the LSTM language model have in common. Private to the
 * families.
 *
 * Embeddings, layers in which a token sees only itself and those before it, a norm if
 * the family has one, and a prediction of the next token at every token. The only input
 * is input_ids i32[N, T]: later tokens do not change a token's outputs, so samples
 * padded at the end need no mask, only labels that leave the padding out. */
#ifndef COMPRESS_IO_FAMILIES_DECODER_H
#define COMPRESS_IO_FAMILIES_DECODER_H

#include "io/families/build.h"
#include "io/families/family.h"

/* Largest vocabulary and largest number of positions. */
enum { DECODER_VOCABULARY_MAX = 1 << 24, DECODER_POSITIONS_MAX = 1 << 24 };

/* input_ids and their rows of the table `name` [rows, width]. */
Node *decoder_embed(Builder *b, const char *name, int64_t rows, int64_t width);

/* Storage name of a part of the current layer: "<layers>.<i>.<name>". */
const char *decoder_part(Builder *b, const char *layers, const char *name);

/* Output `logits`: x times the table of embeddings `tied` or, when that is NULL, a matrix
 * of its own, lm_head.weight; with `cap` > 0 cap tanh(logits / cap). */
void decoder_predict(Builder *b, Node *x, Node *tied, int64_t vocabulary, double cap);

/* Whether a tensor is the matrix of decoder_predict, which may be saved although it is
 * tied. */
bool decoder_spare(const char *tensor);

/* Beginnings of the names of heads' storages: that matrix. */
extern const char *const decoder_heads[];

#endif
