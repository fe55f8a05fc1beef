/* Parser of IR text: what the files that implement graph_parse share. Used inside ir
 * only. */
#ifndef COMPRESS_IR_IRTEXT_PARSER_H
#define COMPRESS_IR_IRTEXT_PARSER_H

#include "ir/graph_internal.h"
#include "ir/irtext_lex.h"
#include "ir/name_map.h"

/* Most nodes, and most outputs, of a text. */
enum { NODES_MAX = 1000000 };

typedef struct Parser {
    Lexer lexer;
    Graph *graph;
    NameMap symbols; /* "$input", "@param" and "%node" to Node: what is defined so far */
    NameMap outputs;
    Node *last_input, *last_leaf;
    Node **in; /* operands of the current node */
    int in_count, in_capacity;
} Parser;

/* Records an error of the text at `loc`. */
#define PARSER_FAIL(p, loc, ...)                                                         \
    diag_fail((p)->lexer.diag, STATUS_FORMAT, (loc), NULL, __VA_ARGS__)

/* Fails because of an unknown word, with the nearest known one as a hint. */
Status parser_fail_unknown(Parser *p, Loc loc, const char *what, const char *word,
                           const char *const *names, int count);

/* Gives a new node its symbol, whose key lives in the graph's arena, and its place in
 * the text. */
Status parser_define(Parser *p, Loc loc, const char *key, Node *node);

/* Reads a type; symbolic dimensions only when `symbols`. */
Status parser_type(Parser *p, bool symbols, Type *out);

/* Reads `axis=[ranges] ...` after the word `kept`. */
Status parser_lineage(Parser *p, Storage *storage);

/* Reads `$name`, `@name` or `%n` and looks it up. */
Status parser_reference(Parser *p, Node **out);

/* Reads a node's line after its '%', which stands at `loc`. */
Status parser_node(Parser *p, Loc loc);

#endif
