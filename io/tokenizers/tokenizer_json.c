/* Tokenizer: reading tokenizer.json: added tokens, vocabulary and the model WordPiece.
 * The other models, the normalizer, pre_tokenizer, post_processor and decoder have files
 * of their own. */
#include "io/tokenizers/tokenizer_readers.h"

#include "io/files/json.h"

#include <string.h>

enum { MAX_CHARS_LIMIT = 1000 };

/* --- added tokens --- */

static Status read_added(AddedToken *out, Arena *arena, const Tree *map, int index,
                         Diag *diag) {
    char where[64];
    const Tree *id = NULL;
    snprintf(where, sizeof where, "added_tokens[%d]", index);
    TRY(added_flags_read(out, arena, map, where, diag));
    TRY(json_member(&id, map, "id", TREE_INT, where, diag));
    if (!id || id->integer < 0 || id->integer >= TOKENS_MAX)
        return diag_fail(diag, STATUS_FORMAT, map->loc, where,
                         "expected a content and an id from 0 to %d", TOKENS_MAX - 1);
    out->id = (int32_t)id->integer;
    return STATUS_OK;
}

static Status read_all_added(AddedToken **out, int *count, Arena *arena, const Tree *root,
                             Diag *diag) {
    const Tree *list;
    int index = 0;
    *count = 0;
    TRY(json_member(&list, root, "added_tokens", TREE_LIST, "", diag));
    if (!list) return STATUS_OK;
    if (list->count > ADDED_MAX)
        return diag_fail(diag, STATUS_FORMAT, root->loc, "added_tokens",
                         "expected at most %d, found %d", ADDED_MAX, list->count);
    *out = ARENA_ARRAY(arena, AddedToken, (size_t)list->count);
    for (const Tree *map = list->first; map; map = map->next, index++)
        TRY(read_added(&(*out)[index], arena, map, index, diag));
    *count = list->count;
    return STATUS_OK;
}

/* --- WordPiece --- */

static Status wordpiece_read(Tokenizer *self, const Tree *model, const Tree *root,
                             SpecialNames *names, Diag *diag) {
    const Tree *prefix, *unknown, *chars, *words;
    TRY(normalizer_read(&self->normalizer, self->arena, root, true, diag));
    TRY(json_member(&words, root, "pre_tokenizer", TREE_MAP, "", diag));
    TRY(json_type(words, "pre_tokenizer", "BertPreTokenizer", root, diag));
    TRY(json_member(&prefix, model, "continuing_subword_prefix", TREE_STRING, "model",
                    diag));
    TRY(json_member(&unknown, model, "unk_token", TREE_STRING, "model", diag));
    TRY(json_member(&chars, model, "max_input_chars_per_word", TREE_INT, "model", diag));
    int64_t most = chars ? chars->integer : 100;
    if (most < 1 || most > MAX_CHARS_LIMIT)
        return diag_fail(diag, STATUS_FORMAT, root->loc, "model.max_input_chars_per_word",
                         "expected 1 to %d, found %lld", MAX_CHARS_LIMIT,
                         (long long)most);
    const char *text = arena_strdup(self->arena, prefix ? prefix->string : "##");
    if (strlen(text) > TOKEN_BYTES_MAX)
        return diag_fail(diag, STATUS_FORMAT, root->loc,
                         "model.continuing_subword_prefix", "too long");
    self->wordpiece = (WordPiece){.vocabulary = &self->vocabulary,
                                  .whole = prefix_of("", 0),
                                  .continued = prefix_of(text, strlen(text)),
                                  .max_chars = (size_t)most};
    if (unknown) names->unk = unknown->string;
    return STATUS_OK;
}

/* --- model --- */

/* Old files leave the type out; what a model alone has tells it then. */
static Status read_kind(ModelKind *kind, const Tree *model, const Tree *root,
                        Diag *diag) {
    static const char *const NAMES[] = {"WordPiece", "BPE", "Characters", "WordLevel",
                                        "Unigram"};
    enum { COUNT = sizeof NAMES / sizeof *NAMES };
    const Tree *type = NULL;
    const char *found = "none";
    if (model) TRY(json_member(&type, model, "type", TREE_STRING, "model", diag));
    if (type) found = type->string;
    if (!type && tree_get(model, "max_input_chars_per_word")) found = "WordPiece";
    if (!type && tree_get(model, "merges")) found = "BPE";
    if (!type && tree_get(model, "unk_id")) found = "Unigram";
    for (int i = 0; i < COUNT; i++)
        if (strcmp(found, NAMES[i]) == 0) {
            *kind = (ModelKind)i;
            return STATUS_OK;
        }
    return diag_fail(diag, STATUS_FORMAT, root->loc, "model.type",
                     "expected WordPiece, BPE, Unigram, WordLevel or Characters, found "
                     "%s%.64s%s",
                     type ? "'" : "", found, type ? "'" : "");
}

typedef struct Added {
    AddedToken *tokens;
    int count;
} Added;

/* Puts the tokens in their places. */
static Status read_tokens(Tokenizer *self, Arena *scratch, const Tree *root,
                          const Tree *model, const Added *added, Diag *diag) {
    const Tree *vocab;
    if (self->kind == MODEL_CHARACTERS)
        TRY(characters_vocab(&vocab, scratch, model, root, diag));
    else if (self->kind == MODEL_UNIGRAM)
        TRY(unigram_vocab(&vocab, scratch, model, root, diag));
    else
        TRY(json_member(&vocab, model, "vocab", TREE_MAP, "model", diag));
    if (!vocab)
        return diag_fail(diag, STATUS_FORMAT, root->loc, "model.vocab", "missing");
    return tokenizer_place(self, vocab, added->tokens, added->count, root->loc,
                           "model.vocab", diag);
}

static Status read_model(Tokenizer *self, const Tree *root, const Tree *model,
                         const Added *added, SpecialNames *names, Diag *diag) {
    switch (self->kind) {
    case MODEL_WORDPIECE: return wordpiece_read(self, model, root, names, diag);
    case MODEL_BPE: return bpe_read(self, root, model, names, diag);
    case MODEL_WORDS: return wordlevel_read(self, root, model, names, diag);
    case MODEL_UNIGRAM: return unigram_read(self, root, model, names, diag);
    case MODEL_CHARACTERS:
        return characters_read(self, root, model, added->tokens, added->count, names,
                               diag);
    }
    return STATUS_OK;
}

/* From the parsed files; `config` is tokenizer_config.json, NULL = none. */
static Status read_root(Tokenizer *self, Arena *scratch, const Tree *root,
                        const Tree *config, SpecialNames *names, const Folder *folder,
                        Diag *diag) {
    const Tree *model;
    Added added = {0};
    TRY(json_member(&model, root, "model", TREE_MAP, "", diag));
    TRY(read_kind(&self->kind, model, root, diag));
    TRY(read_all_added(&added.tokens, &added.count, self->arena, root, diag));
    TRY(config_tokens(&added.tokens, &added.count, self->arena, config, diag));
    TRY(read_tokens(self, scratch, root, model, &added, diag));
    TRY(read_model(self, root, model, &added, names, diag));
    TRY(config_text(self, config, diag));
    TRY(tokenizer_add(self, added.tokens, added.count, root->loc, diag));
    if (self->kind == MODEL_WORDPIECE) {
        TRY(specials_find(self, names, root->loc, diag));
        self->wordpiece.unknown = self->specials.unk;
    } else {
        TRY(specials_find_some(self, names, folder, root->loc, diag));
    }
    TRY(decoder_read(self, root, diag));
    TRY(template_read(self, root, diag));
    return config_template(self, config, diag);
}

Status tokenizer_read_json(Tokenizer *self, Arena *scratch, const Folder *folder,
                           const char *name, Diag *diag) {
    Tree *root, *config;
    SpecialNames names;
    TRY(config_read(&config, &names, scratch, folder, diag));
    TRY(folder_read_json(&root, folder, scratch, name, VOCABULARY_BYTES_MAX, diag));
    if (root->kind != TREE_MAP)
        return diag_fail(diag, STATUS_FORMAT, root->loc, NULL,
                         "expected a JSON object, found %s", tree_kind_name(root->kind));
    return read_root(self, scratch, root, config, &names, folder, diag);
}
