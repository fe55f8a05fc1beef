/* Tokenizer: the model Characters, in which every character is a token. */
#include "io/tokenizers/tokenizer_readers.h"

#include <string.h>

static const char VOCAB[] = "model.vocab";

/* --- reading --- */

/* A list as a map of numbers. */
static Status list_to_map(Tree *map, Arena *arena, const Tree *list, Diag *diag) {
    int64_t id = 0;
    for (const Tree *item = list->first; item; item = item->next, id++) {
        if (item->kind != TREE_STRING)
            return diag_fail(diag, STATUS_FORMAT, item->loc, VOCAB,
                             "token %lld: expected string, found %s", (long long)id,
                             tree_kind_name(item->kind));
        const Tree *twin = tree_get(map, item->string);
        if (twin)
            return diag_fail(diag, STATUS_FORMAT, item->loc, VOCAB,
                             "tokens %lld and %lld are the same, '%.64s'",
                             (long long)twin->integer, (long long)id, item->string);
        tree_put_int(arena, map, item->string, id);
    }
    return STATUS_OK;
}

Status characters_vocab(const Tree **vocab, Arena *arena, const Tree *model,
                        const Tree *root, Diag *diag) {
    const Tree *found = tree_get(model, "vocab");
    *vocab = NULL;
    if (found && found->kind == TREE_LIST) {
        Tree *map = tree_new(arena, TREE_MAP, root->loc);
        *vocab = map;
        return list_to_map(map, arena, found, diag);
    }
    return json_member(vocab, model, "vocab", TREE_MAP, "model", diag);
}

/* Tokens that were not added must be one character long. */
static Status check_lengths(const Tokenizer *self, const AddedToken *added, int count,
                            Loc at, Diag *diag) {
    for (int32_t id = 0; id < tokenizer_size(self); id++) {
        const Token *token = &self->vocabulary.tokens[id];
        bool known = utf8_count(token->text, token->length) == 1;
        for (int i = 0; i < count && !known; i++) known = added[i].id == id;
        if (known) continue;
        return diag_fail(diag, STATUS_FORMAT, at, VOCAB,
                         "expected characters, found '%.64s' at number %d, which is "
                         "not among added_tokens",
                         token->text, (int)id);
    }
    return STATUS_OK;
}

/* What the library of Hugging Face knows and this model does not. */
static Status check_absent(const Tree *root, Diag *diag) {
    static const char *const NAMES[] = {"normalizer", "pre_tokenizer", "decoder"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        const Tree *map;
        TRY(json_member(&map, root, NAMES[i], TREE_MAP, "", diag));
        if (map)
            return diag_fail(diag, STATUS_FORMAT, root->loc, NAMES[i],
                             "expected null with the model Characters, found a map");
    }
    return STATUS_OK;
}

Status characters_read(Tokenizer *self, const Tree *root, const Tree *model,
                       const AddedToken *added, int count, SpecialNames *names,
                       Diag *diag) {
    const Tree *unknown;
    bool lowercase;
    TRY(check_absent(root, diag));
    TRY(check_lengths(self, added, count, root->loc, diag));
    TRY(json_flag(&lowercase, model, "lowercase", false, "model", diag));
    TRY(json_member(&unknown, model, "unk_token", TREE_STRING, "model", diag));
    self->normalizer.steps[0].kind = NORMALIZE_LOWERCASE;
    self->normalizer.count = lowercase;
    return unknown_read(&self->unknown, self, unknown, names, root->loc, diag);
}
