/* Lexer of IR text: tokens, then the values of attributes.
 *
 * A value is a number, true, false, null, a word (the name of a choice), a string in
 * quotes, a list in brackets, or a map in JSON's syntax. */
#include "ir/irtext_lex.h"

#include "ir/irtext.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

Lexer lexer_start(Arena *arena, Loc start, const char *text, size_t length, Diag *diag) {
    return (Lexer){.arena = arena,
                   .diag = diag,
                   .status = STATUS_FORMAT,
                   .start = start,
                   .at = text,
                   .end = text + length,
                   .line_start = text,
                   .line = start.line > 0 ? start.line : 1};
}

static void skip_spaces(Lexer *lexer) {
    while (lexer->at < lexer->end &&
           (*lexer->at == ' ' || *lexer->at == '\t' || *lexer->at == '\r'))
        lexer->at++;
    if (lexer->at < lexer->end && *lexer->at == '#')
        while (lexer->at < lexer->end && *lexer->at != '\n') lexer->at++;
}

/* Place of a byte of the current line. */
static Loc loc_at(const Lexer *lexer, const char *byte) {
    if (!lexer->start.file) return LOC_NONE;
    int column = (int)(byte - lexer->line_start) + 1;
    if (lexer->line == lexer->start.line && lexer->start.column > 0)
        column += lexer->start.column - 1;
    return (Loc){lexer->start.file, lexer->line, column};
}

Loc lex_loc(Lexer *lexer) {
    skip_spaces(lexer);
    return loc_at(lexer, lexer->at);
}

char lex_peek(Lexer *lexer) {
    skip_spaces(lexer);
    if (lexer->at == lexer->end) return '\0';
    return *lexer->at ? *lexer->at : '\1';
}

bool lex_accept(Lexer *lexer, char c) {
    if (lex_peek(lexer) != c) return false;
    lexer->at++;
    return true;
}

bool lex_is_name_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '_' || c == '.' || c == '-' || c == '/';
}

size_t lex_word_length(Lexer *lexer) {
    skip_spaces(lexer);
    const char *p = lexer->at;
    while (p < lexer->end && lex_is_name_byte(*p)) p++;
    return (size_t)(p - lexer->at);
}

size_t lex_number_length(Lexer *lexer) {
    skip_spaces(lexer);
    const char *p = lexer->at;
    while (p < lexer->end && (lex_is_name_byte(*p) || *p == '+')) p++;
    return (size_t)(p - lexer->at);
}

/* Describes what comes next, for messages. */
static const char *describe(Lexer *lexer, char out[LEX_FOUND_BYTES]) {
    enum { SHOWN = 40 };
    char c = lex_peek(lexer);
    size_t length = lex_number_length(lexer);
    if (c == '\0') return "the end of the text";
    if (c == '\n') return "the end of the line";
    if (length > SHOWN)
        snprintf(out, LEX_FOUND_BYTES, "'%.*s...'", SHOWN, lexer->at);
    else if (length > 0)
        snprintf(out, LEX_FOUND_BYTES, "'%.*s'", (int)length, lexer->at);
    else if (c == '"')
        return "a string";
    else if (c > ' ' && c <= '~')
        snprintf(out, LEX_FOUND_BYTES, "'%c'", c);
    else
        snprintf(out, LEX_FOUND_BYTES, "byte 0x%02x", (unsigned char)*lexer->at);
    return out;
}

Status lex_fail(Lexer *lexer, const char *what) {
    char found[LEX_FOUND_BYTES];
    return diag_fail(lexer->diag, lexer->status, lex_loc(lexer), NULL,
                     "expected %s, found %s", what, describe(lexer, found));
}

Status lex_expect(Lexer *lexer, char c) {
    if (lex_accept(lexer, c)) return STATUS_OK;
    char what[] = {'\'', c, '\'', '\0'};
    return lex_fail(lexer, what);
}

Status lex_line_end(Lexer *lexer) {
    char c = lex_peek(lexer);
    if (c == '\0') return STATUS_OK;
    if (c != '\n') return lex_fail(lexer, "the end of the line");
    lexer->at++;
    lexer->line++;
    lexer->line_start = lexer->at;
    return STATUS_OK;
}

bool lex_accept_word(Lexer *lexer, const char *word) {
    size_t length = lex_word_length(lexer);
    if (length != strlen(word) || memcmp(lexer->at, word, length) != 0) return false;
    lexer->at += length;
    return true;
}

static Status fail_long_name(Lexer *lexer, Loc loc, size_t length) {
    return diag_fail(lexer->diag, lexer->status, loc, NULL,
                     "a name may have at most %d bytes, found %zu", LEX_NAME_BYTES - 1,
                     length);
}

Status lex_word(Lexer *lexer, const char *what, char out[LEX_NAME_BYTES]) {
    size_t length = lex_word_length(lexer);
    if (length == 0) return lex_fail(lexer, what);
    if (length >= LEX_NAME_BYTES) return fail_long_name(lexer, lex_loc(lexer), length);
    memcpy(out, lexer->at, length);
    out[length] = '\0';
    lexer->at += length;
    return STATUS_OK;
}

Status lex_name(Lexer *lexer, const char *what, char out[LEX_NAME_BYTES]) {
    if (lex_peek(lexer) != '"') return lex_word(lexer, what, out);
    Loc loc = lex_loc(lexer);
    const char *text;
    TRY(lex_string(lexer, &text));
    size_t length = strlen(text);
    if (length == 0)
        return diag_fail(lexer->diag, lexer->status, loc, NULL,
                         "expected %s, found an empty string", what);
    if (length >= LEX_NAME_BYTES) return fail_long_name(lexer, loc, length);
    memcpy(out, text, length + 1);
    return STATUS_OK;
}

/* Value of `length` decimal digits with an optional '-'. False when it is none or does
 * not fit. `*digits` tells the two apart. */
static bool integer_value(const char *text, size_t length, bool *digits, int64_t *out) {
    size_t i = length > 0 && text[0] == '-';
    *digits = i < length;
    int64_t value = 0;
    bool fits = true;
    for (; i < length; i++) {
        if (text[i] < '0' || text[i] > '9') return *digits = false;
        fits = fits && !__builtin_mul_overflow(value, 10, &value) &&
               !__builtin_sub_overflow(value, text[i] - '0', &value);
    }
    if (text[0] != '-') fits = fits && !__builtin_sub_overflow(0, value, &value);
    *out = value;
    return *digits && fits;
}

Status lex_integer(Lexer *lexer, const char *what, int64_t min, int64_t max,
                   int64_t *out) {
    size_t length = lex_word_length(lexer);
    if (length == 0) return lex_fail(lexer, what);
    bool digits;
    bool fits = integer_value(lexer->at, length, &digits, out);
    if (!digits) return lex_fail(lexer, what);
    if (!fits || *out < min || *out > max) {
        char found[LEX_FOUND_BYTES];
        return diag_fail(lexer->diag, lexer->status, lex_loc(lexer), NULL,
                         "%s must be %lld to %lld, found %s", what, (long long)min,
                         (long long)max, describe(lexer, found));
    }
    lexer->at += length;
    return STATUS_OK;
}

/* Strings. */

/* Value of four hexadecimal digits, -1 when there are fewer. */
static int hex4(const char *p, const char *end) {
    int value = 0;
    for (int i = 0; i < 4; i++, p++) {
        if (p >= end) return -1;
        if (*p >= '0' && *p <= '9')
            value = value * 16 + (*p - '0');
        else if ((*p | 32) >= 'a' && (*p | 32) <= 'f')
            value = value * 16 + ((*p | 32) - 'a' + 10);
        else
            return -1;
    }
    return value;
}

/* Writes a code point as UTF-8 and returns the end. */
static char *utf8_put(char *out, unsigned code) {
    int tail = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned char LEAD[] = {0, 0xc0, 0xe0, 0xf0};
    *out++ = (char)(LEAD[tail] | (code >> (6 * tail)));
    while (tail-- > 0) *out++ = (char)(0x80 | ((code >> (6 * tail)) & 0x3f));
    return out;
}

/* Decodes \uXXXX after its 'u', with a second one for a pair. NULL when malformed, or
 * the zero character. */
static const char *decode_unicode(const char *p, const char *end, char **out) {
    int code = hex4(p, end);
    if (code <= 0 || (code >= 0xdc00 && code < 0xe000)) return NULL;
    p += 4;
    if (code >= 0xd800 && code < 0xdc00) {
        if (end - p < 6 || p[0] != '\\' || p[1] != 'u') return NULL;
        int low = hex4(p + 2, end);
        if (low < 0xdc00 || low >= 0xe000) return NULL;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        p += 6;
    }
    *out = utf8_put(*out, (unsigned)code);
    return p;
}

/* Decodes an escape after its backslash; NULL when it is none. */
static const char *decode_escape(const char *p, const char *end, char **out) {
    static const char FROM[] = "\"\\/bfnrt", TO[] = "\"\\/\b\f\n\r\t";
    if (p >= end || !*p) return NULL;
    if (*p == 'u') return decode_unicode(p + 1, end, out);
    const char *known = strchr(FROM, *p);
    if (!known) return NULL;
    *(*out)++ = TO[known - FROM];
    return p + 1;
}

Status lex_string(Lexer *lexer, const char **out) {
    Loc loc = lex_loc(lexer);
    if (lex_peek(lexer) != '"') return lex_fail(lexer, "a string");
    const char *p = lexer->at + 1;
    const char *end = p; /* its quote, or the byte that must not be there */
    while (end < lexer->end && *end != '"' && (unsigned char)*end >= ' ')
        end +=
            *end == '\\' && lexer->end - end > 1 && (unsigned char)end[1] >= ' ' ? 2 : 1;
    if (end == lexer->end || *end != '"')
        return diag_fail(lexer->diag, lexer->status, loc, NULL,
                         "the string has no closing quote on its line");
    char *to = arena_alloc(lexer->arena, (size_t)(end - p) + 1);
    *out = to;
    while (p < end) {
        const char *from = p;
        if (*p != '\\')
            *to++ = *p++;
        else if (!(p = decode_escape(p + 1, end, &to)))
            return diag_fail(lexer->diag, lexer->status, loc_at(lexer, from), NULL,
                             "expected an escape of JSON in the string, found '\\%.*s'",
                             from + 1 < end && from[1] > ' ' && from[1] <= '~', from + 1);
    }
    lexer->at = end + 1;
    if (utf8_is_valid(*out)) return STATUS_OK;
    return diag_fail(lexer->diag, lexer->status, loc, NULL, "the string is not UTF-8");
}

/* Values. */

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

Status lex_number(Lexer *lexer, Tree *value) {
    size_t length = lex_number_length(lexer);
    if (length == 0) return lex_fail(lexer, "a number");
    value->loc = lex_loc(lexer);
    bool digits; /* alone: the number is an integer, be it too large */
    integer_value(lexer->at, length, &digits, &value->integer);
    if (digits) {
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
    default: break;
    }
    if (parse_keyword(lexer, value)) return STATUS_OK;
    if (lex_number_length(lexer) == 0) return lex_fail(lexer, "a value");
    if (strchr("0123456789+-.", *lexer->at)) return lex_number(lexer, value);
    char word[LEX_NAME_BYTES];
    TRY(lex_word(lexer, "a value", word));
    value->kind = TREE_STRING;
    value->string = arena_strdup(lexer->arena, word);
    return STATUS_OK;
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
