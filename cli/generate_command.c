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
#include "io/formats/model_vocabulary.h"
#include "io/tokenizers/tokenizer.h"
#include "session/made_text.h"
#include "session/session.h"
#include "session/user_inputs.h"

#include <string.h>

enum { BEAM = 4 }; /* unless --beam says otherwise */

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

/* ---- what both forms share ---- */

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

/* ---- translations ---- */

typedef struct Translating {
    const Cli *cli;
    const Model *model;
    Tokenizer *source, *target; /* may be the same one */
    Encoding sentence;
    Translator *translator;
    Search search;
    int64_t most; /* tokens */
} Translating;

/* Whether the model has its own for each language. */
static bool has_pair(const Model *model) {
    return model_asset(model, SOURCE_TOKENIZER) && model_asset(model, TARGET_TOKENIZER);
}

/* Where the tokenizers are: as the flags say, or beside the model; NULL: in it. */
static Status find_tokenizers(const Translating *t, const char **source,
                              const char **target, Diag *diag) {
    static const char *const ONE[] = {"tokenizer.json", "vocab.json", "vocab.txt",
                                      "tokenizer.model", "spiece.model"};
    const Flags *flags = &t->cli->flags;
    Arena *arena = t->cli->arena;
    const char *model = t->cli->args[0];
    const char *folder = path_is_folder(model) ? model : path_folder(arena, model);
    *source = flags->tokenizer;
    *target = flags->target_tokenizer ? flags->target_tokenizer : *source;
    if (*source || has_pair(t->model)) return STATUS_OK;
    *source = path_join(arena, folder, SOURCE_TOKENIZER);
    *target = path_join(arena, folder, TARGET_TOKENIZER);
    if (path_is_file(*source) && path_is_file(*target)) return STATUS_OK;
    for (size_t i = 0; i < sizeof ONE / sizeof *ONE; i++) {
        if (!path_is_file(path_join(arena, folder, ONE[i]))) continue;
        *source = *target = folder;
        return STATUS_OK;
    }
    *source = *target = NULL;
    if (tokenizer_of_model(t->model)) return STATUS_OK;
    diag_fail(
        diag, STATUS_USAGE, LOC_NONE, NULL,
        "expected --tokenizer PATH, and --target-tokenizer where the languages have "
        "their own: %s has no tokenizer",
        model);
    diag_hint(diag, "source_tokenizer.json and target_tokenizer.json, or tokenizer.json, "
                    "are found beside the model");
    return STATUS_USAGE;
}

static Status read_source(Translating *t, const char *path, Diag *diag) {
    const char *name = t->cli->args[0];
    if (path) return tokenizer_read(&t->source, path, diag);
    if (has_pair(t->model))
        return tokenizer_read_asset(&t->source, t->model, SOURCE_TOKENIZER, name, diag);
    return tokenizer_read_model(&t->source, t->model, name, diag);
}

static Status open_tokenizers(Translating *t, Diag *diag) {
    const char *source, *target;
    TRY(find_tokenizers(t, &source, &target, diag));
    if (t->cli->flags.target_tokenizer) target = t->cli->flags.target_tokenizer;
    TRY(read_source(t, source, diag));
    TRY(vocabulary_check(t->model, "the model", vocabulary_of(t->source, t->model->arena),
                         "tokenizer of the source",
                         LOC_FILE(source ? source : t->cli->args[0]), diag));
    if (target && (!source || strcmp(source, target) != 0))
        return tokenizer_read(&t->target, target, diag);
    if (!source && has_pair(t->model))
        return tokenizer_read_asset(&t->target, t->model, TARGET_TOKENIZER,
                                    t->cli->args[0], diag);
    t->target = t->source;
    return STATUS_OK;
}

/* A token that the configuration numbers, else the tokenizer's. */
static int32_t token_of(const Translating *t, const char *key, int32_t usual) {
    const Tree *number = tree_get(t->model->config, key);
    const bool given = number && number->kind == TREE_INT && number->integer >= 0 &&
                       number->integer <= INT32_MAX;
    return given ? (int32_t)number->integer : usual;
}

static Status open_translator(Translating *t, Diag *diag) {
    const Flags *flags = &t->cli->flags;
    const SpecialIds *specials = tokenizer_specials(t->target);
    t->search =
        (Search){.beam = flags->beam ? flags->beam : BEAM,
                 .length_penalty = flags->length_penalty < 0 ? 1 : flags->length_penalty,
                 .start = token_of(t, "decoder_start_token_id", specials->pad),
                 .end = token_of(t, "eos_token_id", specials->eos),
                 .vocabulary = tokenizer_size(t->target)};
    t->search.first = token_of(t, "forced_bos_token_id", -1);
    t->search.forced = t->search.first >= 0;
    t->most = flags->max_tokens ? flags->max_tokens : GENERATE_TOKENS;
    const TranslatorOptions options = {.max_length = t->most,
                                       .hypotheses = t->search.beam,
                                       .threads = threads_choose(flags->threads),
                                       .weights = flags->bf16 ? STEP_BF16 : STEP_F32};
    if (t->search.start < 0 || t->search.end < 0)
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                         "expected a tokenizer of the target with tokens for padding and "
                         "for the end of a sentence, or their numbers in the model's "
                         "configuration");
    blas_init();
    TRY(threads_reserve(options.threads, diag));
    const Status status =
        translator_create(&t->translator, t->model->graph, &options, diag);
    if (status == STATUS_MEMORY)
        diag_hint(diag, "--max-tokens %lld with --beam %lld: fewer of either take less",
                  (long long)t->most, (long long)t->search.beam);
    TRY(status);
    if (translator_vocabulary(t->translator) >= tokenizer_size(t->target))
        return STATUS_OK;
    return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                     "expected a tokenizer of at most the model's %lld tokens, found %d",
                     (long long)translator_vocabulary(t->translator),
                     (int)tokenizer_size(t->target));
}

static Status translate(Translating *t, Diag *diag) {
    Arena *arena = t->cli->arena;
    const int64_t length = (int64_t)t->sentence.length;
    int32_t *mask = ARENA_ARRAY(arena, int32_t, (size_t)length);
    Translation translation = {.tokens = ARENA_ARRAY(arena, int32_t, (size_t)t->most)};
    const Sentences sentences = {t->sentence.ids, mask, 1, length};
    const double start = ticker_seconds();
    for (int64_t i = 0; i < length; i++) mask[i] = 1;
    TRY(translator_run(t->translator, &sentences, &t->search, &translation, diag));
    const double seconds = ticker_seconds() - start;
    if (t->cli->flags.timing)
        fprintf(stderr,
                "%lld tokens read, %lld made in %.1f ms; score %.4f; threads %d\n",
                (long long)length, (long long)translation.length, 1e3 * seconds,
                translation.score, translator_threads(t->translator, 1));
    Text text = {0};
    const Status status =
        tokenizer_decode(t->target, &text, translation.tokens, (size_t)translation.length,
                         true, LOC_NONE, diag);
    if (status == STATUS_OK)
        printf("%.*s\n", (int)text.length, text.data ? text.data : "");
    text_free(&text);
    return status;
}

static Status translate_prompt(Translating *t, Diag *diag) {
    const Flags *flags = &t->cli->flags;
    const char *prompt = flags->prompt;
    const TextSpan span = {prompt, prompt ? strlen(prompt) : 0};
    if (flags->temperature > 0 || flags->top_k > 0 || flags->top_p > 0 ||
        flags->min_p > 0 || flags->repetition_penalty > 0 || flags->seed > 0)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         "expected --beam for a model that translates, which does not "
                         "sample");
    if (generate_asks_samples(flags) || flags->stop.count > 0 || flags->logprobs)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         "--count, --batch, --prompts, --output, --stop and --logprobs "
                         "are for language models, this one translates");
    if (span.length > 0) {
        TRY(open_tokenizers(t, diag));
        TRY(tokenizer_encode(t->source, &t->sentence, span, NULL, 0, LOC_FILE("--prompt"),
                             diag));
    }
    if (t->sentence.length == 0)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         "expected --prompt TEXT, a sentence to translate");
    TRY(open_translator(t, diag));
    return translate(t, diag);
}

/* Translates --prompt and prints what comes out. Tokenizers are --tokenizer, of the
 * source, and --target-tokenizer, the same one if not given; without both, in the model,
 * its folder or beside its file, source_tokenizer.json and target_tokenizer.json, or one
 * for both. Fails with STATUS_USAGE, with STATUS_MODEL when model and tokenizers do not
 * fit, or as tokenizer_read. */
static Status generate_translation(const Cli *cli, const Model *model, Diag *diag) {
    Translating t = {.cli = cli, .model = model};
    const Status status = translate_prompt(&t, diag);
    translator_destroy(t.translator);
    encoding_free(&t.sentence);
    if (t.target != t.source) tokenizer_destroy(t.target);
    tokenizer_destroy(t.source);
    return status;
}

Status command_generate(const Cli *cli, Diag *diag) {
    Model *model;
    TRY(model_load(&model, cli->args[0], ops_table(), true, diag));
    const Status status = translator_fits(model->graph)
                              ? generate_translation(cli, model, diag)
                              : generate(cli, model, diag);
    model_destroy(model);
    return status;
}
