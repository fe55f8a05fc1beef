/* Tokenizer: what its readers share: tokenizer_config.json, special tokens, templates,
 * and tokens put in their places. */
#include "io/tokenizers/tokenizer_build.h"

#include "io/files/json.h"

#include <string.h>

enum { CONFIG_BYTES_MAX = 16 << 20 };

/* --- names of the special tokens --- */

/* A token is given as a string, or as a map with its content. */
static Status read_name(const char **out, const Tree *config, const char *key,
                        Diag *diag) {
    const Tree *value = tree_get_nonnull(config, key);
    if (!value) return STATUS_OK;
    if (value->kind == TREE_MAP) {
        const Tree *content;
        TRY(json_member(&content, value, "content", TREE_STRING, key, diag));
        value = content;
    } else {
        TRY(json_member(&value, config, key, TREE_STRING, "", diag));
    }
    if (value) *out = value->string;
    return STATUS_OK;
}

Status config_read(Tree **config, SpecialNames *names, Arena *arena, const Folder *folder,
                   Diag *diag) {
    static const char NAME[] = "tokenizer_config.json";
    char *text;
    size_t length;
    *names = (SpecialNames){0};
    *config = NULL;
    if (!folder_has(folder, NAME)) return STATUS_OK;
    TRY(folder_read(&text, &length, folder, arena, NAME, CONFIG_BYTES_MAX, diag));
    TRY(json_parse_wide(config, arena, folder_file(folder, arena, NAME), text, length,
                        diag));
    if ((*config)->kind != TREE_MAP)
        return diag_fail(diag, STATUS_FORMAT, (*config)->loc, NULL,
                         "expected a JSON object, found %s",
                         tree_kind_name((*config)->kind));
    TRY(read_name(&names->pad, *config, "pad_token", diag));
    TRY(read_name(&names->unk, *config, "unk_token", diag));
    TRY(read_name(&names->cls, *config, "cls_token", diag));
    TRY(read_name(&names->sep, *config, "sep_token", diag));
    TRY(read_name(&names->bos, *config, "bos_token", diag));
    TRY(read_name(&names->eos, *config, "eos_token", diag));
    return read_name(&names->mask, *config, "mask_token", diag);
}

static Status find_special(int32_t *id, const Tokenizer *self, const char *name,
                           const char *role, Loc at, Diag *diag) {
    *id = tokenizer_find(self, name);
    if (*id >= 0) return STATUS_OK;
    diag_fail(diag, STATUS_FORMAT, at, NULL, "the vocabulary lacks %s '%s'", role, name);
    diag_hint(diag, "a tokenizer_config.json beside it can give another name");
    return STATUS_FORMAT;
}

/* The name that is given, else BERT's, or where the vocabulary lacks it, MPNet's. */
static const char *name_or(const Tokenizer *self, const char *name, const char *usual,
                           const char *other) {
    if (name) return name;
    return tokenizer_find(self, usual) < 0 && tokenizer_find(self, other) >= 0 ? other
                                                                               : usual;
}

Status specials_find(Tokenizer *self, const SpecialNames *names, Loc at, Diag *diag) {
    SpecialIds *ids = &self->specials;
    TRY(find_special(&ids->pad, self, name_or(self, names->pad, "[PAD]", "<pad>"),
                     "the padding token", at, diag));
    TRY(find_special(&ids->unk, self, name_or(self, names->unk, "[UNK]", "<unk>"),
                     "the unknown token", at, diag));
    TRY(find_special(&ids->cls, self, name_or(self, names->cls, "[CLS]", "<s>"),
                     "the class token", at, diag));
    TRY(find_special(&ids->sep, self, name_or(self, names->sep, "[SEP]", "</s>"),
                     "the separator token", at, diag));
    ids->mask = tokenizer_find(self, name_or(self, names->mask, "[MASK]", "<mask>"));
    ids->bos = ids->eos = -1;
    return STATUS_OK;
}

/* --- special tokens of language models --- */

/* Takes a number of config.json, of which eos_token_id may be a list: the first counts.
 * -1 and null are none. */
static Status take_number(int32_t *id, const Tokenizer *self, const Tree *config,
                          const char *key, Diag *diag) {
    const Tree *value = tree_get(config, key);
    if (value && value->kind == TREE_LIST) value = value->first;
    if (*id >= 0 || !value || value->kind == TREE_NULL) return STATUS_OK;
    if (value->kind != TREE_INT || value->integer < -1 ||
        value->integer >= tokenizer_size(self))
        return diag_fail(diag, STATUS_FORMAT, value->loc, key,
                         "expected a token below %d, the size of the vocabulary",
                         tokenizer_size(self));
    *id = (int32_t)value->integer;
    return STATUS_OK;
}

/* Numbers that the config.json of a folder gives, for what has none yet. */
static Status take_numbers(Tokenizer *self, Arena *scratch, const Folder *folder,
                           Diag *diag) {
    SpecialIds *ids = &self->specials;
    Tree *config;
    static const char NAME[] = "config.json";
    if (!folder_has(folder, NAME)) return STATUS_OK;
    TRY(folder_read_json(&config, folder, scratch, NAME, CONFIG_BYTES_MAX, diag));
    TRY(take_number(&ids->bos, self, config, "bos_token_id", diag));
    TRY(take_number(&ids->eos, self, config, "eos_token_id", diag));
    return take_number(&ids->pad, self, config, "pad_token_id", diag);
}

/* Looks up a usual name, for what has no number yet: it must be a special token. */
static void take_usual(int32_t *id, const Tokenizer *self, const char *name) {
    int32_t found = *id < 0 ? tokenizer_find(self, name) : -1;
    if (found >= 0 && self->special[found]) *id = found;
}

static void take_all_usual(Tokenizer *self) {
    SpecialIds *ids = &self->specials;
    take_usual(&ids->bos, self, "<s>");
    take_usual(&ids->bos, self, "<|endoftext|>");
    take_usual(&ids->eos, self, "</s>");
    take_usual(&ids->eos, self, "<|endoftext|>");
    take_usual(&ids->pad, self, "<pad>");
    take_usual(&ids->pad, self, "[PAD]");
    take_usual(&ids->unk, self, "<unk>");
    take_usual(&ids->unk, self, "[UNK]");
    take_usual(&ids->cls, self, "[CLS]");
    take_usual(&ids->sep, self, "[SEP]");
    take_usual(&ids->mask, self, "<mask>");
    take_usual(&ids->mask, self, "[MASK]");
}

Status specials_find_some(Tokenizer *self, const SpecialNames *names,
                          const Folder *folder, Loc at, Diag *diag) {
    SpecialIds *ids = &self->specials;
    const struct {
        int32_t *id;
        const char *name, *role;
    } ALL[] = {{&ids->pad, names->pad, "the padding token"},
               {&ids->unk, names->unk, "the unknown token"},
               {&ids->cls, names->cls, "the class token"},
               {&ids->sep, names->sep, "the separator token"},
               {&ids->mask, names->mask, "the mask"},
               {&ids->bos, names->bos, "the token at the beginning"},
               {&ids->eos, names->eos, "the token at the end"}};
    for (size_t i = 0; i < sizeof ALL / sizeof *ALL; i++) {
        *ALL[i].id = -1;
        if (ALL[i].name)
            TRY(find_special(ALL[i].id, self, ALL[i].name, ALL[i].role, at, diag));
    }
    Arena *scratch = arena_create();
    Status status = take_numbers(self, scratch, folder, diag);
    arena_destroy(scratch);
    TRY(status);
    take_all_usual(self);
    for (size_t i = 0; i < sizeof ALL / sizeof *ALL; i++)
        if (*ALL[i].id >= 0 && ALL[i].id != &ids->unk) self->special[*ALL[i].id] = true;
    return STATUS_OK;
}

Status unknown_read(int32_t *id, const Tokenizer *self, const Tree *token,
                    SpecialNames *names, Loc at, Diag *diag) {
    *id = -1;
    if (!token) return STATUS_OK;
    /* the token may not be found in the table yet */
    for (int32_t i = 0; i < tokenizer_size(self) && *id < 0; i++)
        if (strcmp(self->vocabulary.tokens[i].text, token->string) == 0) *id = i;
    names->unk = token->string;
    if (*id >= 0) return STATUS_OK;
    return diag_fail(diag, STATUS_FORMAT, at, "model.unk_token",
                     "'%.64s' is not in the vocabulary", token->string);
}

/* --- templates and added tokens --- */

void template_bert(Tokenizer *self, int32_t cls, int32_t sep) {
    const Template single = {{{cls, 0}, {PIECE_FIRST, 0}, {sep, 0}}, 3};
    const Template pair = {
        {{cls, 0}, {PIECE_FIRST, 0}, {sep, 0}, {PIECE_SECOND, 1}, {sep, 1}}, 5};
    self->single = single;
    self->pair = pair;
}

void template_plain(Tokenizer *self) {
    self->single = (Template){{{PIECE_FIRST, 0}}, 1};
    self->pair = (Template){{{PIECE_FIRST, 0}, {PIECE_SECOND, 1}}, 2};
}

void template_roberta(Tokenizer *self, int32_t cls, int32_t sep) {
    const Template pair = {
        {{cls, 0}, {PIECE_FIRST, 0}, {sep, 0}, {sep, 0}, {PIECE_SECOND, 0}, {sep, 0}}, 6};
    template_bert(self, cls, sep);
    self->pair = pair;
}

void template_flags(Tokenizer *self, int32_t begin, int32_t end) {
    Template *both[] = {&self->single, &self->pair};
    for (int texts = 1; texts <= 2; texts++) {
        Template *template = both[texts - 1];
        template->count = 0;
        for (int i = 0; i < texts; i++) {
            const int32_t ids[] = {begin, i ? PIECE_SECOND : PIECE_FIRST, end};
            for (int part = 0; part < 3; part++)
                if (part == 1 || ids[part] >= 0)
                    template->pieces[template->count++] = (TemplatePiece){ids[part], i};
        }
    }
}

Status added_flags_read(AddedToken *out, Arena *arena, const Tree *map, const char *where,
                        Diag *diag) {
    const Tree *content;
    if (map->kind != TREE_MAP)
        return diag_fail(diag, STATUS_FORMAT, map->loc, where, "expected a map");
    TRY(json_member(&content, map, "content", TREE_STRING, where, diag));
    if (!content)
        return diag_fail(diag, STATUS_FORMAT, map->loc, where, "expected a content");
    TRY(json_flag(&out->special, map, "special", false, where, diag));
    TRY(json_flag(&out->normalized, map, "normalized", !out->special, where, diag));
    TRY(json_flag(&out->single_word, map, "single_word", false, where, diag));
    TRY(json_flag(&out->lstrip, map, "lstrip", false, where, diag));
    TRY(json_flag(&out->rstrip, map, "rstrip", false, where, diag));
    out->content = arena_strdup(arena, content->string);
    return STATUS_OK;
}

Status tokenizer_add(Tokenizer *self, const AddedToken *tokens, int count, Loc at,
                     Diag *diag) {
    self->special = ARENA_ARRAY(self->arena, bool, (size_t)tokenizer_size(self));
    for (int i = 0; i < count; i++)
        if (tokens[i].special) self->special[tokens[i].id] = true;
    TRY(added_collect(&self->original, self->arena, tokens, count, NULL, at, diag));
    return added_collect(&self->normalized, self->arena, tokens, count, &self->normalizer,
                         at, diag);
}

/* --- vocabulary --- */

/* Where a vocabulary stands, for messages. */
typedef struct TokenSource {
    Loc at;
    const char *key;
} TokenSource;

/* Puts a token at its number, which must be free. */
static Status place_token(Vocabulary *vocabulary, Arena *arena, const char *text,
                          int64_t id, TokenSource place, Diag *diag) {
    size_t length = strlen(text);
    if (length > TOKEN_BYTES_MAX)
        return diag_fail(diag, STATUS_FORMAT, place.at, place.key,
                         "expected tokens of at most %d bytes, found %zu",
                         TOKEN_BYTES_MAX, length);
    if (id < 0 || id >= vocabulary->capacity)
        return diag_fail(diag, STATUS_FORMAT, place.at, place.key,
                         "'%s' has number %lld, expected 0 to %d, each once", text,
                         (long long)id, vocabulary->capacity - 1);
    Token *token = &vocabulary->tokens[id];
    if (token->text)
        return diag_fail(diag, STATUS_FORMAT, place.at, place.key,
                         "'%s' and '%s' have the same number %lld", token->text, text,
                         (long long)id);
    *token = (Token){arena_strdup(arena, text), (uint32_t)length};
    return STATUS_OK;
}

/* Number of added tokens that the vocabulary does not hold; those it holds must have the
 * same number there. */
static Status count_new(int *out, const Tree *vocab, const AddedToken *added, int count,
                        Loc at, Diag *diag) {
    *out = 0;
    for (int i = 0; i < count; i++) {
        const Tree *known = tree_get(vocab, added[i].content);
        if (!known) ++*out;
        if (known && (known->kind != TREE_INT || known->integer != added[i].id))
            return diag_fail(diag, STATUS_FORMAT, at, "added_tokens",
                             "'%s' has number %d, and another in the vocabulary",
                             added[i].content, added[i].id);
    }
    return STATUS_OK;
}

Status tokenizer_place(Tokenizer *self, const Tree *vocab, const AddedToken *added,
                       int count, Loc at, const char *key, Diag *diag) {
    int new_tokens;
    const TokenSource place = {at, key};
    TRY(count_new(&new_tokens, vocab, added, count, at, diag));
    if (vocab->count == 0 || vocab->count > TOKENS_MAX - new_tokens)
        return diag_fail(diag, STATUS_FORMAT, at, key,
                         "expected 1 to %d tokens, found %d", TOKENS_MAX, vocab->count);
    vocabulary_create(&self->vocabulary, self->arena, vocab->count + new_tokens);
    for (const Tree *entry = vocab->first; entry; entry = entry->next) {
        int64_t id = entry->kind == TREE_INT ? entry->integer : -1;
        TRY(place_token(&self->vocabulary, self->arena, entry->key, id, place, diag));
        if (vocabulary_add(&self->vocabulary, (int32_t)id) == VOCABULARY_FULL)
            return diag_fail(diag, STATUS_FORMAT, at, key,
                             "too many tokens share one place in the hash table");
    }
    for (int i = 0; i < count; i++)
        if (!tree_get(vocab, added[i].content))
            TRY(place_token(&self->vocabulary, self->arena, added[i].content, added[i].id,
                            place, diag));
    return STATUS_OK;
}
