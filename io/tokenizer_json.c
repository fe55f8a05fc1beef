/* Tokenizer: reading tokenizer.json: model, normalizer, pre_tokenizer and added tokens.
 * The post_processor is in io/tokenizer_template.c. */
#include "io/tokenizer_parts.h"

#include "io/file.h"
#include "io/json.h"

#include <string.h>

enum { MAX_CHARS_LIMIT = 1000 };

/* Fails unless a component is of the type that is supported. */
static Status expect_type(const Tree *component, const char *name, const char *wanted,
                          const Tree *root, Diag *diag) {
    const Tree *type = NULL;
    char key[64];
    snprintf(key, sizeof key, "%s.type", name);
    if (component) TRY(json_member(&type, component, "type", TREE_STRING, name, diag));
    if (type && strcmp(type->string, wanted) == 0) return STATUS_OK;
    diag_fail(diag, STATUS_FORMAT, root->loc, key, "expected %s, found %s%.64s%s", wanted,
              type ? "'" : "", type ? type->string : "none", type ? "'" : "");
    return STATUS_FORMAT;
}

/* --- normalizer and pre_tokenizer --- */

static Status read_rules(BertRules *rules, const Tree *root, Diag *diag) {
    static const char WHERE[] = "normalizer";
    const Tree *map;
    TRY(json_member(&map, root, WHERE, TREE_MAP, "", diag));
    if (!map) return STATUS_OK; /* nothing is normalized */
    TRY(expect_type(map, WHERE, "BertNormalizer", root, diag));
    TRY(json_flag(&rules->clean_text, map, "clean_text", true, WHERE, diag));
    TRY(json_flag(&rules->space_chinese, map, "handle_chinese_chars", true, WHERE, diag));
    TRY(json_flag(&rules->lowercase, map, "lowercase", true, WHERE, diag));
    return json_flag(&rules->strip_accents, map, "strip_accents", rules->lowercase, WHERE,
                     diag);
}

static Status check_pre_tokenizer(const Tree *root, Diag *diag) {
    const Tree *map;
    TRY(json_member(&map, root, "pre_tokenizer", TREE_MAP, "", diag));
    return expect_type(map, "pre_tokenizer", "BertPreTokenizer", root, diag);
}

/* --- added tokens --- */

static Status read_added(AddedToken *out, Arena *arena, const Tree *map, int index,
                         Diag *diag) {
    char where[64];
    const Tree *content, *id;
    bool special;
    snprintf(where, sizeof where, "added_tokens[%d]", index);
    if (map->kind != TREE_MAP)
        return diag_fail(diag, STATUS_FORMAT, map->loc, where, "expected a map");
    TRY(json_member(&content, map, "content", TREE_STRING, where, diag));
    TRY(json_member(&id, map, "id", TREE_INT, where, diag));
    if (!content || !id || id->integer < 0 || id->integer >= TOKENS_MAX)
        return diag_fail(diag, STATUS_FORMAT, map->loc, where,
                         "expected a content and an id from 0 to %d", TOKENS_MAX - 1);
    TRY(json_flag(&special, map, "special", false, where, diag));
    TRY(json_flag(&out->normalized, map, "normalized", !special, where, diag));
    TRY(json_flag(&out->single_word, map, "single_word", false, where, diag));
    TRY(json_flag(&out->lstrip, map, "lstrip", false, where, diag));
    TRY(json_flag(&out->rstrip, map, "rstrip", false, where, diag));
    out->content = arena_strdup(arena, content->string);
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

/* --- vocabulary --- */

/* Puts a token at its number, which must be free. */
static Status place_token(Vocabulary *vocabulary, Arena *arena, const char *text,
                          int64_t id, const Tree *root, Diag *diag) {
    size_t length = strlen(text);
    if (length > TOKEN_BYTES_MAX)
        return diag_fail(diag, STATUS_FORMAT, root->loc, "model.vocab",
                         "expected tokens of at most %d bytes, found %zu",
                         TOKEN_BYTES_MAX, length);
    if (id < 0 || id >= vocabulary->capacity)
        return diag_fail(diag, STATUS_FORMAT, root->loc, "model.vocab",
                         "'%s' has number %lld, expected 0 to %d, each once", text,
                         (long long)id, vocabulary->capacity - 1);
    Token *token = &vocabulary->tokens[id];
    if (token->text)
        return diag_fail(diag, STATUS_FORMAT, root->loc, "model.vocab",
                         "'%s' and '%s' have the same number %lld", token->text, text,
                         (long long)id);
    *token = (Token){arena_strdup(arena, text), (uint32_t)length};
    return STATUS_OK;
}

static Status place_vocab(Vocabulary *vocabulary, Arena *arena, const Tree *vocab,
                          const Tree *root, Diag *diag) {
    for (const Tree *entry = vocab->first; entry; entry = entry->next) {
        int64_t id = entry->kind == TREE_INT ? entry->integer : -1;
        TRY(place_token(vocabulary, arena, entry->key, id, root, diag));
        if (vocabulary_add(vocabulary, (int32_t)id) == VOCABULARY_FULL)
            return diag_fail(diag, STATUS_FORMAT, root->loc, "model.vocab",
                             "too many tokens share one place in the hash table");
    }
    return STATUS_OK;
}

/* Number of added tokens that the vocabulary does not hold; those it holds must have the
 * same number there. */
static Status count_new(int *out, const Tree *vocab, const AddedToken *added, int count,
                        const Tree *root, Diag *diag) {
    *out = 0;
    for (int i = 0; i < count; i++) {
        const Tree *known = tree_get(vocab, added[i].content);
        if (!known) ++*out;
        if (known && (known->kind != TREE_INT || known->integer != added[i].id))
            return diag_fail(diag, STATUS_FORMAT, root->loc, "added_tokens",
                             "'%s' has number %d, and another in the vocabulary",
                             added[i].content, added[i].id);
    }
    return STATUS_OK;
}

static Status read_vocab(Tokenizer *self, const Tree *vocab, const AddedToken *added,
                         int count, const Tree *root, Diag *diag) {
    int new_tokens;
    Vocabulary *vocabulary = &self->model.vocabulary;
    TRY(count_new(&new_tokens, vocab, added, count, root, diag));
    if (vocab->count == 0 || vocab->count > TOKENS_MAX - new_tokens)
        return diag_fail(diag, STATUS_FORMAT, root->loc, "model.vocab",
                         "expected 1 to %d tokens, found %d", TOKENS_MAX, vocab->count);
    vocabulary_create(vocabulary, self->arena, vocab->count + new_tokens);
    TRY(place_vocab(vocabulary, self->arena, vocab, root, diag));
    for (int i = 0; i < count; i++)
        if (!tree_get(vocab, added[i].content))
            TRY(place_token(vocabulary, self->arena, added[i].content, added[i].id, root,
                            diag));
    return STATUS_OK;
}

/* --- model --- */

/* Old files leave the type out; what a WordPiece model alone has tells it then. */
static Status check_model(const Tree *model, const Tree *root, Diag *diag) {
    if (model && !tree_get(model, "type") && tree_get(model, "max_input_chars_per_word"))
        return STATUS_OK;
    return expect_type(model, "model", "WordPiece", root, diag);
}

static Status read_model(Tokenizer *self, const Tree *model, const Tree *root,
                         SpecialNames *names, Diag *diag) {
    const Tree *prefix, *unknown, *chars;
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
    self->model.whole = prefix_of("", 0);
    self->model.continued = prefix_of(text, strlen(text));
    self->model.max_chars = (size_t)most;
    if (unknown) names->unk = unknown->string;
    return STATUS_OK;
}

/* Everything but the configuration, from the parsed file. */
static Status read_root(Tokenizer *self, const Tree *root, SpecialNames *names,
                        Diag *diag) {
    const Tree *model, *vocab;
    AddedToken *added = NULL;
    int count;
    TRY(json_member(&model, root, "model", TREE_MAP, "", diag));
    TRY(check_model(model, root, diag));
    TRY(read_rules(&self->rules, root, diag));
    TRY(check_pre_tokenizer(root, diag));
    TRY(read_model(self, model, root, names, diag));
    TRY(json_member(&vocab, model, "vocab", TREE_MAP, "model", diag));
    if (!vocab)
        return diag_fail(diag, STATUS_FORMAT, root->loc, "model.vocab", "missing");
    TRY(read_all_added(&added, &count, self->arena, root, diag));
    TRY(read_vocab(self, vocab, added, count, root, diag));
    TRY(tokenizer_add(self, added, count, root->loc, diag));
    TRY(specials_find(self, names, root->loc, diag));
    self->model.unknown = self->specials.unk;
    return template_read(self, root, diag);
}

/* Reads into an arena of its own what is not needed later. */
static Status read_with(Tokenizer *self, Arena *scratch, const char *path,
                        const char *folder, Diag *diag) {
    Tree *root, *config;
    SpecialNames names;
    TRY(config_read(&config, &names, scratch, folder, diag));
    TRY(json_read(&root, scratch, path, VOCABULARY_BYTES_MAX, diag));
    if (root->kind != TREE_MAP)
        return diag_fail(diag, STATUS_FORMAT, root->loc, NULL,
                         "expected a JSON object, found %s", tree_kind_name(root->kind));
    return read_root(self, root, &names, diag);
}

Status tokenizer_read_json(Tokenizer *self, const char *path, const char *folder,
                           Diag *diag) {
    Arena *scratch = arena_create();
    Status status = read_with(self, scratch, path, folder, diag);
    arena_destroy(scratch);
    return status;
}
