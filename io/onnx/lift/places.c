/* Places: see places.h. */
#include "io/onnx/lift/places.h"

#include "ir/rewrite.h"

#include <string.h>

typedef struct Finder {
    Graph *graph;
    const char *stack;
    const char *first_stack; /* of what is not of a target */
    int layer;               /* the latest, -1 = none yet */
    bool open;               /* it has attention and no feed-forward block yet */
    char *state;             /* by Node.id */
    bool *target; /* by Node.id: computed from the target of a model that has a source */
    bool any_plain;
    bool *plain; /* by Node.id: it, or what it is computed from, is a plain op */
    int *owner;  /* by Node.id: 1 + the first layer that is computed from it, 0 = none */
} Finder;

enum { STATE_NONE, STATE_PLACED, STATE_AFTER };

static bool is(const Node *node, const char *op) {
    return node && strcmp(node->op->name, op) == 0;
}

static bool is_norm(const Node *node) {
    return node_has_trait(node, OP_NORM);
}

/* The norm that reads a node. */
static Node *norm_after(const Node *node) {
    for (Node *user = node->next; user; user = user->next)
        if (is_norm(user) && user->in[0] == node) return user;
    return NULL;
}

static void place(Finder *f, Node *node, Role role) {
    node_place(f->graph, node, f->stack, f->layer, role);
    f->state[node->id] = STATE_PLACED;
}

/* ---- blocks ---- */

/* The residual sum that a branch ends in: follows the only users of `node` and places
 * what is on the way: projections get `out`, windows put back their role, a norm on the
 * branch `norm`. NULL when there is none. */
static Node *branch_end(Finder *f, Node *node, Role out, Role norm, bool apply) {
    for (int i = 0; i < 6; i++) {
        Node *user = graph_only_reader(f->graph, node);
        if (!user) return NULL;
        if (is(user, "add")) return user;
        const bool row = is(user, "linear") || is_norm(user) || is(user, "dropout") ||
                         is(user, "window_reverse") || is(user, "scale") ||
                         (is(user, "binary") && user->in[1] && user->in[1]->storage);
        if (!row || user->in[0] != node) return NULL;
        if (apply)
            place(f, user,
                  is(user, "linear")           ? out
                  : is_norm(user)              ? norm
                  : is(user, "window_reverse") ? ROLE_GRID
                                               : ROLE_NONE);
        node = user;
    }
    return NULL;
}

/* Puts the operand that is not on the branch first and gives the sum its role. */
static Node *place_sum(Finder *f, Node *sum, const Node *branch, Role role) {
    if (sum->in[0] == branch && sum->in[1] != branch) {
        sum->in[0] = sum->in[1];
        sum->in[1] = (Node *)branch;
    }
    place(f, sum, role);
    return sum->in[0];
}

/* The norm of a block whose branch begins at `first`: before the branch where that reads
 * a norm of the stream, else behind the sum; the branch may also end in it. */
static void place_norm(Finder *f, Node *first, const Node *stream, const Node *sum,
                       Role role) {
    Node *after = norm_after(sum);
    if (is_norm(sum->in[1]) && sum->in[1]->role == role) return;
    if (is_norm(first) && first->in[0] == stream)
        place(f, first, role);
    else if (first == stream && after)
        place(f, after, role);
}

/* A query, key or value, behind its rotation and the norm of its heads. */
static Node *place_projection(Finder *f, Node *x, Role role, Role rotary, Role norm) {
    if (is(x, "rotary")) {
        place(f, x, rotary);
        x = x->in[0];
    }
    if (norm != ROLE_NONE && is(x, "rms_norm") && is(x->in[0], "linear")) {
        place(f, x, norm);
        x = x->in[0];
    }
    if (is(x, "linear")) place(f, x, role);
    return x;
}

/* The node of the branch that a sum reads: the last one before it. */
static const Node *branch_operand(const Node *sum, const Graph *graph, const Node *from) {
    for (int i = 0; i < 8; i++) {
        const Node *user = graph_only_reader(graph, from);
        if (user == sum) return from;
        from = user;
    }
    return sum->in[0];
}

static void start_layer(Finder *f) {
    f->layer++;
    f->open = true;
}

/* Roles of a block of attention. */
typedef struct AttentionRoles {
    Role q, k, v, attention, out, norm, residual;
} AttentionRoles;

static const AttentionRoles OWN_ROLES = {
    ROLE_Q, ROLE_K, ROLE_V, ROLE_ATTENTION, ROLE_OUT, ROLE_NORM1, ROLE_RESIDUAL1};
static const AttentionRoles CROSS_ROLES = {
    ROLE_CROSS_Q,   ROLE_CROSS_K,    ROLE_CROSS_V,       ROLE_CROSS_ATTENTION,
    ROLE_CROSS_OUT, ROLE_NORM_CROSS, ROLE_RESIDUAL_CROSS};

static bool place_attention(Finder *f, Node *attention) {
    const bool cross = f->target[attention->id] && !f->target[attention->in[1]->id];
    const AttentionRoles *roles = cross ? &CROSS_ROLES : &OWN_ROLES;
    Node *sum = branch_end(f, attention, roles->out, roles->norm, false);
    if (!sum) return false;
    if (!cross || !f->open) start_layer(f);
    place(f, attention, roles->attention);
    const Node *q =
        place_projection(f, attention->in[0], roles->q, ROLE_ROTARY_Q, ROLE_NORM_Q);
    place_projection(f, attention->in[1], roles->k, ROLE_ROTARY_K, ROLE_NORM_K);
    place_projection(f, attention->in[2], roles->v, ROLE_NONE, ROLE_NONE);
    branch_end(f, attention, roles->out, roles->norm, true);
    const Node *stream =
        place_sum(f, sum, branch_operand(sum, f->graph, attention), roles->residual);
    Node *first = is(q, "linear") ? q->in[0] : NULL;
    if (is(first, "window_partition")) {
        place(f, first, ROLE_WINDOWS);
        first = first->in[0];
    }
    if (first) place_norm(f, first, stream, sum, roles->norm);
    return true;
}

/* linear, activation, linear; or with a gate the product of two linears. */
static bool place_feed_forward(Finder *f, Node *act) {
    Node *in = act->in[0], *end = act, *up = NULL;
    Node *user = graph_only_reader(f->graph, act);
    if (!is(in, "linear")) return false;
    if (is(user, "multiply")) {
        up = user->in[user->in[0] == act];
        end = user;
        user = graph_only_reader(f->graph, end);
        if (!is(up, "linear")) return false;
    }
    if (!is(user, "linear") || user->in[0] != end) return false;
    Node *sum = branch_end(f, user, ROLE_NONE, ROLE_NORM2, false);
    if (!sum) return false;
    if (!f->open) f->layer++;
    f->open = false;
    place(f, in, up ? ROLE_FFN_GATE : ROLE_FFN_IN);
    place(f, act, up ? ROLE_NONE : ROLE_FFN_ACT);
    if (up) {
        place(f, up, ROLE_FFN_IN);
        place(f, end, ROLE_FFN_ACT);
    }
    place(f, user, ROLE_FFN_OUT);
    branch_end(f, user, ROLE_NONE, ROLE_NORM2, true);
    const Node *stream =
        place_sum(f, sum, branch_operand(sum, f->graph, user), ROLE_RESIDUAL2);
    place_norm(f, in->in[0], stream, sum, ROLE_NORM2);
    return true;
}

static void place_merging(Finder *f, Node *merge) {
    const int layer = f->layer;
    Node *norm = graph_only_reader(f->graph, merge);
    f->layer = -1;
    place(f, merge, ROLE_MERGE);
    if (is_norm(norm)) {
        place(f, norm, ROLE_MERGE_NORM);
        Node *out = graph_only_reader(f->graph, norm);
        if (is(out, "linear")) place(f, out, ROLE_MERGE_OUT);
    }
    f->layer = layer;
    f->open = false;
}

/* ---- before and after the layers ---- */

/* What a node of the embeddings is. */
static Role embedding_role(const Node *node) {
    const Node *x = node->in_count > 0 ? node->in[0] : NULL;
    const Node *y = node->in_count > 1 ? node->in[1] : NULL;
    if (is(node, "patches")) return ROLE_PATCHES;
    if (is(node, "linear")) return is(x, "patches") ? ROLE_EMBED : ROLE_NONE;
    if (is(node, "embedding"))
        return x->name && strcmp(x->name, INPUT_TYPES) == 0 ? ROLE_NONE : ROLE_EMBED;
    if (is(node, "add_position") || is(node, "add_sinusoid")) return ROLE_POSITION;
    if (is(node, "prepend_token")) return ROLE_TOKEN;
    if (is_norm(node)) return ROLE_NORM0;
    if (is(node, "add")) {
        const bool position = y && y->storage && y->type.rank > 1 && y->type.dim[1] != 1;
        return position ? ROLE_POSITION : ROLE_TOKEN_TYPE;
    }
    return ROLE_NONE;
}

/* What a node of the head is. */
static Role head_role(const Graph *graph, const Node *node) {
    const Node *logits = graph_output(graph, OUTPUT_LOGITS);
    if (node == logits) return is(node, "linear") ? ROLE_HEAD : ROLE_LOGITS;
    if (is(node, "select_token") || is(node, "mean_tokens")) return ROLE_POOL;
    if (!is(node, "linear") || !is(logits, "scale")) return ROLE_NONE;
    const Node *sum = logits->in[0]; /* of two heads: the mean is the prediction */
    if (!is(sum, "add")) return ROLE_NONE;
    if (sum->in[0] == node) return ROLE_HEAD;
    return sum->in[1] == node ? ROLE_DIST_HEAD : ROLE_NONE;
}

/* Whether something of a layer, or behind one, is among the operands. */
static bool follows_layers(const Finder *f, const Node *node) {
    for (int i = 0; i < node->in_count; i++)
        if (node->in[i] && f->state[node->in[i]->id] != STATE_NONE) return true;
    return false;
}

/* Puts the operand that is the words' row, or the head of the first token, first. */
static void order_sum(Graph *graph, Node *sum, Role role) {
    if (!is(sum, "add") || !sum->in[0] || !sum->in[1]) return;
    Node *second = sum->in[1];
    const bool words = role == ROLE_TOKEN_TYPE && second->role == ROLE_EMBED;
    const bool heads =
        role == ROLE_NONE && is(second, "linear") && is(second->in[0], "select_token") &&
        second->in[0] != sum->in[0]->in[0] && node_integer(second->in[0], "index") == 0;
    if (!words && !heads) return;
    if (heads && is(sum->in[0], "linear")) {
        Node *other = sum->in[0]->in[0];
        graph_move_before(graph, second->in[0], other);
        graph_move_before(graph, second, other);
    }
    sum->in[1] = sum->in[0];
    sum->in[0] = second;
}

/* Whether a node is a norm of what the last layer of a stack hands on. */
static bool is_final_norm(const Graph *graph, const char *stack, const Node *node) {
    const int layers = graph_layer_count(graph, stack);
    return layers > 0 && is_norm(node) &&
           node->in[0] == graph_layer_output(graph, stack, layers - 1);
}

/* What plain ops reach, and which layer of its stack each node leads to. */
static void find_owners(Finder *f) {
    for (const Node *node = f->graph->first; node; node = node->next) {
        f->plain[node->id] = node_has_trait(node, OP_TENSOR);
        f->any_plain = f->any_plain || f->plain[node->id];
        for (int i = 0; i < node->in_count; i++)
            if (node->in[i] && f->plain[node->in[i]->id]) f->plain[node->id] = true;
    }
    for (const Node *node = f->graph->last; node; node = node->prev) {
        const bool placed = f->state[node->id] == STATE_PLACED && node->layer >= 0;
        const int owner = placed ? node->layer + 1 : f->owner[node->id];
        for (int i = 0; i < node->in_count && owner; i++) {
            const Node *in = node->in[i];
            if (!in || f->target[in->id] != f->target[node->id]) continue;
            int *of = &f->owner[in->id];
            if (!*of || owner < *of) *of = owner;
        }
    }
}

/* Whether a node that has no role stands in a layer all the same: plain ops are around.
 */
static bool is_part_of_layer(const Finder *f, const Node *node) {
    return f->owner[node->id] && f->any_plain &&
           (f->plain[node->id] || follows_layers(f, node));
}

static void place_rest(Finder *f) {
    static const char *const STACKS[] = {STACK_ENCODER, STACK_DECODER};
    const Node *logits = graph_output(f->graph, OUTPUT_LOGITS);
    if (is(logits, "scale")) order_sum(f->graph, logits->in[0], ROLE_NONE);
    for (Node *node = f->graph->first; node; node = node->next) {
        if (node_is_leaf(node) || f->state[node->id] == STATE_PLACED) continue;
        if (is_part_of_layer(f, node)) {
            node_place(f->graph, node,
                       f->target[node->id] ? STACK_DECODER : f->first_stack,
                       f->owner[node->id] - 1, ROLE_NONE);
            f->state[node->id] = STATE_PLACED;
            continue;
        }
        if (!follows_layers(f, node)) {
            node_place(f->graph, node,
                       f->target[node->id] ? STACK_DECODER_EMBEDDINGS : STACK_EMBEDDINGS,
                       -1, embedding_role(node));
            order_sum(f->graph, node, node->role);
            continue;
        }
        f->state[node->id] = STATE_AFTER;
        const char *stack = NULL;
        for (int i = 0; i < 2; i++)
            if (is_final_norm(f->graph, STACKS[i], node)) stack = STACKS[i];
        if (stack)
            node_place(f->graph, node, stack, -1, ROLE_FINAL_NORM);
        else
            node_place(f->graph, node, STACK_HEAD, -1, head_role(f->graph, node));
    }
}

/* ---- outputs, ties, task ---- */

/* The table of words of the predictions: the target's where there are two. */
static Node *main_embed(const Graph *graph) {
    Node *target = graph_find(graph, STACK_DECODER_EMBEDDINGS, -1, ROLE_EMBED);
    return target ? target : graph_find(graph, STACK_EMBEDDINGS, -1, ROLE_EMBED);
}

/* Lets an operand be the table of an embedding where its numbers are that table's. */
static void tie_weight(Graph *graph, Node *node, const char *operand, Node *embed) {
    Node *weight = node_operand(node, operand);
    if (!is(embed, "embedding") || !weight || !weight->storage) return;
    const Tensor *x = &weight->storage->tensor, *y = &embed->in[1]->storage->tensor;
    if (x != y && x->dtype == y->dtype && tensor_same_shape(x, y) && tensor_data(x) &&
        tensor_data(y) && memcmp(tensor_data(x), tensor_data(y), tensor_bytes(x)) == 0)
        node_set_operand(graph, node, operand, embed->in[1]);
}

static void tie_weights(Graph *graph) {
    Node *head = graph_find(graph, STACK_HEAD, -1, ROLE_HEAD);
    Node *source = graph_find(graph, STACK_EMBEDDINGS, -1, ROLE_EMBED);
    Node *target = graph_find(graph, STACK_DECODER_EMBEDDINGS, -1, ROLE_EMBED);
    if (is(target, "embedding")) tie_weight(graph, target, "weight", source);
    if (is(head, "linear") && !node_flag(head, "transposed"))
        tie_weight(graph, head, "weight", main_embed(graph));
}

static Task find_task(const Graph *graph, bool decoder) {
    const Node *logits = graph_output(graph, OUTPUT_LOGITS);
    const Node *embed = main_embed(graph);
    if (!logits) return TASK_EMBED;
    if (logits->type.rank == 2) return TASK_CLASSIFY;
    const bool words =
        is(embed, "embedding") && logits->type.dim[2] == embed->in[1]->type.dim[0];
    if (!words) return TASK_LABEL_TOKENS;
    if (graph_find_input(graph, INPUT_TARGET_IDS)) return TASK_TRANSLATE;
    return decoder ? TASK_NEXT_TOKEN : TASK_FILL_IN;
}

/* What the last layer of a stack hands on, behind its norm. */
static Node *stack_output(const Graph *graph, const char *stack) {
    const int layers = graph_layer_count(graph, stack);
    Node *states = graph_find(graph, stack, -1, ROLE_FINAL_NORM);
    return states || layers == 0 ? states : graph_layer_output(graph, stack, layers - 1);
}

/* Hugging Face's models give their states and what is pooled as well. */
static void add_outputs(Graph *graph, const char *stack) {
    Node *states = stack_output(graph, stack);
    Node *source = graph_find_input(graph, INPUT_TARGET_IDS)
                       ? stack_output(graph, STACK_ENCODER)
                       : NULL;
    if (!graph_output(graph, OUTPUT_ENCODER_STATES) && source)
        graph_set_output(graph, OUTPUT_ENCODER_STATES, source);
    if (!graph_output(graph, OUTPUT_STATES) && states)
        graph_set_output(graph, OUTPUT_STATES, states);
    Node *heads[2] = {graph_find(graph, STACK_HEAD, -1, ROLE_HEAD),
                      graph_find(graph, STACK_HEAD, -1, ROLE_DIST_HEAD)};
    if (heads[0] && heads[1]) {
        graph_set_output(graph, "cls_logits", heads[0]);
        graph_set_output(graph, "distillation_logits", heads[1]);
    }
    Node *pool = graph_find(graph, STACK_HEAD, -1, ROLE_POOL);
    if (is(pool, "mean_tokens") && !graph_output(graph, OUTPUT_POOLER))
        graph_set_output(graph, OUTPUT_POOLER, pool);
    Node *dense = pool ? graph_only_reader(graph, pool) : NULL;
    Node *act = is(dense, "linear") ? graph_only_reader(graph, dense) : NULL;
    if (!graph_output(graph, OUTPUT_POOLER) && act && node_chooses(act, "fn", "tanh"))
        graph_set_output(graph, OUTPUT_POOLER, act);
}

/* Places the layers of one stack: those whose nodes are of the target, or are not. */
static void place_stack(Finder *f, const char *stack, bool target) {
    f->stack = stack;
    f->layer = -1;
    f->open = false;
    for (Node *node = f->graph->first; node; node = node->next) {
        if (f->target[node->id] != target) continue;
        if (is(node, "attention")) place_attention(f, node);
        if (is(node, "activation")) place_feed_forward(f, node);
        if (is(node, "patch_merging")) place_merging(f, node);
    }
}

int places_find(Graph *graph, bool decoder) {
    Arena *arena = arena_create();
    const bool translates = graph_find_input(graph, INPUT_TARGET_IDS) != NULL;
    const char *stack = decoder ? STACK_DECODER : STACK_ENCODER;
    const size_t count = (size_t)graph_number(graph);
    Finder f = {.graph = graph,
                .state = ARENA_ARRAY(arena, char, count),
                .target = ARENA_ARRAY(arena, bool, count),
                .plain = ARENA_ARRAY(arena, bool, count),
                .owner = ARENA_ARRAY(arena, int, count),
                .first_stack = translates ? STACK_ENCODER : stack};
    for (const Node *node = graph->first; node && translates; node = node->next) {
        f.target[node->id] =
            node_is_input(node) && (strcmp(node->name, INPUT_TARGET_IDS) == 0 ||
                                    strcmp(node->name, INPUT_TARGET_MASK) == 0);
        for (int i = 0; i < node->in_count; i++)
            if (node->in[i] && f.target[node->in[i]->id]) f.target[node->id] = true;
    }
    if (translates) place_stack(&f, STACK_ENCODER, false);
    place_stack(&f, stack, translates);
    find_owners(&f);
    place_rest(&f);
    arena_destroy(arena);
    tie_weights(graph);
    add_outputs(graph, stack);
    graph_remove_dead(graph);
    graph->task = find_task(graph, decoder);
    return graph_layer_count(graph, stack);
}
