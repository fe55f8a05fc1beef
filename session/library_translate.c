/* The library: texts that an encoder-decoder model translates. */
#include "exec/generate/translate.h"
#include "exec/run/ticker.h"
#include "session/library.h"
#include "session/text_translator.h"

#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct CompressTranslator {
    Model *model; /* a copy */
    TextTranslatorOptions options;
    Arena *arena; /* of the options' paths */
    TextTranslator *translator;
    atomic_int owner; /* the process that has its threads */
    pthread_mutex_t lock;
};

/* ---- making ---- */

typedef struct TranslatorKeys {
    int64_t max_tokens, beam;
    double length_penalty;
    const char *tokenizer, *target_tokenizer;
} TranslatorKeys;

static const Field translator_fields[] = {
    F_INT(TranslatorKeys, max_tokens, 1, 10000000, "most tokens of a translation"),
    F_INT(TranslatorKeys, beam, 1, 1024, "hypotheses; 1: greedy"),
    F_REAL(TranslatorKeys, length_penalty, 0, 100,
           "scores are sums of log-probabilities over length^X"),
    F_STRING(TranslatorKeys, tokenizer, "path of the tokenizer", .nullable = true),
    F_STRING(TranslatorKeys, target_tokenizer, "path of the other language's",
             .nullable = true),
    F_END};

static Status bind_translator(TranslatorKeys *keys, const LibraryCall *call,
                              const char *options) {
    Tree *map;
    *keys = (TranslatorKeys){
        .max_tokens = TRANSLATION_TOKENS, .beam = TRANSLATION_BEAM, .length_penalty = 1};
    TRY(library_options(&map, call, "options", options));
    return fields_bind(translator_fields, map, keys, call->arena, STATUS_USAGE,
                       call->diag);
}

static const char *keep_path(Arena *arena, const char *path) {
    return path ? arena_strdup(arena, path) : NULL;
}

static CompressTranslator *translator_of(Model *model, const TranslatorKeys *keys,
                                         int threads) {
    CompressTranslator *t = memory_alloc(1, sizeof *t);
    t->model = model_copy(model);
    t->arena = arena_create();
    t->options =
        (TextTranslatorOptions){.source = keep_path(t->arena, keys->tokenizer),
                                .target = keep_path(t->arena, keys->target_tokenizer),
                                .max_tokens = keys->max_tokens,
                                .beam = keys->beam,
                                .length_penalty = keys->length_penalty,
                                .threads = threads};
    pthread_mutex_init(&t->lock, NULL);
    return t;
}

/* Reads tokenizers and packs weights, unless this process has. Threads of another process
 * are not here to be ended: what it had made ready stays. */
static Status make_ready(CompressTranslator *t, Diag *diag) {
    if (atomic_load(&t->owner) == getpid()) return STATUS_OK;
    TextTranslator *made;
    TRY(text_translator_open(&made, t->model, NULL, &t->options, diag));
    t->translator = made;
    atomic_store(&t->owner, getpid());
    return STATUS_OK;
}

static void translator_free(CompressTranslator *t) {
    if (atomic_load(&t->owner) == getpid()) text_translator_close(t->translator);
    model_destroy(t->model);
    arena_destroy(t->arena);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

static Status prepare(CompressTranslator **out, LibraryCall *call,
                      const CompressModel *model, const char *options) {
    TranslatorKeys keys;
    TRY(library_need(call, model, "model"));
    TRY(library_need(call, out, "out"));
    TRY(bind_translator(&keys, call, options));
    if (!translator_fits(model->model->graph))
        return diag_fail(call->diag, STATUS_MODEL, LOC_NONE, NULL,
                         "expected a model that translates, of an encoder and a decoder, "
                         "found no input decoder_input_ids");
    CompressTranslator *t = translator_of(model->model, &keys, call->context->threads);
    const Status status = make_ready(t, call->diag);
    if (status == STATUS_OK)
        *out = t;
    else
        translator_free(t);
    return status;
}

CompressStatus compress_prepare_translator(CompressContext *context,
                                           const CompressModel *model,
                                           const char *options,
                                           CompressTranslator **out) {
    LibraryCall call;
    if (out) *out = NULL;
    if (!library_begin(&call, context, LIBRARY_FILES)) return COMPRESS_USAGE;
    return library_end(&call, prepare(out, &call, model, options));
}

void compress_free_translator(CompressTranslator *translator) {
    if (translator && !library_in_call()) translator_free(translator);
}

/* ---- translating ---- */

static Status take_texts(Line **out, const LibraryCall *call, const char *const *texts,
                         size_t count) {
    if (count == 0 || count > INT_MAX / 2)
        return diag_fail(call->diag, STATUS_USAGE, LOC_NONE, "count",
                         "expected 1 to %d texts, found %zu", INT_MAX / 2, count);
    TRY(library_need(call, texts, "texts"));
    Line *lines = *out = ARENA_ARRAY(call->arena, Line, count);
    for (size_t i = 0; i < count; i++) {
        const char *name = arena_printf(call->arena, "texts[%zu]", i);
        TRY(library_need(call, texts[i], name));
        lines[i] = (Line){{texts[i], strlen(texts[i])}, LOC_FILE(name)};
    }
    return STATUS_OK;
}

/* The translations as a list of maps, some of them made side by side at a time. */
static Status translate_all(Tree *list, LibraryCall *call, TextTranslator *translator,
                            const Line *texts, int64_t count) {
    TranslatedText made[TRANSLATIONS_TOGETHER];
    Ticker ticker = {.watch = &call->watch};
    int64_t some;
    for (int64_t done = 0; done < count; done += some) {
        some =
            count - done < TRANSLATIONS_TOGETHER ? count - done : TRANSLATIONS_TOGETHER;
        ticker_progress(&ticker, done, count, NAN, false);
        TRY(ticker_go_on(&ticker, call->diag));
        TRY(text_translator_run(translator, made, texts + done, some, call->arena,
                                call->diag));
        for (int64_t i = 0; i < some; i++) {
            Tree *map = tree_new(call->arena, TREE_MAP, LOC_NONE);
            translated_text_tell(map, &made[i], call->arena);
            tree_append(call->arena, list, NULL, LOC_NONE, map);
        }
    }
    return STATUS_OK;
}

/* Once no other call has the translator. */
static Status translate(LibraryCall *call, CompressTranslator *t, const Line *texts,
                        size_t count, char **json) {
    Tree *list = tree_new(call->arena, TREE_LIST, LOC_NONE);
    pthread_mutex_lock(&t->lock);
    Status status = make_ready(t, call->diag);
    library_compute(call);
    if (status == STATUS_OK)
        status = translate_all(list, call, t->translator, texts, (int64_t)count);
    pthread_mutex_unlock(&t->lock);
    if (status == STATUS_OK) *json = library_json(list);
    return status;
}

CompressStatus compress_translate(CompressContext *context,
                                  CompressTranslator *translator,
                                  const char *const *texts, size_t count, char **json) {
    LibraryCall call;
    Line *lines = NULL;
    const bool files = translator && atomic_load(&translator->owner) != getpid();
    if (json) *json = NULL;
    if (!library_begin(&call, context, files ? LIBRARY_FILES : LIBRARY_COMPUTES))
        return COMPRESS_USAGE;
    Status status = library_need(&call, translator, "translator");
    if (status == STATUS_OK) status = library_need(&call, json, "json");
    if (status == STATUS_OK) status = take_texts(&lines, &call, texts, count);
    if (status == STATUS_OK) status = translate(&call, translator, lines, count, json);
    return library_end(&call, status);
}
