/* IR text: parsing the lines of nodes. */
#include "ir/irtext_parser.h"

#include <stdlib.h>
#include <string.h>

static void push_operand(Parser *p, Node *value) {
    if (p->in_count == p->in_capacity) {
        p->in_capacity = p->in_capacity ? p->in_capacity * 2 : 16;
        p->in = memory_grow(p->in, (size_t)p->in_capacity, sizeof *p->in);
    }
    p->in[p->in_count++] = value;
}

/* Puts a value given by position into the next required operand, else into the variadic
 * one. `*next` is the first operand not looked at yet. */
static Status add_positional(Parser *p, const Op *op, Loc loc, Node *value, int *next) {
    int single = op_single_count(op);
    while (*next < single && (op->operands[*next].flags & OPERAND_OPTIONAL)) ++*next;
    if (*next < single)
        p->in[(*next)++] = value;
    else if (op_is_variadic(op))
        push_operand(p, value);
    else
        return PARSER_FAIL(p, loc, "%s has no further operand without a name", op->name);
    return STATUS_OK;
}

/* Fails because the op has no operand called `name`. */
static Status fail_operand(Parser *p, const Op *op, Loc loc, const char *name) {
    int count = op_operand_count(op);
    const char **names = memory_alloc((size_t)count + 1, sizeof *names);
    for (int i = 0; i < count; i++) names[i] = op->operands[i].name;
    Status status = parser_fail_unknown(p, loc, "operand", name, names, count);
    free(names);
    return status;
}

/* Index of the optional operand called `name`. */
static Status find_named(Parser *p, const Op *op, Loc loc, const char *name, int *out) {
    *out = op_operand_index(op, name);
    if (*out < 0) return fail_operand(p, op, loc, name);
    if (*out >= op_single_count(op) || !(op->operands[*out].flags & OPERAND_OPTIONAL))
        return PARSER_FAIL(p, loc, "%s: operand '%s' is written without its name",
                           op->name, name);
    if (p->in[*out])
        return PARSER_FAIL(p, loc, "%s: operand '%s' is given twice", op->name, name);
    return STATUS_OK;
}

static Status parse_operand(Parser *p, const Op *op, int *next) {
    Lexer *lexer = &p->lexer;
    Loc loc = lex_loc(lexer);
    Node *value;
    if (lex_word_length(lexer) == 0) {
        TRY(parser_reference(p, &value));
        return add_positional(p, op, loc, value, next);
    }
    char name[LEX_NAME_BYTES];
    int index;
    TRY(lex_word(lexer, "an operand", name));
    TRY(lex_expect(lexer, '='));
    TRY(find_named(p, op, loc, name, &index));
    TRY(parser_reference(p, &value));
    p->in[index] = value;
    return STATUS_OK;
}

/* Reads `(operand, ...)` into p->in, laid out as in Node.in. */
static Status parse_operands(Parser *p, const Op *op) {
    Lexer *lexer = &p->lexer;
    p->in_count = 0;
    for (int i = op_single_count(op); i > 0; i--) push_operand(p, NULL);
    TRY(lex_expect(lexer, '('));
    bool first = true;
    for (int next = 0; !lex_accept(lexer, ')'); first = false) {
        if (!first && lex_peek(lexer) != ',') return lex_fail(lexer, "',' or ')'");
        if (!first) TRY(lex_expect(lexer, ','));
        TRY(parse_operand(p, op, &next));
    }
    return STATUS_OK;
}

static Status parse_op(Parser *p, const Op **out) {
    const OpTable *ops = p->graph->ops;
    char word[LEX_NAME_BYTES];
    Loc loc = lex_loc(&p->lexer);
    TRY(lex_word(&p->lexer, "an op", word));
    *out = op_find(ops, word);
    if (*out && !((*out)->flags & OP_LEAF)) return STATUS_OK;
    if (*out)
        return PARSER_FAIL(p, loc,
                           "'%s' is a leaf: it has a line of its own, '%s ... : type'",
                           word, word);
    const char **names = memory_alloc((size_t)ops->count + 1, sizeof *names);
    for (int i = 0; i < ops->count; i++) names[i] = ops->ops[i]->name;
    Status status = parser_fail_unknown(p, loc, "op", word, names, ops->count);
    free(names);
    return status;
}

static Status parse_attrs(Parser *p, Node *node) {
    Tree *map = NULL;
    if (lex_accept(&p->lexer, '{')) {
        TRY(lex_attrs(&p->lexer, '}', &map));
        TRY(lex_expect(&p->lexer, '}'));
    } else if (node->op->fields) {
        map = tree_new(p->graph->arena, TREE_MAP, node->loc);
    }
    return attrs_bind(p->graph, node, map, STATUS_FORMAT, p->lexer.diag);
}

/* Splits "stack.layer" in place: the layer is the digits after the last dot, if any. */
static bool split_place(char *place, int *layer) {
    char *dot = strrchr(place, '.');
    *layer = -1;
    if (!dot || !dot[1] || strspn(dot + 1, "0123456789") != strlen(dot + 1)) return true;
    long value = strlen(dot + 1) <= 9 ? strtol(dot + 1, NULL, 10) : LAYER_MAX + 1L;
    *dot = '\0';
    *layer = (int)value;
    return value <= LAYER_MAX && dot > place;
}

static Status parse_place(Parser *p, Node *node) {
    char place[LEX_NAME_BYTES];
    Loc loc = lex_loc(&p->lexer);
    TRY(lex_name(&p->lexer, "a place (stack or stack.layer)", place));
    if (!split_place(place, &node->layer))
        return PARSER_FAIL(p, loc, "expected a stack and a layer from 0 to %d",
                           LAYER_MAX);
    node->stack = arena_strdup(p->graph->arena, place);
    return STATUS_OK;
}

static Status parse_role(Parser *p, Role *out) {
    const char *names[ROLE_COUNT];
    for (int i = 0; i < ROLE_COUNT; i++) names[i] = role_name((Role)i);
    char word[LEX_NAME_BYTES];
    Loc loc = lex_loc(&p->lexer);
    TRY(lex_word(&p->lexer, "a role", word));
    *out = role_parse(word);
    return *out != ROLE_COUNT
               ? STATUS_OK
               : parser_fail_unknown(p, loc, "role", word, names, ROLE_COUNT);
}

/* Infers the node's type and compares it with the one declared at `loc`. */
static Status check_type(Parser *p, Node *node, Loc loc, const Type *declared) {
    Diag *diag = p->lexer.diag;
    node->type = *declared;
    TRY(node_check_operands(node, STATUS_FORMAT, diag));
    if (node_infer(node, diag) != STATUS_OK) return STATUS_FORMAT;
    if (type_equal(&node->type, declared)) return STATUS_OK;
    Text want = {0}, found = {0};
    type_print(&want, declared);
    type_print(&found, &node->type);
    Status status =
        PARSER_FAIL(p, loc, "declared %s, operands give %s", want.data, found.data);
    text_free(&want);
    text_free(&found);
    return status;
}

Status parser_node(Parser *p, Loc loc) {
    Lexer *lexer = &p->lexer;
    int64_t id;
    TRY(lex_integer(lexer, "a node's number", 0, INT32_MAX, &id));
    TRY(lex_expect(lexer, '='));
    const Op *op;
    TRY(parse_op(p, &op));
    TRY(parse_operands(p, op));
    Node *node = graph_new_node(p->graph, op, p->in_count);
    if (p->in_count > 0) memcpy(node->in, p->in, (size_t)p->in_count * sizeof *p->in);
    node->id = (int)id;
    TRY(parser_define(p, loc, arena_printf(p->graph->arena, "%%%d", node->id), node));
    graph_link(p->graph, node, NULL);
    TRY(parse_attrs(p, node));
    TRY(lex_expect(lexer, ':'));
    Loc type_loc = lex_loc(lexer);
    Type declared;
    TRY(parser_type(p, true, &declared));
    TRY(check_type(p, node, type_loc, &declared));
    if (lex_accept_word(lexer, "at")) TRY(parse_place(p, node));
    if (lex_accept_word(lexer, "as")) TRY(parse_role(p, &node->role));
    return STATUS_OK;
}
