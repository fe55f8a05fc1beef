/* The library: texts that a language model writes. */
#include "exec/generate/decode.h"
#include "exec/generate/sample.h"
#include "passes/nodes.h"
#include "session/library.h"
#include "session/made_text.h"
#include "session/prompt.h"
#include "session/user_inputs.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- writers ---- */

enum { CONTEXT = 2048, MADE = 128 }; /* tokens, unless the caller says otherwise */

/* What the writers of a model share. */
typedef struct WriterShared {
    atomic_int references;
    Model *model; /* a copy */
    Tokenizer *tokenizer;
} WriterShared;

struct CompressWriter {
    WriterShared *shared;
    int64_t context; /* most tokens; 0 = not known yet */
    Decoder *decoder;
    int threads;     /* of it */
    pid_t owner;     /* the process that has them */
    int32_t *tokens; /* that it has read */
    int64_t room;    /* for so many */
    pthread_mutex_t lock;
};

static void drop_shared(WriterShared *shared) {
    if (atomic_fetch_sub(&shared->references, 1) > 1) return;
    tokenizer_destroy(shared->tokenizer);
    model_destroy(shared->model);
    free(shared);
}

/* Threads of another process are not here to be ended. */
static void drop_decoder(CompressWriter *writer) {
    if (writer->owner == getpid()) decoder_destroy(writer->decoder);
    writer->decoder = NULL;
}

static void writer_close(CompressWriter *writer) {
    drop_decoder(writer);
    free(writer->tokens);
    drop_shared(writer->shared);
    pthread_mutex_destroy(&writer->lock);
}

static void writer_free(CompressWriter *writer) {
    writer_close(writer);
    free(writer);
}

static void writer_open(CompressWriter *writer, WriterShared *shared, int64_t context) {
    *writer = (CompressWriter){.shared = shared, .context = context};
    pthread_mutex_init(&writer->lock, NULL);
    atomic_fetch_add(&shared->references, 1);
}

static Status writer_of_model(CompressWriter *writer, const LibraryCall *call,
                              Model *model, const char *tokenizer) {
    WriterShared *shared = memory_alloc(1, sizeof *shared);
    shared->model = model_copy(model);
    writer_open(writer, shared, 0);
    TRY(decoder_check(shared->model->graph, call->diag));
    return user_tokenizer_read(&shared->tokenizer, tokenizer, shared->model, "the model",
                               call->diag);
}

/* With the weights of the decoder `like`; NULL = packs them. */
static Status create_decoder(Decoder **out, const CompressWriter *writer,
                             const Decoder *like, const LibraryCall *call) {
    const DecodeOptions options = {.capacity = writer->context,
                                   .threads = call->context->threads};
    if (like) return decoder_create_beside(out, like, options.threads, call->diag);
    TRY(decoder_create(out, writer->shared->model->graph, &options, call->diag));
    return prompt_check_vocabulary(writer->shared->model, decoder_vocabulary(*out),
                                   writer->shared->tokenizer, call->diag);
}

/* Makes the decoder, unless it is there and has the call's threads. */
static Status make_ready(CompressWriter *writer, const Decoder *like,
                         const LibraryCall *call) {
    const int threads = call->context->threads;
    Decoder *made = NULL;
    if (writer->decoder && writer->threads == threads && writer->owner == getpid())
        return STATUS_OK;
    const Status status = create_decoder(&made, writer, like, call);
    if (status != STATUS_OK) {
        decoder_destroy(made);
        return status;
    }
    drop_decoder(writer);
    writer->decoder = made;
    writer->threads = threads;
    writer->owner = getpid();
    return STATUS_OK;
}

/* ---- a text ---- */

typedef struct WriteKeys {
    int64_t max_tokens, top_k, seed;
    double temperature, top_p, min_p, repetition_penalty;
    StringList stop;
    const char *tokenizer; /* of compress_generate */
} WriteKeys;

static const WriteKeys write_defaults = {.top_p = 1, .repetition_penalty = 1};

#define WRITE_FIELDS                                                                     \
    F_INT(WriteKeys, max_tokens, 1, 10000000, "most tokens to make"),                    \
        F_REAL(WriteKeys, temperature, 0, 1000, "divides the logits; 0: the likeliest"), \
        F_INT(WriteKeys, top_k, 0, 10000000, "of the most likely ones only; 0 = all"),   \
        F_REAL(WriteKeys, top_p, 1e-9, 1, "of the least set that reaches this"),         \
        F_REAL(WriteKeys, min_p, 0, 1, "of those at least this times the likeliest"),    \
        F_REAL(WriteKeys, repetition_penalty, 1e-9, 1000, "of tokens that were there"),  \
        F_INT(WriteKeys, seed, 0, 1000000000000, "of what is drawn"),                    \
        F_STRINGS(WriteKeys, stop, "texts in front of which it ends")

static const Field write_fields[] = {WRITE_FIELDS, F_END};
static const Field generate_fields[] = {
    WRITE_FIELDS,
    F_STRING(WriteKeys, tokenizer, "path of the tokenizer", .nullable = true), F_END};

typedef struct Writing {
    LibraryCall *call;
    CompressWriter *writer;
    WriteKeys keys;
    int32_t *prompt;
    int64_t prompt_count;
    Sampler *sampler;
    MadeText text;
    size_t given; /* bytes of it that `piece` has had */
    int (*piece)(void *self, const char *text);
    void *self;
} Writing;

static Status bind_keys(Writing *w, const Field *fields, const char *options) {
    Tree *map;
    w->keys = write_defaults;
    TRY(library_options(&map, w->call, "options", options));
    return fields_bind(fields, map, &w->keys, w->call->arena, STATUS_USAGE,
                       w->call->diag);
}

/* Tokens to make, of which nobody said how many: a writer may have room for fewer. */
static int64_t usual_tokens(const Writing *w) {
    const int64_t left = w->writer->context - w->prompt_count;
    return w->writer->context > 0 && left < MADE && left > 0 ? left : MADE;
}

/* Whether the writer has room for prompt and text. */
static Status check_context(const Writing *w) {
    const int64_t context = w->writer->context;
    if (context == 0 || w->prompt_count + w->keys.max_tokens <= context) return STATUS_OK;
    const Status status = diag_fail(
        w->call->diag, STATUS_USAGE, LOC_NONE, "max_tokens",
        "expected at most %lld tokens, the writer's context, found a prompt of %lld and "
        "%lld to make",
        (long long)context, (long long)w->prompt_count, (long long)w->keys.max_tokens);
    diag_hint(w->call->diag, "prepare the writer with a larger `context`");
    return status;
}

static Status find_prompt(Writing *w, const char *prompt) {
    LibraryCall *call = w->call;
    TRY(prompt_tokens(&w->prompt, &w->prompt_count, call->arena,
                      w->writer->shared->tokenizer, (TextSpan){prompt, strlen(prompt)},
                      LOC_FILE("prompt"), call->diag));
    if (w->keys.max_tokens == 0) w->keys.max_tokens = usual_tokens(w);
    TRY(check_context(w));
    return prompt_check_positions(w->writer->shared->model, w->prompt_count,
                                  w->keys.max_tokens, call->diag);
}

/* Notes tokens that the decoder reads behind those that it has. */
static void note_tokens(CompressWriter *writer, const int32_t *tokens, int64_t count) {
    const int64_t known = decoder_position(writer->decoder);
    if (known + count > writer->room) {
        writer->room = 2 * (known + count);
        writer->tokens =
            memory_grow(writer->tokens, (size_t)writer->room, sizeof *writer->tokens);
    }
    memcpy(writer->tokens + known, tokens, (size_t)count * sizeof *tokens);
}

/* Has the decoder read the prompt, of which it may have the beginning. What was read of
 * one that it could not read to its end has no logits. */
static Status read_prompt(const Writing *w) {
    CompressWriter *writer = w->writer;
    int64_t known = decoder_position(writer->decoder);
    if (known > w->prompt_count ||
        (known > 0 &&
         memcmp(writer->tokens, w->prompt, (size_t)known * sizeof *w->prompt) != 0)) {
        decoder_reset(writer->decoder);
        known = 0;
    }
    const int64_t more = w->prompt_count - known;
    if (more == 0) return STATUS_OK;
    note_tokens(writer, w->prompt + known, more);
    const Status status =
        decoder_append(writer->decoder, w->prompt + known, more, w->call->diag);
    if (status != STATUS_OK) decoder_reset(writer->decoder);
    return status;
}

static Status step(const Writing *w, int32_t token) {
    CompressWriter *writer = w->writer;
    note_tokens(writer, &token, 1);
    return decoder_step(writer->decoder, token, w->call->diag);
}

/* Hands over what has become certain; false where the caller wants no more, and is given
 * no more. */
static bool give_piece(Writing *w) {
    const MadeText *text = &w->text;
    if (!w->piece || text->certain == w->given) return true;
    Text piece = {0};
    text_bytes(&piece, text->made.data + w->given, text->certain - w->given);
    w->given = text->certain;
    library_leave(w->call);
    const bool ends = w->piece(w->self, piece.data) != 0;
    library_return();
    text_free(&piece);
    if (ends) w->piece = NULL;
    return !ends;
}

/* Makes tokens until the text ends. */
static Status make_tokens(Writing *w) {
    Decoder *decoder = w->writer->decoder;
    const int64_t most = w->keys.max_tokens;
    int32_t ends[2];
    made_text_ends(ends, &w->keys.stop, w->writer->shared->tokenizer);
    Ticker ticker = {.watch = &w->call->watch};
    for (int64_t made = 0; made < most && !w->text.stopped; made++) {
        ticker_progress(&ticker, made, most, NAN, false);
        TRY(ticker_go_on(&ticker, w->call->diag));
        const int32_t token =
            sampler_draw(w->sampler, decoder_logits(decoder), decoder_position(decoder));
        if (token < 0) return sampler_fail(made, most, w->call->diag);
        if (token == ends[0] || token == ends[1]) break;
        sampler_see(w->sampler, &token, 1);
        TRY(made_text_add(&w->text, token, w->call->diag));
        if (!give_piece(w)) break;
        if (made + 1 < most && !w->text.stopped) TRY(step(w, token));
    }
    made_text_finish(&w->text);
    give_piece(w);
    return STATUS_OK;
}

static Status write_text(Writing *w) {
    const WriteKeys *keys = &w->keys;
    const Sampling sampling = {.temperature = keys->temperature,
                               .top_k = keys->top_k,
                               .top_p = keys->top_p,
                               .min_p = keys->min_p,
                               .repetition_penalty = keys->repetition_penalty,
                               .seed = (uint64_t)keys->seed};
    TRY(make_ready(w->writer, w->writer->decoder, w->call));
    decoder_watch(w->writer->decoder, &w->call->watch);
    w->sampler = sampler_create(decoder_vocabulary(w->writer->decoder));
    sampler_start(w->sampler, &sampling);
    sampler_see(w->sampler, w->prompt, w->prompt_count);
    Status status = read_prompt(w);
    if (status == STATUS_OK)
        status = made_text_start(&w->text, w->writer->shared->tokenizer, &keys->stop,
                                 w->prompt, w->prompt_count, w->call->diag);
    if (status == STATUS_OK) status = make_tokens(w);
    decoder_watch(w->writer->decoder, NULL);
    return status;
}

/* Gives the text, or where it could not be made nothing, and frees the rest. */
static Status writing_end(Writing *w, Status status, char **text) {
    if (status == STATUS_OK && text) {
        *text = strdup(w->text.made.data ? w->text.made.data : "");
        if (!*text)
            status = diag_fail(w->call->diag, STATUS_MEMORY, LOC_NONE, NULL,
                               "expected memory for the text");
    }
    made_text_free(&w->text);
    sampler_destroy(w->sampler);
    return status;
}

/* ---- calls ---- */

CompressStatus compress_generate(CompressContext *context, const CompressModel *model,
                                 const char *prompt, const char *options, char **text) {
    LibraryCall call;
    CompressWriter writer;
    Writing w = {.call = &call, .writer = &writer};
    if (text) *text = NULL;
    if (!library_begin(&call, context, LIBRARY_FILES)) return COMPRESS_USAGE;
    Status status = library_need(&call, model, "model");
    if (status == STATUS_OK) status = library_need(&call, text, "text");
    if (status == STATUS_OK) status = bind_keys(&w, generate_fields, options);
    if (status != STATUS_OK) return library_end(&call, status);
    status = writer_of_model(&writer, &call, model->model, w.keys.tokenizer);
    library_compute(&call);
    if (status == STATUS_OK) status = find_prompt(&w, prompt ? prompt : "");
    writer.context = w.prompt_count + w.keys.max_tokens;
    if (status == STATUS_OK) status = write_text(&w);
    status = writing_end(&w, status, text);
    writer_close(&writer);
    return library_end(&call, status);
}

typedef struct WriterKeys {
    int64_t context;
    const char *tokenizer;
} WriterKeys;

static const Field writer_fields[] = {
    F_INT(WriterKeys, context, 1, 1000000000, "most tokens of a prompt and its text"),
    F_STRING(WriterKeys, tokenizer, "path of the tokenizer", .nullable = true), F_END};

static Status bind_writer(WriterKeys *keys, const LibraryCall *call, const Model *model,
                          const char *options) {
    Tree *map;
    const int64_t positions = graph_positions(model->graph);
    const bool fewer = positions > 0 && positions < CONTEXT;
    *keys = (WriterKeys){.context = fewer ? positions : CONTEXT};
    TRY(library_options(&map, call, "options", options));
    return fields_bind(writer_fields, map, keys, call->arena, STATUS_USAGE, call->diag);
}

/* Hands a writer out, once it is ready. */
static Status give_writer(CompressWriter **out, CompressWriter *writer,
                          const Decoder *like, const LibraryCall *call, Status status) {
    if (status == STATUS_OK) status = make_ready(writer, like, call);
    if (status == STATUS_OK)
        *out = writer;
    else
        writer_free(writer);
    return status;
}

CompressStatus compress_prepare_writer(CompressContext *context,
                                       const CompressModel *model, const char *options,
                                       CompressWriter **out) {
    LibraryCall call;
    WriterKeys keys;
    if (out) *out = NULL;
    if (!library_begin(&call, context, LIBRARY_FILES)) return COMPRESS_USAGE;
    Status status = library_need(&call, model, "model");
    if (status == STATUS_OK) status = library_need(&call, out, "out");
    if (status == STATUS_OK) status = bind_writer(&keys, &call, model->model, options);
    if (status != STATUS_OK) return library_end(&call, status);
    CompressWriter *writer = memory_alloc(1, sizeof *writer);
    status = writer_of_model(writer, &call, model->model, keys.tokenizer);
    library_compute(&call);
    writer->context = keys.context;
    return library_end(&call, give_writer(out, writer, NULL, &call, status));
}

/* With the weights of `like`, once it is not writing. */
static Status copy_writer(CompressWriter **out, CompressWriter *like,
                          const LibraryCall *call) {
    CompressWriter *writer = memory_alloc(1, sizeof *writer);
    writer_open(writer, like->shared, like->context);
    pthread_mutex_lock(&like->lock);
    const Status status = give_writer(out, writer, like->decoder, call, STATUS_OK);
    pthread_mutex_unlock(&like->lock);
    return status;
}

CompressStatus compress_copy_writer(CompressContext *context, CompressWriter *writer,
                                    CompressWriter **out) {
    LibraryCall call;
    if (out) *out = NULL;
    if (!library_begin(&call, context, LIBRARY_COMPUTES)) return COMPRESS_USAGE;
    Status status = library_need(&call, writer, "writer");
    if (status == STATUS_OK) status = library_need(&call, out, "out");
    if (status == STATUS_OK) status = copy_writer(out, writer, &call);
    return library_end(&call, status);
}

CompressStatus compress_write(CompressContext *context, CompressWriter *writer,
                              const char *prompt, const char *options,
                              int (*piece)(void *self, const char *text), void *self,
                              char **text) {
    LibraryCall call;
    Writing w = {.call = &call, .writer = writer, .piece = piece, .self = self};
    if (text) *text = NULL;
    if (!library_begin(&call, context, LIBRARY_COMPUTES)) return COMPRESS_USAGE;
    Status status = library_need(&call, writer, "writer");
    if (status == STATUS_OK) status = bind_keys(&w, write_fields, options);
    if (status != STATUS_OK) return library_end(&call, status);
    pthread_mutex_lock(&writer->lock);
    status = find_prompt(&w, prompt ? prompt : "");
    if (status == STATUS_OK) status = write_text(&w);
    pthread_mutex_unlock(&writer->lock);
    return library_end(&call, writing_end(&w, status, text));
}

void compress_free_writer(CompressWriter *writer) {
    if (writer && !library_in_call()) writer_free(writer);
}
