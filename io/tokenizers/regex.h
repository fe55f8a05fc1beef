/* Regex: the regular expressions of a tokenizer.json, by PCRE2.
 *
 * The `tokenizers` library of Hugging Face reads them with Oniguruma, in its Ruby syntax.
 * What means something else to PCRE2 is written in its terms first: \s is White_Space, \w
 * is letters, marks, digits and connectors, \h a hexadecimal digit, ^ and $ hold at every
 * line, (?m) lets the point match line breaks, a script's name is that script alone. Sets
 * within sets and a + behind {n,m} are refused. Characters are those of PCRE2's version
 * of Unicode (10.42: Unicode 14).
 *
 * Expressions come with a file and are hostile: their length and nesting are limited, and
 * so are the steps that they may take on a text, in proportion to its length; the count
 * does not depend on the machine. */
#ifndef COMPRESS_IO_TOKENIZERS_REGEX_H
#define COMPRESS_IO_TOKENIZERS_REGEX_H

#include "ir/arena.h"
#include "ir/status.h"
#include "ir/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Regex Regex;

/* GPT-2's: what ByteLevel cuts by. */
#define REGEX_GPT2                                                                       \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* Qwen 2's: what its Split cuts by. */
#define REGEX_QWEN2                                                                      \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"                 \
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* Compiles an expression; the struct lives in the arena, and regex_destroy frees the
 * rest. Fails with STATUS_FORMAT at `where`, with the reason and its place in the
 * expression. */
Status regex_compile(Regex **out, Arena *arena, const char *pattern, Loc at,
                     const char *where, Diag *diag);

/* An expression that matches one text, of at least one byte, as it is; in the arena. */
Regex *regex_literal(Arena *arena, const char *text, size_t length);

/* Frees what does not lie in the arena. NULL is allowed. */
void regex_destroy(Regex *regex);

/* Memory and the steps that are left, of one thread. Start with zeros; free with
 * regex_scratch_free. */
typedef struct RegexScratch {
    void *match, *context;
    uint64_t steps;
    bool gave_up; /* the steps did not suffice; nothing matches from then on */
} RegexScratch;

/* Gives a text of so many bytes its steps; before the first regex_next on it. */
void regex_start(RegexScratch *scratch, size_t length);

/* Frees the memory. */
void regex_scratch_free(RegexScratch *scratch);

/* Where a search goes on. Start with zeros. */
typedef struct RegexPlace {
    size_t next; /* offset to look at next */
    size_t end;  /* of the last match */
    bool any;    /* there was one */
} RegexPlace;

/* Next match in valid UTF-8, leftmost first, at [*begin, *end): empty ones too, but for
 * those right behind another match. False when there is none, or scratch->gave_up. */
bool regex_next(const Regex *regex, RegexScratch *scratch, TextSpan text,
                RegexPlace *place, size_t *begin, size_t *end);

/* Groups of an expression that regex_match tells apart, the whole of it included. */
#define REGEX_GROUPS_MAX 10

/* Number of groups (...) in an expression, the whole of it not counted. */
int regex_group_count(const Regex *regex);

/* Whether the expression matches at the beginning of valid UTF-8; groups[0] is then what
 * it matched, groups[i] what the i-th (...) did (text NULL: it took no part). */
bool regex_match(const Regex *regex, RegexScratch *scratch, TextSpan text,
                 TextSpan groups[REGEX_GROUPS_MAX]);

/* Appends the text with every match replaced by `to`; false when it becomes longer than
 * `limit` bytes, or scratch->gave_up. */
bool regex_replace(const Regex *regex, RegexScratch *scratch, TextSpan text, TextSpan to,
                   Text *out, size_t limit);

#endif
