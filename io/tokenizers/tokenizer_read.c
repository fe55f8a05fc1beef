/* Tokenizer: reading one from whatever the path is. */
#include "io/files/path.h"
#include "io/tokenizers/tokenizer_parts.h"

#include <string.h>

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text), bytes = strlen(end);
    return length >= bytes && strcmp(text + length - bytes, end) == 0;
}

/* Reads from a folder: what lies in it decides. */
static Status read_folder(Tokenizer *self, const char *folder, Diag *diag) {
    const char *json = path_join(self->arena, folder, "tokenizer.json");
    const char *tokens = path_join(self->arena, folder, "vocab.json");
    const char *merges = path_join(self->arena, folder, "merges.txt");
    const char *vocab = path_join(self->arena, folder, "vocab.txt");
    if (path_is_file(json)) {
        TRY(path_check_inside(folder, json, diag));
        return tokenizer_read_json(self, json, folder, diag);
    }
    if (path_is_file(tokens) && path_is_file(merges)) {
        TRY(path_check_inside(folder, tokens, diag));
        TRY(path_check_inside(folder, merges, diag));
        return tokenizer_read_merges(self, folder, diag);
    }
    if (path_is_file(tokens)) {
        TRY(path_check_inside(folder, tokens, diag));
        return tokenizer_read_words(self, tokens, folder, diag);
    }
    if (!path_is_file(vocab))
        return diag_fail(diag, STATUS_IO, LOC_FILE(folder), NULL,
                         "expected a folder with a tokenizer.json or a vocab.txt, or "
                         "with vocab.json and merges.txt");
    TRY(path_check_inside(folder, vocab, diag));
    return tokenizer_read_vocab(self, vocab, folder, diag);
}

static Status read_any(Tokenizer *self, const char *path, Diag *diag) {
    if (path_is_folder(path)) return read_folder(self, path, diag);
    const char *folder = path_folder(self->arena, path);
    if (ends_with(path, ".json")) return tokenizer_read_json(self, path, folder, diag);
    return tokenizer_read_vocab(self, path, folder, diag);
}

Status tokenizer_read(Tokenizer **out, const char *path, Diag *diag) {
    Arena *arena = arena_create();
    Tokenizer *self = ARENA_NEW(arena, Tokenizer);
    self->arena = arena;
    Status status = read_any(self, path, diag);
    if (status == STATUS_OK)
        *out = self;
    else
        tokenizer_destroy(self);
    return status;
}
