/* compress generate: translations. See generate_translation.h. */
#include "cli/generate_translation.h"

#include "exec/generate/translate.h"
#include "exec/linalg/blas.h"
#include "exec/run/ticker.h"
#include "io/files/file.h"
#include "io/formats/model_vocabulary.h"
#include "io/tokenizers/tokenizer.h"
#include "session/session.h"

#include <stdio.h>
#include <string.h>

enum { BEAM = 4 }; /* unless --beam says otherwise */

typedef struct Translating {
    const Cli *cli;
    const Model *model;
    Tokenizer *source, *target; /* may be the same one */
    Encoding sentence;
    Translator *translator;
    Search search;
    int64_t most; /* tokens */
} Translating;

/* ---- tokenizers ---- */

static Status fail_tokenizer(const char *folder, Diag *diag) {
    diag_fail(
        diag, STATUS_USAGE, LOC_NONE, NULL,
        "expected --tokenizer PATH, and --target-tokenizer where the languages have "
        "their own: %s has no tokenizer",
        folder);
    diag_hint(diag, "source_tokenizer.json and target_tokenizer.json, or tokenizer.json, "
                    "are found beside the model");
    return STATUS_USAGE;
}

/* Where the tokenizers are: as the flags say, or beside the model. */
static Status find_tokenizers(const Translating *t, const char **source,
                              const char **target, Diag *diag) {
    static const char *const ONE[] = {"tokenizer.json", "vocab.json", "vocab.txt"};
    const Flags *flags = &t->cli->flags;
    Arena *arena = t->cli->arena;
    const char *model = t->cli->args[0];
    const char *folder = path_is_folder(model) ? model : path_folder(arena, model);
    *source = flags->tokenizer;
    *target = flags->target_tokenizer ? flags->target_tokenizer : *source;
    if (*source) return STATUS_OK;
    *source = path_join(arena, folder, "source_tokenizer.json");
    *target = path_join(arena, folder, "target_tokenizer.json");
    if (path_is_file(*source) && path_is_file(*target)) return STATUS_OK;
    for (size_t i = 0; i < sizeof ONE / sizeof *ONE; i++) {
        if (!path_is_file(path_join(arena, folder, ONE[i]))) continue;
        *source = *target = folder;
        return STATUS_OK;
    }
    return fail_tokenizer(folder, diag);
}

static Status open_tokenizers(Translating *t, Diag *diag) {
    const char *source, *target;
    TRY(find_tokenizers(t, &source, &target, diag));
    if (t->cli->flags.target_tokenizer) target = t->cli->flags.target_tokenizer;
    TRY(tokenizer_read(&t->source, source, diag));
    TRY(vocabulary_check(t->model, "the model", vocabulary_of(t->source, t->model->arena),
                         "tokenizer of the source", LOC_FILE(source), diag));
    if (strcmp(source, target) != 0) return tokenizer_read(&t->target, target, diag);
    t->target = t->source;
    return STATUS_OK;
}

/* ---- the search ---- */

static Status check_flags(const Flags *flags, Diag *diag) {
    if (flags->temperature > 0 || flags->top_k > 0 || flags->top_p > 0)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         "expected --beam for a model that translates, which does not "
                         "sample");
    if (flags->prompt && *flags->prompt) return STATUS_OK;
    return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                     "expected --prompt TEXT, a sentence to translate");
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
    TRY(translator_create(&t->translator, t->model->graph, &options, diag));
    if (translator_vocabulary(t->translator) >= tokenizer_size(t->target))
        return STATUS_OK;
    return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                     "expected a tokenizer of at most the model's %lld tokens, found %d",
                     (long long)translator_vocabulary(t->translator),
                     (int)tokenizer_size(t->target));
}

/* ---- the sentence ---- */

static Status read_sentence(Translating *t, Diag *diag) {
    const char *prompt = t->cli->flags.prompt;
    const TextSpan span = {prompt, strlen(prompt)};
    TRY(tokenizer_encode(t->source, &t->sentence, span, NULL, 0, LOC_FILE("--prompt"),
                         diag));
    if (t->sentence.length > 0) return STATUS_OK;
    return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                     "expected --prompt TEXT, a sentence to translate");
}

static Status show(const Translating *t, const Translation *translation, Diag *diag) {
    Text text = {0};
    const Status status =
        tokenizer_decode(t->target, &text, translation->tokens,
                         (size_t)translation->length, true, LOC_NONE, diag);
    if (status == STATUS_OK)
        printf("%.*s\n", (int)text.length, text.data ? text.data : "");
    text_free(&text);
    return status;
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
    return show(t, &translation, diag);
}

static Status run(Translating *t, Diag *diag) {
    TRY(check_flags(&t->cli->flags, diag));
    TRY(open_tokenizers(t, diag));
    TRY(read_sentence(t, diag));
    TRY(open_translator(t, diag));
    return translate(t, diag);
}

Status generate_translation(const Cli *cli, const Model *model, Diag *diag) {
    Translating t = {.cli = cli, .model = model};
    const Status status = run(&t, diag);
    translator_destroy(t.translator);
    encoding_free(&t.sentence);
    if (t.target != t.source) tokenizer_destroy(t.target);
    tokenizer_destroy(t.source);
    return status;
}
