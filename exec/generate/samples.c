/* Samples: see exec/generate/samples.h. */
#include "exec/generate/samples.h"

#include "ir/arena.h"

#include <stdlib.h>

/* One of those side by side; its number is its slot. */
typedef struct Seat {
    int64_t sample; /* -1 = free */
    int64_t made;
    int64_t row;   /* of the step at hand */
    int32_t token; /* that comes next; -1 = its logits are not finite */
    double log_probability;
    Sampler *sampler;
} Seat;

typedef struct Samples {
    Sequences *sequences;
    const SamplePrompt *prompts;
    const SamplesOptions *options;
    const SampleSink *sink;
    int64_t total, next; /* samples; the next that begins */
    int64_t computed;    /* prompt that the spare slot holds, -1 = none */
    Seat *seats;
    Seat **taken; /* by row */
} Samples;

int64_t samples_slots(const SamplesOptions *options) {
    return options->together + (options->repeats > 1);
}

static Sampling sampling_of(const Samples *s, int64_t sample) {
    Sampling sampling = s->options->sampling;
    sampling.seed += (uint64_t)sample;
    return sampling;
}

/* Computes a prompt but for its last token, which the first step takes: in the slot, or
 * once for all of its samples in the spare one. */
static Status begin_prompt(Samples *s, int64_t slot, int64_t prompt, Diag *diag) {
    const SamplePrompt *p = &s->prompts[prompt];
    const int64_t before = p->count - 1, spare = s->options->together;
    if (s->options->repeats == 1 || before == 0)
        return sequences_begin(s->sequences, slot, p->tokens, before, diag);
    if (s->computed != prompt)
        TRY(sequences_begin(s->sequences, spare, p->tokens, before, diag));
    s->computed = prompt;
    sequences_copy(s->sequences, spare, slot);
    return STATUS_OK;
}

static Status begin(Samples *s, int64_t slot, Diag *diag) {
    Seat *seat = &s->seats[slot];
    const int64_t sample = s->next++, prompt = sample / s->options->repeats;
    const SamplePrompt *p = &s->prompts[prompt];
    const Sampling sampling = sampling_of(s, sample);
    TRY(begin_prompt(s, slot, prompt, diag));
    seat->sample = sample;
    seat->made = 0;
    seat->token = p->tokens[p->count - 1];
    if (!seat->sampler)
        seat->sampler = sampler_create(sequences_vocabulary(s->sequences));
    sampler_start(seat->sampler, &sampling);
    sampler_see(seat->sampler, p->tokens, p->count);
    return STATUS_OK;
}

/* Fits sequences_each: the token that a row is followed by. */
static void choose(void *self, int64_t row) {
    const Samples *s = self;
    Seat *seat = s->taken[row];
    const float *logits = sequences_logits(s->sequences, row);
    const int64_t slot = seat - s->seats;
    seat->token =
        sampler_draw(seat->sampler, logits, sequences_position(s->sequences, slot));
    if (s->options->log_probabilities && seat->token >= 0)
        seat->log_probability =
            sampler_log_probability(seat->sampler, logits, seat->token);
}

/* One token for everyone who sits; the number of them. */
static Status step(Samples *s, int64_t *rows, Diag *diag) {
    *rows = 0;
    sequences_clear(s->sequences);
    for (int64_t slot = 0; slot < s->options->together; slot++) {
        Seat *seat = &s->seats[slot];
        if (seat->sample < 0 && s->next < s->total) TRY(begin(s, slot, diag));
    }
    for (int64_t slot = 0; slot < s->options->together; slot++) {
        Seat *seat = &s->seats[slot];
        if (seat->sample < 0) continue;
        TRY(sequences_add(s->sequences, &seat->row, slot, seat->token, diag));
        s->taken[seat->row] = seat;
        *rows = seat->row + 1;
    }
    sequences_step(s->sequences);
    if (*rows > 0) sequences_each(s->sequences, choose, s);
    return STATUS_OK;
}

/* Hands on the token that a seat has got; the seat is free when its sample ends. */
static Status take(const Samples *s, Seat *seat, Diag *diag) {
    const SamplesOptions *options = s->options;
    const SampleSink *sink = s->sink;
    const int64_t sample = seat->sample;
    SampleEnd why = SAMPLE_END;
    if (seat->token < 0)
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                         "expected finite logits, found others at token %lld of text "
                         "%lld of %lld",
                         (long long)seat->made + 1, (long long)sample + 1,
                         (long long)s->total);
    if (seat->token != options->ends[0] && seat->token != options->ends[1]) {
        bool stop = false;
        sampler_see(seat->sampler, &seat->token, 1);
        TRY(sink->token(sink->self, sample, seat->token, seat->log_probability, &stop,
                        diag));
        seat->made++;
        if (!stop && seat->made < options->most) return STATUS_OK;
        why = stop ? SAMPLE_STOP : SAMPLE_LENGTH;
    }
    seat->sample = -1;
    return sink->ended(sink->self, sample, why, diag);
}

static Status run(Samples *s, Diag *diag) {
    for (;;) {
        int64_t rows;
        TRY(s->sink->go_on(s->sink->self, diag));
        TRY(step(s, &rows, diag));
        if (rows == 0) return STATUS_OK;
        for (int64_t row = 0; row < rows; row++) TRY(take(s, s->taken[row], diag));
    }
}

Status samples_run(Sequences *sequences, const SamplePrompt *prompts, int64_t count,
                   const SamplesOptions *options, const SampleSink *sink, Diag *diag) {
    const size_t together = (size_t)options->together;
    Samples s = {.sequences = sequences,
                 .prompts = prompts,
                 .options = options,
                 .sink = sink,
                 .total = count * options->repeats,
                 .computed = -1,
                 .seats = memory_alloc(together, sizeof(Seat)),
                 .taken = memory_alloc(together, sizeof(Seat *))};
    for (size_t i = 0; i < together; i++) s.seats[i].sample = -1;
    const Status status = run(&s, diag);
    for (size_t i = 0; i < together; i++) sampler_destroy(s.seats[i].sampler);
    free(s.seats);
    free(s.taken);
    return status;
}
