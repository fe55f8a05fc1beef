/* Tokenizer: a vocab.txt written as a tokenizer.json. */
#include "io/tokenizers/tokenizer_model.h"

#include <string.h>

typedef struct Writing {
    Arena *arena;
    const Tokenizer *tokenizer;
    Tree *root;
} Writing;

static Tree *put_component(const Writing *w, const char *key, const char *type) {
    Tree *component = tree_put_map(w->arena, w->root, key);
    tree_put_string(w->arena, component, "type", type);
    return component;
}

/* Both sets have all added tokens, each looks for its own. */
static void put_added(const Writing *w) {
    const AddedSet *set = &w->tokenizer->original;
    Tree *list = tree_put_list(w->arena, w->root, "added_tokens");
    for (int32_t i = 0; i < set->vocabulary.capacity; i++) {
        const AddedToken *token = &set->tokens[i];
        Tree *map = tree_add_map(w->arena, list);
        tree_put_int(w->arena, map, "id", token->id);
        tree_put_string(w->arena, map, "content", token->content);
        tree_put_bool(w->arena, map, "single_word", token->single_word);
        tree_put_bool(w->arena, map, "lstrip", token->lstrip);
        tree_put_bool(w->arena, map, "rstrip", token->rstrip);
        tree_put_bool(w->arena, map, "normalized", token->normalized);
        tree_put_bool(w->arena, map, "special", token->special);
    }
}

static void put_normalizer(const Writing *w) {
    const BertRules *rules = &w->tokenizer->normalizer.steps[0].rules;
    Tree *normalizer = put_component(w, "normalizer", "BertNormalizer");
    tree_put_bool(w->arena, normalizer, "clean_text", rules->clean_text);
    tree_put_bool(w->arena, normalizer, "handle_chinese_chars", rules->space_chinese);
    tree_put_bool(w->arena, normalizer, "strip_accents", rules->strip_accents);
    tree_put_bool(w->arena, normalizer, "lowercase", rules->lowercase);
}

/* Notes the number of a token that stands in a template. */
static void put_special(const Writing *w, Tree *specials, int32_t id) {
    const char *name = tokenizer_token(w->tokenizer, id);
    Tree *entry = tree_put_map(w->arena, specials, name);
    Tree *number = tree_new(w->arena, TREE_INT, LOC_NONE);
    number->integer = id;
    tree_put_string(w->arena, entry, "id", name);
    tree_append(w->arena, tree_put_list(w->arena, entry, "ids"), NULL, LOC_NONE, number);
    tree_add_string(w->arena, tree_put_list(w->arena, entry, "tokens"), name);
}

static void put_template(const Writing *w, Tree *processor, const char *key,
                         const Template *template, Tree *specials) {
    Tree *list = tree_put_list(w->arena, processor, key);
    for (int i = 0; i < template->count; i++) {
        const TemplatePiece *piece = &template->pieces[i];
        const bool text = piece->id == PIECE_FIRST || piece->id == PIECE_SECOND;
        Tree *body = tree_put_map(w->arena, tree_add_map(w->arena, list),
                                  text ? "Sequence" : "SpecialToken");
        if (text)
            tree_put_string(w->arena, body, "id", piece->id == PIECE_FIRST ? "A" : "B");
        else
            tree_put_string(w->arena, body, "id",
                            tokenizer_token(w->tokenizer, piece->id));
        tree_put_int(w->arena, body, "type_id", piece->type);
        if (!text) put_special(w, specials, piece->id);
    }
}

static void put_processor(const Writing *w) {
    Tree *processor = put_component(w, "post_processor", "TemplateProcessing");
    Tree *specials = tree_new(w->arena, TREE_MAP, LOC_NONE);
    put_template(w, processor, "single", &w->tokenizer->single, specials);
    put_template(w, processor, "pair", &w->tokenizer->pair, specials);
    tree_put(w->arena, processor, "special_tokens", specials);
}

/* The tokens by name; false where two have the same. */
static bool put_model(const Writing *w) {
    const WordPiece *wordpiece = &w->tokenizer->wordpiece;
    Tree *model = put_component(w, "model", "WordPiece");
    tree_put_string(w->arena, model, "unk_token",
                    tokenizer_token(w->tokenizer, wordpiece->unknown));
    tree_put_string(w->arena, model, "continuing_subword_prefix",
                    wordpiece->continued.text);
    tree_put_int(w->arena, model, "max_input_chars_per_word",
                 (int64_t)wordpiece->max_chars);
    Tree *vocabulary = tree_put_map(w->arena, model, "vocab");
    for (int32_t id = 0; id < tokenizer_size(w->tokenizer); id++)
        tree_put_int(w->arena, vocabulary, tokenizer_token(w->tokenizer, id), id);
    return vocabulary->count == tokenizer_size(w->tokenizer);
}

bool tokenizer_vocab_json(Text *out, const Tokenizer *self) {
    if (self->kind != MODEL_WORDPIECE || self->normalizer.count != 1) return false;
    Arena *arena = arena_create();
    const Writing w = {arena, self, tree_new(arena, TREE_MAP, LOC_NONE)};
    tree_put_string(arena, w.root, "version", "1.0");
    put_added(&w);
    put_normalizer(&w);
    put_component(&w, "pre_tokenizer", "BertPreTokenizer");
    put_processor(&w);
    Tree *decoder = put_component(&w, "decoder", "WordPiece");
    tree_put_string(arena, decoder, "prefix", self->wordpiece.continued.text);
    tree_put_bool(arena, decoder, "cleanup", true);
    const bool written = put_model(&w);
    if (written) tree_print_json(out, w.root, 0);
    arena_destroy(arena);
    return written;
}
