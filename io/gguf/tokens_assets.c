/* tokenizer.json of tokens. See tokens.h. */
#include "io/gguf/tokens.h"

#include "io/tokenizers/vocabulary.h"

#include <stdlib.h>
#include <string.h>

#define SPACE "\xe2\x96\x81"

/* Bytes that looking for merges may read: long tokens have many splits of many bytes. */
static const int64_t SPLIT_BYTES_MAX = (int64_t)1 << 32;

typedef struct Document {
    Arena *arena;
    const Tokens *tokens;
    Tree *root, *model;
    Vocabulary vocabulary;
    Diag *diag;
} Document;

static Tree *put_step(const Document *d, Tree *map, const char *key, const char *type) {
    Tree *step = tree_put_map(d->arena, map, key);
    tree_put_string(d->arena, step, "type", type);
    return step;
}

static Tree *add_step(const Document *d, Tree *list, const char *type) {
    Tree *step = tree_add_map(d->arena, list);
    tree_put_string(d->arena, step, "type", type);
    return step;
}

static Tree *put_sequence(const Document *d, const char *key, const char *list) {
    return tree_put_list(d->arena, put_step(d, d->root, key, "Sequence"), list);
}

/* Replaces a string by another one. */
static void add_replace(const Document *d, Tree *list, const char *from, const char *to) {
    Tree *step = add_step(d, list, "Replace");
    Tree *pattern = tree_put_map(d->arena, step, "pattern");
    tree_put_string(d->arena, pattern, "String", from);
    tree_put_string(d->arena, step, "content", to);
}

static const char *use_text(const Tokens *tokens, TokenUse use) {
    return tokens->use[use] >= 0 ? tokens->texts[tokens->use[use]] : NULL;
}

/* ---- vocabulary ---- */

/* Every token once; a text that comes again keeps its first number. */
static Status put_vocabulary(Document *d) {
    const Tokens *tokens = d->tokens;
    Tree *vocab = tree_put_map(d->arena, d->model, "vocab");
    if (tokens->count > TOKENS_MAX)
        return diag_fail(d->diag, STATUS_FORMAT, LOC_NONE, "tokenizer.ggml.tokens",
                         "expected at most %d tokens", TOKENS_MAX);
    vocabulary_create(&d->vocabulary, d->arena, (int32_t)tokens->count);
    for (int64_t i = 0; i < tokens->count; i++) {
        const char *text = tokens->texts[i];
        const size_t length = strlen(text);
        if (length > TOKEN_BYTES_MAX)
            return diag_fail(d->diag, STATUS_FORMAT, LOC_NONE, "tokenizer.ggml.tokens",
                             "expected tokens of at most %d bytes", TOKEN_BYTES_MAX);
        d->vocabulary.tokens[i] = (Token){text, (uint32_t)length};
        if (vocabulary_add(&d->vocabulary, (int32_t)i) != (int32_t)i) continue;
        Tree *id = tree_new(d->arena, TREE_INT, LOC_NONE);
        id->integer = i;
        tree_append(d->arena, vocab, text, LOC_NONE, id);
    }
    return STATUS_OK;
}

/* Tokens that are found in a text as they are, before it is cut. */
static void put_added(const Document *d) {
    static const char *const FLAGS[] = {"single_word", "lstrip", "rstrip", "normalized"};
    const Tokens *tokens = d->tokens;
    Tree *list = tree_put_list(d->arena, d->root, "added_tokens");
    for (int64_t i = 0; i < tokens->count; i++) {
        const int64_t type = tokens->types[i];
        const bool special = type == TOKEN_CONTROL || type == TOKEN_UNKNOWN;
        if (!special && type != TOKEN_USER_DEFINED) continue;
        Tree *added = tree_add_map(d->arena, list);
        tree_put_int(d->arena, added, "id", i);
        tree_put_string(d->arena, added, "content", tokens->texts[i]);
        for (int f = 0; f < 4; f++) tree_put_bool(d->arena, added, FLAGS[f], false);
        tree_put_bool(d->arena, added, "special", special);
    }
}

/* ---- merges of pieces ---- */

typedef struct Merge {
    double score;
    int32_t piece, left, right;
} Merge;

typedef struct MergeList {
    Merge *items;
    size_t count, capacity;
} MergeList;

static int merge_order(const void *a, const void *b) {
    const Merge *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    if (x->piece != y->piece) return x->piece < y->piece ? -1 : 1;
    return x->left < y->left ? -1 : x->left > y->left;
}

/* Every way to make a piece of two others. */
static void add_splits(MergeList *list, const Document *d, int32_t piece) {
    const char *text = d->tokens->texts[piece];
    const size_t length = strlen(text);
    for (size_t at = (size_t)utf8_bytes(text); at && at < length;
         at += (size_t)utf8_bytes(text + at)) {
        const int32_t left = vocabulary_find(&d->vocabulary, text, at);
        const int32_t right =
            left < 0 ? -1 : vocabulary_find(&d->vocabulary, text + at, length - at);
        if (right < 0) continue;
        if (list->count == list->capacity) {
            list->capacity = 2 * list->capacity + 1024;
            list->items = memory_grow(list->items, list->capacity, sizeof(Merge));
        }
        list->items[list->count++] =
            (Merge){d->tokens->scores[piece], piece, left, right};
    }
}

/* Merges in the order of the scores of what they make. */
static Status put_piece_merges(const Document *d) {
    const Tokens *tokens = d->tokens;
    MergeList list = {0};
    int64_t bytes = 0;
    Tree *merges = tree_put_list(d->arena, d->model, "merges");
    for (int64_t i = 0; i < tokens->count; i++) {
        const int64_t length = (int64_t)strlen(tokens->texts[i]);
        if (tokens->types[i] == TOKEN_NORMAL) bytes += length * length;
    }
    if (bytes > SPLIT_BYTES_MAX)
        return diag_fail(d->diag, STATUS_FORMAT, LOC_NONE, "tokenizer.ggml.tokens",
                         "expected shorter tokens");
    for (int64_t i = 0; i < tokens->count; i++)
        if (tokens->types[i] == TOKEN_NORMAL) add_splits(&list, d, (int32_t)i);
    if (list.count) qsort(list.items, list.count, sizeof(Merge), merge_order);
    for (size_t i = 0; i < list.count; i++)
        tree_add_string(d->arena, merges,
                        arena_printf(d->arena, "%s %s", tokens->texts[list.items[i].left],
                                     tokens->texts[list.items[i].right]));
    free(list.items);
    return STATUS_OK;
}

/* ---- kinds ---- */

/* Texts with tokens put around them, as post_processor has it. */
static void put_template(const Document *d, TokenUse before, bool has_before,
                         TokenUse after, bool has_after) {
    const Tokens *tokens = d->tokens;
    const TokenUse uses[] = {before, after};
    const bool has[] = {has_before && use_text(tokens, before),
                        has_after && use_text(tokens, after)};
    if (!has[0] && !has[1]) return;
    Tree *step = put_step(d, d->root, "post_processor", "TemplateProcessing");
    for (int pair = 0; pair < 2; pair++) {
        Tree *list = tree_put_list(d->arena, step, pair ? "pair" : "single");
        for (int text = 0; text <= pair; text++)
            for (int part = 0; part < 3; part++) {
                const int side = part == 2;
                if (part != 1 && !has[side]) continue;
                if (part == 0 && text && has[1]) continue; /* [CLS] a [SEP] b [SEP] */
                Tree *item = tree_put_map(d->arena, tree_add_map(d->arena, list),
                                          part == 1 ? "Sequence" : "SpecialToken");
                tree_put_string(d->arena, item, "id",
                                part == 1 ? (text ? "B" : "A")
                                          : use_text(tokens, uses[side]));
                tree_put_int(d->arena, item, "type_id", text);
            }
    }
    Tree *specials = tree_put_map(d->arena, step, "special_tokens");
    for (int side = 0; side < 2; side++) {
        const char *text = use_text(tokens, uses[side]);
        if (!has[side]) continue;
        Tree *map = tree_put_map(d->arena, specials, text);
        Tree *ids = tree_put_list(d->arena, map, "ids");
        Tree *id = tree_new(d->arena, TREE_INT, LOC_NONE);
        tree_put_string(d->arena, map, "id", text);
        id->integer = tokens->use[uses[side]];
        tree_append(d->arena, ids, NULL, LOC_NONE, id);
        tree_add_string(d->arena, tree_put_list(d->arena, map, "tokens"), text);
    }
}

static Status put_pieces(const Document *d) {
    const char *unknown = use_text(d->tokens, USE_UNK);
    Tree *steps = put_sequence(d, "normalizer", "normalizers");
    if (d->tokens->add_space)
        tree_put_string(d->arena, add_step(d, steps, "Prepend"), "prepend", SPACE);
    add_replace(d, steps, " ", SPACE);
    Tree *decoders = put_sequence(d, "decoder", "decoders");
    add_replace(d, decoders, SPACE, " ");
    add_step(d, decoders, "ByteFallback");
    add_step(d, decoders, "Fuse");
    if (d->tokens->add_space) {
        Tree *strip = add_step(d, decoders, "Strip");
        tree_put_string(d->arena, strip, "content", " ");
        tree_put_int(d->arena, strip, "start", 1);
        tree_put_int(d->arena, strip, "stop", 0);
    }
    if (unknown) tree_put_string(d->arena, d->model, "unk_token", unknown);
    tree_put_bool(d->arena, d->model, "fuse_unk", true);
    tree_put_bool(d->arena, d->model, "byte_fallback", true);
    put_template(d, USE_BOS, d->tokens->add_bos, USE_EOS, d->tokens->add_eos);
    return put_piece_merges(d);
}

static void put_byte_level(const Document *d) {
    const WordCut *cut = word_cut_by_name(d->tokens->pre);
    Tree *steps = put_sequence(d, "pre_tokenizer", "pretokenizers");
    Tree *merges = tree_put_list(d->arena, d->model, "merges");
    for (int64_t i = 0; i < d->tokens->merge_count; i++)
        tree_add_string(d->arena, merges, d->tokens->merges[i]);
    if (cut->digits)
        tree_put_bool(d->arena, add_step(d, steps, "Digits"), "individual_digits", true);
    if (cut->pattern) {
        Tree *split = add_step(d, steps, "Split");
        Tree *pattern = tree_put_map(d->arena, split, "pattern");
        tree_put_string(d->arena, pattern, "Regex", cut->pattern);
        tree_put_string(d->arena, split, "behavior", "Isolated");
        tree_put_bool(d->arena, split, "invert", false);
    }
    Tree *bytes = add_step(d, steps, "ByteLevel");
    tree_put_bool(d->arena, bytes, "add_prefix_space", false);
    tree_put_bool(d->arena, bytes, "use_regex", cut->pattern == NULL);
    put_step(d, d->root, "decoder", "ByteLevel");
    if (strcmp(cut->name, "llama-bpe") == 0)
        tree_put_bool(d->arena, d->model, "ignore_merges", true);
    put_template(d, USE_BOS, d->tokens->add_bos, USE_EOS, d->tokens->add_eos);
}

static void put_wordpiece(const Document *d) {
    const Tokens *tokens = d->tokens;
    const char *unknown = use_text(tokens, USE_UNK);
    Tree *normalizer = put_step(d, d->root, "normalizer", "BertNormalizer");
    tree_put_bool(d->arena, normalizer, "clean_text", true);
    tree_put_bool(d->arena, normalizer, "handle_chinese_chars", true);
    tree_put_bool(d->arena, normalizer, "lowercase", tokens->lowercase);
    put_step(d, d->root, "pre_tokenizer", "BertPreTokenizer");
    tree_put_string(d->arena, d->model, "unk_token", unknown ? unknown : "[UNK]");
    tree_put_string(d->arena, d->model, "continuing_subword_prefix", "##");
    tree_put_int(d->arena, d->model, "max_input_chars_per_word", 100);
    tree_put_string(d->arena, put_step(d, d->root, "decoder", "WordPiece"), "prefix",
                    "##");
    put_template(d, tokens->use[USE_CLS] < 0 ? USE_BOS : USE_CLS, true,
                 tokens->use[USE_SEP] < 0 ? USE_EOS : USE_SEP, true);
}

/* ---- the assets ---- */

static void put_asset(Model *model, const char *name, const Tree *tree) {
    Text text = {0};
    tree_print_json(&text, tree, 0);
    model_put_asset(model, name, text.data, text.length);
    text_free(&text);
}

static const char *const USE_NAMES[TOKEN_USES] = {"bos_token", "eos_token", "unk_token",
                                                  "pad_token", "sep_token", "cls_token",
                                                  "mask_token"};

static void put_config(const Document *d, Model *model) {
    const Tokens *tokens = d->tokens;
    const bool bert = strcmp(tokens->model, "bert") == 0;
    Tree *config = tree_new(d->arena, TREE_MAP, LOC_NONE);
    tree_put_string(d->arena, config, "tokenizer_class",
                    bert ? "BertTokenizer" : "PreTrainedTokenizerFast");
    for (int use = bert ? USE_UNK : 0; use < TOKEN_USES; use++)
        if (use_text(tokens, (TokenUse)use))
            tree_put_string(d->arena, config, USE_NAMES[use],
                            use_text(tokens, (TokenUse)use));
    if (!bert) tree_put_bool(d->arena, config, "add_bos_token", tokens->add_bos);
    if (tokens->chat_template)
        tree_put_string(d->arena, config, "chat_template", tokens->chat_template);
    put_asset(model, "tokenizer_config.json", config);
}

static Status put_document(Document *d) {
    const bool bert = strcmp(d->tokens->model, "bert") == 0;
    d->root = tree_new(d->arena, TREE_MAP, LOC_NONE);
    tree_put_string(d->arena, d->root, "version", "1.0");
    put_added(d);
    d->model = put_step(d, d->root, "model", bert ? "WordPiece" : "BPE");
    TRY(put_vocabulary(d));
    if (strcmp(d->tokens->model, "llama") == 0) return put_pieces(d);
    if (bert)
        put_wordpiece(d);
    else
        put_byte_level(d);
    return STATUS_OK;
}

Status tokens_to_assets(Model *model, const Tokens *tokens, Diag *diag) {
    if (!tokens->model) return STATUS_OK;
    Document d = {.arena = arena_create(), .tokens = tokens, .diag = diag};
    const Status status = put_document(&d);
    if (status == STATUS_OK) {
        put_asset(model, "tokenizer.json", d.root);
        put_config(&d, model);
    }
    arena_destroy(d.arena);
    return status;
}

Tree *tokens_config(Arena *arena, const Tokens *tokens) {
    Tree *config = tree_new(arena, TREE_MAP, LOC_NONE);
    if (!tokens->model) return config;
    const bool bert = strcmp(tokens->model, "bert") == 0;
    for (int use = 0; use < TOKEN_USES; use++) {
        char key[32];
        if (tokens->use[use] < 0 || (bert && use != USE_PAD)) continue;
        if (use > USE_PAD || use == USE_UNK) continue;
        snprintf(key, sizeof key, "%s_id", USE_NAMES[use]);
        tree_put_int(arena, config, key, tokens->use[use]);
    }
    return config;
}
