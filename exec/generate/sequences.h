/* Sequences: many texts of a causal language model, advanced together one token at a
 * time.
 *
 * A sequence lies in a slot: its states, and its number of tokens. Slots are independent
 * of each other: sequences may have any lengths, and one that ends gives its slot to the
 * next. Steps without a state take all sequences in one call, so that weights are read
 * once for all of them. Logits have the same bytes as those of a Decoder
 * (exec/generate/decode.h), whatever other sequences run with one and for any number of
 * threads. */
#ifndef COMPRESS_EXEC_GENERATE_SEQUENCES_H
#define COMPRESS_EXEC_GENERATE_SEQUENCES_H

#include "exec/generate/step.h"
#include "exec/run/ticker.h"

typedef struct SequencesOptions {
    int64_t capacity; /* most tokens of a sequence */
    int64_t slots;    /* at least 1 */
    int threads;      /* at least 1 */
    StepWeights weights;
    const Watch *watch; /* checked between the blocks of a prompt; NULL = none */
} SequencesOptions;

typedef struct Sequences Sequences;

/* Allocates sequences for a graph such as decoder_create takes, and fails likewise; with
 * STATUS_MEMORY if the states of all slots do not fit. */
Status sequences_create(Sequences **out, Graph *graph, const SequencesOptions *options,
                        Diag *diag);

/* NULL is allowed. */
void sequences_destroy(Sequences *sequences);

/* Tokens that the logits are over. */
int64_t sequences_vocabulary(const Sequences *sequences);

/* Starts a sequence in a slot with any number of tokens (also 0), without logits.
 * Sequences started one after another are computed together, in blocks, by the next call
 * that needs them; the list of the next step's rows must be empty then. Fails with
 * STATUS_MODEL when an id has no row or the capacity is exceeded, and with
 * STATUS_INTERRUPTED. */
Status sequences_begin(Sequences *sequences, int64_t slot, const int32_t *tokens,
                       int64_t count, Diag *diag);

/* Copies the sequence of slot `from` to slot `to`. */
void sequences_copy(Sequences *sequences, int64_t from, int64_t to);

/* Tokens of a slot's sequence. */
int64_t sequences_position(const Sequences *sequences, int64_t slot);

/* Empties the list of the next step's rows. */
void sequences_clear(Sequences *sequences);

/* Adds a row: `token` comes next in a slot, which has no other row. Returns the row's
 * number. Fails as sequences_begin: *row is then undefined. */
Status sequences_add(Sequences *sequences, int64_t *row, int64_t slot, int32_t token,
                     Diag *diag);

/* One token for all rows. */
void sequences_step(Sequences *sequences);

/* Logits of a row [vocabulary] of the last step; valid until the next step or begin. */
const float *sequences_logits(const Sequences *sequences, int64_t row);

/* Calls body(self, row) for every row of the last step; rows are shared out among the
 * threads. */
void sequences_each(Sequences *sequences, void (*body)(void *self, int64_t row),
                    void *self);

/* Bytes of all slots' states at full length, and bytes of weights that a step reads. */
size_t sequences_state_bytes(const Sequences *sequences);
size_t sequences_weight_bytes(const Sequences *sequences);

#endif
