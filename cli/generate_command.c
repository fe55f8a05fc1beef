/* compress generate: text from a language model, token by token, or a translation. The
 * text alone goes to standard output. */
#include "cli/generate.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "exec/generate/decode.h"
#include "exec/generate/translate.h"
#include "exec/linalg/blas.h"
#include "exec/ops.h"
#include "exec/run/reserve.h"
#include "exec/run/ticker.h"
#include "io/files/file.h"
#include "io/formats/load.h"
#include "io/tokenizers/tokenizer.h"
#include "session/made_text.h"
#include "session/output_files.h"
#include "session/session.h"
#include "session/user_inputs.h"

#include <string.h>

/* One text from a language model. */
typedef struct Generation {
    const Cli *cli;
    Model *model;
    Tokenizer *tokenizer;
    Decoder *decoder;
    Sampler *sampler;
    MadeText text;
    size_t shown;    /* bytes of what was made */
    int32_t *tokens; /* what the model reads first */
    int64_t token_count;
    int64_t made;
    int64_t most;   /* tokens to make */
    int32_t *drawn; /* those made, and their log-probabilities; NULL = not asked for */
    double *logs;
    double prefill_seconds, seconds;
} Generation;

/* ---- what the forms share ---- */

Status generate_prompts(Line **out, int64_t *count, int64_t *all, const Cli *cli,
                        Diag *diag) {
    const char *prompt = cli->flags.prompt ? cli->flags.prompt : "";
    if (cli->flags.prompts)
        return prompts_read(out, count, all, cli->arena, cli->flags.prompts, diag);
    *all = 0;
    *out = ARENA_NEW(cli->arena, Line);
    **out = (Line){{prompt, strlen(prompt)}, LOC_FILE("--prompt")};
    *count = 1;
    return STATUS_OK;
}

Status generate_output(const char **path, bool *plain, const Cli *cli, Diag *diag) {
    const Flags *flags = &cli->flags;
    const char *items[] = {cli->args[0], flags->prompts, flags->tokenizer,
                           flags->target_tokenizer};
    const StringList read = {items, sizeof items / sizeof *items};
    const bool printed = flags->output && strcmp(flags->output, "-") == 0;
    *path = printed ? NULL : flags->output;
    *plain = *path && text_ends_with(*path, ".txt");
    TRY(output_check(cli->arena, "--output", *path, diag));
    if (flags->force) return STATUS_OK;
    return output_replace_check("--output", *path,
                                *plain ? OUTPUT_TEXT : OUTPUT_GENERATED, &read, diag);
}

Sampling generate_sampling(const Flags *flags) {
    return (Sampling){.temperature = flags->temperature,
                      .top_k = flags->top_k,
                      .top_p = flags->top_p > 0 ? flags->top_p : 1,
                      .min_p = flags->min_p,
                      .repetition_penalty = flags->repetition_penalty,
                      .seed = (uint64_t)flags->seed};
}

/* ---- one text, shown while it is made ---- */

static Status open_decoder(Generation *g, Diag *diag) {
    const Flags *flags = &g->cli->flags;
    const char *prompt = flags->prompt ? flags->prompt : "";
    TRY(decoder_check(g->model->graph, diag));
    TRY(user_tokenizer_read(&g->tokenizer, flags->tokenizer, g->model, g->cli->args[0],
                            diag));
    TRY(prompt_tokens(&g->tokens, &g->token_count, g->cli->arena, g->tokenizer,
                      (TextSpan){prompt, strlen(prompt)}, LOC_FILE("--prompt"), diag));
    TRY(prompt_check_positions(g->model, g->token_count, g->most, diag));
    const DecodeOptions options = {.capacity = g->token_count + g->most,
                                   .threads = threads_choose(flags->threads),
                                   .weights = flags->bf16 ? STEP_BF16 : STEP_F32};
    blas_init();
    TRY(threads_reserve(options.threads, diag));
    TRY(decoder_create(&g->decoder, g->model->graph, &options, diag));
    return prompt_check_vocabulary(g->model, decoder_vocabulary(g->decoder), g->tokenizer,
                                   diag);
}

/* Prints what has become certain of the text. Fails with STATUS_IO. */
static Status show(Generation *g, Diag *diag) {
    const MadeText *text = &g->text;
    if (text->certain > g->shown)
        fwrite(text->made.data + g->shown, 1, text->certain - g->shown, stdout);
    g->shown = text->certain;
    return terminal_flush(stdout, diag);
}

/* One token: draws it, notes it, shows it. *over: it was the last. */
static Status make_token(Generation *g, const int32_t ends[2], bool *over, Diag *diag) {
    const float *logits = decoder_logits(g->decoder);
    const int32_t token = sampler_draw(g->sampler, logits, decoder_position(g->decoder));
    if (token < 0) return sampler_fail(g->made, g->most, diag);
    *over = token == ends[0] || token == ends[1];
    if (*over) return STATUS_OK;
    if (g->logs) {
        g->drawn[g->made] = token;
        g->logs[g->made] = sampler_log_probability(g->sampler, logits, token);
    }
    g->made++;
    sampler_see(g->sampler, &token, 1);
    TRY(made_text_add(&g->text, token, diag));
    TRY(show(g, diag));
    *over = g->text.stopped || g->made == g->most;
    return *over ? STATUS_OK : decoder_step(g->decoder, token, diag);
}

static Status make_tokens(Generation *g, Diag *diag) {
    const Sampling sampling = generate_sampling(&g->cli->flags);
    int32_t ends[2];
    made_text_ends(ends, &g->cli->flags.stop, g->tokenizer);
    g->sampler = sampler_create(decoder_vocabulary(g->decoder));
    sampler_start(g->sampler, &sampling);
    sampler_see(g->sampler, g->tokens, g->token_count);
    for (bool over = false; !over;) {
        if (signals_interrupted(NULL))
            return diag_fail(diag, STATUS_INTERRUPTED, LOC_NONE, NULL,
                             "stopped after %lld of %lld tokens", (long long)g->made,
                             (long long)g->most);
        TRY(make_token(g, ends, &over, diag));
    }
    return STATUS_OK;
}

/* What --logprobs asks for: a line for each token, then their sum. */
static void tell_logs(const Generation *g) {
    double sum = 0;
    for (int64_t i = 0; i < g->made; i++) {
        const char *token = g->drawn[i] < tokenizer_size(g->tokenizer)
                                ? tokenizer_token(g->tokenizer, g->drawn[i])
                                : NULL;
        fprintf(stderr, "%.6f %s\n", g->logs[i], token ? token : "");
        sum += g->logs[i];
    }
    fprintf(stderr, "%.6f in %lld tokens\n", sum, (long long)g->made);
}

static void tell_timing(const Generation *g) {
    fprintf(stderr,
            "%lld tokens read in %.1f ms, %lld made, %.3f ms each; state %zu bytes, "
            "weights %zu bytes a step\n",
            (long long)g->token_count, 1e3 * g->prefill_seconds, (long long)g->made,
            g->made ? 1e3 * g->seconds / (double)g->made : 0,
            decoder_state_bytes(g->decoder), decoder_weight_bytes(g->decoder));
}

static Status generate_text(Generation *g, Diag *diag) {
    const Flags *flags = &g->cli->flags;
    TRY(open_decoder(g, diag));
    if (flags->logprobs) {
        g->logs = ARENA_ARRAY(g->cli->arena, double, (size_t)g->most);
        g->drawn = ARENA_ARRAY(g->cli->arena, int32_t, (size_t)g->most);
    }
    double start = ticker_seconds();
    TRY(decoder_append(g->decoder, g->tokens, g->token_count, diag));
    g->prefill_seconds = ticker_seconds() - start;
    TRY(made_text_start(&g->text, g->tokenizer, &flags->stop, g->tokens, g->token_count,
                        diag));
    if (g->text.prompt.length > 0)
        fwrite(g->text.prompt.data, 1, g->text.prompt.length, stdout);
    start = ticker_seconds();
    Status status = make_tokens(g, diag);
    if (status == STATUS_MODEL) diag_place(diag, LOC_FILE(g->cli->args[0]), NULL);
    g->seconds = ticker_seconds() - start;
    made_text_finish(&g->text); /* U+FFFD where bytes of a character never came */
    const Status shown = status == STATUS_IO ? status : show(g, diag);
    if (status == STATUS_OK) status = shown;
    putchar('\n');
    if (flags->timing) tell_timing(g);
    if (flags->logprobs) tell_logs(g);
    return status;
}

static Status generate(const Cli *cli, Model *model, Diag *diag) {
    const Flags *flags = &cli->flags;
    if (flags->beam || flags->target_tokenizer || flags->length_penalty >= 0)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         "--beam, --length-penalty and --target-tokenizer are for "
                         "encoder-decoder models, this one has no encoder");
    if (generate_asks_samples(flags)) return generate_samples(cli, model, diag);
    Generation g = {.cli = cli, .model = model, .most = flags->max_tokens};
    if (g.most == 0) g.most = GENERATE_TOKENS;
    const Status status = generate_text(&g, diag);
    made_text_free(&g.text);
    sampler_destroy(g.sampler);
    decoder_destroy(g.decoder);
    tokenizer_destroy(g.tokenizer);
    return status;
}

Status command_generate(const Cli *cli, Diag *diag) {
    Model *model;
    TRY(model_load(&model, cli->args[0], ops_table(), true, diag));
    const Status status = translator_fits(model->graph)
                              ? generate_translations(cli, model, diag)
                              : generate(cli, model, diag);
    model_destroy(model);
    return status;
}
