/* Regex: see regex.h. The only file that includes pcre2.h. */
#include "io/tokenizers/regex.h"

#include "io/tokenizers/unicode.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum {
    PATTERN_MAX = 1 << 14, /* bytes, as written in PCRE2's terms */
    NESTING_MAX = 64,
    STEPS_FIRST = 2000, /* of one attempt at one place; ten times as many when it fails */
    STEPS_MOST = 20000000,
    STEPS_SURE = 50000000, /* of a text, and for each of its bytes: */
    STEPS_BYTE = 1000,
    HEAP_KIB = 20000
};

struct Regex {
    pcre2_code *code; /* anchored: it matches at one place or not; NULL: a literal */
    TextSpan literal;
};

/* --- from the syntax of Oniguruma to that of PCRE2 --- */

typedef struct Translator {
    const char *pattern;
    size_t at;
    bool set; /* within [...] */
    Text out;
    const char *fault; /* why it cannot be done */
} Translator;

#define WORD_CHARS "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"

static bool is_script(const char *name, int length) {
    char pattern[64];
    int code;
    PCRE2_SIZE offset;
    if (snprintf(pattern, sizeof pattern, "\\p{sc:%.*s}", length, name) >=
        (int)sizeof pattern)
        return false;
    pcre2_code *probe = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                      PCRE2_UTF, &code, &offset, NULL);
    pcre2_code_free(probe);
    return probe != NULL;
}

/* \p{Name}: PCRE2 knows short names of categories only, and takes a script's name for all
 * characters that the script is used with. */
static void translate_property(Translator *t) {
    static const char *const NAMES[][2] = {
        {"Letter", "L"},         {"Mark", "M"},           {"Number", "N"},
        {"Punctuation", "P"},    {"Symbol", "S"},         {"Separator", "Z"},
        {"Alpha", "Alphabetic"}, {"Space", "White_Space"}};
    const char *open = t->pattern + t->at, *close = strchr(open, '}');
    if (open[2] != '{' || !close) {
        text_bytes(&t->out, open, 2);
        t->at += 2;
        return;
    }
    const char *name = open + 3;
    bool negative = open[1] == 'P';
    if (*name == '^') name++, negative = !negative;
    int length = (int)(close - name);
    const char *kind = length > 2 && !memchr(name, ':', (size_t)length) &&
                               !memchr(name, '=', (size_t)length) &&
                               is_script(name, length)
                           ? "sc:"
                           : "";
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if ((int)strlen(NAMES[i][0]) == length &&
            strncasecmp(name, NAMES[i][0], (size_t)length) == 0) {
            name = NAMES[i][1];
            length = (int)strlen(name);
            kind = "";
        }
    text_add(&t->out, "\\%c{%s%.*s}", negative ? 'P' : 'p', kind, length, name);
    t->at = (size_t)(close - t->pattern) + 1;
}

static void translate_escape(Translator *t) {
    static const struct {
        char letter;
        const char *plain, *in_set; /* NULL: not possible there */
    } ESCAPES[] = {{'s', "\\p{White_Space}", "\\p{White_Space}"},
                   {'S', "\\P{White_Space}", "\\P{White_Space}"},
                   {'d', "\\p{Nd}", "\\p{Nd}"},
                   {'D', "\\P{Nd}", "\\P{Nd}"},
                   {'w', "[" WORD_CHARS "]", WORD_CHARS},
                   {'W', "[^" WORD_CHARS "]", NULL},
                   {'h', "[0-9a-fA-F]", "0-9a-fA-F"},
                   {'H', "[^0-9a-fA-F]", NULL},
                   {'b',
                    "(?:(?<=[" WORD_CHARS "])(?![" WORD_CHARS "])|(?<![" WORD_CHARS
                    "])(?=[" WORD_CHARS "]))",
                    "\\b"},
                   {'B',
                    "(?:(?<=[" WORD_CHARS "])(?=[" WORD_CHARS "])|(?<![" WORD_CHARS
                    "])(?![" WORD_CHARS "]))",
                    NULL}};
    const char letter = t->pattern[t->at + 1];
    if (letter == 'p' || letter == 'P') {
        translate_property(t);
        return;
    }
    for (size_t i = 0; i < sizeof ESCAPES / sizeof *ESCAPES; i++) {
        if (letter != ESCAPES[i].letter) continue;
        const char *text = t->set ? ESCAPES[i].in_set : ESCAPES[i].plain;
        if (!text) t->fault = "\\W, \\H and \\B within [...] are not supported";
        text_add(&t->out, "%s", text ? text : "");
        t->at += 2;
        return;
    }
    if (letter == 'u' && strspn(t->pattern + t->at + 2, "0123456789abcdefABCDEF") >= 4) {
        text_add(&t->out, "\\x{%.4s}", t->pattern + t->at + 2);
        t->at += 6;
        return;
    }
    const char *p = t->pattern + t->at, *close = p[1] ? strchr(p, '}') : NULL;
    const bool braced = letter && strchr("xogk", letter) && p[2] == '{' && close;
    const size_t bytes = braced ? (size_t)(close - p) + 1 : letter ? 2 : 1;
    text_bytes(&t->out, p, bytes);
    t->at += bytes;
}

/* The start of a group: "(?im-x:" with its options; m is s to PCRE2. */
static void translate_group(Translator *t) {
    const char *p = t->pattern + t->at;
    if (p[1] == '*') t->fault = "(*...) is not supported";
    text_bytes(&t->out, p, 1);
    t->at++;
    if (p[1] != '?') return;
    const size_t letters = strspn(p + 2, "imx-");
    if (p[2 + letters] != ':' && p[2 + letters] != ')') return;
    text_bytes(&t->out, "?", 1);
    for (size_t i = 0; i < letters; i++)
        text_bytes(&t->out, p[2 + i] == 'm' ? "s" : p + 2 + i, 1);
    t->at += 1 + letters;
}

static void translate_set_byte(Translator *t) {
    const char *p = t->pattern + t->at;
    if (p[0] == '[' && p[1] != ':') t->fault = "sets within [...] are not supported";
    if (p[0] == '&' && p[1] == '&') t->fault = "&& within [...] is not supported";
    const char *end = p[0] == '[' && p[1] == ':' ? strstr(p, ":]") : NULL;
    const size_t bytes = end ? (size_t)(end - p) + 2 : 1;
    t->set = end || p[0] != ']';
    text_bytes(&t->out, p, bytes);
    t->at += bytes;
}

static void translate_byte(Translator *t) {
    const char *p = t->pattern + t->at;
    if (*p == '(') {
        translate_group(t);
        return;
    }
    if (p[0] == '}' && p[1] == '+') t->fault = "a + behind {...} is not supported";
    size_t bytes = 1;
    if (*p == '[') { /* a bracket that comes first stands for itself */
        t->set = true;
        if (p[bytes] == '^') bytes++;
        if (p[bytes] == ']') bytes++;
    }
    text_bytes(&t->out, p, bytes);
    t->at += bytes;
}

static void translate(Translator *t) {
    while (t->pattern[t->at] && !t->fault && t->out.length <= PATTERN_MAX) {
        if (t->pattern[t->at] == '\\')
            translate_escape(t);
        else if (t->set)
            translate_set_byte(t);
        else
            translate_byte(t);
    }
    if (t->out.length > PATTERN_MAX) t->fault = "it is too long";
}

/* --- compiling --- */

static Status refuse(const char *pattern, const char *reason, Loc at, const char *where,
                     Diag *diag) {
    return diag_fail(
        diag, STATUS_FORMAT, at, where,
        "expected a regular expression that is supported, found '%.160s': %s", pattern,
        reason);
}

static Status compile(Regex *regex, const Translator *t, Loc at, const char *where,
                      Diag *diag) {
    int code;
    PCRE2_SIZE offset;
    char reason[256];
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context)
        return diag_fail(diag, STATUS_MEMORY, at, where, "no memory for an expression");
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(context, NESTING_MAX);
    const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_ANCHORED |
                             PCRE2_NEVER_BACKSLASH_C;
    regex->code = pcre2_compile((PCRE2_SPTR)t->out.data, t->out.length, options, &code,
                                &offset, context);
    pcre2_compile_context_free(context);
    if (regex->code) {
        pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE); /* where it can; or not */
        return STATUS_OK;
    }
    pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof reason);
    return refuse(t->pattern, reason, at, where, diag);
}

Status regex_compile(Regex **out, Arena *arena, const char *pattern, Loc at,
                     const char *where, Diag *diag) {
    Translator t = {.pattern = pattern};
    *out = ARENA_NEW(arena, Regex);
    translate(&t);
    if (t.out.length == 0) t.fault = "it is empty";
    const Status status = t.fault ? refuse(pattern, t.fault, at, where, diag)
                                  : compile(*out, &t, at, where, diag);
    text_free(&t.out);
    return status;
}

Regex *regex_literal(Arena *arena, const char *text, size_t length) {
    Regex *regex = ARENA_NEW(arena, Regex);
    regex->literal = (TextSpan){arena_strndup(arena, text, length), length};
    return regex;
}

void regex_destroy(Regex *regex) {
    if (!regex) return;
    pcre2_code_free(regex->code);
    regex->code = NULL;
}

/* --- matching --- */

void regex_start(RegexScratch *scratch, size_t length) {
    scratch->steps = STEPS_SURE + STEPS_BYTE * (uint64_t)length;
    scratch->gave_up = false;
}

void regex_scratch_free(RegexScratch *scratch) {
    pcre2_match_data_free(scratch->match);
    pcre2_match_context_free(scratch->context);
    *scratch = (RegexScratch){0};
}

/* Whether the expression matches at `at`. An attempt is cut short after some steps and
 * made again with ten times as many, which are counted: expressions of one run after
 * another, as they are in use, never come so far but in runs of thousands of characters.
 */
static bool match_at(const Regex *regex, RegexScratch *scratch, TextSpan text, size_t at,
                     size_t *begin, size_t *end) {
    if (!scratch->match) scratch->match = pcre2_match_data_create(REGEX_GROUPS_MAX, NULL);
    if (!scratch->context) scratch->context = pcre2_match_context_create(NULL);
    int found = PCRE2_ERROR_NOMEMORY;
    for (uint32_t steps = STEPS_FIRST; scratch->match && scratch->context; steps *= 10) {
        PCRE2_SPTR bytes = (PCRE2_SPTR)text.text;
        pcre2_set_match_limit(scratch->context, steps);
        pcre2_set_depth_limit(scratch->context, steps);
        pcre2_set_heap_limit(scratch->context, HEAP_KIB);
        found = pcre2_match(regex->code, bytes, text.length, at, PCRE2_NO_UTF_CHECK,
                            scratch->match, scratch->context);
        if (found == PCRE2_ERROR_JIT_STACKLIMIT) /* the interpreter has the heap */
            found = pcre2_match(regex->code, bytes, text.length, at,
                                PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, scratch->match,
                                scratch->context);
        const bool cut =
            found == PCRE2_ERROR_MATCHLIMIT || found == PCRE2_ERROR_DEPTHLIMIT;
        if (!cut || steps >= STEPS_MOST || scratch->steps < steps) break;
        scratch->steps -= steps;
    }
    if (found == PCRE2_ERROR_NOMATCH) return false;
    if (found < 0) {
        scratch->gave_up = true;
        return false;
    }
    const PCRE2_SIZE *places = pcre2_get_ovector_pointer(scratch->match);
    *begin = places[0];
    *end = places[1];
    return *begin >= at && *begin <= *end; /* \K may say otherwise */
}

static bool find_literal(const TextSpan *literal, TextSpan text, RegexPlace *place,
                         size_t *begin, size_t *end) {
    if (place->next >= text.length) return false;
    const char *found = memmem(text.text + place->next, text.length - place->next,
                               literal->text, literal->length);
    if (!found) return false;
    *begin = (size_t)(found - text.text);
    *end = place->next = *begin + literal->length;
    return true;
}

bool regex_next(const Regex *regex, RegexScratch *scratch, TextSpan text,
                RegexPlace *place, size_t *begin, size_t *end) {
    if (!regex->code) return find_literal(&regex->literal, text, place, begin, end);
    while (place->next <= text.length && !scratch->gave_up) {
        const size_t at = place->next;
        size_t bytes = 1;
        const bool found = match_at(regex, scratch, text, at, begin, end);
        if (found && !(*begin == *end && place->any && place->end == *end)) {
            *place = (RegexPlace){.next = *end, .end = *end, .any = true};
            return true;
        }
        if (at < text.length) utf8_decode(text.text + at, &bytes);
        place->next = at + bytes;
    }
    return false;
}

int regex_group_count(const Regex *regex) {
    uint32_t count = 0;
    if (regex->code) pcre2_pattern_info(regex->code, PCRE2_INFO_CAPTURECOUNT, &count);
    return (int)count;
}

bool regex_match(const Regex *regex, RegexScratch *scratch, TextSpan text,
                 TextSpan groups[REGEX_GROUPS_MAX]) {
    size_t begin, end;
    const int count = regex_group_count(regex);
    if (!regex->code || !match_at(regex, scratch, text, 0, &begin, &end)) return false;
    const PCRE2_SIZE *places = pcre2_get_ovector_pointer(scratch->match);
    for (int i = 0; i < REGEX_GROUPS_MAX; i++) {
        const bool took_part = i <= count && places[2 * i] != PCRE2_UNSET;
        groups[i] = took_part ? (TextSpan){text.text + places[2 * i],
                                           places[2 * i + 1] - places[2 * i]}
                              : (TextSpan){NULL, 0};
    }
    return true;
}

bool regex_replace(const Regex *regex, RegexScratch *scratch, TextSpan text, TextSpan to,
                   Text *out, size_t limit) {
    RegexPlace place = {0};
    size_t begin, end, done = 0;
    while (regex_next(regex, scratch, text, &place, &begin, &end)) {
        if (begin - done > limit - out->length) return false;
        if (begin > done) text_bytes(out, text.text + done, begin - done);
        if (to.length > limit - out->length) return false;
        if (to.length > 0) text_bytes(out, to.text, to.length);
        done = end;
    }
    if (scratch->gave_up || text.length - done > limit - out->length) return false;
    if (text.length > done) text_bytes(out, text.text + done, text.length - done);
    return true;
}
