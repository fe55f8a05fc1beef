/* Narrow: see exec/plan/narrow.h. */
#include "exec/plan/narrow.h"

#include "exec/position_terms.h"

#include <string.h>

enum { TOKEN_AXIS = 1, TOKEN_RANK = 3 };
#define ALL_TOKENS INT64_MAX

/* By index into the plan's nodes as they were. */
typedef struct Narrowing {
    Plan *plan;
    int64_t *tokens; /* the first ones that are computed, or ALL_TOKENS */
    int *moved;      /* index among `nodes` */
    PlanNode *nodes; /* the plan's nodes as they will be */
    int count;
} Narrowing;

/* ---- what is read ---- */

/* Whether a value has a row for each row of `like`, [N, T, ...]. */
static bool has_rows_of(const PlanNode *value, const PlanNode *like) {
    const size_t leading = (TOKEN_RANK - 1) * sizeof *value->type.dim;
    return value->type.rank == TOKEN_RANK && dtype_is_real(value->type.dtype) &&
           memcmp(value->type.dim, like->type.dim, leading) == 0;
}

/* Row by row of values that all have the rows of the result; weights are at most
 * matrices, which have none. */
static bool is_rowwise(const Plan *plan, const PlanNode *node) {
    if (!(node->op->traits & OP_ROWWISE)) return false;
    for (int j = 0; j < node->in_count; j++) {
        if (node->in[j].node < 0) continue;
        const PlanNode *in = &plan->nodes[node->in[j].node];
        const bool fits = plan_is_param(in) ? j > 0 && in->type.rank < TOKEN_RANK
                                            : has_rows_of(in, node);
        if (!fits) return false;
    }
    return true;
}

/* Attention of queries that do not have to be those of a grid or of a table. */
static bool is_free_attention(const PlanNode *node) {
    return node->op == &op_attention && !attention_has_position_terms(node->node) &&
           ((const AttentionAttrs *)node->node->attrs)->window == 0;
}

static bool can_be_narrow(const Plan *plan, const PlanNode *node) {
    return node->forward >= 0 && node->type.rank == TOKEN_RANK &&
           (is_free_attention(node) || is_rowwise(plan, node));
}

/* Tokens that a call on the first `tokens` of its result reads of operand `j`. */
static int64_t tokens_read(const PlanNode *node, int j, int64_t tokens) {
    if (j == 0 && node->op == &op_select_token)
        return ((const SelectTokenAttrs *)node->node->attrs)->index + 1;
    if (node->op == &op_attention && j > 0) return ALL_TOKENS; /* not of queries */
    return tokens;
}

/* Readers come later: going backwards, those of a node are known. Returns how many
 * operands narrow calls have, before each of which a call may be put in. */
static size_t find_tokens(Narrowing *n) {
    const Plan *plan = n->plan;
    size_t operands = 0;
    for (int i = plan->node_count - 1; i >= 0; i--) {
        const PlanNode *node = &plan->nodes[i];
        if (!can_be_narrow(plan, node) || n->tokens[i] >= node->type.dim[TOKEN_AXIS])
            n->tokens[i] = ALL_TOKENS;
        if (n->tokens[i] != ALL_TOKENS) operands += (size_t)node->in_count;
        for (int j = 0; j < node->in_count; j++) {
            if (node->in[j].node < 0) continue;
            int64_t *most = &n->tokens[node->in[j].node];
            const int64_t read = tokens_read(node, j, n->tokens[i]);
            if (read > *most) *most = read;
        }
    }
    return operands;
}

/* ---- the plan anew ---- */

static PlanNode *append(Narrowing *n, const PlanNode *node) {
    PlanNode *out = &n->nodes[n->count++];
    *out = *node;
    if (node->forward >= 0) out->forward = n->plan->calls++;
    return out;
}

static void set_tokens(PlanNode *node, int64_t tokens) {
    node->type.dim[TOKEN_AXIS] = tokens;
    node->count = type_count(&node->type);
}

/* A node of the plan's own: the first `tokens` of the value of `of`. */
static Node *first_tokens_node(Narrowing *n, Node *of) {
    Arena *arena = n->plan->arena;
    SliceAttrs *attrs = ARENA_NEW(arena, SliceAttrs);
    Node *node = ARENA_NEW(arena, Node);
    *attrs = *(const SliceAttrs *)op_slice.defaults;
    attrs->axis = TOKEN_AXIS;
    *node = (Node){.op = &op_slice, .attrs = attrs, .layer = -1, .loc = of->loc};
    node->id = n->plan->index_count + n->count; /* as no node of the graph */
    node->in = ARENA_ARRAY(arena, Node *, 1);
    node->in[node->in_count++] = of;
    return node;
}

/* Index among the new nodes of the first `tokens` of a value that has more; the same for
 * all that read them. */
static int first_tokens(Narrowing *n, int value, int64_t tokens) {
    const PlanNode *of = &n->nodes[value];
    for (int i = value + 1; i < n->count; i++)
        if (n->nodes[i].node->id >= n->plan->index_count &&
            n->nodes[i].in[0].node == value && n->nodes[i].type.dim[TOKEN_AXIS] == tokens)
            return i;
    PlanNode first = plan_node(n->plan, first_tokens_node(n, of->node));
    first.type = of->type;
    first.in_count = 1;
    first.in = ARENA_ARRAY(n->plan->arena, PlanOperand, 1);
    first.in[0].node = value;
    first.forward = 0; /* it has a call */
    set_tokens(append(n, &first), tokens);
    return n->count - 1;
}

/* Lets a narrow call read no more of its operands than it needs. */
static void narrow_operands(Narrowing *n, const PlanNode *node, int64_t tokens) {
    for (int j = 0; j < node->in_count; j++) {
        int *in = &node->in[j].node;
        const int64_t read = tokens_read(node, j, tokens);
        if (*in < 0 || read == ALL_TOKENS || plan_is_param(&n->nodes[*in])) continue;
        if (n->nodes[*in].type.dim[TOKEN_AXIS] > read) *in = first_tokens(n, *in, read);
    }
}

static void move_nodes(Narrowing *n) {
    Plan *plan = n->plan;
    plan->calls = 0;
    for (int i = 0; i < plan->node_count; i++) {
        PlanNode *node = &plan->nodes[i];
        const int64_t tokens = n->tokens[i];
        for (int j = 0; j < node->in_count; j++)
            if (node->in[j].node >= 0) node->in[j].node = n->moved[node->in[j].node];
        if (tokens != ALL_TOKENS) narrow_operands(n, node, tokens);
        n->moved[i] = n->count;
        PlanNode *out = append(n, node);
        if (tokens != ALL_TOKENS) set_tokens(out, tokens);
    }
}

void plan_narrow(Plan *plan, Node *const *results, int count) {
    const size_t nodes = (size_t)plan->node_count;
    Narrowing n = {.plan = plan, .tokens = ARENA_ARRAY(plan->arena, int64_t, nodes)};
    for (int i = 0; i < count; i++) n.tokens[plan_find(plan, results[i])] = ALL_TOKENS;
    const size_t operands = find_tokens(&n);
    if (operands == 0) return;
    n.moved = ARENA_ARRAY(plan->arena, int, nodes);
    n.nodes = ARENA_ARRAY(plan->arena, PlanNode, nodes + operands);
    move_nodes(&n);
    for (int id = 0; id < plan->index_count; id++)
        if (plan->index[id] >= 0) plan->index[id] = n.moved[plan->index[id]];
    plan->nodes = n.nodes;
    plan->node_count = n.count;
}
