/* compress generate: text from a language model, token by token, or a translation. The
 * text alone goes to standard output. */
#include "cli/commands.h"
#include "cli/generate_translation.h"
#include "cli/signals.h"
#include "exec/generate/decode.h"
#include "exec/generate/sample.h"
#include "exec/generate/translate.h"
#include "exec/linalg/blas.h"
#include "exec/ops.h"
#include "exec/run/ticker.h"
#include "io/formats/load.h"
#include "io/formats/model_vocabulary.h"
#include "io/tokenizers/tokenizer.h"
#include "session/session.h"

#include <string.h>
#include <sys/stat.h>

typedef struct Generation {
    const Cli *cli;
    Model *model;
    Tokenizer *tokenizer;
    Decoder *decoder;
    Encoding prompt;
    Detokenizer text;
    int32_t *tokens; /* what the model reads first */
    int64_t token_count;
    int64_t made;
    int64_t most; /* tokens to make */
    double prefill_seconds, seconds;
} Generation;

/* The prompt as tokens, after the token that begins a text where the vocabulary has one.
 */
static Status read_prompt(Generation *g, Diag *diag) {
    const char *prompt = g->cli->flags.prompt ? g->cli->flags.prompt : "";
    const TextSpan span = {prompt, strlen(prompt)};
    TRY(tokenizer_encode_plain(g->tokenizer, &g->prompt, span, LOC_FILE("--prompt"),
                               diag));
    const int32_t bos = tokenizer_specials(g->tokenizer)->bos;
    g->tokens = ARENA_ARRAY(g->cli->arena, int32_t, g->prompt.length + 1);
    if (bos >= 0) g->tokens[g->token_count++] = bos;
    for (size_t i = 0; i < g->prompt.length; i++)
        g->tokens[g->token_count++] = g->prompt.ids[i];
    if (g->token_count > 0) return STATUS_OK;
    return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                     "expected --prompt TEXT: the vocabulary has no token that begins a "
                     "text");
}

static Status open_tokenizer(Generation *g, Diag *diag) {
    const char *path = g->cli->flags.tokenizer, *model = g->cli->args[0];
    struct stat info;
    if (!path && stat(model, &info) == 0 && !S_ISDIR(info.st_mode))
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         "expected --tokenizer PATH: %s is no folder with a tokenizer",
                         model);
    return tokenizer_read(&g->tokenizer, path ? path : model, diag);
}

/* Positions of the model's smallest table of them; INT64_MAX without one. */
static int64_t most_positions(const Graph *graph) {
    int64_t most = INT64_MAX;
    for (const Node *node = graph->first; node; node = node->next) {
        if (!node_is(node, &op_add_position)) continue;
        const AddPositionAttrs *attrs = node->attrs;
        const int64_t rows = node->in[1]->type.dim[0] - attrs->offset;
        if (rows < most) most = rows;
    }
    return most;
}

static Status check_positions(const Generation *g, Diag *diag) {
    const int64_t most = most_positions(g->model->graph);
    if (g->token_count + g->most <= most) return STATUS_OK;
    Status status = diag_fail(
        diag, STATUS_MODEL, LOC_NONE, NULL,
        "--max-tokens: expected at most %lld positions, the model's table, found "
        "a prompt of %lld tokens and %lld to make",
        (long long)most, (long long)g->token_count, (long long)g->most);
    if (g->token_count < most)
        diag_hint(diag, "--max-tokens %lld", (long long)(most - g->token_count));
    else
        diag_hint(diag, "take a shorter prompt");
    return status;
}

static Status open_decoder(Generation *g, Diag *diag) {
    const Flags *flags = &g->cli->flags;
    const DecodeOptions options = {.capacity = g->token_count + g->most,
                                   .threads = threads_choose(flags->threads),
                                   .weights = flags->bf16 ? STEP_BF16 : STEP_F32};
    TRY(check_positions(g, diag));
    blas_init();
    TRY(decoder_create(&g->decoder, g->model->graph, &options, diag));
    if (decoder_vocabulary(g->decoder) >= tokenizer_size(g->tokenizer)) return STATUS_OK;
    return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                     "expected a tokenizer of at most the model's %lld tokens, found %d",
                     (long long)decoder_vocabulary(g->decoder),
                     (int)tokenizer_size(g->tokenizer));
}

/* Prints what is certain of the text so far. */
static Status show_token(Generation *g, int32_t token, Diag *diag) {
    Text text = {0};
    Status status = STATUS_OK;
    if (token < tokenizer_size(g->tokenizer))
        status = detokenizer_add(&g->text, &text, token, LOC_NONE, diag);
    if (text.length) fwrite(text.data, 1, text.length, stdout);
    fflush(stdout);
    text_free(&text);
    return status;
}

static Status show_tokens(Generation *g, Diag *diag) {
    detokenizer_start(&g->text, g->tokenizer, true);
    for (int64_t i = 0; i < g->token_count; i++) TRY(show_token(g, g->tokens[i], diag));
    return STATUS_OK;
}

static void show_end(Generation *g) {
    Text text = {0};
    detokenizer_finish(&g->text, &text);
    if (text.length) fwrite(text.data, 1, text.length, stdout);
    putchar('\n');
    text_free(&text);
}

static Status make_tokens(Generation *g, Diag *diag) {
    const Flags *flags = &g->cli->flags;
    const Sampling sampling = {.temperature = flags->temperature,
                               .top_k = flags->top_k,
                               .top_p = flags->top_p > 0 ? flags->top_p : 1,
                               .seed = (uint64_t)flags->seed};
    const int32_t eos = tokenizer_specials(g->tokenizer)->eos;
    while (g->made < g->most) {
        if (signals_interrupted(NULL))
            return diag_fail(diag, STATUS_INTERRUPTED, LOC_NONE, NULL,
                             "stopped after %lld of %lld tokens", (long long)g->made,
                             (long long)g->most);
        const int32_t token =
            sample_token(&sampling, decoder_logits(g->decoder),
                         decoder_vocabulary(g->decoder), decoder_position(g->decoder));
        if (token == eos) break;
        g->made++;
        TRY(show_token(g, token, diag));
        if (g->made < g->most) TRY(decoder_step(g->decoder, token, diag));
    }
    return STATUS_OK;
}

static void report_times(const Generation *g) {
    fprintf(stderr,
            "%lld tokens read in %.1f ms, %lld made, %.3f ms each; state %zu bytes, "
            "weights %zu bytes a step\n",
            (long long)g->token_count, 1e3 * g->prefill_seconds, (long long)g->made,
            g->made ? 1e3 * g->seconds / (double)g->made : 0,
            decoder_state_bytes(g->decoder), decoder_weight_bytes(g->decoder));
}

static Status check_flags(const Flags *flags, Diag *diag) {
    if (!flags->beam && !flags->target_tokenizer && flags->length_penalty < 0)
        return STATUS_OK;
    return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                     "--beam, --length-penalty and --target-tokenizer are for "
                     "encoder-decoder models, this one has no encoder");
}

static Status generate(Generation *g, Diag *diag) {
    const Cli *cli = g->cli;
    TRY(check_flags(&cli->flags, diag));
    TRY(open_tokenizer(g, diag));
    TRY(read_prompt(g, diag));
    TRY(open_decoder(g, diag));
    TRY(vocabulary_check(g->model, "the model",
                         vocabulary_of(g->tokenizer, g->model->arena), "--tokenizer",
                         LOC_NONE, diag));
    double start = ticker_seconds();
    TRY(decoder_append(g->decoder, g->tokens, g->token_count, diag));
    g->prefill_seconds = ticker_seconds() - start;
    TRY(show_tokens(g, diag));
    start = ticker_seconds();
    const Status status = make_tokens(g, diag);
    g->seconds = ticker_seconds() - start;
    show_end(g);
    if (cli->flags.timing) report_times(g);
    return status;
}

Status command_generate(const Cli *cli, Diag *diag) {
    Generation g = {.cli = cli, .most = cli->flags.max_tokens};
    if (g.most == 0) g.most = GENERATE_TOKENS;
    Status status = model_load(&g.model, cli->args[0], ops_table(), true, diag);
    if (status == STATUS_OK)
        status = translator_fits(g.model->graph)
                     ? generate_translation(cli, g.model, diag)
                     : generate(&g, diag);
    detokenizer_free(&g.text);
    encoding_free(&g.prompt);
    decoder_destroy(g.decoder);
    tokenizer_destroy(g.tokenizer);
    model_destroy(g.model);
    return status;
}
