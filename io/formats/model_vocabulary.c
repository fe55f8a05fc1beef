/* Vocabularies of models and texts: see model_vocabulary.h. */
#include "io/formats/model_vocabulary.h"

#include "ir/tensor.h"

#include <inttypes.h>
#include <string.h>

/* Tokens of a sample, evenly spaced; and the most that a note is believed to be of. */
enum { SAMPLE = 64, TOKENS_MAX = 1 << 30 };

const TokenNames *vocabulary_of(const Tokenizer *tokenizer, Arena *arena) {
    const int32_t count = tokenizer_size(tokenizer);
    TokenNames *vocabulary = ARENA_NEW(arena, TokenNames);
    const char **tokens = ARENA_ARRAY(arena, const char *, (size_t)count + 1);
    for (int32_t id = 0; id < count; id++) {
        const char *token = tokenizer_token(tokenizer, id);
        tokens[id] = token ? arena_strdup(arena, token) : "";
    }
    *vocabulary = (TokenNames){.tokens = tokens, .count = count};
    return vocabulary;
}

/* Every token and a 0 behind it, in order. */
static void hash_tokens(const TokenNames *vocabulary, char out[HASH_TEXT_BYTES]) {
    Text all = {0};
    for (int64_t id = 0; id < vocabulary->count; id++)
        text_bytes(&all, vocabulary->tokens[id], strlen(vocabulary->tokens[id]) + 1);
    bytes_hash(all.data, all.length, out);
    text_free(&all);
}

/* ---- the note ---- */

/* Number of the i-th of `count` tokens that are sampled of so many. */
static int64_t sampled(int64_t tokens, int64_t i, int64_t count) {
    return i * tokens / count;
}

void vocabulary_note(Model *model, const TokenNames *vocabulary) {
    if (!vocabulary || tree_get(model->provenance, "vocabulary")) return;
    Arena *arena = model->arena;
    char hash[HASH_TEXT_BYTES];
    hash_tokens(vocabulary, hash);
    Tree *note = tree_new(arena, TREE_MAP, LOC_NONE);
    Tree *sample = tree_new(arena, TREE_LIST, LOC_NONE);
    const int64_t count = vocabulary->count < SAMPLE ? vocabulary->count : SAMPLE;
    for (int64_t i = 0; i < count; i++) {
        Tree *token = tree_new(arena, TREE_STRING, LOC_NONE);
        token->string =
            arena_strdup(arena, vocabulary->tokens[sampled(vocabulary->count, i, count)]);
        tree_append(arena, sample, NULL, LOC_NONE, token);
    }
    tree_put_int(arena, note, "tokens", vocabulary->count);
    tree_put_string(arena, note, "hash", hash);
    tree_append(arena, note, "sample", LOC_NONE, sample);
    tree_append(arena, model->provenance, "vocabulary", LOC_NONE, note);
}

void vocabulary_note_own(Model *model) {
    Tokenizer *tokenizer = NULL;
    if (tree_get(model->provenance, "vocabulary")) return;
    if (!graph_find_input(model->graph, "input_ids")) return;
    Diag *diag = diag_create(); /* whoever reads texts will report what is damaged */
    if (tokenizer_read_model(&tokenizer, model, "", diag) == STATUS_OK) {
        Arena *arena = arena_create();
        vocabulary_note(model, vocabulary_of(tokenizer, arena));
        arena_destroy(arena);
        tokenizer_destroy(tokenizer);
    }
    diag_destroy(diag);
}

/* A note as it was read; a model file may hold anything in its place. */
typedef struct VocabularyNote {
    int64_t tokens;
    const char *hash;
    const Tree *sample; /* a list of strings */
} VocabularyNote;

static bool read_note(VocabularyNote *out, const Model *model) {
    const Tree *note = tree_get(model->provenance, "vocabulary");
    const Tree *tokens = tree_get(note, "tokens"), *hash = tree_get(note, "hash");
    const Tree *sample = tree_get(note, "sample");
    if (!tokens || tokens->kind != TREE_INT || !hash || hash->kind != TREE_STRING ||
        !sample || sample->kind != TREE_LIST)
        return false;
    if (tokens->integer < 1 || tokens->integer > TOKENS_MAX || sample->count < 1 ||
        sample->count > SAMPLE)
        return false;
    for (const Tree *token = sample->first; token; token = token->next)
        if (token->kind != TREE_STRING) return false;
    *out = (VocabularyNote){tokens->integer, hash->string, sample};
    return true;
}

/* Tokens of the sample that are the same. */
static int64_t count_same(const VocabularyNote *note, const TokenNames *vocabulary) {
    int64_t i = 0, same = 0;
    for (const Tree *token = note->sample->first; token; token = token->next, i++) {
        const int64_t id = sampled(note->tokens, i, note->sample->count);
        same +=
            id < vocabulary->count && strcmp(token->string, vocabulary->tokens[id]) == 0;
    }
    return same;
}

bool vocabulary_has_note(const Model *model) {
    VocabularyNote note;
    return read_note(&note, model);
}

bool vocabulary_is_noted(const Model *model, const TokenNames *vocabulary) {
    VocabularyNote note;
    char hash[HASH_TEXT_BYTES];
    if (!vocabulary || !read_note(&note, model)) return false;
    hash_tokens(vocabulary, hash);
    return strcmp(hash, note.hash) == 0;
}

Status vocabulary_check(const Model *model, const char *whose,
                        const TokenNames *vocabulary, const char *what, Loc at,
                        Diag *diag) {
    VocabularyNote note;
    if (!vocabulary || !read_note(&note, model)) return STATUS_OK;
    if (vocabulary_is_noted(model, vocabulary)) return STATUS_OK;
    if (2 * count_same(&note, vocabulary) < note.sample->count) {
        diag_fail(diag, STATUS_MODEL, at, NULL,
                  "%s: expected the %" PRId64 " tokens of %s, found %" PRId64 " others",
                  what, note.tokens, whose, vocabulary->count);
        diag_hint(diag, "the numbers of tokens mean something in the vocabulary that a "
                        "model was trained with, and nothing in another");
        return STATUS_MODEL;
    }
    if (note.tokens == vocabulary->count)
        diag_warn(diag, at, NULL, "%s: some of the %" PRId64 " tokens are others in %s",
                  what, note.tokens, whose);
    else
        diag_warn(diag, at, NULL, "%s: %" PRId64 " tokens, in %s %" PRId64, what,
                  vocabulary->count, whose, note.tokens);
    return STATUS_OK;
}
