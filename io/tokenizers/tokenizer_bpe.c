/* Tokenizer: reading the model BPE, from tokenizer.json or from vocab.json and
 * merges.txt. */
#include "io/tokenizers/tokenizer_readers.h"

#include "io/files/json.h"

#include <string.h>

enum { KEY_MAX = 64 };

/* --- model BPE of tokenizer.json --- */

/* The two parts of a merge, "a b" or ["a", "b"]. */
static bool merge_parts(const Tree *merge, TextSpan *left, TextSpan *right) {
    if (merge->kind == TREE_LIST) {
        const Tree *a = merge->first, *b = merge->last;
        if (merge->count != 2 || a->kind != TREE_STRING || b->kind != TREE_STRING)
            return false;
        *left = (TextSpan){a->string, strlen(a->string)};
        *right = (TextSpan){b->string, strlen(b->string)};
        return true;
    }
    const char *space = merge->kind == TREE_STRING ? strchr(merge->string, ' ') : NULL;
    if (!space || strchr(space + 1, ' ')) return false;
    *left = (TextSpan){merge->string, (size_t)(space - merge->string)};
    *right = (TextSpan){space + 1, strlen(space + 1)};
    return true;
}

static Status too_many(Loc at, const char *key, Diag *diag) {
    return diag_fail(diag, STATUS_FORMAT, at, key, "expected at most %d merges",
                     MERGES_MAX);
}

static Status read_merges(Tokenizer *self, const Tree *root, const Tree *list,
                          Diag *diag) {
    int index = 0;
    if (list && list->count > MERGES_MAX)
        return too_many(root->loc, "model.merges", diag);
    bpe_create(&self->bpe, self->arena, &self->vocabulary,
               list ? (size_t)list->count : 0);
    for (const Tree *merge = list ? list->first : NULL; merge;
         merge = merge->next, index++) {
        char key[KEY_MAX];
        TextSpan left, right;
        snprintf(key, sizeof key, "model.merges[%d]", index);
        if (!merge_parts(merge, &left, &right))
            return diag_fail(diag, STATUS_FORMAT, root->loc, key,
                             "expected two tokens, \"a b\" or [\"a\", \"b\"]");
        TRY(bpe_add(&self->bpe, left, right, root->loc, key, diag));
    }
    return STATUS_OK;
}

/* Settings that would change the tokens and that are not supported. */
static Status check_unused(const Tree *root, const Tree *model, Diag *diag) {
    static const char *const NAMES[] = {"continuing_subword_prefix",
                                        "end_of_word_suffix"};
    const Tree *dropout = tree_get_nonnull(model, "dropout");
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        const Tree *text;
        TRY(json_member(&text, model, NAMES[i], TREE_STRING, "model", diag));
        if (text && *text->string)
            return diag_fail(diag, STATUS_FORMAT, root->loc, "model",
                             "%s '%.64s' is not supported", NAMES[i], text->string);
    }
    bool none = !dropout || (dropout->kind == TREE_INT && dropout->integer == 0) ||
                (dropout->kind == TREE_FLOAT && dropout->real == 0);
    if (none) return STATUS_OK;
    return diag_fail(diag, STATUS_FORMAT, root->loc, "model.dropout",
                     "expected null: tokens are not drawn");
}

Status bpe_read(Tokenizer *self, const Tree *root, const Tree *model, SpecialNames *names,
                Diag *diag) {
    static const char WHERE[] = "model";
    const Tree *merges, *unknown;
    Bpe *bpe = &self->bpe;
    TRY(check_unused(root, model, diag));
    TRY(normalizer_read(&self->normalizer, self->arena, root, false, diag));
    TRY(words_read(&self->words, &bpe->byte_level, self->arena, root, diag));
    TRY(json_flag(&bpe->byte_fallback, model, "byte_fallback", false, WHERE, diag));
    TRY(json_flag(&bpe->fuse_unknown, model, "fuse_unk", false, WHERE, diag));
    TRY(json_flag(&bpe->ignore_merges, model, "ignore_merges", false, WHERE, diag));
    TRY(json_member(&unknown, model, "unk_token", TREE_STRING, WHERE, diag));
    TRY(json_member(&merges, model, "merges", TREE_LIST, WHERE, diag));
    TRY(unknown_read(&bpe->unknown, self, unknown, names, root->loc, diag));
    TRY(read_merges(self, root, merges, diag));
    return bpe_bytes(bpe, root->loc, diag);
}

/* --- vocab.json and merges.txt --- */

static Status add_line(Bpe *bpe, const char *line, size_t length, Loc at, Diag *diag) {
    const char *space = memchr(line, ' ', length), *end = line + length;
    if (!space || memchr(space + 1, ' ', (size_t)(end - space - 1)))
        return diag_fail(diag, STATUS_FORMAT, at, NULL,
                         "expected two tokens with a space between, found '%.*s'",
                         length < KEY_MAX ? (int)length : KEY_MAX, line);
    TextSpan left = {line, (size_t)(space - line)};
    TextSpan right = {space + 1, (size_t)(end - space - 1)};
    return bpe_add(bpe, left, right, at, NULL, diag);
}

static Status add_lines(Tokenizer *self, Arena *scratch, const Folder *folder,
                        Diag *diag) {
    static const char HEADER[] = "#version", NAME[] = "merges.txt";
    const char *file = folder_file(folder, scratch, NAME);
    char *text;
    size_t length, lines = 1;
    TRY(folder_read(&text, &length, folder, scratch, NAME, VOCABULARY_BYTES_MAX, diag));
    TRY(utf8_check_file(file, text, length, diag));
    for (const char *p = text; (p = strchr(p, '\n')); p++) lines++;
    if (lines > MERGES_MAX) return too_many(LOC_FILE(file), NULL, diag);
    bpe_create(&self->bpe, self->arena, &self->vocabulary, lines);
    Loc at = {file, 1, 0};
    for (char *line = text, *next; *line; line = next, at.line++) {
        length = strcspn(line, "\n");
        next = line + length + (line[length] == '\n');
        if (length > 0 && line[length - 1] == '\r') length--;
        if (length == 0 || strncmp(line, HEADER, strlen(HEADER)) == 0) continue;
        TRY(add_line(&self->bpe, line, length, at, diag));
    }
    return STATUS_OK;
}

/* Refuses what is not GPT-2's tokenizer. */
static Status check_config(const Tree *config, Diag *diag) {
    const Tree *class;
    TRY(json_member(&class, config, "tokenizer_class", TREE_STRING, "", diag));
    if (!class || strcmp(class->string, "GPT2Tokenizer") == 0 ||
        strcmp(class->string, "GPT2TokenizerFast") == 0)
        return STATUS_OK;
    diag_fail(diag, STATUS_FORMAT, class->loc, "tokenizer_class",
              "expected GPT2Tokenizer beside vocab.json and merges.txt, found '%.64s'",
              class->string);
    diag_hint(diag, "a tokenizer.json in the folder is read instead when it is there");
    return STATUS_FORMAT;
}

/* The special tokens are tokens wherever they stand in a text. */
static Status add_specials(Tokenizer *self, const SpecialNames *names, Loc at,
                           Diag *diag) {
    const char *const all[] = {names->pad,  names->unk, names->cls, names->sep,
                               names->mask, names->bos, names->eos, "<|endoftext|>"};
    enum { COUNT = sizeof all / sizeof *all };
    AddedToken *added = ARENA_ARRAY(self->arena, AddedToken, COUNT);
    int count = 0;
    for (int i = 0; i < COUNT; i++) {
        int32_t id =
            all[i] ? vocabulary_find(&self->vocabulary, all[i], strlen(all[i])) : -1;
        if (id >= 0)
            added[count++] = (AddedToken){
                .content = self->vocabulary.tokens[id].text, .id = id, .special = true};
    }
    return tokenizer_add(self, added, count, at, diag);
}

/* What GPT-2's configuration adds: a token at the beginning, a space in front. */
static Status use_config(Tokenizer *self, const Tree *config, Diag *diag) {
    bool bos;
    WordStep *step = &self->words.steps[0];
    *step = (WordStep){.kind = WORDS_BYTES};
    self->words.count = 1;
    TRY(regex_compile(&step->regex, self->arena, REGEX_GPT2, LOC_NONE, NULL, diag));
    TRY(json_flag(&step->space_in_front, config, "add_prefix_space", false, "", diag));
    TRY(json_flag(&bos, config, "add_bos_token", false, "", diag));
    template_plain(self);
    if (!bos) return STATUS_OK;
    int32_t id = self->specials.bos;
    if (id < 0)
        return diag_fail(diag, STATUS_FORMAT, config->loc, "add_bos_token",
                         "there is no bos_token");
    self->single = (Template){{{id, 0}, {PIECE_FIRST, 0}}, 2};
    self->pair = (Template){{{id, 0}, {PIECE_FIRST, 0}, {id, 1}, {PIECE_SECOND, 1}}, 4};
    return STATUS_OK;
}

Status tokenizer_read_merges(Tokenizer *self, Arena *scratch, const Folder *folder,
                             const char *name, Diag *diag) {
    Tree *config, *vocab;
    SpecialNames names;
    Bpe *bpe = &self->bpe;
    static const char EXTRA[] = "added_tokens.json";
    const Loc at = LOC_FILE(folder_file(folder, self->arena, name));
    TRY(config_read(&config, &names, scratch, folder, diag));
    TRY(check_config(config, diag));
    if (folder_has(folder, EXTRA))
        return diag_fail(diag, STATUS_FORMAT,
                         LOC_FILE(folder_file(folder, self->arena, EXTRA)), NULL,
                         "further tokens beside a vocab.json are not supported");
    TRY(folder_read_json(&vocab, folder, scratch, name, VOCABULARY_BYTES_MAX, diag));
    if (vocab->kind != TREE_MAP)
        return diag_fail(diag, STATUS_FORMAT, at, NULL, "expected a map, found %s",
                         tree_kind_name(vocab->kind));
    TRY(tokenizer_place(self, vocab, NULL, 0, at, NULL, diag));
    TRY(add_lines(self, scratch, folder, diag));
    self->kind = MODEL_BPE;
    bpe->byte_level = true;
    bpe->unknown =
        names.unk ? vocabulary_find(&self->vocabulary, names.unk, strlen(names.unk)) : -1;
    TRY(bpe_bytes(bpe, at, diag));
    TRY(add_specials(self, &names, at, diag));
    TRY(specials_find_some(self, &names, folder, at, diag));
    TRY(use_config(self, config, diag));
    return decoder_read(self, NULL, diag);
}
