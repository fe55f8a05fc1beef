/* compress generate --count, --prompts, --output: many texts, some of them side by side.
 * They are written in order, each when it and all before it are made. */
#include "cli/generate.h"
#include "cli/progress.h"
#include "cli/signals.h"
#include "exec/generate/decode.h"
#include "exec/generate/samples.h"
#include "exec/linalg/blas.h"
#include "exec/run/reserve.h"
#include "exec/run/ticker.h"
#include "io/files/outfile.h"
#include "session/made_text.h"
#include "session/session.h"
#include "session/user_inputs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH = 16 }; /* unless --batch says otherwise */

/* Between two texts of a .txt file. */
static const char SEPARATOR[] = "<|endoftext|>";

/* Seconds between two lines of progress. */
static const double TELL_SECONDS = 0.1;

/* One text that is begun and not written. */
typedef struct Sample {
    MadeText text;
    int64_t tokens;
    double *logs; /* of each token; NULL = not asked for */
    int64_t logs_room;
    Text line; /* what is written of it, once it has ended */
} Sample;

typedef struct Batch {
    const Cli *cli;
    const Model *model;
    Tokenizer *tokenizer;
    Line *texts;
    SamplePrompt *prompts;
    int64_t count;   /* of them */
    int64_t longest; /* of them, in tokens */
    SamplesOptions options;
    Sequences *sequences;

    Sample **samples; /* by number; NULL = not begun, or written */
    int64_t total, written;
    OutFile *file; /* NULL = standard output */
    bool plain;    /* texts alone, not JSON */

    Progress progress;
    int64_t made, steps_done; /* tokens; those, or as good as made */
    double start, told;
    clock_t used; /* processor time at the start */
} Batch;

/* ---- prompts ---- */

static Status open_prompts(Batch *b, Diag *diag) {
    Arena *arena = b->cli->arena;
    int64_t lines;
    TRY(generate_prompts(&b->texts, &b->count, &lines, b->cli, diag));
    b->prompts = ARENA_ARRAY(arena, SamplePrompt, (size_t)b->count);
    for (int64_t i = 0; i < b->count; i++) {
        int32_t *tokens;
        SamplePrompt *prompt = &b->prompts[i];
        TRY(prompt_tokens(&tokens, &prompt->count, arena, b->tokenizer, b->texts[i].text,
                          b->texts[i].at, diag));
        prompt->tokens = tokens;
        if (prompt->count > b->longest) b->longest = prompt->count;
    }
    return STATUS_OK;
}

/* ---- what is written ---- */

/* A string of JSON; NUL, which readers refuse, is left out. */
static void add_string(Text *line, const char *text, size_t length) {
    char *copy = memory_alloc(length + 1, 1);
    size_t count = 0;
    for (size_t i = 0; i < length; i++)
        if (text[i]) copy[count++] = text[i];
    text_quoted(line, copy);
    free(copy);
}

static void add_log(Text *line, double log_probability) {
    if (isfinite(log_probability))
        text_add(line, "%.6f", log_probability);
    else
        text_add(line, "null");
}

static void print_logs(Text *line, const Sample *sample) {
    double sum = 0;
    for (int64_t i = 0; i < sample->tokens; i++) sum += sample->logs[i];
    text_add(line, ", \"logprob\": ");
    add_log(line, sum);
    text_add(line, ", \"logprobs\": [");
    for (int64_t i = 0; i < sample->tokens; i++) {
        if (i > 0) text_add(line, ", ");
        add_log(line, sample->logs[i]);
    }
    text_add(line, "]");
}

static void print_json(const Batch *b, int64_t number, Sample *sample, SampleEnd why) {
    static const char *const WHY[] = {
        [SAMPLE_STOP] = "stop", [SAMPLE_END] = "end", [SAMPLE_LENGTH] = "length"};
    const Line *from = &b->texts[number / b->options.repeats];
    const TextSpan *prompt = &from->text;
    Text *line = &sample->line;
    text_add(line, "{\"index\": %lld, ", (long long)number);
    if (b->cli->flags.prompts) text_add(line, "\"line\": %d, ", from->at.line);
    text_add(line,
             "\"seed\": %lld, \"prompt\": ", (long long)(b->cli->flags.seed + number));
    add_string(line, prompt->text, prompt->length);
    text_add(line, ", \"text\": ");
    add_string(line, sample->text.made.data, sample->text.made.length);
    text_add(line, ", \"tokens\": %lld, \"ended\": \"%s\"", (long long)sample->tokens,
             WHY[why]);
    if (b->options.log_probabilities) print_logs(line, sample);
    text_add(line, "}\n");
}

/* The prompt and what came after it, and a line that parts it from the next text. */
static void print_plain(const Batch *b, int64_t number, Sample *sample) {
    const Text *parts[] = {&sample->text.prompt, &sample->text.made};
    for (int i = 0; i < 2; i++)
        if (parts[i]->length > 0)
            text_bytes(&sample->line, parts[i]->data, parts[i]->length);
    text_add(&sample->line, "\n");
    if (number + 1 < b->total) text_add(&sample->line, "%s\n", SEPARATOR);
}

static void sample_free(Sample *sample) {
    if (!sample) return;
    made_text_free(&sample->text);
    text_free(&sample->line);
    free(sample->logs);
    free(sample);
}

/* Writes what has ended, as far as nothing before it is missing. */
static Status write_ended(Batch *b, Diag *diag) {
    while (b->written < b->total) {
        Sample *sample = b->samples[b->written];
        if (!sample || sample->line.length == 0) return STATUS_OK;
        const Text *line = &sample->line;
        if (b->file)
            TRY(outfile_write(b->file, line->data, line->length, diag));
        else
            fwrite(line->data, 1, line->length, stdout);
        sample_free(sample);
        b->samples[b->written++] = NULL;
    }
    return STATUS_OK;
}

/* ---- taking tokens ---- */

/* The sample of a number, begun if it was not. */
static Status sample_of(Sample **out, Batch *b, int64_t number, Diag *diag) {
    const SamplePrompt *prompt = &b->prompts[number / b->options.repeats];
    *out = b->samples[number];
    if (*out) return STATUS_OK;
    b->samples[number] = *out = memory_alloc(1, sizeof **out);
    return made_text_start(&(*out)->text, b->tokenizer, &b->cli->flags.stop,
                           prompt->tokens, prompt->count, diag);
}

static Status take_token(void *self, int64_t number, int32_t token,
                         double log_probability, bool *stop, Diag *diag) {
    Batch *b = self;
    Sample *sample;
    TRY(sample_of(&sample, b, number, diag));
    if (b->options.log_probabilities) {
        if (sample->tokens == sample->logs_room) {
            sample->logs_room = sample->logs_room ? 2 * sample->logs_room : 64;
            sample->logs = memory_grow(sample->logs, (size_t)sample->logs_room,
                                       sizeof *sample->logs);
        }
        sample->logs[sample->tokens] = log_probability;
    }
    sample->tokens++;
    b->made++;
    b->steps_done++;
    TRY(made_text_add(&sample->text, token, diag));
    *stop = sample->text.stopped;
    return STATUS_OK;
}

static Status take_end(void *self, int64_t number, SampleEnd why, Diag *diag) {
    Batch *b = self;
    Sample *sample;
    TRY(sample_of(&sample, b, number, diag));
    made_text_finish(&sample->text);
    b->steps_done += b->options.most - sample->tokens;
    if (b->plain)
        print_plain(b, number, sample);
    else
        print_json(b, number, sample, why);
    made_text_free(&sample->text);
    return write_ended(b, diag);
}

static Status go_on(void *self, Diag *diag) {
    Batch *b = self;
    char text[64];
    if (signals_interrupted(NULL))
        return diag_fail(diag, STATUS_INTERRUPTED, LOC_NONE, NULL,
                         "stopped after %lld of %lld texts", (long long)b->written,
                         (long long)b->total);
    const double now = ticker_seconds();
    if (now - b->told < TELL_SECONDS) return STATUS_OK;
    b->told = now;
    snprintf(text, sizeof text, "%.0f tokens/s", (double)b->made / (now - b->start));
    progress_update(&b->progress, b->steps_done, b->total * b->options.most, text);
    return STATUS_OK;
}

/* ---- the whole ---- */

static Status check_flags(const Flags *flags, Diag *diag) {
    if (flags->prompt && flags->prompts)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         "expected one of --prompt and --prompts, found both");
    if (flags->logprobs && flags->output && text_ends_with(flags->output, ".txt"))
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         "--logprobs: expected an --output of JSON Lines, found %s",
                         flags->output);
    return STATUS_OK;
}

static Status open_sequences(Batch *b, Diag *diag) {
    static const Watch watch = {.cancelled = signals_interrupted};
    const Flags *flags = &b->cli->flags;
    const SequencesOptions options = {.capacity = b->longest + b->options.most,
                                      .slots = samples_slots(&b->options),
                                      .threads = threads_choose(flags->threads),
                                      .weights = flags->bf16 ? STEP_BF16 : STEP_F32,
                                      .watch = &watch};
    TRY(prompt_check_positions(b->model, b->longest, b->options.most, diag));
    blas_init();
    TRY(threads_reserve(options.threads, diag));
    const Status status =
        sequences_create(&b->sequences, b->model->graph, &options, diag);
    if (status == STATUS_MEMORY)
        diag_hint(diag, "states take less with a smaller --batch or --max-tokens");
    if (status != STATUS_OK) return status;
    return prompt_check_vocabulary(b->model, sequences_vocabulary(b->sequences),
                                   b->tokenizer, diag);
}

static Status open_batch(Batch *b, Diag *diag) {
    const Flags *flags = &b->cli->flags;
    const char *output;
    TRY(check_flags(flags, diag));
    TRY(generate_output(&output, &b->plain, b->cli, diag));
    TRY(decoder_check(b->model->graph, diag));
    TRY(user_tokenizer_read(&b->tokenizer, b->cli->flags.tokenizer, b->model,
                            b->cli->args[0], diag));
    TRY(open_prompts(b, diag));
    SamplesOptions *options = &b->options;
    *options =
        (SamplesOptions){.sampling = generate_sampling(flags),
                         .repeats = flags->count ? flags->count : 1,
                         .together = flags->batch ? flags->batch : BATCH,
                         .most = flags->max_tokens ? flags->max_tokens : GENERATE_TOKENS,
                         .log_probabilities = flags->logprobs};
    made_text_ends(options->ends, &b->cli->flags.stop, b->tokenizer);
    b->total = b->count * options->repeats;
    if (options->together > b->total) options->together = b->total;
    b->samples = memory_alloc((size_t)b->total, sizeof *b->samples);
    TRY(open_sequences(b, diag));
    return output ? outfile_open(&b->file, NULL, output, diag) : STATUS_OK;
}

static void tell_timing(const Batch *b) {
    const double seconds = ticker_seconds() - b->start;
    const double used = (double)(clock() - b->used) / CLOCKS_PER_SEC;
    fprintf(
        stderr,
        "%lld texts, %lld tokens made in %.1f ms, %.0f tokens/s, %.1f ms of processor "
        "time; %lld side by side; states %zu bytes, weights %zu bytes a step\n",
        (long long)b->total, (long long)b->made, 1e3 * seconds, (double)b->made / seconds,
        1e3 * used, (long long)b->options.together, sequences_state_bytes(b->sequences),
        sequences_weight_bytes(b->sequences));
}

static Status make_batch(Batch *b, Diag *diag) {
    const SampleSink sink = {b, take_token, take_end, go_on};
    TRY(open_batch(b, diag));
    b->progress = progress_create(b->cli->flags.quiet);
    progress_begin(&b->progress, 0, 0, "generate");
    b->start = b->told = ticker_seconds();
    b->used = clock();
    const Status status =
        samples_run(b->sequences, b->prompts, b->count, &b->options, &sink, diag);
    progress_clear(&b->progress);
    if (status == STATUS_MODEL) diag_place(diag, LOC_FILE(b->cli->args[0]), NULL);
    if (status != STATUS_OK) return status;
    if (b->cli->flags.timing) tell_timing(b);
    OutFile *file = b->file;
    b->file = NULL;
    return file ? outfile_commit(file, diag) : STATUS_OK;
}

bool generate_asks_samples(const Flags *flags) {
    return flags->count > 0 || flags->batch > 0 || flags->prompts || flags->output;
}

Status generate_samples(const Cli *cli, const Model *model, Diag *diag) {
    Batch b = {.cli = cli, .model = model};
    const Status status = make_batch(&b, diag);
    outfile_abandon(b.file);
    for (int64_t i = b.written; b.samples && i < b.total; i++) sample_free(b.samples[i]);
    free(b.samples);
    sequences_destroy(b.sequences);
    tokenizer_destroy(b.tokenizer);
    return status;
}
