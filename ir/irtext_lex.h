/* Lexer of IR text: a cursor over hostile text that knows its line and column, shared by
 * the parser of graphs and the parser of attributes. Used inside ir only. */
#ifndef COMPRESS_IR_IRTEXT_LEX_H
#define COMPRESS_IR_IRTEXT_LEX_H

#include "ir/tree.h"

/* Room for a name with its end, for a described piece of text, and the deepest list. */
enum { LEX_NAME_BYTES = 513, LEX_FOUND_BYTES = 64, LEX_DEPTH_MAX = 32 };

typedef struct Lexer {
    Arena *arena;
    Diag *diag;
    Status status; /* of the errors it reports; STATUS_FORMAT at first */
    Loc start;     /* file, and place of the first byte */
    const char *at, *end;
    const char *line_start; /* so that column = at - line_start + 1 */
    int line;
    int values; /* attribute values read so far, which are limited */
} Lexer;

/* Cursor at the start of `length` bytes, which are at `start` in their file. */
Lexer lexer_start(Arena *arena, Loc start, const char *text, size_t length, Diag *diag);

/* Place of the next token (spaces and comments before it are skipped). */
Loc lex_loc(Lexer *lexer);

/* Next byte, after spaces and comments: '\n' at the end of a line, '\0' at the end of the
 * text. A zero byte in the text is reported as '\1'. */
char lex_peek(Lexer *lexer);

/* Skips the next byte if it is `c`. */
bool lex_accept(Lexer *lexer, char c);

/* Skips `c` or fails with "expected 'c', found ...". */
Status lex_expect(Lexer *lexer, char c);

/* Fails with "expected WHAT, found ...", pointing at the next token. */
Status lex_fail(Lexer *lexer, const char *what);

/* Skips the end of a line, or fails. The end of the text counts as one. */
Status lex_line_end(Lexer *lexer);

/* Length of the word (letters, digits and "_.-/") that comes next; 0 = none. Numbers may
 * hold a '+' as well: lex_number_length. */
size_t lex_word_length(Lexer *lexer);
size_t lex_number_length(Lexer *lexer);

/* Skips the next word if it is `word`. */
bool lex_accept_word(Lexer *lexer, const char *word);

/* Reads a plain word, or a name, which is a word or a quoted string. `what` says what is
 * expected. */
Status lex_word(Lexer *lexer, const char *what, char out[LEX_NAME_BYTES]);
Status lex_name(Lexer *lexer, const char *what, char out[LEX_NAME_BYTES]);

/* Reads a decimal integer in [min, max]. */
Status lex_integer(Lexer *lexer, const char *what, int64_t min, int64_t max,
                   int64_t *out);

/* Reads a number into a value: `kind` becomes TREE_INT or TREE_FLOAT. It is finite. */
Status lex_number(Lexer *lexer, Tree *value);

/* Reads a quoted string with JSON's escapes into the arena. */
Status lex_string(Lexer *lexer, const char **out);

/* Whether a byte belongs to names written without quotes. */
bool lex_is_name_byte(char c);

/* Reads `key=value` pairs up to `close` ('}'), or up to the end of the text ('\0'), into
 * a new map. Does not read `close` itself. */
Status lex_attrs(Lexer *lexer, char close, Tree **out);

#endif
