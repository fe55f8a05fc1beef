/* Vocabularies of models and data: see model_vocabulary.h. */
#include "io/model_vocabulary.h"

#include "ir/tensor.h"

#include <inttypes.h>
#include <string.h>

/* Every token and a 0 behind it, in order; numbers without a token count as "". */
static void hash_tokens(const Tokenizer *tokenizer, char out[HASH_TEXT_BYTES]) {
    Text all = {0};
    for (int32_t id = 0; id < tokenizer_size(tokenizer); id++) {
        const char *token = tokenizer_token(tokenizer, id);
        text_bytes(&all, token ? token : "", (token ? strlen(token) : 0) + 1);
    }
    bytes_hash(all.data, all.length, out);
    text_free(&all);
}

void vocabulary_of_data(Batches *data, const Tokenizer *tokenizer, Arena *arena) {
    char hash[HASH_TEXT_BYTES];
    hash_tokens(tokenizer, hash);
    data->vocabulary = arena_strdup(arena, hash);
    data->vocabulary_tokens = tokenizer_size(tokenizer);
}

static void put_note(Model *model, const char *hash, int64_t tokens) {
    Tree *note = tree_new(model->arena, TREE_MAP, LOC_NONE);
    tree_put_int(model->arena, note, "tokens", tokens);
    tree_put_string(model->arena, note, "hash", hash);
    tree_append(model->arena, model->provenance, "vocabulary", LOC_NONE, note);
}

void vocabulary_note(Model *model, const char *folder) {
    Tokenizer *tokenizer = NULL;
    if (!graph_find_input(model->graph, "input_ids")) return;
    Diag *diag = diag_create(); /* whoever reads texts will report what is damaged */
    if (tokenizer_read(&tokenizer, folder, diag) == STATUS_OK) {
        char hash[HASH_TEXT_BYTES];
        hash_tokens(tokenizer, hash);
        put_note(model, hash, tokenizer_size(tokenizer));
        tokenizer_destroy(tokenizer);
    }
    diag_destroy(diag);
}

void vocabulary_adopt(Model *model, const Batches *data) {
    if (!data->vocabulary || tree_get(model->provenance, "vocabulary")) return;
    put_note(model, data->vocabulary, data->vocabulary_tokens);
}

/* The note of a model; false when it has none that can be read. */
static bool read_note(const Model *model, const char **hash, int64_t *tokens) {
    const Tree *note = tree_get(model->provenance, "vocabulary");
    const Tree *count = tree_get(note, "tokens"), *text = tree_get(note, "hash");
    if (!count || count->kind != TREE_INT || !text || text->kind != TREE_STRING)
        return false;
    *hash = text->string;
    *tokens = count->integer;
    return true;
}

/* Compares so many tokens of this hash, which `what` has, with the model's. */
static Status compare(const Model *model, const char *hash, int64_t count,
                      const char *what, Loc at, Diag *diag) {
    const char *known;
    int64_t tokens;
    if (!read_note(model, &known, &tokens) || strcmp(known, hash) == 0) return STATUS_OK;
    if (tokens != count) {
        diag_warn(diag, at, NULL,
                  "%s: expected the model's %" PRId64 " tokens, found %" PRId64, what,
                  tokens, count);
        return STATUS_OK;
    }
    diag_fail(diag, STATUS_MODEL, at, NULL,
              "%s: expected the model's %" PRId64 " tokens, found others", what, tokens);
    diag_hint(diag, "the numbers of tokens mean something in the vocabulary that a model "
                    "was trained with, and nothing in another");
    return STATUS_MODEL;
}

Status vocabulary_check(const Model *model, const Batches *data, const char *name, Loc at,
                        Diag *diag) {
    Text what = {0};
    if (!data->vocabulary) return STATUS_OK;
    text_add(&what, "tokenizer of data set \"%s\"", name);
    const Status status =
        compare(model, data->vocabulary, data->vocabulary_tokens, what.data, at, diag);
    text_free(&what);
    return status;
}

Status vocabulary_check_model(const Model *model, const Model *other, const char *path,
                              Loc at, Diag *diag) {
    const char *hash;
    int64_t tokens;
    return read_note(other, &hash, &tokens) ? compare(model, hash, tokens, path, at, diag)
                                            : STATUS_OK;
}

Status vocabulary_check_tokenizer(const Model *model, const Tokenizer *tokenizer, Loc at,
                                  Diag *diag) {
    char hash[HASH_TEXT_BYTES];
    hash_tokens(tokenizer, hash);
    return compare(model, hash, tokenizer_size(tokenizer), "the tokenizer", at, diag);
}
