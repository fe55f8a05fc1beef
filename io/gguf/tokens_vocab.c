/* Tokenizers of older folders as the tree of a tokenizer.json. See tokens.h. */
#include "io/gguf/tokens.h"

#include "io/files/json.h"
#include "io/tokenizers/regex.h"

#include <string.h>
#include <strings.h>

/* Calls `take` with every line that is not empty, without white space at its end. */
typedef void TakeLine(Arena *arena, Tree *into, const char *line, int number);

static void take_lines(Arena *arena, const ModelAsset *asset, TakeLine *take,
                       Tree *into) {
    const char *at = asset->data, *const end = at + asset->length;
    for (int number = 0; at < end; number++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        size_t length = (size_t)(stop - at);
        while (length && strchr(" \t\r", at[length - 1])) length--;
        const char *line = arena_strndup(arena, at, length);
        if (*line && utf8_is_valid(line)) take(arena, into, line, number);
        at = stop + 1;
    }
}

static void take_token(Arena *arena, Tree *vocab, const char *line, int number) {
    if (!tree_get(vocab, line)) tree_put_int(arena, vocab, line, number);
}

/* "a b"; the first line may tell a version. */
static void take_merge(Arena *arena, Tree *merges, const char *line, int number) {
    if (number || strncmp(line, "#version", 8) != 0) tree_add_string(arena, merges, line);
}

/* A token that is found in a text as it is, if the vocabulary has it. */
static void add_special(Arena *arena, Tree *root, const char *text) {
    Tree *model = tree_get(root, "model"), *list = tree_get(root, "added_tokens");
    const Tree *id = tree_get(tree_get(model, "vocab"), text);
    if (!id || id->kind != TREE_INT) return;
    if (!list) list = tree_put_list(arena, root, "added_tokens");
    Tree *added = tree_add_map(arena, list);
    tree_put_int(arena, added, "id", id->integer);
    tree_put_string(arena, added, "content", text);
    tree_put_bool(arena, added, "special", true);
}

/* vocab.txt: one token a line, BERT's rules. */
static Tree *read_words(Arena *arena, const ModelAsset *words, const Tree *config) {
    static const char *const SPECIALS[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    const Tree *lower = tree_get_nonnull(config, "do_lower_case");
    Tree *root = tree_new(arena, TREE_MAP, LOC_NONE);
    Tree *model = tree_put_map(arena, root, "model");
    tree_put_string(arena, model, "type", "WordPiece");
    take_lines(arena, words, take_token, tree_put_map(arena, model, "vocab"));
    tree_put_bool(arena, tree_put_map(arena, root, "normalizer"), "lowercase",
                  !lower || lower->kind != TREE_BOOL || lower->boolean);
    for (int i = 0; i < 5; i++) add_special(arena, root, SPECIALS[i]);
    return root;
}

/* What cuts words: GPT-2's expression, or Qwen 2's in front of the bytes. */
static void put_words(Arena *arena, Tree *root, bool qwen) {
    Tree *cut = tree_put_map(arena, root, "pre_tokenizer"), *bytes = cut;
    if (qwen) {
        tree_put_string(arena, tree_put_map(arena, root, "normalizer"), "type", "NFC");
        tree_put_string(arena, cut, "type", "Sequence");
        Tree *steps = tree_put_list(arena, cut, "pretokenizers");
        Tree *split = tree_add_map(arena, steps);
        tree_put_string(arena, split, "type", "Split");
        tree_put_string(arena, tree_put_map(arena, split, "pattern"), "Regex",
                        REGEX_QWEN2);
        bytes = tree_add_map(arena, steps);
        tree_put_bool(arena, bytes, "use_regex", false);
    }
    tree_put_string(arena, bytes, "type", "ByteLevel");
    tree_put_bool(arena, bytes, "add_prefix_space", false);
}

/* vocab.json and merges.txt: GPT-2's or Qwen 2's. */
static Status read_merges(Tree **out, Arena *arena, const ModelAsset *words,
                          const ModelAsset *merges, bool qwen, Diag *diag) {
    Tree *vocab, *root = tree_new(arena, TREE_MAP, LOC_NONE);
    TRY(json_parse(&vocab, arena, words->name, words->data, words->length, diag));
    Tree *model = tree_put_map(arena, root, "model");
    tree_put_string(arena, model, "type", "BPE");
    tree_put(arena, model, "vocab", vocab);
    take_lines(arena, merges, take_merge, tree_put_list(arena, model, "merges"));
    put_words(arena, root, qwen);
    add_special(arena, root, "<|endoftext|>");
    *out = root;
    return STATUS_OK;
}

Status tokens_of_vocabulary(Tree **out, Arena *arena, const Model *model,
                            const Tree *config, Diag *diag) {
    const ModelAsset *lines = model_asset(model, "vocab.txt");
    const ModelAsset *words = model_asset(model, "vocab.json");
    const ModelAsset *merges = model_asset(model, "merges.txt");
    *out = lines ? read_words(arena, lines, config) : NULL;
    if (lines || !words || !merges) return STATUS_OK;
    const Tree *named = tree_get_nonnull(config, "tokenizer_class");
    if (!named) named = tree_get_nonnull(model->config, "model_type");
    const char *kind = named && named->kind == TREE_STRING ? named->string : "";
    return read_merges(out, arena, words, merges,
                       strncasecmp(kind, "qwen", strlen("qwen")) == 0, diag);
}
