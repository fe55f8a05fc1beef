/* Tokenizer: the model WordLevel, in which every word is a token. */
#include "io/tokenizers/tokenizer_readers.h"

#include "io/files/json.h"

#include <string.h>

/* --- pre_tokenizer --- */

/* A Split must be ours: the words are what the expression finds. */
static Status read_split(WordSplit *split, const Tree *map, Diag *diag) {
    static const char WHERE[] = "pre_tokenizer";
    const Tree *pattern, *regex = NULL, *behavior;
    bool invert;
    *split = SPLIT_WORDS;
    TRY(json_member(&pattern, map, "pattern", TREE_MAP, WHERE, diag));
    if (pattern) TRY(json_member(&regex, pattern, "Regex", TREE_STRING, WHERE, diag));
    TRY(json_member(&behavior, map, "behavior", TREE_STRING, WHERE, diag));
    TRY(json_flag(&invert, map, "invert", false, WHERE, diag));
    if (regex && strcmp(regex->string, WORDS_REGEX) == 0 && invert && behavior &&
        strcmp(behavior->string, "Removed") == 0)
        return STATUS_OK;
    diag_fail(diag, STATUS_FORMAT, map->loc, WHERE,
              "expected Split with behavior Removed, invert and a Regex that is "
              "supported, found '%.160s'",
              regex ? regex->string : "none");
    diag_hint(diag, "`compress vocabulary` writes such files");
    return STATUS_FORMAT;
}

static Status read_words(WordSplit *split, const Tree *root, Diag *diag) {
    static const char WHERE[] = "pre_tokenizer";
    const Tree *map, *type = NULL;
    *split = SPLIT_SPACES;
    TRY(json_member(&map, root, WHERE, TREE_MAP, "", diag));
    if (map) TRY(json_member(&type, map, "type", TREE_STRING, WHERE, diag));
    const char *name = type ? type->string : "none";
    if (strcmp(name, "WhitespaceSplit") == 0) return STATUS_OK;
    if (strcmp(name, "Split") == 0) return read_split(split, map, diag);
    *split = SPLIT_PUNCTUATION;
    if (strcmp(name, "BertPreTokenizer") == 0) return STATUS_OK;
    return diag_fail(diag, STATUS_FORMAT, root->loc, WHERE,
                     "expected WhitespaceSplit, BertPreTokenizer or Split with the model "
                     "WordLevel, found '%.64s'",
                     name);
}

Status wordlevel_read(Tokenizer *self, const Tree *root, const Tree *model,
                      SpecialNames *names, Diag *diag) {
    const Tree *unknown;
    TRY(normalizer_read(&self->normalizer, self->arena, root, false, diag));
    TRY(read_words(&self->split, root, diag));
    TRY(json_member(&unknown, model, "unk_token", TREE_STRING, "model", diag));
    return unknown_read(&self->unknown, self, unknown, names, root->loc, diag);
}

/* --- vocab.json alone --- */

/* The usual special tokens, where the vocabulary has them, are tokens wherever they stand
 * in a text. */
static Status add_specials(Tokenizer *self, const SpecialNames *names, Loc at,
                           Diag *diag) {
    const char *const all[] = {
        names->pad ? names->pad : "<pad>", names->unk ? names->unk : "<unk>",
        names->bos ? names->bos : "<s>", names->eos ? names->eos : "</s>"};
    enum { COUNT = sizeof all / sizeof *all };
    AddedToken *added = ARENA_ARRAY(self->arena, AddedToken, COUNT);
    int count = 0;
    for (int i = 0; i < COUNT; i++) {
        const int32_t id = vocabulary_find(&self->vocabulary, all[i], strlen(all[i]));
        if (id >= 0)
            added[count++] = (AddedToken){
                .content = self->vocabulary.tokens[id].text, .id = id, .special = true};
    }
    return tokenizer_add(self, added, count, at, diag);
}

/* Lower case, the ways of special tokens, and the end behind every text. */
static Status use_config(Tokenizer *self, const Tree *config, Diag *diag) {
    bool lowercase;
    TRY(json_flag(&lowercase, config, "do_lower_case", false, "", diag));
    self->normalizer.steps[0].kind = NORMALIZE_LOWERCASE;
    self->normalizer.count = lowercase;
    self->split = SPLIT_SPACES;
    self->unknown = self->specials.unk;
    const int32_t end = self->specials.eos;
    template_plain(self);
    if (end < 0) return STATUS_OK;
    self->single = (Template){{{PIECE_FIRST, 0}, {end, 0}}, 2};
    self->pair = (Template){{{PIECE_FIRST, 0}, {PIECE_SECOND, 1}, {end, 1}}, 3};
    return STATUS_OK;
}

Status tokenizer_read_words(Tokenizer *self, Arena *scratch, const Folder *folder,
                            const char *name, Diag *diag) {
    Tree *config, *vocab;
    SpecialNames names;
    const Loc at = LOC_FILE(folder_file(folder, self->arena, name));
    TRY(config_read(&config, &names, scratch, folder, diag));
    TRY(folder_read_json(&vocab, folder, scratch, name, VOCABULARY_BYTES_MAX, diag));
    if (vocab->kind != TREE_MAP)
        return diag_fail(diag, STATUS_FORMAT, at, NULL, "expected a map, found %s",
                         tree_kind_name(vocab->kind));
    TRY(tokenizer_place(self, vocab, NULL, 0, at, NULL, diag));
    self->kind = MODEL_WORDS;
    TRY(add_specials(self, &names, at, diag));
    TRY(specials_find_some(self, &names, folder, at, diag));
    TRY(use_config(self, config, diag));
    return decoder_read(self, NULL, diag);
}
