/* Regex: the regular expressions of a tokenizer.json, by PCRE2.
 *
 * The `tokenizers` library of Hugging Face reads them with Oniguruma, in its Ruby
 * syntax. What has a different meaning in PCRE2 is first rewritten: \s is White_Space,
 * \w is letters, marks, digits and connectors, \h a hexadecimal digit, ^ and $ match at
 * every line, (?m) lets the dot match line breaks, a script's name means only that
 * script. Sets within sets and a + after {n,m} are refused. Characters are those of
 * PCRE2's version of Unicode (10.42: Unicode 14).
 *
 * Expressions come with a file and are hostile: their length and nesting are limited, as
 * are the steps they may take on a text, in proportion to its length; the count does not
 * depend on the machine. */
#ifndef COMPRESS_IO_TOKENIZERS_REGEX_H
#define COMPRESS_IO_TOKENIZERS_REGEX_H

#include "ir/arena.h"
#include "ir/status.h"
#include "ir/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Regex Regex;

/* GPT-2's: used by ByteLevel. */
#define REGEX_GPT2                                                                       \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* Qwen 2's: used by its Split. */
#define REGEX_QWEN2                                                                      \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"                 \
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* Compiles an expression; the struct lives in the arena, and regex_destroy frees the
 * rest. Fails with STATUS_FORMAT at `where`, with the reason and its place in the
 * expression. */
Status regex_compile(Regex **out, Arena *arena, const char *pattern, Loc at,
                     const char *where, Diag *diag);

/* An expression that matches one text, of at least one byte, literally; in the arena. */
Regex *regex_literal(Arena *arena, const char *text, size_t length);

/* Frees what is not in the arena. NULL is allowed. */
void regex_destroy(Regex *regex);

/* Memory and remaining steps of one thread. Start with zeros; free with
 * regex_scratch_free. */
typedef struct RegexScratch {
    void *match, *context;
    uint64_t steps;
    bool gave_up; /* the steps did not suffice; nothing matches from then on */
} RegexScratch;

/* Sets the number of steps for a text of this many bytes; call before the first
 * regex_next on it. */
void regex_start(RegexScratch *scratch, size_t length);

/* Frees the memory. */
void regex_scratch_free(RegexScratch *scratch);

/* Where a search continues. Start with zeros. */
typedef struct RegexPlace {
    size_t next; /* offset to look at next */
    size_t end;  /* of the last match */
    bool any;    /* there was one */
} RegexPlace;

/* Next match in valid UTF-8, leftmost first, at [*begin, *end): including empty ones,
 * except right after another match. False when there is none, or scratch->gave_up. */
bool regex_next(const Regex *regex, RegexScratch *scratch, TextSpan text,
                RegexPlace *place, size_t *begin, size_t *end);

/* Most groups of an expression that regex_match reports, including the whole match. */
#define REGEX_GROUPS_MAX 10

/* Number of groups (...) in an expression, not counting the whole match. */
int regex_group_count(const Regex *regex);

/* Whether the expression matches at the beginning of valid UTF-8; groups[0] is then the
 * whole match, groups[i] that of the i-th (...) (text NULL: not matched). */
bool regex_match(const Regex *regex, RegexScratch *scratch, TextSpan text,
                 TextSpan groups[REGEX_GROUPS_MAX]);

/* Appends the text with every match replaced by `to`; false when it becomes longer than
 * `limit` bytes, or scratch->gave_up. */
bool regex_replace(const Regex *regex, RegexScratch *scratch, TextSpan text, TextSpan to,
                   Text *out, size_t limit);

#endif
