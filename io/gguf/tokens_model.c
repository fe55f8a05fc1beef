/* Tokens of a tokenizer.json. See tokens.h. */
#include "io/gguf/tokens.h"

#include "io/files/json.h"
#include "io/tokenizers/regex.h"

#include <string.h>

/* Ends of SentencePiece's and of BERT's words. */
#define SPACE "\xe2\x96\x81"

static const WordCut CUTS[] = {
    {"gpt-2", NULL, false},
    {"smollm", NULL, true},
    {"llama-bpe",
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
     "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     false},
    {"qwen2", REGEX_QWEN2, false}};
enum { CUT_COUNT = sizeof CUTS / sizeof *CUTS };

const WordCut *word_cut_by_name(const char *name) {
    for (int i = 0; i < CUT_COUNT; i++)
        if (strcmp(CUTS[i].name, name) == 0) return &CUTS[i];
    return NULL;
}

static const WordCut *word_cut_by_pattern(const char *pattern, bool digits) {
    for (int i = 0; i < CUT_COUNT; i++) {
        const bool both = CUTS[i].pattern && pattern;
        if (CUTS[i].digits == digits && (both || CUTS[i].pattern == pattern) &&
            (!both || strcmp(CUTS[i].pattern, pattern) == 0))
            return &CUTS[i];
    }
    return NULL;
}

/* ---- reading the tree ---- */

typedef struct TokenReader {
    Tokens *out;
    Arena *arena;
    const Model *model;
    const Tree *root, *bpe; /* tokenizer.json, its "model" */
    const Tree *config;     /* tokenizer_config.json, NULL = none */
    Diag *diag;
} TokenReader;

static const char *string_of(const Tree *map, const char *key) {
    const Tree *value = tree_get_nonnull(map, key);
    return value && value->kind == TREE_STRING ? value->string : "";
}

static bool flag_of(const Tree *map, const char *key, bool fallback) {
    const Tree *value = tree_get_nonnull(map, key);
    return value && value->kind == TREE_BOOL ? value->boolean : fallback;
}

static bool is_type(const Tree *map, const char *type) {
    return strcmp(string_of(map, "type"), type) == 0;
}

static Status refuse(const TokenReader *r, const char *component, const char *expected,
                     const Tree *found) {
    diag_fail(r->diag, STATUS_MODEL, LOC_NONE, component, "expected %s, found %s",
              expected, found ? string_of(found, "type") : "none");
    diag_hint(r->diag, "llama.cpp would cut texts into other tokens");
    return STATUS_MODEL;
}

/* Steps of a Sequence (whose list is called `list`), or the one step that it is itself;
 * NULL ends them. */
static const Tree *first_step(const Tree *component, const char *list) {
    return is_type(component, "Sequence") ? tree_get(component, list)->first : component;
}
static const Tree *next_step(const Tree *component, const Tree *step) {
    return step == component ? NULL : step->next;
}

static Status check_sequence(const TokenReader *r, const char *key, const char *list) {
    const Tree *component = tree_get_nonnull(r->root, key);
    const Tree *steps = component ? tree_get(component, list) : NULL;
    if (component && is_type(component, "Sequence") &&
        (!steps || steps->kind != TREE_LIST))
        return diag_fail(r->diag, STATUS_FORMAT, LOC_NONE, key, "expected a list '%s'",
                         list);
    return STATUS_OK;
}

/* ---- texts and types ---- */

static Status place_token(const TokenReader *r, const char *text, const Tree *id,
                          TokenType type) {
    Tokens *out = r->out;
    if (!id || id->kind != TREE_INT || id->integer < 0 || id->integer >= out->count)
        return diag_fail(r->diag, STATUS_MODEL, LOC_NONE, "tokenizer.json",
                         "expected tokens of the model's numbers, 0 to %lld, found %lld "
                         "for '%.60s'",
                         (long long)out->count - 1,
                         id && id->kind == TREE_INT ? (long long)id->integer : -1, text);
    out->texts[id->integer] = text;
    out->types[id->integer] = type;
    return STATUS_OK;
}

static Status read_texts(const TokenReader *r) {
    Tokens *out = r->out;
    const Tree *vocab = tree_get(r->bpe, "vocab"), *added;
    const char *unknown = string_of(r->bpe, "unk_token");
    const bool pieces = strcmp(out->model, "llama") == 0;
    if (!vocab || vocab->kind != TREE_MAP)
        return diag_fail(r->diag, STATUS_FORMAT, LOC_NONE, "model.vocab",
                         "expected a map");
    out->texts = ARENA_ARRAY(r->arena, const char *, (size_t)out->count);
    out->types = ARENA_ARRAY(r->arena, int64_t, (size_t)out->count);
    for (const Tree *token = vocab->first; token; token = token->next) {
        const char *text = token->key; /* "<0x0A>" is a byte */
        const bool byte =
            pieces && strlen(text) == 6 && strncmp(text, "<0x", 3) == 0 && text[5] == '>';
        TRY(place_token(r, text, token, byte ? TOKEN_BYTE : TOKEN_NORMAL));
    }
    added = tree_get_nonnull(r->root, "added_tokens");
    for (added = added ? added->first : NULL; added; added = added->next) {
        const bool special = flag_of(added, "special", false);
        TRY(place_token(r, string_of(added, "content"), tree_get(added, "id"),
                        special ? TOKEN_CONTROL : TOKEN_USER_DEFINED));
    }
    for (int64_t i = 0; i < out->count; i++) {
        if (!out->texts[i]) {
            out->texts[i] = arena_printf(r->arena, "[PAD%lld]", (long long)i);
            out->types[i] = TOKEN_UNUSED;
        }
        if (pieces && *unknown && strcmp(out->texts[i], unknown) == 0)
            out->types[i] = TOKEN_UNKNOWN;
    }
    return STATUS_OK;
}

/* ---- merges ---- */

/* "a b" of an element of `merges`, which is such a string or a pair of them. */
static Status merge_text(const TokenReader *r, const Tree *merge, const char **out) {
    const Tree *left = merge->kind == TREE_LIST ? merge->first : NULL;
    const Tree *right = left ? left->next : NULL;
    *out = merge->kind == TREE_STRING ? merge->string : NULL;
    if (right && merge->count == 2 && left->kind == TREE_STRING &&
        right->kind == TREE_STRING)
        *out = arena_printf(r->arena, "%s %s", left->string, right->string);
    if (*out && strchr(*out, ' ')) return STATUS_OK;
    return diag_fail(r->diag, STATUS_FORMAT, LOC_NONE, "model.merges",
                     "expected pairs of tokens");
}

static Status read_merges(const TokenReader *r) {
    Tokens *out = r->out;
    const Tree *merges = tree_get(r->bpe, "merges");
    if (!merges || merges->kind != TREE_LIST)
        return diag_fail(r->diag, STATUS_FORMAT, LOC_NONE, "model.merges",
                         "expected a list");
    out->merges = ARENA_ARRAY(r->arena, const char *, (size_t)merges->count + 1);
    for (const Tree *merge = merges->first; merge; merge = merge->next)
        TRY(merge_text(r, merge, &out->merges[out->merge_count++]));
    return STATUS_OK;
}

/* SentencePiece joins the pair whose piece has the highest score: minus the number of
 * pieces that are made before it. Pieces that no merge makes come last. */
static Status read_scores(const TokenReader *r) {
    Tokens *out = r->out;
    const Tree *vocab = tree_get(r->bpe, "vocab");
    bool *scored = ARENA_ARRAY(r->arena, bool, (size_t)out->count);
    int64_t rank = 0;
    out->scores = ARENA_ARRAY(r->arena, double, (size_t)out->count);
    TRY(read_merges(r));
    for (int64_t i = 0; i < out->merge_count; i++) {
        const char *space = strchr(out->merges[i], ' ');
        const char *piece = arena_printf(
            r->arena, "%.*s%s", (int)(space - out->merges[i]), out->merges[i], space + 1);
        const Tree *id = tree_get(vocab, piece);
        if (!id || id->kind != TREE_INT)
            return diag_fail(r->diag, STATUS_FORMAT, LOC_NONE, "model.merges",
                             "'%.60s' is no token", piece);
        if (scored[id->integer]) continue;
        scored[id->integer] = true;
        out->scores[id->integer] = (double)-rank++;
    }
    for (int64_t i = 0; i < out->count; i++)
        if (!scored[i] && out->types[i] == TOKEN_NORMAL) out->scores[i] = (double)-rank++;
    out->merge_count = 0;
    return STATUS_OK;
}

/* ---- kinds ---- */

/* A space becomes a mark, and one comes before every text or does not. */
static Status read_pieces(const TokenReader *r) {
    const Tree *normalizer = tree_get_nonnull(r->root, "normalizer");
    const Tree *cut = tree_get_nonnull(r->root, "pre_tokenizer");
    bool marked = false;
    r->out->model = "llama";
    TRY(check_sequence(r, "normalizer", "normalizers"));
    const Tree *step = normalizer ? first_step(normalizer, "normalizers") : NULL;
    for (; step; step = next_step(normalizer, step)) {
        const bool mark =
            is_type(step, "Replace") && strcmp(string_of(step, "content"), SPACE) == 0;
        const bool prefix =
            is_type(step, "Prepend") && strcmp(string_of(step, "prepend"), SPACE) == 0;
        if (!mark && !prefix)
            return refuse(r, "normalizer", "Prepend and Replace of spaces", step);
        marked |= mark;
        r->out->add_space |= prefix;
    }
    if (cut && is_type(cut, "Metaspace") && !marked) {
        const char *scheme = string_of(cut, "prepend_scheme");
        r->out->add_space = strcmp(scheme, "never") != 0;
        marked = true;
    } else if (cut) {
        return refuse(r, "pre_tokenizer", "none or Metaspace", cut);
    }
    if (!marked) return refuse(r, "normalizer", "one that marks spaces", normalizer);
    TRY(read_texts(r));
    return read_scores(r);
}

static Status read_byte_level(const TokenReader *r) {
    const Tree *normalizer = tree_get_nonnull(r->root, "normalizer");
    const Tree *cut = tree_get_nonnull(r->root, "pre_tokenizer");
    const char *pattern = NULL;
    bool digits = false, bytes = false, words = false;
    r->out->model = "gpt2";
    if (normalizer && !is_type(normalizer, "NFC"))
        return refuse(r, "normalizer", "none or NFC", normalizer);
    TRY(check_sequence(r, "pre_tokenizer", "pretokenizers"));
    const Tree *step = cut ? first_step(cut, "pretokenizers") : NULL;
    for (; step; step = next_step(cut, step)) {
        if (is_type(step, "ByteLevel") && !flag_of(step, "add_prefix_space", true)) {
            bytes = true;
            words = flag_of(step, "use_regex", true);
        } else if (is_type(step, "Digits") && flag_of(step, "individual_digits", false)) {
            digits = true;
        } else if (is_type(step, "Split") && !pattern) {
            pattern = string_of(tree_get(step, "pattern"), "Regex");
        } else {
            return refuse(r, "pre_tokenizer", "ByteLevel without a prefix, Digits, Split",
                          step);
        }
    }
    const WordCut *found = word_cut_by_pattern(pattern, digits);
    if (!bytes || !found || words != (pattern == NULL))
        return refuse(r, "pre_tokenizer", "one that llama.cpp has a name for", cut);
    r->out->pre = found->name;
    TRY(read_texts(r));
    return read_merges(r);
}

static Status read_wordpiece(const TokenReader *r) {
    const Tree *normalizer = tree_get_nonnull(r->root, "normalizer");
    const char *prefix = string_of(r->bpe, "continuing_subword_prefix");
    r->out->model = "bert";
    r->out->lowercase = flag_of(normalizer, "lowercase", true);
    if (*prefix && strcmp(prefix, "##") != 0)
        return diag_fail(r->diag, STATUS_MODEL, LOC_NONE,
                         "model.continuing_subword_prefix",
                         "expected '##', found '%.20s'", prefix);
    return read_texts(r);
}

/* ---- tokens with a meaning ---- */

static const char *const USE_NAMES[TOKEN_USES] = {"bos", "eos", "unk", "pad",
                                                  "sep", "cls", "mask"};

static int64_t find_text(const Tokens *tokens, const char *text) {
    for (int64_t i = 0; i < tokens->count; i++)
        if (strcmp(tokens->texts[i], text) == 0) return i;
    return -1;
}

/* What BERT calls them where nothing says so. */
static const char *const USUAL[TOKEN_USES] = {"",      "",      "[UNK]", "[PAD]",
                                              "[SEP]", "[CLS]", "[MASK]"};

/* By name in tokenizer_config.json, else by number in the configuration, whose lists
 * begin with the most usual one. */
static int64_t find_use(const TokenReader *r, TokenUse use) {
    char key[32];
    snprintf(key, sizeof key, "%s_token", USE_NAMES[use]);
    const Tree *named = tree_get_nonnull(r->config, key);
    if (named && named->kind == TREE_MAP) named = tree_get(named, "content");
    if (named && named->kind == TREE_STRING) return find_text(r->out, named->string);
    snprintf(key, sizeof key, "%s_token_id", USE_NAMES[use]);
    const Tree *id = tree_get_nonnull(r->model->config, key);
    if (id && id->kind == TREE_LIST) id = id->first;
    if (id && id->kind == TREE_INT && id->integer >= 0 && id->integer < r->out->count)
        return id->integer;
    return strcmp(r->out->model, "bert") == 0 ? find_text(r->out, USUAL[use]) : -1;
}

/* What the template puts around a text. */
static void read_template(const TokenReader *r) {
    Tokens *out = r->out;
    const Tree *processor = tree_get_nonnull(r->root, "post_processor");
    const Tree *steps = tree_get(processor, "processors");
    const Tree *step = steps && steps->kind == TREE_LIST ? steps->first : processor;
    out->add_bos = flag_of(r->config, "add_bos_token", !r->root); /* Llama's default */
    out->add_eos = flag_of(r->config, "add_eos_token", false);
    for (; step; step = step == processor ? NULL : step->next) {
        const Tree *single = tree_get(step, "single");
        if (!is_type(step, "TemplateProcessing") || !single ||
            single->kind != TREE_LIST || !single->count)
            continue;
        const char *first = string_of(tree_get(single->first, "SpecialToken"), "id");
        const char *last = string_of(tree_get(single->last, "SpecialToken"), "id");
        const int64_t bos = out->use[USE_BOS], eos = out->use[USE_EOS];
        out->add_bos = bos >= 0 && strcmp(first, out->texts[bos]) == 0;
        out->add_eos = eos >= 0 && strcmp(last, out->texts[eos]) == 0;
    }
}

static Status parse_asset(const Tree **out, const TokenReader *r, const char *name) {
    Tree *tree;
    const ModelAsset *asset = model_asset(r->model, name);
    *out = NULL;
    if (!asset) return STATUS_OK;
    TRY(json_parse_wide(&tree, r->arena, name, asset->data, asset->length, r->diag));
    if (tree->kind != TREE_MAP)
        return diag_fail(r->diag, STATUS_FORMAT, LOC_FILE(name), NULL, "expected a map");
    *out = tree;
    return STATUS_OK;
}

Status tokens_of_model(Tokens *out, Arena *arena, const Model *model, int64_t rows,
                       Diag *diag) {
    TokenReader r = {.out = out, .arena = arena, .model = model, .diag = diag};
    *out = (Tokens){.count = rows, .lowercase = true};
    TRY(parse_asset(&r.root, &r, "tokenizer.json"));
    TRY(parse_asset(&r.config, &r, "tokenizer_config.json"));
    bool pieces = false;
    if (!r.root) {
        Tree *root;
        TRY(tokens_of_vocabulary(&root, arena, model, r.config, diag));
        if (!root) TRY(tokens_of_pieces(&pieces, out, arena, model, diag));
        if (!root && !pieces) return STATUS_OK;
        r.root = root;
    }
    r.bpe = tree_get(r.root, "model");
    const bool fallback = flag_of(r.bpe, "byte_fallback", false);
    if (is_type(r.bpe, "WordPiece"))
        TRY(read_wordpiece(&r));
    else if (pieces)
        ; /* the tokens are there */
    else if (is_type(r.bpe, "BPE"))
        TRY(fallback ? read_pieces(&r) : read_byte_level(&r));
    else
        return refuse(&r, "model", "BPE or WordPiece", r.bpe);
    for (int use = 0; use < TOKEN_USES; use++)
        out->use[use] = find_use(&r, (TokenUse)use);
    read_template(&r);
    const char *chat = string_of(r.config, "chat_template");
    out->chat_template = *chat ? chat : NULL;
    return STATUS_OK;
}
