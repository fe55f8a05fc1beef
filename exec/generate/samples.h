/* Samples: many texts drawn from prompts, some of them side by side.
 *
 * Sample i is the (i mod repeats)-th of prompt i / repeats, and its seed is the first
 * one's plus i; so a sample has the same tokens whatever is beside it, and those that a
 * Decoder and a Sampler with that seed make of its prompt. A sample that ends gives its
 * slot to the next. Samples of one prompt have it computed once. */
#ifndef COMPRESS_EXEC_GENERATE_SAMPLES_H
#define COMPRESS_EXEC_GENERATE_SAMPLES_H

#include "exec/generate/sample.h"
#include "exec/generate/sequences.h"

/* A prompt; it has at least one token. */
typedef struct SamplePrompt {
    const int32_t *tokens;
    int64_t count;
} SamplePrompt;

/* Why a sample ended: who takes its tokens said so; a token that ends a text; as many
 * tokens as it may have. */
typedef enum SampleEnd { SAMPLE_STOP, SAMPLE_END, SAMPLE_LENGTH } SampleEnd;

typedef struct SamplesOptions {
    Sampling sampling; /* its seed is the first sample's */
    int64_t repeats;   /* samples of each prompt, at least 1 */
    int64_t together;  /* samples side by side, at least 1 */
    int64_t most;      /* tokens to make of each, at least 1 */
    int32_t ends[2];   /* tokens that end a text and are no part of it; -1 = none */
    bool log_probabilities;
} SamplesOptions;

/* Who takes what is made; called by one thread, sample after sample in any order. */
typedef struct SampleSink {
    void *self;

    /* Sample `sample` has one more token, of this log-probability (where the options ask
     * for it); *stop = true ends it. */
    Status (*token)(void *self, int64_t sample, int32_t token, double log_probability,
                    bool *stop, Diag *diag);
    Status (*ended)(void *self, int64_t sample, SampleEnd why, Diag *diag);

    /* Asked before every step: fails to give up. */
    Status (*go_on)(void *self, Diag *diag);
} SampleSink;

/* Slots that samples need: one more where a prompt is computed once for several. */
int64_t samples_slots(const SamplesOptions *options);

/* Makes options->repeats samples of each prompt. The sequences have samples_slots slots,
 * and room for every prompt with options->most tokens. Fails as sequences_begin and as
 * the sink, and with STATUS_MODEL for logits that are not finite (sampler_draw). */
Status samples_run(Sequences *sequences, const SamplePrompt *prompts, int64_t count,
                   const SamplesOptions *options, const SampleSink *sink, Diag *diag);

#endif
