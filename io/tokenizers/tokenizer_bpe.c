/* Tokenizer: reading the model BPE, from tokenizer.json or from vocab.json and
 * merges.txt. */
#include "io/tokenizers/tokenizer_class.h"
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

/* The special tokens are tokens wherever they stand in a text, beside those that the
 * configuration lists. */
static Status add_specials(Tokenizer *self, const SpecialNames *names,
                           const TokenizerClass *class, const AddedToken *listed,
                           int count, Loc at, Diag *diag) {
    const char *const all[] = {names->pad,  names->unk, names->cls, names->sep,
                               names->mask, names->bos, names->eos, "<|endoftext|>"};
    enum { COUNT = sizeof all / sizeof *all };
    AddedToken *added = ARENA_ARRAY(self->arena, AddedToken, (size_t)count + COUNT);
    for (int i = 0; i < count; i++) added[i] = listed[i];
    for (int i = 0; i < COUNT; i++) {
        int32_t id =
            all[i] ? vocabulary_find(&self->vocabulary, all[i], strlen(all[i])) : -1;
        if (id < 0) continue;
        added[count++] = (AddedToken){.content = self->vocabulary.tokens[id].text,
                                      .id = id,
                                      .special = true,
                                      .lstrip = all[i] == names->mask && class &&
                                                class->around == AROUND_ROBERTA};
    }
    return tokenizer_add(self, added, count, at, diag);
}

/* What cuts words: GPT-2's expression, or Qwen 2's in front of the bytes. */
static Status set_words(Tokenizer *self, const TokenizerClass *class, const Tree *config,
                        Diag *diag) {
    WordRules *words = &self->words;
    WordStep *step = &words->steps[0];
    const bool digits = class && class->digits;
    words->count = 1;
    *step = (WordStep){.kind = digits ? WORDS_SPLIT : WORDS_BYTES,
                       .behavior = SPLIT_ISOLATED};
    TRY(regex_compile(&step->regex, self->arena, digits ? REGEX_QWEN2 : REGEX_GPT2,
                      LOC_NONE, NULL, diag));
    if (digits) {
        words->steps[words->count++] = (WordStep){.kind = WORDS_BYTES};
        self->normalizer.steps[0] =
            (NormalizeStep){.kind = NORMALIZE_FORM, .form = NORMAL_NFC};
        self->normalizer.count = 1;
    }
    return json_flag(&words->steps[words->count - 1].space_in_front, config,
                     "add_prefix_space", false, "", diag);
}

/* The vocabulary, with the tokens that the configuration lists. */
static Status read_vocabulary(Tokenizer *self, Arena *scratch, const Folder *folder,
                              const char *name, const AddedToken *listed, int count,
                              Diag *diag) {
    static const char EXTRA[] = "added_tokens.json";
    const Loc at = LOC_FILE(folder_file(folder, self->arena, name));
    Tree *vocab;
    if (folder_has(folder, EXTRA) && count == 0)
        return diag_fail(diag, STATUS_FORMAT,
                         LOC_FILE(folder_file(folder, self->arena, EXTRA)), NULL,
                         "further tokens beside a vocab.json are not supported");
    TRY(folder_read_json(&vocab, folder, scratch, name, VOCABULARY_BYTES_MAX, diag));
    if (vocab->kind != TREE_MAP)
        return diag_fail(diag, STATUS_FORMAT, at, NULL, "expected a map, found %s",
                         tree_kind_name(vocab->kind));
    return tokenizer_place(self, vocab, listed, count, at, NULL, diag);
}

Status tokenizer_read_merges(Tokenizer *self, Arena *scratch, const Folder *folder,
                             const char *name, Diag *diag) {
    Tree *config;
    SpecialNames names;
    const TokenizerClass *class;
    AddedToken *listed;
    int count;
    Bpe *bpe = &self->bpe;
    const Loc at = LOC_FILE(folder_file(folder, self->arena, name));
    TRY(config_read(&config, &names, scratch, folder, diag));
    TRY(class_find(&class, config, scratch, folder, CLASS_MERGES, diag));
    class_names(&names, class);
    TRY(class_added(&listed, &count, self->arena, config, diag));
    TRY(read_vocabulary(self, scratch, folder, name, listed, count, diag));
    TRY(add_lines(self, scratch, folder, diag));
    self->kind = MODEL_BPE;
    bpe->byte_level = true;
    bpe->unknown =
        names.unk ? vocabulary_find(&self->vocabulary, names.unk, strlen(names.unk)) : -1;
    TRY(bpe_bytes(bpe, at, diag));
    TRY(set_words(self, class, config, diag));
    TRY(add_specials(self, &names, class, listed, count, at, diag));
    TRY(specials_find_some(self, &names, folder, at, diag));
    TRY(class_check_additional(self, config, diag));
    TRY(class_template(self, class ? class : class_gpt2(), config, at, diag));
    return decoder_read(self, NULL, diag);
}
