/* Tokenizer: reading the model Unigram of a tokenizer.json. */
#include "io/tokenizers/tokenizer_readers.h"

#include <math.h>
#include <string.h>

enum { KEY_MAX = 64 };

/* The two parts of a piece, ["the", -3.5]; false when they are something else. */
static bool piece_parts(const Tree *piece, const char **text, double *score) {
    const Tree *name = piece->kind == TREE_LIST ? piece->first : NULL;
    const Tree *number = name ? piece->last : NULL;
    if (!name || piece->count != 2 || name->kind != TREE_STRING) return false;
    *text = name->string;
    return tree_number(number, score) && isfinite(*score);
}

Status unigram_vocab(const Tree **vocab, Arena *arena, const Tree *model,
                     const Tree *root, Diag *diag) {
    const Tree *list;
    int index = 0;
    TRY(json_member(&list, model, "vocab", TREE_LIST, "model", diag));
    Tree *map = tree_new(arena, TREE_MAP, root->loc);
    *vocab = list ? map : NULL;
    for (const Tree *piece = list ? list->first : NULL; piece;
         piece = piece->next, index++) {
        const char *text;
        double score;
        char key[KEY_MAX];
        snprintf(key, sizeof key, "model.vocab[%d]", index);
        if (!piece_parts(piece, &text, &score))
            return diag_fail(diag, STATUS_FORMAT, root->loc, key,
                             "expected a piece and its score, [\"the\", -3.5]");
        const Tree *known = tree_get(map, text);
        if (known)
            return diag_fail(diag, STATUS_FORMAT, root->loc, key,
                             "expected pieces that differ, found '%.64s' of number %lld "
                             "again",
                             text, (long long)known->integer);
        tree_put_int(arena, map, text, index);
    }
    return STATUS_OK;
}

/* Scores of the pieces, whose list was checked above. */
static void read_scores(Unigram *unigram, Arena *arena, const Tree *list) {
    double least = INFINITY;
    const char *text;
    unigram->pieces = list->count;
    unigram->scores = ARENA_ARRAY(arena, double, (size_t)list->count);
    double *score = unigram->scores;
    for (const Tree *piece = list->first; piece; piece = piece->next, score++) {
        piece_parts(piece, &text, score);
        least = fmin(least, *score);
    }
    unigram->unknown_score = least - UNIGRAM_PENALTY;
}

Status unigram_read(Tokenizer *self, const Tree *root, const Tree *model,
                    SpecialNames *names, Diag *diag) {
    static const char WHERE[] = "model";
    Unigram *unigram = &self->unigram;
    const Tree *unknown;
    bool byte_level;
    const Vocabulary *vocabulary = &self->vocabulary;
    TRY(normalizer_read(&self->normalizer, self->arena, root, false, diag));
    TRY(words_read(&self->words, &byte_level, self->arena, root, diag));
    if (byte_level)
        return diag_fail(diag, STATUS_FORMAT, root->loc, "pre_tokenizer",
                         "ByteLevel is not supported with the model Unigram");
    TRY(json_flag(&unigram->byte_fallback, model, "byte_fallback", false, WHERE, diag));
    TRY(json_member(&unknown, model, "unk_id", TREE_INT, WHERE, diag));
    unigram->vocabulary = vocabulary;
    unigram->texts = vocabulary->tokens;
    read_scores(unigram, self->arena, tree_get(model, "vocab"));
    if (unknown && (unknown->integer < 0 || unknown->integer >= unigram->pieces))
        return diag_fail(diag, STATUS_FORMAT, root->loc, "model.unk_id",
                         "expected a piece below %d, found %lld", unigram->pieces,
                         (long long)unknown->integer);
    unigram->unknown = unknown ? (int32_t)unknown->integer : -1;
    if (unknown && !names->unk) names->unk = vocabulary->tokens[unknown->integer].text;
    unigram_bytes(unigram);
    return unigram_build(unigram, self->arena, NULL, root->loc, "model.vocab", diag);
}
