/* Tokenizers of older folders that are a model of SentencePiece. See tokens.h. */
#include "io/gguf/tokens.h"

#include "io/tokenizers/sentencepiece.h"

#include <string.h>

static Status refuse(const char *name, const char *expected, const char *found,
                     Diag *diag) {
    diag_fail(diag, STATUS_MODEL, LOC_NONE, name, "expected %s, found %s", expected,
              found);
    diag_hint(diag, "llama.cpp would cut texts into other tokens");
    return STATUS_MODEL;
}

/* What llama.cpp's kind `llama` is: merges by score, bytes, and nothing done to texts. */
static Status check(const PieceModel *pieces, const char *name, Diag *diag) {
    if (pieces->algorithm != PIECES_BPE)
        return refuse(name, "byte-pair encoding", "a Unigram model", diag);
    if (!pieces->byte_fallback)
        return refuse(name, "bytes for characters without a piece", "none", diag);
    if (pieces->has_map)
        return refuse(name, "texts as they are", "a map of characters", diag);
    if (pieces->trim) return refuse(name, "all spaces", "spaces left out", diag);
    return STATUS_OK;
}

Status tokens_of_pieces(bool *found, Tokens *out, Arena *arena, const Model *model,
                        Diag *diag) {
    const ModelAsset *asset = NULL;
    PieceModel pieces;
    for (const char *const *name = PIECES_FILES; *name && !asset; name++)
        asset = model_asset(model, *name);
    *found = asset != NULL;
    if (!asset) return STATUS_OK;
    TRY(pieces_parse(&pieces, arena, asset->data, asset->length, LOC_FILE(asset->name),
                     diag));
    TRY(check(&pieces, asset->name, diag));
    if (pieces.count > out->count)
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, asset->name,
                         "expected at most %lld pieces, the model's numbers, found %d",
                         (long long)out->count, pieces.count);
    out->model = "llama";
    out->add_space = pieces.dummy_prefix;
    out->texts = ARENA_ARRAY(arena, const char *, (size_t)out->count);
    out->scores = ARENA_ARRAY(arena, double, (size_t)out->count);
    out->types = ARENA_ARRAY(arena, int64_t, (size_t)out->count);
    for (int64_t i = 0; i < out->count; i++) {
        const bool piece = i < pieces.count;
        out->texts[i] =
            piece ? pieces.texts[i].text : arena_printf(arena, "[PAD%lld]", (long long)i);
        out->scores[i] = piece ? pieces.scores[i] : 0;
        out->types[i] = piece ? pieces.types[i] : TOKEN_UNUSED; /* the same numbers */
    }
    return STATUS_OK;
}
