/* IR text: parsing graphs, from the words up.
 *
 *     types        f32[N, T, 64]
 *     leaves       input and param lines, with initial values and lineage
 *     nodes        `%3 = linear(%2, @w, bias=@b) {...} : type at place as role`
 *     statements   one a line, behind `ir 1` or `ir 2`
 *
 * The text is hostile: every name, number and list is limited, and graph_verify has the
 * last word. */
#include "ir/irtext.h"

#include "ir/graph_unchecked.h"
#include "ir/irtext_lex.h"
#include "ir/name_map.h"
#include "ir/verify.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum {
    TEXT_BYTES_MAX = 64 << 20,
    SYMBOL_BYTES = LEX_NAME_BYTES + 1,
    NODES_MAX = 1000000 /* and outputs */
};

typedef struct Parser {
    Lexer lexer;
    Graph *graph;
    NameMap symbols; /* "$input", "@param" and "%node" to Node: what is defined so far */
    NameMap outputs;
    Node *last_input, *last_leaf;
    bool named; /* nodes have names, not numbers: version 2 */
    Node **in;  /* operands of the current node */
    int in_count, in_capacity;
} Parser;

/* Records an error of the text at `loc`. */
#define PARSER_FAIL(p, loc, ...)                                                         \
    diag_fail((p)->lexer.diag, STATUS_FORMAT, (loc), NULL, __VA_ARGS__)

/* Fails because of an unknown word, with the nearest known one as a hint. */
static Status fail_unknown(Parser *p, Loc loc, const char *what, const char *word,
                           const char *const *names, int count) {
    Status status = PARSER_FAIL(p, loc, "unknown %s '%.60s'", what, word);
    const char *near = name_nearest(word, names, count);
    if (near) diag_hint(p->lexer.diag, "did you mean '%s'?", near);
    return status;
}

/* Types. */

/* The word of an element type, with its groups. */
static Status parse_form(Parser *p, Tensor *out) {
    static const char *const NAMES[] = {
#define DTYPE(name, text, bytes) text,
        DTYPE_LIST(DTYPE)
#undef DTYPE
    };
    char word[LEX_NAME_BYTES];
    Loc loc = lex_loc(&p->lexer);
    TRY(lex_word(&p->lexer, "a type", word));
    if (tensor_form_parse(word, out)) return STATUS_OK;
    if (strcmp(word, dtype_name(DTYPE_Q4)) == 0)
        return PARSER_FAIL(p, loc,
                           "type q4 needs its groups: q4_32, q4_64, q4_128, or q4z_32, "
                           "q4z_64, q4z_128 with zero points");
    return fail_unknown(p, loc, "element type", word, NAMES, DTYPE_COUNT);
}

static Status parse_factor(Parser *p, bool symbols, int64_t *out) {
    Lexer *lexer = &p->lexer;
    char name[DIM_TEXT_BYTES];
    for (*out = DIM_N; symbols && *out >= -DIM_SYMBOLS; --*out)
        if (lex_accept_word(lexer, dim_text(name, *out))) return STATUS_OK;
    char c = lex_peek(lexer);
    if (symbols && c != '-' && (c < '0' || c > '9'))
        return lex_fail(lexer, "a number, N, T, S or M");
    return lex_integer(lexer, "a dimension", 0, INT64_MAX, out);
}

/* A number or symbol, or where there may be symbols a product of some. */
static Status parse_dim(Parser *p, bool symbols, int64_t *out) {
    TRY(parse_factor(p, symbols, out));
    while (symbols && lex_peek(&p->lexer) == '*') {
        const Loc loc = lex_loc(&p->lexer);
        int64_t factor;
        TRY(lex_expect(&p->lexer, '*'));
        TRY(parse_factor(p, symbols, &factor));
        if (!dim_times(*out, factor, out))
            return PARSER_FAIL(p, loc, "the dimension is too large a product");
    }
    return STATUS_OK;
}

/* Reads a type, and its groups into `form`; symbolic dimensions only when `symbols`. */
static Status parse_type(Parser *p, bool symbols, Tensor *form, Type *out) {
    Lexer *lexer = &p->lexer;
    Loc loc = lex_loc(lexer);
    Type type = {0};
    TRY(parse_form(p, form));
    type.dtype = dtype_is_quantised(form->dtype) ? DTYPE_F32 : form->dtype;
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
    out->dtype = form->dtype;
    return STATUS_OK;
}

/* Leaves. */

/* Gives a new node its symbol, whose key lives in the graph's arena, and its place in
 * the text. */
static Status define_symbol(Parser *p, Loc loc, const char *key, Node *node) {
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
    Tensor form;
    Loc type_loc = lex_loc(lexer);
    TRY(parse_type(p, true, &form, &type));
    if (type.dtype != DTYPE_F32 && type.dtype != DTYPE_I32)
        return PARSER_FAIL(p, type_loc, "an input must be f32 or i32, found %s",
                           dtype_name(type.dtype));
    const char *key = arena_printf(p->graph->arena, "$%s", name);
    Node *leaf = graph_new_input(p->graph, key + 1, &type);
    TRY(define_symbol(p, loc, key, leaf));
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
    return fail_unknown(p, loc, "initialisation", word, NAMES, COUNT);
}

/* Lineage at the end of a param's line: `kept 0=[0-63, 70] 1=[0-3]`; `2=[]` is lost. */

/* Reads decimal digits of text[0..length). False when there are others or none, or when
 * the number does not fit. */
static bool read_index(const char *text, size_t length, int64_t *out) {
    int64_t value = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, text[i] - '0', &value))
            return false;
    }
    *out = value;
    return length > 0;
}

/* Reads `first` or `first-last`. */
static Status parse_range(Parser *p, IndexRange *out) {
    char word[LEX_NAME_BYTES];
    const Loc loc = lex_loc(&p->lexer);
    TRY(lex_word(&p->lexer, "an index or a range", word));
    const char *dash = strchr(word, '-');
    const size_t length = dash ? (size_t)(dash - word) : strlen(word);
    bool good = read_index(word, length, &out->first);
    out->last = out->first;
    if (dash) good = good && read_index(dash + 1, strlen(dash + 1), &out->last);
    if (good && out->last >= out->first) return STATUS_OK;
    return PARSER_FAIL(p, loc, "expected an index or a range like 0-63, found '%.60s'",
                       word);
}

static Status parse_ranges(Parser *p, Lineage *out) {
    Lexer *lexer = &p->lexer;
    TRY(lex_expect(lexer, '['));
    if (lex_accept(lexer, ']')) {
        *out = (Lineage){.lost = true};
        return STATUS_OK;
    }
    size_t most = 1; /* and the commas up to the closing bracket of this line */
    for (const char *c = lexer->at; c < lexer->end && *c != ']' && *c != '\n'; c++)
        most += *c == ',';
    IndexRange *ranges = ARENA_ARRAY(p->graph->arena, IndexRange, most);
    int count = 0;
    do {
        if (count > 0) TRY(lex_expect(lexer, ','));
        const Loc loc = lex_loc(lexer);
        TRY(parse_range(p, &ranges[count]));
        if (count > 0 && ranges[count].first <= ranges[count - 1].last)
            return PARSER_FAIL(p, loc, "the indices must increase, found %lld after %lld",
                               (long long)ranges[count].first,
                               (long long)ranges[count - 1].last);
        /* Ranges that touch are one, so that printing gives one text. */
        if (count > 0 && ranges[count].first == ranges[count - 1].last + 1)
            ranges[count - 1].last = ranges[count].last;
        else
            count++;
        if (lex_peek(lexer) != ',' && lex_peek(lexer) != ']')
            return lex_fail(lexer, "',' or ']'");
    } while (!lex_accept(lexer, ']'));
    *out = (Lineage){.ranges = ranges, .count = count};
    return STATUS_OK;
}

static Status parse_axis(Parser *p, Storage *storage) {
    Lexer *lexer = &p->lexer;
    const Tensor *tensor = &storage->tensor;
    const Loc loc = lex_loc(lexer);
    int64_t axis;
    TRY(lex_integer(lexer, "an axis", 0, INT64_MAX, &axis));
    if (axis >= tensor->rank)
        return PARSER_FAIL(p, loc, "'@%.60s' has %d axes, found axis %lld", storage->name,
                           tensor->rank, (long long)axis);
    if (lineage_is_told(&storage->kept[axis]))
        return PARSER_FAIL(p, loc, "axis %lld is given twice", (long long)axis);
    TRY(lex_expect(lexer, '='));
    Lineage kept = {0};
    TRY(parse_ranges(p, &kept));
    if (!kept.lost && lineage_size(&kept) != tensor->dim[axis])
        return PARSER_FAIL(p, loc, "axis %lld keeps %lld indices, its dimension is %lld",
                           (long long)axis, (long long)lineage_size(&kept),
                           (long long)tensor->dim[axis]);
    storage->kept[axis] = kept;
    return STATUS_OK;
}

static Status parse_param(Parser *p) {
    Lexer *lexer = &p->lexer;
    char name[LEX_NAME_BYTES];
    Loc loc = lex_loc(lexer);
    TRY(lex_expect(lexer, '@'));
    TRY(lex_name(lexer, "a parameter's name", name));
    TRY(lex_expect(lexer, ':'));
    Type type;
    Tensor form;
    TRY(parse_type(p, false, &form, &type));
    const char *key = arena_printf(p->graph->arena, "@%s", name);
    const Tensor shape = tensor_shape_like(&form, type.rank, type.dim);
    if (!tensor_size(&shape, NULL, NULL))
        return PARSER_FAIL(p, loc, "a parameter of type %s has 2 to %d dimensions",
                           dtype_name(form.dtype), RANK_MAX);
    Storage *storage = graph_append_storage(p->graph, key + 1, &shape);
    Node *leaf = graph_new_param(p->graph, storage);
    TRY(define_symbol(p, loc, key, leaf));
    graph_link(p->graph, leaf, after(p, p->last_leaf));
    p->last_leaf = leaf;
    if (lex_accept_word(lexer, "init")) TRY(parse_init(p, &storage->init));
    if (lex_accept_word(lexer, "kept")) {
        do TRY(parse_axis(p, storage));
        while (lex_peek(lexer) >= '0' && lex_peek(lexer) <= '9');
    }
    storage->frozen = lex_accept_word(lexer, "frozen");
    return STATUS_OK;
}

/* Nodes. */

/* Reads a node's name or number, behind its '%', into `key`, where that stands already.
 */
static Status parse_node_name(Parser *p, char key[SYMBOL_BYTES], int *id) {
    int64_t number;
    *id = -1;
    if (p->named) return lex_name(&p->lexer, "a node's name", key + 1);
    TRY(lex_integer(&p->lexer, "a node's number", 0, INT32_MAX, &number));
    *id = (int)number;
    snprintf(key + 1, SYMBOL_BYTES - 1, "%d", *id);
    return STATUS_OK;
}

/* Reads `$name`, `@name` or `%name` and looks it up. */
static Status parse_reference(Parser *p, Node **out) {
    Lexer *lexer = &p->lexer;
    Loc loc = lex_loc(lexer);
    char key[SYMBOL_BYTES] = {lex_peek(lexer)};
    if (lex_accept(lexer, '%')) {
        int id;
        TRY(parse_node_name(p, key, &id));
    } else if (lex_accept(lexer, '$') || lex_accept(lexer, '@')) {
        TRY(lex_name(lexer, "a name", key + 1));
    } else {
        return lex_fail(lexer, "a value ('%', '@' or '$')");
    }
    *out = name_map_get(&p->symbols, key);
    return *out ? STATUS_OK : PARSER_FAIL(p, loc, "'%.60s' is not defined above", key);
}

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
    while (*next < single && operand_is_named(&op->operands[*next])) ++*next;
    if (*next < single)
        p->in[(*next)++] = value;
    else if (op_is_variadic(op))
        push_operand(p, value);
    else
        return PARSER_FAIL(p, loc, "%s has no further operand without a name", op->name);
    return STATUS_OK;
}

/* Index of the optional operand called `name`. */
static Status find_named(Parser *p, const Op *op, Loc loc, const char *name, int *out) {
    *out = op_operand_index(op, name);
    if (*out < 0) {
        int count = op_operand_count(op);
        const char **names = memory_alloc((size_t)count + 1, sizeof *names);
        for (int i = 0; i < count; i++) names[i] = op->operands[i].name;
        Status status = fail_unknown(p, loc, "operand", name, names, count);
        free(names);
        return status;
    }
    if (*out >= op_single_count(op) || !operand_is_named(&op->operands[*out]))
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
        TRY(parse_reference(p, &value));
        return add_positional(p, op, loc, value, next);
    }
    char name[LEX_NAME_BYTES];
    int index;
    TRY(lex_word(lexer, "an operand", name));
    TRY(lex_expect(lexer, '='));
    TRY(find_named(p, op, loc, name, &index));
    TRY(parse_reference(p, &value));
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
    if (*out && !((*out)->traits & OP_LEAF)) return STATUS_OK;
    if (*out)
        return PARSER_FAIL(p, loc,
                           "'%s' is a leaf: it has a line of its own, '%s ... : type'",
                           word, word);
    const char **names = memory_alloc((size_t)ops->count + 1, sizeof *names);
    for (int i = 0; i < ops->count; i++) names[i] = ops->ops[i]->name;
    Status status = fail_unknown(p, loc, "op", word, names, ops->count);
    free(names);
    return status;
}

static Status parse_place(Parser *p, Node *node) {
    char place[LEX_NAME_BYTES];
    Loc loc = lex_loc(&p->lexer);
    TRY(lex_name(&p->lexer, "a place (stack or stack.layer)", place));
    /* The layer is the digits after the last dot, if any. */
    char *dot = strrchr(place, '.');
    if (dot && dot[1] && strspn(dot + 1, "0123456789") == strlen(dot + 1)) {
        const long layer = strlen(dot + 1) <= 9 ? strtol(dot + 1, NULL, 10) : LONG_MAX;
        if (layer > LAYER_MAX || dot == place)
            return PARSER_FAIL(p, loc, "expected a stack and a layer from 0 to %d",
                               LAYER_MAX);
        *dot = '\0';
        node->layer = (int)layer;
    }
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
    return *out != ROLE_COUNT ? STATUS_OK
                              : fail_unknown(p, loc, "role", word, names, ROLE_COUNT);
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

/* Reads a node's line after its '%', which stands at `loc`. */
static Status parse_node(Parser *p, Loc loc) {
    Lexer *lexer = &p->lexer;
    char key[SYMBOL_BYTES] = "%";
    int id;
    TRY(parse_node_name(p, key, &id));
    TRY(lex_expect(lexer, '='));
    const Op *op;
    TRY(parse_op(p, &op));
    TRY(parse_operands(p, op));
    Node *node = graph_new_node(p->graph, op, p->in_count);
    if (p->in_count > 0) memcpy(node->in, p->in, (size_t)p->in_count * sizeof *p->in);
    node->id = id;
    TRY(define_symbol(p, loc, arena_strdup(p->graph->arena, key), node));
    graph_link(p->graph, node, NULL);
    Tree *map = NULL;
    if (lex_accept(lexer, '{')) {
        TRY(lex_attrs(lexer, '}', &map));
        TRY(lex_expect(lexer, '}'));
    } else if (op->fields) {
        map = tree_new(p->graph->arena, TREE_MAP, node->loc);
    }
    TRY(attrs_bind(p->graph, node, map, STATUS_FORMAT, lexer->diag));
    TRY(lex_expect(lexer, ':'));
    Loc type_loc = lex_loc(lexer);
    Type declared;
    Tensor form;
    TRY(parse_type(p, true, &form, &declared));
    TRY(check_type(p, node, type_loc, &declared));
    if (lex_accept_word(lexer, "at")) TRY(parse_place(p, node));
    if (lex_accept_word(lexer, "as")) TRY(parse_role(p, &node->role));
    return STATUS_OK;
}

static Status parse_output(Parser *p) {
    Lexer *lexer = &p->lexer;
    char name[LEX_NAME_BYTES];
    Loc loc = lex_loc(lexer);
    TRY(lex_name(lexer, "an output's name", name));
    TRY(lex_expect(lexer, '='));
    Node *node;
    TRY(parse_reference(p, &node));
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
    if (lex_accept(lexer, '%')) return parse_node(p, loc);
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
    if (!lex_accept_word(lexer, "ir"))
        return lex_fail(lexer, "'ir 1' or 'ir 2' before all else");
    Loc loc = lex_loc(lexer);
    int64_t version;
    TRY(lex_integer(lexer, "a version", 0, INT32_MAX, &version));
    if (version != 1 && version != 2)
        return PARSER_FAIL(p, loc,
                           "version %lld of IR text is not known, expected 1 or 2",
                           (long long)version);
    p->named = version == 2;
    TRY(lex_line_end(lexer));
    TRY(parse_blank_lines(lexer));
    if (!lex_accept_word(lexer, "task")) return STATUS_OK;
    char word[LEX_NAME_BYTES];
    loc = lex_loc(lexer);
    TRY(lex_word(lexer, "a task", word));
    p->graph->task = task_find(word);
    if (p->graph->task < TASK_COUNT) return lex_line_end(lexer);
    const char *names[TASK_COUNT];
    for (int i = 0; i < TASK_COUNT; i++) names[i] = task_name((Task)i);
    return fail_unknown(p, loc, "task", word, names, TASK_COUNT);
}

static Status parse_statements(Parser *p) {
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
    Status status = parse_statements(&parser);
    if (status == STATUS_OK) status = graph_verify(parser.graph, STATUS_FORMAT, diag);
    if (status == STATUS_OK) {
        /* what the text leaves out is settled here: passes may change what is implied */
        parser.graph->task = graph_task(parser.graph);
        *out = parser.graph;
    }
    name_map_free(&parser.symbols);
    name_map_free(&parser.outputs);
    free(parser.in);
    return status;
}