/* Hypotheses: many sequences of an encoder-decoder model, advanced together one token at
 * a time.
 *
 * Nodes that do not depend on the target's tokens are run once per sentence, by a plan;
 * steps look up what they need from them by sentence. Steps without a state take all
 * rows in one call, so weights are read once. States lie in slots, a fixed number per
 * sentence, which the caller assigns to hypotheses. */
#ifndef COMPRESS_EXEC_GENERATE_HYPOTHESES_H
#define COMPRESS_EXEC_GENERATE_HYPOTHESES_H

#include "exec/generate/step.h"

typedef struct Seq2SeqOptions {
    int64_t max_length; /* most tokens of a target */
    int64_t slots;      /* of a sentence */
    StepWeights weights;
} Seq2SeqOptions;

/* A prepared encoder-decoder model: its steps with packed weights, and plans of what
 * they read from the source. Threads may share it. */
typedef struct Seq2Seq Seq2Seq;

/* Prepares output `logits` of a graph; its inputs are input_ids and attention_mask [N,
 * S], decoder_input_ids and decoder_attention_mask [N, T]. Fails with STATUS_MODEL: an
 * input is missing or different, or an op of the decoder cannot run token by token
 * (named). The graph must outlive it, unchanged. */
Status seq2seq_create(Seq2Seq **out, Graph *graph, const Seq2SeqOptions *options,
                      Diag *diag);

/* Checks that it can be prepared, without its weights; fails likewise. */
Status seq2seq_check(Graph *graph, int64_t max_length, Diag *diag);

/* NULL is allowed. */
void seq2seq_destroy(Seq2Seq *model);

/* What it was created for. */
const Seq2SeqOptions *seq2seq_options(const Seq2Seq *model);

/* Tokens that the logits are over; ids of the target and of sources are below the limits,
 * 0 = they may be any. */
int64_t seq2seq_vocabulary(const Seq2Seq *model);
int64_t seq2seq_target_limit(const Seq2Seq *model);
int64_t seq2seq_source_limit(const Seq2Seq *model);

/* Sources, padded to equal length. */
typedef struct Sentences {
    const int32_t *ids, *mask; /* [count, tokens]; mask: 0 = padding */
    int64_t count, tokens;
} Sentences;

/* The hypotheses of some sentences, and memory for them. */
typedef struct Hypotheses Hypotheses;

/* Empty ones. The model must outlive them. Fails with STATUS_MEMORY. */
Status hypotheses_create(Hypotheses **out, const Seq2Seq *model, Diag *diag);

/* NULL is allowed. */
void hypotheses_destroy(Hypotheses *h);

/* The model they were created for. */
const Seq2Seq *hypotheses_model(const Hypotheses *h);

/* Starts on new sentences, whose ids are below the limit: runs the encoder. Steps will
 * be shared by `threads` threads (at least 1); bytes do not depend on their number.
 * Fails with STATUS_MEMORY, and as plan_create does. */
Status hypotheses_start(Hypotheses *h, const Sentences *sentences, int threads,
                        Diag *diag);

/* Number of sentences started with. */
int64_t hypotheses_sentences(const Hypotheses *h);

/* Empties the list of the next step's rows. */
void hypotheses_clear(Hypotheses *h);

/* Adds a row: `token` comes next in a sentence's slot, counted over all sentences (below
 * sentences times slots). Returns its number. */
int64_t hypotheses_add(Hypotheses *h, int32_t token, int64_t sentence, int64_t slot);

/* One token for all rows, at the next position. */
void hypotheses_step(Hypotheses *h);

/* Logits of a row [vocabulary] of the last step. */
const float *hypotheses_logits(const Hypotheses *h, int64_t row);

/* Copies the states of slot `from` to slot `to`. */
void hypotheses_copy(Hypotheses *h, int64_t from, int64_t to);

#endif
