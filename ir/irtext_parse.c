/* IR text: parsing graphs.
 *
 * One function per statement; nodes are read in irtext_node.c. */
#include "ir/irtext.h"
#include "ir/irtext_parser.h"
#include "ir/verify.h"

#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES_MAX = 64 << 20, SYMBOL_BYTES = LEX_NAME_BYTES + 1 };

Status parser_fail_unknown(Parser *p, Loc loc, const char *what, const char *word,
                           const char *const *names, int count) {
    Status status = PARSER_FAIL(p, loc, "unknown %s '%.60s'", what, word);
    const char *near = name_nearest(word, names, count);
    if (near) diag_hint(p->lexer.diag, "did you mean '%s'?", near);
    return status;
}

/* Types. */

static Status parse_dtype(Parser *p, DType *out) {
    static const char *const NAMES[] = {
#define DTYPE(name, text, bytes) text,
        DTYPE_LIST(DTYPE)
#undef DTYPE
    };
    char word[LEX_NAME_BYTES];
    Loc loc = lex_loc(&p->lexer);
    TRY(lex_word(&p->lexer, "a type", word));
    if (dtype_parse(word, out)) return STATUS_OK;
    return parser_fail_unknown(p, loc, "element type", word, NAMES, DTYPE_COUNT);
}

static Status parse_dim(Parser *p, bool symbols, int64_t *out) {
    Lexer *lexer = &p->lexer;
    static const char *const NAMES[DIM_SYMBOLS] = {"N", "T", "S", "M"};
    for (int i = 0; symbols && i < DIM_SYMBOLS; i++)
        if (lex_accept_word(lexer, NAMES[i])) {
            *out = -1 - i;
            return STATUS_OK;
        }
    char c = lex_peek(lexer);
    if (symbols && c != '-' && (c < '0' || c > '9'))
        return lex_fail(lexer, "a number, N, T, S or M");
    return lex_integer(lexer, "a dimension", 0, INT64_MAX, out);
}

Status parser_type(Parser *p, bool symbols, Type *out) {
    Lexer *lexer = &p->lexer;
    Loc loc = lex_loc(lexer);
    Type type = {0};
    TRY(parse_dtype(p, &type.dtype));
    TRY(lex_expect(lexer, '['));
    while (!lex_accept(lexer, ']')) {
        if (type.rank > 0 && lex_peek(lexer) != ',') return lex_fail(lexer, "',' or ']'");
        if (type.rank > 0) TRY(lex_expect(lexer, ','));
        if (type.rank == RANK_MAX)
            return PARSER_FAIL(p, loc, "a type has at most %d dimensions", RANK_MAX);
        TRY(parse_dim(p, symbols, &type.dim[type.rank++]));
    }
    Type bound;
    if (!type_bind(&type, (int64_t[DIM_SYMBOLS]){1, 1, 1, 1}, &bound))
        return PARSER_FAIL(p, loc, "the type's size does not fit 63 bits");
    *out = type;
    return STATUS_OK;
}

/* Leaves. */

Status parser_define(Parser *p, Loc loc, const char *key, Node *node) {
    if (p->graph->node_count >= NODES_MAX)
        return PARSER_FAIL(p, loc, "the graph has more than %d nodes", NODES_MAX);
    if (!name_map_add(&p->symbols, key, node))
        return PARSER_FAIL(p, loc, "'%.60s' is defined twice", key);
    node->loc = loc;
    return STATUS_OK;
}

static Node *after(const Parser *p, const Node *leaf) {
    return leaf ? leaf->next : p->graph->first;
}

static Status parse_input(Parser *p) {
    Lexer *lexer = &p->lexer;
    char name[LEX_NAME_BYTES];
    Loc loc = lex_loc(lexer);
    TRY(lex_name(lexer, "an input's name", name));
    TRY(lex_expect(lexer, ':'));
    Type type;
    Loc type_loc = lex_loc(lexer);
    TRY(parser_type(p, true, &type));
    if (type.dtype != DTYPE_F32 && type.dtype != DTYPE_I32)
        return PARSER_FAIL(p, type_loc, "an input must be f32 or i32, found %s",
                           dtype_name(type.dtype));
    const char *key = arena_printf(p->graph->arena, "$%s", name);
    Node *leaf = graph_new_input(p->graph, key + 1, &type);
    TRY(parser_define(p, loc, key, leaf));
    graph_link(p->graph, leaf, after(p, p->last_input));
    if (p->last_leaf == p->last_input) p->last_leaf = leaf;
    p->last_input = leaf;
    return STATUS_OK;
}

/* Reads the number in parentheses after a normal initialisation. */
static Status parse_std(Parser *p, double *out) {
    Lexer *lexer = &p->lexer;
    TRY(lex_expect(lexer, '('));
    Loc loc = lex_loc(lexer);
    Tree number = {.loc = loc};
    TRY(lex_number(lexer, &number));
    *out = number.kind == TREE_INT ? (double)number.integer : number.real;
    if (*out < 0)
        return PARSER_FAIL(p, loc, "a standard deviation must be at least 0, found %g",
                           *out);
    return lex_expect(lexer, ')');
}

static Status parse_init(Parser *p, Init *out) {
    static const char *const NAMES[] = {"zeros", "ones", "normal", "trunc_normal",
                                        "identity"};
    static const InitKind KINDS[] = {INIT_ZEROS, INIT_ONES, INIT_NORMAL,
                                     INIT_TRUNC_NORMAL, INIT_IDENTITY};
    enum { COUNT = sizeof KINDS / sizeof *KINDS };
    char word[LEX_NAME_BYTES];
    Loc loc = lex_loc(&p->lexer);
    TRY(lex_word(&p->lexer, "an initialisation", word));
    for (int i = 0; i < COUNT; i++) {
        if (strcmp(word, NAMES[i]) != 0) continue;
        out->kind = KINDS[i];
        bool normal = KINDS[i] == INIT_NORMAL || KINDS[i] == INIT_TRUNC_NORMAL;
        return normal ? parse_std(p, &out->std) : STATUS_OK;
    }
    return parser_fail_unknown(p, loc, "initialisation", word, NAMES, COUNT);
}

static Status parse_param(Parser *p) {
    Lexer *lexer = &p->lexer;
    char name[LEX_NAME_BYTES];
    Loc loc = lex_loc(lexer);
    TRY(lex_expect(lexer, '@'));
    TRY(lex_name(lexer, "a parameter's name", name));
    TRY(lex_expect(lexer, ':'));
    Type type;
    TRY(parser_type(p, false, &type));
    const char *key = arena_printf(p->graph->arena, "@%s", name);
    Tensor shape = tensor_shape(type.dtype, type.rank, type.dim);
    Storage *storage = graph_append_storage(p->graph, key + 1, &shape);
    Node *leaf = graph_new_param(p->graph, storage);
    TRY(parser_define(p, loc, key, leaf));
    graph_link(p->graph, leaf, after(p, p->last_leaf));
    p->last_leaf = leaf;
    if (lex_accept_word(lexer, "init")) TRY(parse_init(p, &storage->init));
    if (lex_accept_word(lexer, "kept")) TRY(parser_lineage(p, storage));
    storage->frozen = lex_accept_word(lexer, "frozen");
    return STATUS_OK;
}

Status parser_reference(Parser *p, Node **out) {
    Lexer *lexer = &p->lexer;
    Loc loc = lex_loc(lexer);
    char key[SYMBOL_BYTES] = {lex_peek(lexer)};
    if (lex_accept(lexer, '%')) {
        int64_t id;
        TRY(lex_integer(lexer, "a node's number", 0, INT32_MAX, &id));
        snprintf(key + 1, sizeof key - 1, "%lld", (long long)id);
    } else if (lex_accept(lexer, '$') || lex_accept(lexer, '@')) {
        TRY(lex_name(lexer, "a name", key + 1));
    } else {
        return lex_fail(lexer, "a value ('%', '@' or '$')");
    }
    *out = name_map_get(&p->symbols, key);
    return *out ? STATUS_OK : PARSER_FAIL(p, loc, "'%.60s' is not defined above", key);
}

static Status parse_output(Parser *p) {
    Lexer *lexer = &p->lexer;
    char name[LEX_NAME_BYTES];
    Loc loc = lex_loc(lexer);
    TRY(lex_name(lexer, "an output's name", name));
    TRY(lex_expect(lexer, '='));
    Node *node;
    TRY(parser_reference(p, &node));
    if (p->graph->output_count >= NODES_MAX)
        return PARSER_FAIL(p, loc, "the graph has more than %d outputs", NODES_MAX);
    const char *key = arena_strdup(p->graph->arena, name);
    if (!name_map_add(&p->outputs, key, node))
        return PARSER_FAIL(p, loc, "output '%.60s' is defined twice", name);
    graph_append_output(p->graph, key, node);
    return STATUS_OK;
}

/* The text. */

static Status parse_statement(Parser *p) {
    static const struct {
        const char *word;
        Status (*parse)(Parser *p);
    } STATEMENTS[] = {
        {"input", parse_input}, {"param", parse_param}, {"output", parse_output}};
    Lexer *lexer = &p->lexer;
    Loc loc = lex_loc(lexer);
    if (lex_accept(lexer, '%')) return parser_node(p, loc);
    for (size_t i = 0; i < sizeof STATEMENTS / sizeof *STATEMENTS; i++)
        if (lex_accept_word(lexer, STATEMENTS[i].word)) return STATEMENTS[i].parse(p);
    return lex_fail(lexer, "'input', 'param', 'output' or '%'");
}

static Status parse_blank_lines(Lexer *lexer) {
    while (lex_peek(lexer) == '\n') TRY(lex_line_end(lexer));
    return STATUS_OK;
}

static Status parse_header(Parser *p) {
    Lexer *lexer = &p->lexer;
    TRY(parse_blank_lines(lexer));
    if (!lex_accept_word(lexer, "ir")) return lex_fail(lexer, "'ir 1' before all else");
    Loc loc = lex_loc(lexer);
    int64_t version;
    TRY(lex_integer(lexer, "a version", 0, INT32_MAX, &version));
    if (version != 1)
        return PARSER_FAIL(p, loc, "version %lld of IR text is not known, expected 1",
                           (long long)version);
    return lex_line_end(lexer);
}

static Status parse_text(Parser *p) {
    TRY(parse_header(p));
    for (;;) {
        TRY(parse_blank_lines(&p->lexer));
        if (lex_peek(&p->lexer) == '\0') return STATUS_OK;
        TRY(parse_statement(p));
        TRY(lex_line_end(&p->lexer));
    }
}

Status graph_parse(Graph **out, Arena *arena, const OpTable *ops, const char *file,
                   const char *text, size_t length, Diag *diag) {
    Loc start = {arena_strdup(arena, file ? file : "<ir>"), 1, 1};
    if (length > TEXT_BYTES_MAX)
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(start.file), NULL,
                         "IR text may have at most %d bytes, found %zu", TEXT_BYTES_MAX,
                         length);
    Parser parser = {.lexer = lexer_start(arena, start, text, length, diag),
                     .graph = graph_create(arena, ops)};
    Status status = parse_text(&parser);
    if (status == STATUS_OK) status = graph_verify(parser.graph, STATUS_FORMAT, diag);
    if (status == STATUS_OK) *out = parser.graph;
    name_map_free(&parser.symbols);
    name_map_free(&parser.outputs);
    free(parser.in);
    return status;
}
