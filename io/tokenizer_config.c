/* Tokenizer: tokenizer_config.json, special tokens, and what both readers share. */
#include "io/tokenizer_parts.h"

#include "io/file.h"
#include "io/json.h"

#include <string.h>

enum { CONFIG_BYTES_MAX = 16 << 20 };

/* Whether a value is there and not null. */
static bool is_given(const Tree *value) {
    return value && value->kind != TREE_NULL;
}

Status json_member(const Tree **out, const Tree *map, const char *key, TreeKind kind,
                   const char *where, Diag *diag) {
    const Tree *value = tree_get(map, key);
    *out = is_given(value) ? value : NULL;
    if (!*out || value->kind == kind) return STATUS_OK;
    char path[128];
    snprintf(path, sizeof path, "%s%s%s", where, *where ? "." : "", key);
    return diag_fail(diag, STATUS_FORMAT, value->loc, path, "expected %s, found %s",
                     tree_kind_name(kind), tree_kind_name(value->kind));
}

Status json_flag(bool *out, const Tree *map, const char *key, bool fallback,
                 const char *where, Diag *diag) {
    const Tree *value;
    TRY(json_member(&value, map, key, TREE_BOOL, where, diag));
    *out = value ? value->boolean : fallback;
    return STATUS_OK;
}

/* --- names of the special tokens --- */

/* A token is given as a string, or as a map with its content. */
static Status read_name(const char **out, const Tree *config, const char *key,
                        Diag *diag) {
    const Tree *value = tree_get(config, key);
    if (!is_given(value)) return STATUS_OK;
    if (value->kind == TREE_MAP) {
        const Tree *content;
        TRY(json_member(&content, value, "content", TREE_STRING, key, diag));
        value = content;
    } else {
        TRY(json_member(&value, config, key, TREE_STRING, "", diag));
    }
    if (value) *out = value->string;
    return STATUS_OK;
}

Status config_read(Tree **config, SpecialNames *names, Arena *arena, const char *folder,
                   Diag *diag) {
    const char *path = path_join(arena, folder, "tokenizer_config.json");
    *names = (SpecialNames){"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    *config = NULL;
    if (!path_is_file(path)) return STATUS_OK;
    TRY(path_check_inside(folder, path, diag));
    TRY(json_read(config, arena, path, CONFIG_BYTES_MAX, diag));
    if ((*config)->kind != TREE_MAP)
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
                         "expected a JSON object, found %s",
                         tree_kind_name((*config)->kind));
    TRY(read_name(&names->pad, *config, "pad_token", diag));
    TRY(read_name(&names->unk, *config, "unk_token", diag));
    TRY(read_name(&names->cls, *config, "cls_token", diag));
    TRY(read_name(&names->sep, *config, "sep_token", diag));
    return read_name(&names->mask, *config, "mask_token", diag);
}

static Status find_special(int32_t *id, const Tokenizer *tokenizer, const char *name,
                           const char *role, Loc at, Diag *diag) {
    *id = tokenizer_find(tokenizer, name);
    if (*id >= 0) return STATUS_OK;
    diag_fail(diag, STATUS_FORMAT, at, NULL, "the vocabulary lacks %s '%s'", role, name);
    diag_hint(diag, "a tokenizer_config.json beside it can give another name");
    return STATUS_FORMAT;
}

Status specials_find(Tokenizer *tokenizer, const SpecialNames *names, Loc at,
                     Diag *diag) {
    SpecialIds *ids = &tokenizer->specials;
    TRY(find_special(&ids->pad, tokenizer, names->pad, "the padding token", at, diag));
    TRY(find_special(&ids->unk, tokenizer, names->unk, "the unknown token", at, diag));
    TRY(find_special(&ids->cls, tokenizer, names->cls, "the class token", at, diag));
    TRY(find_special(&ids->sep, tokenizer, names->sep, "the separator token", at, diag));
    ids->mask = tokenizer_find(tokenizer, names->mask);
    ids->bos = ids->eos = -1;
    return STATUS_OK;
}

/* --- templates and added tokens --- */

void template_bert(Tokenizer *tokenizer, int32_t cls, int32_t sep) {
    const Template single = {{{cls, 0}, {PIECE_FIRST, 0}, {sep, 0}}, 3};
    const Template pair = {
        {{cls, 0}, {PIECE_FIRST, 0}, {sep, 0}, {PIECE_SECOND, 1}, {sep, 1}}, 5};
    tokenizer->single = single;
    tokenizer->pair = pair;
}

Status tokenizer_add(Tokenizer *tokenizer, const AddedToken *tokens, int count, Loc at,
                     Diag *diag) {
    TRY(added_collect(&tokenizer->original, tokenizer->arena, tokens, count, NULL, at,
                      diag));
    return added_collect(&tokenizer->normalized, tokenizer->arena, tokens, count,
                         &tokenizer->rules, at, diag);
}
