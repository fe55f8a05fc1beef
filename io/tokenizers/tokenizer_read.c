/* Tokenizer: reading one from whatever the path is. */
#include "io/files/path.h"
#include "io/tokenizers/sentencepiece.h"
#include "io/tokenizers/tokenizer_readers.h"
#include "ir/text.h"

#include <string.h>

static const char JSON[] = "tokenizer.json", TOKENS[] = "vocab.json";

/* The first model of SentencePiece that lies in a folder; NULL = there is none. */
static const char *find_pieces(const Folder *folder) {
    for (const char *const *name = PIECES_FILES; *name; name++)
        if (folder_has(folder, *name)) return *name;
    return NULL;
}

static bool has_merges(const Folder *folder) {
    return folder_has(folder, TOKENS) && folder_has(folder, "merges.txt");
}

/* The file that cuts translations where read_folder takes another one for the texts that
 * are translated; NULL = the same cuts both. */
static const char *find_target(const Folder *folder) {
    if (folder_has(folder, JSON) || has_merges(folder)) return NULL;
    const char *pieces = find_pieces(folder);
    const bool apart = pieces && strcmp(pieces, PIECES_SOURCE) == 0;
    return apart && folder_has(folder, PIECES_TARGET) ? PIECES_TARGET : NULL;
}

/* Reads from a folder: what lies in it decides. */
static Status read_folder(Tokenizer *self, Arena *scratch, const Folder *folder,
                          Diag *diag) {
    static const char VOCAB[] = "vocab.txt";
    const char *pieces = find_pieces(folder);
    if (folder_has(folder, JSON))
        return tokenizer_read_json(self, scratch, folder, JSON, diag);
    if (has_merges(folder))
        return tokenizer_read_merges(self, scratch, folder, TOKENS, diag);
    if (pieces) return tokenizer_read_pieces(self, scratch, folder, pieces, diag);
    if (folder_has(folder, TOKENS))
        return tokenizer_read_words(self, scratch, folder, TOKENS, diag);
    if (folder_has(folder, VOCAB))
        return tokenizer_read_vocab(self, scratch, folder, VOCAB, diag);
    return diag_fail(diag, STATUS_IO, LOC_FILE(folder->path), NULL,
                     "expected a tokenizer.json or a vocab.txt, or vocab.json and "
                     "merges.txt, or a model of SentencePiece");
}

/* Reads the file that was named. */
static Status read_file(Tokenizer *self, Arena *scratch, const Folder *folder,
                        const char *name, Diag *diag) {
    const char *ending = strrchr(name, '.');
    if (ending && strcmp(ending, ".json") == 0)
        return tokenizer_read_json(self, scratch, folder, name, diag);
    if (ending && (strcmp(ending, ".model") == 0 || strcmp(ending, ".spm") == 0))
        return tokenizer_read_pieces(self, scratch, folder, name, diag);
    return tokenizer_read_vocab(self, scratch, folder, name, diag);
}

/* Reads from a folder, or the file `name` in it. */
static Status read_any(Tokenizer **out, const Folder *folder, const char *name,
                       Diag *diag) {
    Arena *arena = arena_create(), *scratch = arena_create();
    Tokenizer *self = ARENA_NEW(arena, Tokenizer);
    self->arena = arena;
    const Status status = name ? read_file(self, scratch, folder, name, diag)
                               : read_folder(self, scratch, folder, diag);
    arena_destroy(scratch);
    if (status == STATUS_OK)
        *out = self;
    else
        tokenizer_destroy(self);
    return status;
}

Status tokenizer_read(Tokenizer **out, const char *path, Diag *diag) {
    if (path_is_folder(path)) return read_any(out, &(Folder){.path = path}, NULL, diag);
    Arena *arena = arena_create();
    const char *slash = strrchr(path, '/');
    const Folder folder = {.path = path_folder(arena, path), .given = path};
    const Status status = read_any(out, &folder, slash ? slash + 1 : path, diag);
    arena_destroy(arena);
    return status;
}

Status tokenizer_read_target(Tokenizer **out, const char *path, Diag *diag) {
    const Folder folder = {.path = path};
    const char *name = path_is_folder(path) ? find_target(&folder) : NULL;
    *out = NULL;
    return name ? read_any(out, &folder, name, diag) : STATUS_OK;
}

Status tokenizer_read_beside(Tokenizer **out, const char *path, const char *source,
                             Diag *diag) {
    TRY(tokenizer_read_target(out, path, diag));
    if (*out || (source && strcmp(source, path) == 0)) return STATUS_OK;
    return tokenizer_read(out, path, diag);
}

bool tokenizer_of_model(const Model *model) {
    bool found = model_asset(model, "tokenizer.json") ||
                 model_asset(model, "vocab.json") || model_asset(model, "vocab.txt");
    for (const char *const *name = PIECES_FILES; *name; name++)
        found = found || model_asset(model, *name);
    return found;
}

/* The folder that a model came from: its assets and its configuration; in the arena. */
static Folder folder_of_model(const Model *model, const char *name, Arena *arena) {
    Text config = {0};
    tree_print_json(&config, model->config, 0);
    ModelAsset *files = ARENA_ARRAY(arena, ModelAsset, (size_t)model->asset_count + 1);
    for (int i = 0; i < model->asset_count; i++) files[i] = model->assets[i];
    files[model->asset_count] = (ModelAsset){
        "config.json", arena_strndup(arena, config.data, config.length), config.length};
    text_free(&config);
    return (Folder){.path = name, .files = files, .file_count = model->asset_count + 1};
}

Status tokenizer_read_model(Tokenizer **out, const Model *model, const char *name,
                            Diag *diag) {
    Arena *arena = arena_create();
    const Folder folder = folder_of_model(model, name, arena);
    const Status status = read_any(out, &folder, NULL, diag);
    arena_destroy(arena);
    return status;
}

Status tokenizer_read_model_target(Tokenizer **out, const Model *model, const char *name,
                                   Diag *diag) {
    Arena *arena = arena_create();
    const Folder folder = folder_of_model(model, name, arena);
    const char *file = find_target(&folder);
    *out = NULL;
    const Status status = file ? read_any(out, &folder, file, diag) : STATUS_OK;
    arena_destroy(arena);
    return status;
}

Status tokenizer_read_asset(Tokenizer **out, const Model *model, const char *asset,
                            const char *name, Diag *diag) {
    const ModelAsset *file = model_asset(model, asset);
    const Folder folder = {.path = name,
                           .files = file ? file : &(ModelAsset){0},
                           .file_count = file != NULL};
    return read_any(out, &folder, asset, diag);
}
