/* Tokenizer: reading one from whatever the path is. */
#include "io/files/path.h"
#include "io/tokenizers/tokenizer_readers.h"

#include <string.h>

/* Reads from a folder: what lies in it decides. */
static Status read_folder(Tokenizer *self, Arena *scratch, const char *folder,
                          Diag *diag) {
    const char *json = path_join(scratch, folder, "tokenizer.json");
    const char *tokens = path_join(scratch, folder, "vocab.json");
    const char *merges = path_join(scratch, folder, "merges.txt");
    const char *vocab = path_join(scratch, folder, "vocab.txt");
    if (path_is_file(json)) {
        TRY(path_check_inside(folder, json, diag));
        return tokenizer_read_json(self, scratch, json, folder, diag);
    }
    if (path_is_file(tokens) && path_is_file(merges)) {
        TRY(path_check_inside(folder, tokens, diag));
        TRY(path_check_inside(folder, merges, diag));
        return tokenizer_read_merges(self, scratch, tokens, folder, diag);
    }
    if (path_is_file(tokens)) {
        TRY(path_check_inside(folder, tokens, diag));
        return tokenizer_read_words(self, scratch, tokens, folder, diag);
    }
    if (!path_is_file(vocab))
        return diag_fail(diag, STATUS_IO, LOC_FILE(folder), NULL,
                         "expected a folder with a tokenizer.json or a vocab.txt, or "
                         "with vocab.json and merges.txt");
    TRY(path_check_inside(folder, vocab, diag));
    return tokenizer_read_vocab(self, scratch, vocab, folder, diag);
}

Status tokenizer_read(Tokenizer **out, const char *path, Diag *diag) {
    Arena *arena = arena_create(), *scratch = arena_create();
    Tokenizer *self = ARENA_NEW(arena, Tokenizer);
    Status status;
    self->arena = arena;
    const char *folder = path_folder(scratch, path), *ending = strrchr(path, '.');
    if (path_is_folder(path))
        status = read_folder(self, scratch, path, diag);
    else if (ending && strcmp(ending, ".json") == 0)
        status = tokenizer_read_json(self, scratch, path, folder, diag);
    else
        status = tokenizer_read_vocab(self, scratch, path, folder, diag);
    arena_destroy(scratch);
    if (status == STATUS_OK)
        *out = self;
    else
        tokenizer_destroy(self);
    return status;
}
