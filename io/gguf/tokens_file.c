/* Tokens and the keys of a file. See tokens.h. */
#include "io/gguf/tokens.h"

#include <string.h>

#define PREFIX "tokenizer.ggml."
#define SPACE  "\xe2\x96\x81"

static const char *const USE_KEYS[TOKEN_USES] = {
    PREFIX "bos_token_id",     PREFIX "eos_token_id",       PREFIX "unknown_token_id",
    PREFIX "padding_token_id", PREFIX "seperator_token_id", PREFIX "cls_token_id",
    PREFIX "mask_token_id"}; /* spelt as the format has it */

/* ---- writing ---- */

void tokens_put(GgufWriter *writer, const Tokens *tokens) {
    if (!tokens->model) {
        gguf_put_text(writer, PREFIX "model", "none");
        return;
    }
    Arena *arena = arena_create();
    const char **texts = ARENA_ARRAY(arena, const char *, (size_t)tokens->count);
    const bool bert = strcmp(tokens->model, "bert") == 0;
    for (int64_t i = 0; i < tokens->count; i++) {
        texts[i] = tokens->texts[i];
        if (!bert || tokens->types[i] == TOKEN_CONTROL) continue;
        /* WordPiece in llama.cpp marks the start of a word, where BERT marks what goes
         * on */
        texts[i] = strncmp(texts[i], "##", 2) == 0
                       ? texts[i] + 2
                       : arena_printf(arena, SPACE "%s", texts[i]);
    }
    gguf_put_text(writer, PREFIX "model", tokens->model);
    gguf_put_text(writer, PREFIX "pre", tokens->pre ? tokens->pre : "default");
    gguf_put_texts(writer, PREFIX "tokens", texts, tokens->count);
    if (tokens->scores)
        gguf_put_reals(writer, PREFIX "scores", tokens->scores, tokens->count);
    gguf_put_integers(writer, PREFIX "token_type", tokens->types, tokens->count);
    if (tokens->merge_count)
        gguf_put_texts(writer, PREFIX "merges", tokens->merges, tokens->merge_count);
    /* llama.cpp begins a text for BERT with the token of BOS, and ends it with that of
     * SEP */
    for (int use = 0; use < TOKEN_USES; use++) {
        int64_t id = tokens->use[use];
        if (bert && use == USE_BOS && id < 0) id = tokens->use[USE_CLS];
        if (id >= 0) gguf_put_integer(writer, USE_KEYS[use], id);
    }
    gguf_put_flag(writer, PREFIX "add_bos_token", tokens->add_bos || bert);
    gguf_put_flag(writer, PREFIX "add_eos_token", tokens->add_eos || bert);
    if (strcmp(tokens->model, "llama") == 0)
        gguf_put_flag(writer, PREFIX "add_space_prefix", tokens->add_space);
    if (tokens->chat_template)
        gguf_put_text(writer, "tokenizer.chat_template", tokens->chat_template);
    arena_destroy(arena);
}

/* ---- reading ---- */

typedef struct TokenKeys {
    const GgufFile *file;
    Arena *arena;
    Diag *diag;
} TokenKeys;

static Status fail_key(const TokenKeys *k, const char *key, const char *expected) {
    return diag_fail(k->diag, STATUS_FORMAT, LOC_FILE(k->file->path), key, "expected %s",
                     expected);
}

/* A string of a file, which must be UTF-8 without NUL. */
static Status take_text(const TokenKeys *k, const char *key, TextSpan span,
                        const char **out) {
    char *text = arena_strndup(k->arena, span.text, span.length);
    *out = text;
    return strlen(text) == span.length && utf8_is_valid(text)
               ? STATUS_OK
               : fail_key(k, key, "strings of UTF-8");
}

/* A single string, NULL without the key. */
static Status read_string(const TokenKeys *k, const char *key, const char **out) {
    const GgufPair *pair = gguf_find(k->file, key);
    *out = NULL;
    if (!pair) return STATUS_OK;
    if (pair->kind != GGUF_STRING || pair->array) return fail_key(k, key, "a string");
    return take_text(k, key, pair->strings[0], out);
}

static Status read_strings(const TokenKeys *k, const char *key, const char ***out,
                           int64_t *count) {
    const GgufPair *pair = gguf_find(k->file, key);
    if (!pair || pair->kind != GGUF_STRING || !pair->array)
        return fail_key(k, key, "a list of strings");
    *count = pair->count;
    *out = ARENA_ARRAY(k->arena, const char *, (size_t)pair->count + 1);
    for (int64_t i = 0; i < pair->count; i++)
        TRY(take_text(k, key, pair->strings[i], &(*out)[i]));
    return STATUS_OK;
}

static Status read_flag(const TokenKeys *k, const char *key, bool fallback, bool *out) {
    const GgufPair *pair = gguf_find(k->file, key);
    int64_t value = fallback;
    if (pair && (pair->array || !gguf_integer(pair, 0, &value)))
        return fail_key(k, key, "true or false");
    *out = value != 0;
    return STATUS_OK;
}

static Status read_types(const TokenKeys *k, Tokens *out) {
    const char *key = PREFIX "token_type";
    const GgufPair *pair = gguf_find(k->file, key);
    out->types = ARENA_ARRAY(k->arena, int64_t, (size_t)out->count + 1);
    for (int64_t i = 0; i < out->count; i++) {
        out->types[i] = TOKEN_NORMAL;
        if (pair &&
            (pair->count != out->count || !gguf_integer(pair, i, &out->types[i]) ||
             out->types[i] < 0 || out->types[i] > TOKEN_BYTE))
            return fail_key(k, key, "a type from 1 to 6 for each token");
    }
    return STATUS_OK;
}

static Status read_scores(const TokenKeys *k, Tokens *out) {
    const char *key = PREFIX "scores";
    const GgufPair *pair = gguf_find(k->file, key);
    out->scores = ARENA_ARRAY(k->arena, double, (size_t)out->count + 1);
    for (int64_t i = 0; i < out->count; i++)
        if (!pair || pair->count != out->count || !gguf_real(pair, i, &out->scores[i]) ||
            out->scores[i] != out->scores[i])
            return fail_key(k, key, "a number for each token");
    return STATUS_OK;
}

static Status read_uses(const TokenKeys *k, Tokens *out) {
    for (int use = 0; use < TOKEN_USES; use++) {
        const GgufPair *pair = gguf_find(k->file, USE_KEYS[use]);
        out->use[use] = -1;
        if (!pair) continue;
        if (pair->array || !gguf_integer(pair, 0, &out->use[use]) || out->use[use] < -1)
            return fail_key(k, USE_KEYS[use], "the number of a token");
        if (out->use[use] >= out->count)
            out->use[use] = -1; /* 2^32 - 1 stands for none */
    }
    return STATUS_OK;
}

/* The marks of words turned back. */
static void unmark_words(const TokenKeys *k, Tokens *out) {
    const size_t mark = strlen(SPACE);
    for (int64_t i = 0; i < out->count; i++) {
        const char *text = out->texts[i];
        if (out->types[i] == TOKEN_CONTROL || out->types[i] == TOKEN_UNUSED) continue;
        out->texts[i] = strncmp(text, SPACE, mark) == 0
                            ? text + mark
                            : arena_printf(k->arena, "##%s", text);
    }
}

/* Whether there is a tokenizer of a kind that is known here; a warning where there is
 * another. */
static bool knows_kind(const TokenKeys *k, const Tokens *out) {
    static const char *const KINDS[] = {"llama", "gpt2", "bert"};
    bool known = false;
    if (!out->model || strcmp(out->model, "none") == 0) return false;
    for (int i = 0; i < 3; i++) known |= strcmp(out->model, KINDS[i]) == 0;
    if (!known)
        diag_warn(k->diag, LOC_FILE(k->file->path), PREFIX "model",
                  "the tokenizer is left out: '%.40s' is not known", out->model);
    if (known && strcmp(out->model, "gpt2") == 0 &&
        !(out->pre && word_cut_by_name(out->pre))) {
        diag_warn(k->diag, LOC_FILE(k->file->path), PREFIX "pre",
                  "the tokenizer is left out: '%.40s' is not known",
                  out->pre ? out->pre : "none");
        known = false;
    }
    return known;
}

Status tokens_of_file(Tokens *out, Arena *arena, const GgufFile *file, int64_t rows,
                      Diag *diag) {
    const TokenKeys k = {file, arena, diag};
    *out = (Tokens){.lowercase = true};
    for (int use = 0; use < TOKEN_USES; use++) out->use[use] = -1;
    TRY(read_string(&k, PREFIX "model", &out->model));
    TRY(read_string(&k, PREFIX "pre", &out->pre));
    if (!knows_kind(&k, out)) {
        out->model = NULL;
        return STATUS_OK;
    }
    const bool pieces = strcmp(out->model, "llama") == 0;
    const bool bert = strcmp(out->model, "bert") == 0;
    TRY(read_strings(&k, PREFIX "tokens", &out->texts, &out->count));
    if (out->count > rows)
        return fail_key(&k, PREFIX "tokens", "no more tokens than token_embd.weight has");
    TRY(read_types(&k, out));
    if (pieces) TRY(read_scores(&k, out));
    if (!pieces && !bert)
        TRY(read_strings(&k, PREFIX "merges", &out->merges, &out->merge_count));
    if (bert) unmark_words(&k, out);
    TRY(read_uses(&k, out));
    TRY(read_flag(&k, PREFIX "add_bos_token", pieces, &out->add_bos));
    TRY(read_flag(&k, PREFIX "add_eos_token", false, &out->add_eos));
    TRY(read_flag(&k, PREFIX "add_space_prefix", pieces, &out->add_space));
    return read_string(&k, "tokenizer.chat_template", &out->chat_template);
}
