/* Graphs in graphviz's language: see dot.h. */
#include "session/page/dot.h"

#include "session/page/markup.h"
#include "session/units.h"

#include <string.h>

#define LABEL_MOST 60 /* characters of a line */
#define STACKS_MAX 32

static const char head[] =
    "digraph model {\n"
    "  graph [compound=true, fontname=\"Helvetica\", fontsize=12, bgcolor=\"white\", color=\"#98a1b0\", "
    "fontcolor=\"#5b6474\", style=\"rounded\", ranksep=0.28, nodesep=0.2, labeljust=l]\n"
    "  node [fontname=\"Helvetica\", fontsize=10, shape=box, style=\"rounded,filled\", "
    "fillcolor=\"#eceff4\", color=\"#98a1b0\", fontcolor=\"#1b2130\", height=0.3, "
    "margin=\"0.12,0.05\"]\n"
    "  edge [color=\"#5b6474\", arrowsize=0.55]\n";

/* What kind of part a node is, by the colour of its box. */
static const char *role_color(const Node *node) {
    switch (node->role) {
    case ROLE_ATTENTION:
    case ROLE_CROSS_ATTENTION:
    case ROLE_RECURRENCE: return "#a9d0f0";
    case ROLE_Q:
    case ROLE_K:
    case ROLE_V:
    case ROLE_OUT:
    case ROLE_CROSS_Q:
    case ROLE_CROSS_K:
    case ROLE_CROSS_V:
    case ROLE_CROSS_OUT: return "#d8eaf9";
    case ROLE_FFN_IN:
    case ROLE_FFN_GATE:
    case ROLE_FFN_ACT:
    case ROLE_FFN_OUT: return "#fbdcc6";
    case ROLE_HEAD:
    case ROLE_DIST_HEAD:
    case ROLE_POOL:
    case ROLE_LOGITS: return "#cdeede";
    default: return node->op->name && node->role == ROLE_NONE ? "#f6f7f9" : "#eceff4";
    }
}

/* A stack and layer, by the first node that stands there. Nodes without a stack stand
 * alone. */
static bool same_place(const Node *a, const Node *b) {
    if (!a->stack || !b->stack) return a == b;
    return a->layer == b->layer && strcmp(a->stack, b->stack) == 0;
}

/* Weights that the same places read. */
typedef struct SharedGroup {
    const Node **users; /* the first of each place */
    int user_count;
    Text roles; /* of the nodes that read them */
    int64_t weights;
} SharedGroup;

/* A graph being drawn. */
typedef struct Drawing {
    Text *text;
    Arena *arena;
    const Graph *graph;
    const char *stacks[STACKS_MAX];
    int stack_count;
    SharedGroup *groups;
    int group_count;
    int *group_of; /* by Node.id of a leaf: index of its group, -1 = one place reads it */
} Drawing;

/* Whether a group is of these places. */
static bool group_has(const SharedGroup *group, const Node *const *users, int count) {
    if (group->user_count != count) return false;
    for (int i = 0; i < count; i++)
        if (!same_place(group->users[i], users[i])) return false;
    return true;
}

/* Adds a role's name, once. */
static void add_role(Text *roles, const Node *node) {
    const char *name = node->role ? role_name(node->role) : node->op->name;
    const size_t length = strlen(name);
    for (const char *at = roles->data; at && *at;) {
        const size_t own = strcspn(at, ",");
        if (own == length && strncmp(at, name, own) == 0) return;
        at += own + (at[own] ? 2 : 0); /* past ", " */
    }
    text_add(roles, "%s%s", roles->length ? ", " : "", name);
}

/* Finds the places that read a leaf; of several the group. */
static void group_leaf(Drawing *d, const Node *leaf) {
    const Node **users =
        ARENA_ARRAY(d->arena, const Node *, (size_t)graph_use_count(d->graph, leaf) + 1);
    int count = 0, found = 0;
    for (const Node *node = d->graph->first; node; node = node->next)
        for (int i = 0; i < node->in_count; i++) {
            bool known = node->in[i] != leaf;
            for (int u = 0; u < count && !known; u++) known = same_place(users[u], node);
            if (!known) users[count++] = node;
        }
    d->group_of[leaf->id] = -1;
    if (count < 2) return;
    while (found < d->group_count && !group_has(&d->groups[found], users, count)) found++;
    SharedGroup *group = &d->groups[found];
    if (found == d->group_count) {
        *group = (SharedGroup){.users = users, .user_count = count};
        d->group_count++;
    }
    d->group_of[leaf->id] = found;
    group->weights += tensor_count(&leaf->storage->tensor);
    for (const Node *node = d->graph->first; node; node = node->next)
        for (int i = 0; i < node->in_count; i++)
            if (node->in[i] == leaf) add_role(&group->roles, node);
}

/* Elements of the weights that a node reads: those of its place alone, or `shared`. */
static int64_t weights_of(const Drawing *d, const Node *node, bool shared) {
    int64_t count = 0;
    for (int i = 0; i < node->in_count; i++) {
        const Node *in = node->in[i];
        if (in && in->storage && (d->group_of[in->id] >= 0) == shared)
            count += tensor_count(&in->storage->tensor);
    }
    return count;
}

static void add_type(Text *label, const Node *node) {
    text_add(label, "\n");
    type_print(label, &node->type);
}

/* The lines of a node's box. */
static void add_label(const Drawing *d, const Node *node) {
    Text label = {0};
    const char *role = node->role ? role_name(node->role) : NULL;
    const int64_t own = weights_of(d, node, false), shared = weights_of(d, node, true);
    if (node->name)
        text_add(&label, "%s", node->name);
    else
        text_add(&label, "%s", role ? role : node->op->name);
    if (role && strcmp(role, node->op->name) != 0)
        text_add(&label, "\n%s", node->op->name);
    if (node_heads(node) > 0)
        text_add(&label, ", %lld heads", (long long)node_heads(node));
    add_type(&label, node);
    if (own > 0) text_add(&label, "\n%s weights", text_grouped(d->arena, own));
    if (shared > 0) text_add(&label, "\n%s shared", text_grouped(d->arena, shared));
    text_add(d->text, "[label=");
    markup_quoted(d->text, label.data, 4 * LABEL_MOST);
    text_add(d->text, "%s, fillcolor=\"%s\"]", node_is_input(node) ? ", shape=oval" : "",
             role_color(node));
    text_free(&label);
}

/* The nodes of a place; weights are told by those that read them. */
static void add_place(const Drawing *d, const char *stack, int layer, int indent) {
    for (const Node *node = d->graph->first; node; node = node->next) {
        const bool here =
            stack ? node->stack && strcmp(node->stack, stack) == 0 && node->layer == layer
                  : !node->stack;
        if (node->storage || !here) continue;
        text_add(d->text, "%*sn%d ", indent, "", node->id);
        add_label(d, node);
        text_add(d->text, ";\n");
    }
}

static void add_stack(const Drawing *d, int index) {
    Text *text = d->text;
    const char *stack = d->stacks[index];
    const int layers = graph_layer_count(d->graph, stack);
    text_add(text, "  subgraph cluster_%d {\n    label=", index);
    markup_quoted(text, stack, LABEL_MOST);
    text_add(text, ";\n");
    add_place(d, stack, -1, 4);
    for (int layer = 0; layer < layers; layer++) {
        text_add(text, "    subgraph cluster_%d_%d {\n      label=\"layer %d\";\n", index,
                 layer, layer);
        add_place(d, stack, layer, 6);
        text_add(text, "    }\n");
    }
    text_add(text, "  }\n");
}

/* Number of a node's stack; -1 = it has none that is drawn. */
static int stack_index(const Drawing *d, const Node *node) {
    for (int i = 0; i < d->stack_count && node->stack; i++)
        if (strcmp(d->stacks[i], node->stack) == 0) return i;
    return -1;
}

/* Weights of several places: a box for each group, with an edge to each place. The first
 * edge alone moves the box to where it is read. */
static void add_shared(const Drawing *d) {
    for (int g = 0; g < d->group_count; g++) {
        const SharedGroup *group = &d->groups[g];
        Text label = {0};
        text_add(&label, "read in %d places\n%s\n%s weights", group->user_count,
                 group->roles.data, text_grouped(d->arena, group->weights));
        text_add(d->text,
                 "  s%d [shape=note, style=filled, fillcolor=\"#f6e3f0\", label=", g);
        markup_quoted(d->text, label.data, 4 * LABEL_MOST);
        text_add(d->text, "];\n");
        text_free(&label);
        for (int u = 0; u < group->user_count; u++) {
            const Node *user = group->users[u];
            const int stack = stack_index(d, user);
            text_add(d->text, "  s%d -> n%d [style=dashed, color=\"#b0539a\"", g,
                     user->id);
            if (stack >= 0 && user->layer >= 0)
                text_add(d->text, ", lhead=cluster_%d_%d", stack, user->layer);
            text_add(d->text, "%s];\n", u ? ", constraint=false" : "");
        }
    }
}

static void add_edges(const Drawing *d) {
    const Graph *graph = d->graph;
    for (const Node *node = graph->first; node; node = node->next)
        for (int i = 0; i < node->in_count; i++)
            if (node->in[i] && !node->in[i]->storage)
                text_add(d->text, "  n%d -> n%d;\n", node->in[i]->id, node->id);
    for (int i = 0; i < graph->output_count; i++) {
        text_add(d->text, "  o%d [shape=oval, fillcolor=\"#cdeede\", label=", i);
        markup_quoted(d->text, graph->outputs[i].name, LABEL_MOST);
        text_add(d->text, "];\n  n%d -> o%d;\n", graph->outputs[i].node->id, i);
    }
}

/* Finds the stacks and the weights that places share. */
static void find_parts(Drawing *d, Graph *graph) {
    const size_t count = (size_t)graph_number(graph) + 1;
    d->group_of = ARENA_ARRAY(d->arena, int, count);
    d->groups = ARENA_ARRAY(d->arena, SharedGroup, count);
    for (const Node *node = graph->first; node; node = node->next) {
        bool known = !node->stack || d->stack_count == STACKS_MAX;
        for (int i = 0; i < d->stack_count && !known; i++)
            known = strcmp(d->stacks[i], node->stack) == 0;
        if (!known) d->stacks[d->stack_count++] = node->stack;
        if (node->storage) group_leaf(d, node);
    }
}

void graph_dot(Text *text, Graph *graph) {
    Drawing d = {.text = text, .arena = arena_create(), .graph = graph};
    find_parts(&d, graph);
    text_add(text, "%s", head);
    add_place(&d, NULL, -1, 2);
    for (int i = 0; i < d.stack_count; i++) add_stack(&d, i);
    add_shared(&d);
    add_edges(&d);
    text_add(text, "}\n");
    for (int g = 0; g < d.group_count; g++) text_free(&d.groups[g].roles);
    arena_destroy(d.arena);
}
