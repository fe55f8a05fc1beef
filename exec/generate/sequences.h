/* Sequences: many texts of a causal language model, one token of all at a time.
 *
 * A sequence lies in a slot: its states, and how many tokens it has. Slots have nothing
 * to do with each other: sequences are of any lengths, and one that ends gives its slot
 * to the next. Steps without a state take all sequences in one call, so that weights are
 * read once for all of them. Logits have the same bytes as those of a Decoder
 * (exec/generate/decode.h), whatever sequences are beside one and at any number of
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
    const Watch *watch; /* asked between the blocks of a prompt; NULL = nobody */
} SequencesOptions;

typedef struct Sequences Sequences;

/* Makes room for sequences of a graph as decoder_create takes it, and fails likewise;
 * with STATUS_MEMORY where the states of all slots find no room. */
Status sequences_create(Sequences **out, Graph *graph, const SequencesOptions *options,
                        Diag *diag);

/* NULL is allowed. */
void sequences_destroy(Sequences *sequences);

/* Tokens that the logits are over. */
int64_t sequences_vocabulary(const Sequences *sequences);

/* Begins a sequence in a slot with tokens, without logits; none are fine. Sequences that
 * are begun one after the other are computed together, in blocks, by the next call that
 * needs them; the list of the next step's rows is empty then. Fails with STATUS_MODEL
 * when an id has no row or the capacity is exceeded, and with STATUS_INTERRUPTED. */
Status sequences_begin(Sequences *sequences, int64_t slot, const int32_t *tokens,
                       int64_t count, Diag *diag);

/* Makes the sequence of slot `to` that of slot `from`. */
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
