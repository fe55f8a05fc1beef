/* Decode: generation with a causal language model, one sequence, token by token.
 *
 * Every layer keeps what it needs from earlier tokens: keys and values (attention), S
 * and z (linear attention), h and c (lstm). A step costs one read of the weights and of
 * the state. Logits have the same bytes for any number of threads and any split of the
 * tokens into calls. */
#ifndef COMPRESS_EXEC_GENERATE_DECODE_H
#define COMPRESS_EXEC_GENERATE_DECODE_H

#include "exec/generate/step.h"
#include "exec/run/ticker.h"

typedef struct DecodeOptions {
    int64_t capacity;    /* most tokens of a sequence */
    int threads;         /* 0 = one per processor */
    StepWeights weights; /* how matrices are kept: bf16 halves what a step reads */
    const Watch *watch;  /* checked between the blocks of a prompt; NULL = none */
} DecodeOptions;

typedef struct Decoder Decoder;

/* Checks whether a graph can run token by token, before anything is packed. Fails with
 * STATUS_MODEL as decoder_create does, for one token. */
Status decoder_check(Graph *graph, Diag *diag);

/* Makes a decoder for output `logits` of a graph whose only input is input_ids [N, T] (an
 * attention_mask, if it has one, is all ones). Matrices are copied, so that steps stream
 * them; tables of embeddings and positions are read from the graph. Fails with
 * STATUS_MODEL: an op that cannot run token by token (named), attention that is not
 * causal, a capacity beyond the position table. The graph must outlive it, unchanged. */
Status decoder_create(Decoder **out, Graph *graph, const DecodeOptions *options,
                      Diag *diag);

/* Another decoder with the same weights, graph and options, on `threads` threads, which
 * has read nothing yet: the two may run at the same time. It has no watch. Fails with
 * STATUS_MEMORY. */
Status decoder_create_beside(Decoder **out, const Decoder *decoder, int threads,
                             Diag *diag);

/* NULL is allowed. */
void decoder_destroy(Decoder *decoder);

/* Sets the watch to check from now on; NULL = none. */
void decoder_watch(Decoder *decoder, const Watch *watch);

/* Appends tokens: all but the last token of a prompt in blocks, for which weights are
 * read once, without logits. Fails with STATUS_MODEL, appending none, when an id has no
 * row or the capacity is exceeded; with STATUS_INTERRUPTED, having appended some. */
Status decoder_append(Decoder *decoder, const int32_t *tokens, int64_t count, Diag *diag);

/* Appends one token. */
Status decoder_step(Decoder *decoder, int32_t token, Diag *diag);

/* Logits [vocabulary] after the last token; valid until the next call. Zeros before the
 * first. */
const float *decoder_logits(const Decoder *decoder);
int64_t decoder_vocabulary(const Decoder *decoder);

/* Number of tokens so far; and resets it to none. */
int64_t decoder_position(const Decoder *decoder);
void decoder_reset(Decoder *decoder);

/* Bytes of state that the tokens so far take (what grows with the context for keys and
 * values, constant for S and z), and bytes of weights that a step reads. */
size_t decoder_state_bytes(const Decoder *decoder);
size_t decoder_weight_bytes(const Decoder *decoder);

#endif
