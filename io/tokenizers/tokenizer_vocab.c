/* Tokenizer: reading vocab.txt, with BERT's rules as tokenizer_config.json sets them. */
#include "io/tokenizers/tokenizer_class.h"
#include "io/tokenizers/tokenizer_readers.h"

#include <string.h>

enum { MAX_CHARS = 100, SPECIALS = 5 };

static Status refuse(const Tree *value, const char *key, const char *reason, Diag *diag) {
    diag_fail(diag, STATUS_FORMAT, value->loc, key, "%s", reason);
    diag_hint(diag, "a tokenizer.json in the folder is read instead when it is there");
    return STATUS_FORMAT;
}

/* Refuses settings that would change the tokens and that are not supported. */
static Status check_config(const Tree *config, Diag *diag) {
    static const char *const EMPTY[] = {"additional_special_tokens", "never_split"};
    bool basic;
    TRY(json_flag(&basic, config, "do_basic_tokenize", true, "", diag));
    if (!basic)
        return refuse(tree_get(config, "do_basic_tokenize"), "do_basic_tokenize",
                      "false is not supported", diag);
    for (size_t i = 0; i < sizeof EMPTY / sizeof *EMPTY; i++) {
        const Tree *list;
        TRY(json_member(&list, config, EMPTY[i], TREE_LIST, "", diag));
        if (list && list->count > 0)
            return refuse(list, EMPTY[i],
                          "further tokens beside a vocab.txt are not supported", diag);
    }
    return STATUS_OK;
}

/* Further added tokens that the configuration lists are lines of the vocab.txt. */
static Status check_listed(const Tokenizer *self, const Tree *config,
                           const AddedToken *token, Diag *diag) {
    const char *text =
        token->id < tokenizer_size(self) ? tokenizer_token(self, token->id) : NULL;
    if (text && strcmp(text, token->content) == 0) return STATUS_OK;
    return refuse(tree_get(config, "added_tokens_decoder"), "added_tokens_decoder",
                  "further tokens beside a vocab.txt are not supported", diag);
}

/* The special tokens, and those that the configuration lists, are tokens wherever they
 * stand in a text. */
static Status add_tokens(Tokenizer *self, const Tree *config, Loc at, Diag *diag) {
    const SpecialIds *ids = &self->specials;
    const int32_t all[SPECIALS] = {ids->pad, ids->unk, ids->cls, ids->sep, ids->mask};
    AddedToken *added = ARENA_ARRAY(self->arena, AddedToken, SPECIALS);
    int count = 0;
    for (int i = 0; i < SPECIALS; i++)
        if (all[i] >= 0)
            added[count++] = (AddedToken){.content = self->vocabulary.tokens[all[i]].text,
                                          .id = all[i],
                                          .special = true};
    const int specials = count;
    TRY(config_tokens(&added, &count, self->arena, config, diag));
    for (int i = specials; i < count; i++)
        TRY(check_listed(self, config, &added[i], diag));
    return tokenizer_add(self, added, count, at, diag);
}

Status tokenizer_read_vocab(Tokenizer *self, Arena *scratch, const Folder *folder,
                            const char *name, Diag *diag) {
    char *text;
    size_t length;
    Tree *config;
    SpecialNames names;
    const TokenizerClass *class;
    static const char EXTRA[] = "added_tokens.json";
    const char *file = folder_file(folder, self->arena, name);
    TRY(config_read(&config, &names, scratch, folder, diag));
    self->normalizer.steps[0].kind = NORMALIZE_BERT;
    self->normalizer.count = 1;
    BertRules *rules = &self->normalizer.steps[0].rules;
    TRY(class_find(&class, config, scratch, folder, CLASS_WORDPIECE, diag));
    TRY(check_config(config, diag));
    class_names(&names, class);
    rules->clean_text = true;
    TRY(json_flag(&rules->lowercase, config, "do_lower_case", true, "", diag));
    TRY(json_flag(&rules->strip_accents, config, "strip_accents", rules->lowercase, "",
                  diag));
    TRY(json_flag(&rules->space_chinese, config, "tokenize_chinese_chars", true, "",
                  diag));
    if (folder_has(folder, EXTRA))
        return diag_fail(diag, STATUS_FORMAT,
                         LOC_FILE(folder_file(folder, self->arena, EXTRA)), NULL,
                         "further tokens beside a vocab.txt are not supported");
    TRY(folder_read(&text, &length, folder, self->arena, name, VOCABULARY_BYTES_MAX,
                    diag));
    TRY(vocabulary_parse(&self->vocabulary, self->arena, file, text, length, diag));
    TRY(specials_find(self, &names, LOC_FILE(file), diag));
    self->wordpiece = (WordPiece){.vocabulary = &self->vocabulary,
                                  .whole = prefix_of("", 0),
                                  .continued = prefix_of("##", 2),
                                  .unknown = self->specials.unk,
                                  .max_chars = MAX_CHARS};
    TRY(decoder_read(self, NULL, diag));
    if (class && class->around == AROUND_ROBERTA)
        template_roberta(self, self->specials.cls, self->specials.sep);
    else
        template_bert(self, self->specials.cls, self->specials.sep);
    return add_tokens(self, config, LOC_FILE(file), diag);
}
