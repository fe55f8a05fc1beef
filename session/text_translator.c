/* Text translator: see text_translator.h. */
#include "session/text_translator.h"

#include "exec/linalg/blas.h"
#include "exec/run/reserve.h"
#include "io/files/file.h"
#include "io/files/path.h"
#include "io/formats/model_vocabulary.h"
#include "io/tokenizers/tokenizer.h"
#include "ir/memory_array.h"
#include "ir/model_parts.h"

#include <stdlib.h>
#include <string.h>

struct TextTranslator {
    const Model *model;
    const char *path; /* of the model; NULL = none */
    TextTranslatorOptions options;
    Arena *arena;
    Tokenizer *source, *target; /* may be the same one */
    Translator *translator;
    Search search;
};

/* ---- tokenizers ---- */

/* Whether the model has its own for each language. */
static bool has_pair(const Model *model) {
    return model_asset(model, SOURCE_TOKENIZER) && model_asset(model, TARGET_TOKENIZER);
}

static const char *model_name(const TextTranslator *t) {
    return t->path ? t->path : "the model";
}

/* Finds tokenizers in the model's folder or beside its file; false = there are none. */
static bool find_beside(const TextTranslator *t, const char **source,
                        const char **target) {
    static const char *const ONE[] = {"tokenizer.json", "vocab.json", "vocab.txt",
                                      "tokenizer.model", "spiece.model"};
    if (!t->path) return false;
    const char *folder =
        path_is_folder(t->path) ? t->path : path_folder(t->arena, t->path);
    *source = path_join(t->arena, folder, SOURCE_TOKENIZER);
    *target = path_join(t->arena, folder, TARGET_TOKENIZER);
    if (path_is_file(*source) && path_is_file(*target)) return true;
    *source = *target = folder;
    for (size_t i = 0; i < sizeof ONE / sizeof *ONE; i++)
        if (path_is_file(path_join(t->arena, folder, ONE[i]))) return true;
    return false;
}

/* Where the tokenizers are; NULL: in the model. */
static Status find_tokenizers(const TextTranslator *t, const char **source,
                              const char **target, Diag *diag) {
    *source = t->options.source;
    *target = t->options.target ? t->options.target : *source;
    if (*source || has_pair(t->model)) return STATUS_OK;
    const char *beside[2];
    if (find_beside(t, &beside[0], &beside[1])) {
        *source = beside[0];
        if (!*target) *target = beside[1];
        return STATUS_OK;
    }
    if (tokenizer_of_model(t->model)) return STATUS_OK;
    diag_fail(diag, STATUS_USAGE, LOC_NONE, "tokenizer",
              "expected the path of one, and of the target's where languages have their "
              "own: %s has no tokenizer",
              model_name(t));
    if (t->path)
        diag_hint(diag, "source_tokenizer.json and target_tokenizer.json, or "
                        "tokenizer.json, are found beside the model");
    return STATUS_USAGE;
}

static Status read_source(TextTranslator *t, const char *path, Diag *diag) {
    if (path) return tokenizer_read(&t->source, path, diag);
    if (has_pair(t->model))
        return tokenizer_read_asset(&t->source, t->model, SOURCE_TOKENIZER, model_name(t),
                                    diag);
    return tokenizer_read_model(&t->source, t->model, model_name(t), diag);
}

/* The target's; t->target stays NULL where the source's is that, too. */
static Status read_target(TextTranslator *t, const char *path, const char *source,
                          Diag *diag) {
    const char *name = model_name(t);
    if (!path && has_pair(t->model))
        return tokenizer_read_asset(&t->target, t->model, TARGET_TOKENIZER, name, diag);
    if (!path) return tokenizer_read_model_target(&t->target, t->model, name, diag);
    return tokenizer_read_beside(&t->target, path, source, diag);
}

static Status open_tokenizers(TextTranslator *t, Diag *diag) {
    const char *source, *target;
    TRY(find_tokenizers(t, &source, &target, diag));
    TRY(read_source(t, source, diag));
    TRY(vocabulary_check(t->model, "the model", vocabulary_of(t->source, t->model->arena),
                         "tokenizer of the source",
                         LOC_FILE(source ? source : model_name(t)), diag));
    TRY(read_target(t, target, source, diag));
    if (!t->target) t->target = t->source;
    return STATUS_OK;
}

/* ---- the translator ---- */

/* A token that the configuration numbers, else the tokenizer's. */
static int32_t token_of(const TextTranslator *t, const char *key, int32_t usual) {
    const Tree *number = tree_get(t->model->config, key);
    const bool given = number && number->kind == TREE_INT && number->integer >= 0 &&
                       number->integer <= INT32_MAX;
    return given ? (int32_t)number->integer : usual;
}

static Status choose_search(TextTranslator *t, Diag *diag) {
    const SpecialIds *specials = tokenizer_specials(t->target);
    t->search = (Search){.beam = t->options.beam,
                         .length_penalty = t->options.length_penalty,
                         .start = token_of(t, "decoder_start_token_id", specials->pad),
                         .end = token_of(t, "eos_token_id", specials->eos),
                         .vocabulary = tokenizer_size(t->target),
                         .first = token_of(t, "forced_bos_token_id", -1)};
    t->search.forced = t->search.first >= 0;
    if (t->search.start >= 0 && t->search.end >= 0) return STATUS_OK;
    return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                     "expected a tokenizer of the target with tokens for padding and for "
                     "the end of a sentence, or their numbers in the model's "
                     "configuration");
}

static Status open_translator(TextTranslator *t, Diag *diag) {
    const TranslatorOptions options = {.max_length = t->options.max_tokens,
                                       .hypotheses = t->options.beam,
                                       .threads = t->options.threads,
                                       .weights = t->options.weights};
    TRY(choose_search(t, diag));
    blas_init();
    TRY(threads_reserve(options.threads, diag));
    const Status status =
        translator_create(&t->translator, t->model->graph, &options, diag);
    if (status == STATUS_MEMORY)
        diag_hint(diag, "%lld tokens with a beam of %lld: fewer of either take less",
                  (long long)options.max_length, (long long)options.hypotheses);
    TRY(status);
    if (translator_vocabulary(t->translator) >= tokenizer_size(t->target))
        return STATUS_OK;
    return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                     "expected a tokenizer of at most the model's %lld tokens, found %d",
                     (long long)translator_vocabulary(t->translator),
                     (int)tokenizer_size(t->target));
}

Status text_translator_open(TextTranslator **out, const Model *model, const char *path,
                            const TextTranslatorOptions *options, Diag *diag) {
    TextTranslator *t = *out = memory_alloc(1, sizeof *t);
    *t = (TextTranslator){
        .model = model, .path = path, .options = *options, .arena = arena_create()};
    Status status = open_tokenizers(t, diag);
    if (status == STATUS_OK) status = open_translator(t, diag);
    if (status == STATUS_OK) return STATUS_OK;
    text_translator_close(t);
    *out = NULL;
    return status;
}

void text_translator_close(TextTranslator *t) {
    if (!t) return;
    translator_destroy(t->translator);
    if (t->target != t->source) tokenizer_destroy(t->target);
    tokenizer_destroy(t->source);
    arena_destroy(t->arena);
    free(t);
}

int text_translator_threads(const TextTranslator *t, int64_t texts) {
    return translator_threads(t->translator, texts);
}

/* ---- texts ---- */

/* The tokens of texts, in the arena, filled up to the longest. */
static Status encode_texts(const TextTranslator *t, Sentences *out, int64_t *lengths,
                           const Line *texts, int64_t count, Arena *arena, Diag *diag) {
    const int32_t pad = tokenizer_specials(t->source)->pad;
    int32_t **rows = ARENA_ARRAY(arena, int32_t *, (size_t)count);
    Encoding encoding = {0};
    Status status = STATUS_OK;
    int64_t longest = 0;
    for (int64_t i = 0; i < count && status == STATUS_OK; i++) {
        status = tokenizer_encode(t->source, &encoding, texts[i].text, NULL, 0,
                                  texts[i].at, diag);
        if (status == STATUS_OK &&
            encoding.length <= tokenizer_overhead(t->source, false))
            status = diag_fail(diag, STATUS_USAGE, texts[i].at, NULL,
                               "expected text to translate");
        lengths[i] = (int64_t)encoding.length;
        rows[i] = memcpy(ARENA_ARRAY(arena, int32_t, encoding.length + 1), encoding.ids,
                         encoding.length * sizeof *encoding.ids);
        if (lengths[i] > longest) longest = lengths[i];
    }
    encoding_free(&encoding);
    TRY(status);
    int32_t *ids = ARENA_ARRAY(arena, int32_t, (size_t)(count * longest));
    int32_t *mask = ARENA_ARRAY(arena, int32_t, (size_t)(count * longest));
    for (int64_t i = 0; i < count * longest; i++) {
        const int64_t text = i / longest, at = i % longest;
        mask[i] = at < lengths[text];
        ids[i] = mask[i] ? rows[text][at] : pad < 0 ? 0 : pad;
    }
    *out = (Sentences){ids, mask, count, longest};
    return STATUS_OK;
}

static Status decode_text(const TextTranslator *t, TranslatedText *out,
                          const Translation *made, Loc at, Arena *arena, Diag *diag) {
    Text text = {0};
    const Status status = tokenizer_decode(t->target, &text, made->tokens,
                                           (size_t)made->length, true, at, diag);
    out->text = arena_strndup(arena, text.data ? text.data : "", text.length);
    out->made = made->length;
    out->ended = made->ended;
    out->score = made->score;
    text_free(&text);
    return status;
}

/* Says what was made of texts, but where one has no logits to search. */
static Status decode_texts(const TextTranslator *t, TranslatedText *out,
                           const Translation *made, const Line *texts, int64_t count,
                           Arena *arena, Diag *diag) {
    for (int64_t i = 0; i < count; i++) {
        if (made[i].odd)
            return diag_fail(diag, STATUS_MODEL, texts[i].at, NULL,
                             "expected finite logits, found others at token %lld of the "
                             "translation",
                             (long long)made[i].odd);
        TRY(decode_text(t, &out[i], &made[i], texts[i].at, arena, diag));
    }
    return STATUS_OK;
}

void translated_text_tell(Tree *map, const TranslatedText *made, Arena *arena) {
    tree_put_string(arena, map, "text", made->text);
    tree_put_int(arena, map, "tokens", made->made);
    tree_put_string(arena, map, "ended", made->ended ? "end" : "length");
    tree_put_real(arena, map, "score", made->score);
}

Status text_translator_run(TextTranslator *t, TranslatedText *out, const Line *texts,
                           int64_t count, Arena *arena, Diag *diag) {
    Sentences sentences;
    int32_t *tokens;
    const int64_t most = t->options.max_tokens;
    int64_t *lengths = ARENA_ARRAY(arena, int64_t, (size_t)count);
    Translation *made = ARENA_ARRAY(arena, Translation, (size_t)count);
    TRY(encode_texts(t, &sentences, lengths, texts, count, arena, diag));
    TRY(memory_array(&tokens, (size_t)most, (size_t)count * sizeof *tokens,
                     "translations", diag));
    for (int64_t i = 0; i < count; i++) {
        made[i].tokens = tokens + i * most;
        out[i].read = lengths[i];
    }
    Status status = translator_run(t->translator, &sentences, &t->search, made, diag);
    if (status == STATUS_OK)
        status = decode_texts(t, out, made, texts, count, arena, diag);
    free(tokens);
    return status;
}
