/* Attributes in IR text: `key=value` pairs into a located map.
 *
 * A value is a number, true, false, null, a word (the name of a choice), a string in
 * quotes, a list in brackets, or a map in JSON's syntax. */
#include "ir/irtext.h"
#include "ir/irtext_lex.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Largest number of values in a text, and of keys in a map. */
enum { VALUES_MAX = 4000000, KEYS_MAX = 256 };

static Status parse_value(Lexer *lexer, int depth, Tree **out);

/* Reads a decimal real number of at most 63 bytes. False when it is malformed. */
static bool real_value(const char *text, size_t length, double *out) {
    char copy[64];
    if (length >= sizeof copy) return false;
    memcpy(copy, text, length);
    copy[length] = '\0';
    if (strspn(copy, "0123456789+-.eE") != length) return false;
    char *end;
    *out = strtod(copy, &end);
    return *end == '\0' && end != copy;
}

static bool is_decimal(const char *text, size_t length) {
    size_t i = text[0] == '-';
    if (i == length) return false;
    while (i < length && text[i] >= '0' && text[i] <= '9') i++;
    return i == length;
}

Status lex_number(Lexer *lexer, Tree *value) {
    size_t length = lex_number_length(lexer);
    if (length == 0) return lex_fail(lexer, "a number");
    value->loc = lex_loc(lexer);
    if (is_decimal(lexer->at, length)) {
        value->kind = TREE_INT;
        return lex_integer(lexer, "an integer", INT64_MIN, INT64_MAX, &value->integer);
    }
    value->kind = TREE_FLOAT;
    if (!real_value(lexer->at, length, &value->real)) return lex_fail(lexer, "a number");
    if (isinf(value->real))
        return diag_fail(lexer->diag, lexer->status, value->loc, NULL,
                         "the number %.*s is too large for a double", (int)length,
                         lexer->at);
    lexer->at += length;
    return STATUS_OK;
}

/* Words with a meaning of their own. */
static bool parse_keyword(Lexer *lexer, Tree *value) {
    static const struct {
        const char *word;
        Tree value;
    } WORDS[] = {
        {"true", {.kind = TREE_BOOL, .boolean = true}},
        {"false", {.kind = TREE_BOOL, .boolean = false}},
        {"null", {.kind = TREE_NULL}},
        {"inf", {.kind = TREE_FLOAT, .real = INFINITY}},
        {"-inf", {.kind = TREE_FLOAT, .real = -INFINITY}},
        {"nan", {.kind = TREE_FLOAT, .real = NAN}},
    };
    for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS; i++)
        if (lex_accept_word(lexer, WORDS[i].word)) {
            Loc loc = value->loc;
            *value = WORDS[i].value;
            value->loc = loc;
            return true;
        }
    return false;
}

static Status parse_scalar(Lexer *lexer, Tree *value) {
    if (parse_keyword(lexer, value)) return STATUS_OK;
    if (lex_number_length(lexer) == 0) return lex_fail(lexer, "a value");
    if (strchr("0123456789+-.", *lexer->at)) return lex_number(lexer, value);
    char word[LEX_NAME_BYTES];
    TRY(lex_word(lexer, "a value", word));
    value->kind = TREE_STRING;
    value->string = arena_strdup(lexer->arena, word);
    return STATUS_OK;
}

static Status parse_list(Lexer *lexer, int depth, Tree *list) {
    TRY(lex_expect(lexer, '['));
    list->kind = TREE_LIST;
    while (!lex_accept(lexer, ']')) {
        if (list->count > 0) {
            if (lex_peek(lexer) != ',') return lex_fail(lexer, "',' or ']'");
            TRY(lex_expect(lexer, ','));
        }
        Tree *item;
        TRY(parse_value(lexer, depth + 1, &item));
        tree_append(lexer->arena, list, NULL, LOC_NONE, item);
    }
    return STATUS_OK;
}

/* Reads the value of `key` and puts it into the map. */
static Status append_value(Lexer *lexer, int depth, Tree *map, const char *key, Loc loc) {
    if (tree_get(map, key))
        return diag_fail(lexer->diag, lexer->status, loc, key, "given twice");
    if (map->count >= KEYS_MAX)
        return diag_fail(lexer->diag, lexer->status, loc, key, "more than %d keys",
                         KEYS_MAX);
    Tree *value;
    TRY(parse_value(lexer, depth, &value));
    tree_append(lexer->arena, map, key, loc, value);
    return STATUS_OK;
}

static Status parse_map(Lexer *lexer, int depth, Tree *map) {
    TRY(lex_expect(lexer, '{'));
    map->kind = TREE_MAP;
    while (!lex_accept(lexer, '}')) {
        if (map->count > 0) {
            if (lex_peek(lexer) != ',') return lex_fail(lexer, "',' or '}'");
            TRY(lex_expect(lexer, ','));
        }
        Loc loc = lex_loc(lexer);
        const char *key;
        TRY(lex_string(lexer, &key));
        TRY(lex_expect(lexer, ':'));
        TRY(append_value(lexer, depth + 1, map, key, loc));
    }
    return STATUS_OK;
}

static Status parse_value(Lexer *lexer, int depth, Tree **out) {
    Loc loc = lex_loc(lexer);
    if (depth > LEX_DEPTH_MAX)
        return diag_fail(lexer->diag, lexer->status, loc, NULL,
                         "lists are nested deeper than %d levels", LEX_DEPTH_MAX);
    if (lexer->values++ >= VALUES_MAX)
        return diag_fail(lexer->diag, lexer->status, loc, NULL,
                         "the text has more than %d attribute values", VALUES_MAX);
    Tree *value = tree_new(lexer->arena, TREE_NULL, loc);
    *out = value;
    switch (lex_peek(lexer)) {
    case '[': return parse_list(lexer, depth, value);
    case '{': return parse_map(lexer, depth, value);
    case '"': value->kind = TREE_STRING; return lex_string(lexer, &value->string);
    default: return parse_scalar(lexer, value);
    }
}

Status lex_attrs(Lexer *lexer, char close, Tree **out) {
    *out = tree_new(lexer->arena, TREE_MAP, lex_loc(lexer));
    while (lex_peek(lexer) != close) {
        Loc loc = lex_loc(lexer);
        char key[LEX_NAME_BYTES];
        TRY(lex_word(lexer, "an attribute's name", key));
        TRY(lex_expect(lexer, '='));
        TRY(append_value(lexer, 0, *out, key, loc));
    }
    return STATUS_OK;
}

Status attrs_parse(Tree **out, Arena *arena, Loc at, const char *text, size_t length,
                   Diag *diag) {
    Lexer lexer = lexer_start(arena, at, text, length, diag);
    return lex_attrs(&lexer, '\0', out);
}
