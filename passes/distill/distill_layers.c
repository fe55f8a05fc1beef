/* Losses on matched layers: see distill.h. */
#include "passes/distill/distill.h"

#include <string.h>

/* ---- values of both sides ---- */

static Status skip_tokens(Node **out, Distill *d, Node *node, int skip, Diag *diag) {
    *out = node;
    if (!skip) return STATUS_OK;
    return edit_node(out, d->objective.graph, NULL, &op_slice_tokens, &node, 1, diag,
                     "from=%d", skip);
}

Status distill_student_tokens(Node **out, Distill *d, Node *node, Diag *diag) {
    return skip_tokens(out, d, node, d->student_skip, diag);
}

Status distill_teacher_tokens(Node **out, Distill *d, const Node *node, Diag *diag) {
    return skip_tokens(out, d, objective_teacher_node(&d->objective, node),
                       d->teacher_skip, diag);
}

static Status fail_missing(Distill *d, bool teacher, const char *what, int layer,
                           Diag *diag) {
    const Status status =
        edit_fail(d->objective.ctx, diag, "the %s has no node \"%s\" in layer %d",
                  teacher ? "teacher" : "student", what, layer);
    diag_hint(diag, "match other layers (student_layers, teacher_layers), or give the "
                    "loss weight 0");
    return status;
}

/* Nodes of a role in a pair of layers: pair[0] the student's, pair[1] the teacher's. */
static Status tap(Node *pair[2], Distill *d, DistillMatch match, Role role, Diag *diag) {
    const Objective *o = &d->objective;
    Node *ours = graph_find(o->graph, match.student_stack, match.student, role);
    const Node *theirs =
        graph_find(o->teacher_graph, match.teacher_stack, match.teacher, role);
    if (!ours) return fail_missing(d, false, role_name(role), match.student, diag);
    if (!theirs) return fail_missing(d, true, role_name(role), match.teacher, diag);
    TRY(distill_student_tokens(&pair[0], d, ours, diag));
    return distill_teacher_tokens(&pair[1], d, theirs, diag);
}

/* Whether a mask has one number for each token of x. */
static bool masks_tokens(const Node *mask, const Node *x) {
    const Type *type = &mask->type;
    return type->dtype == DTYPE_I32 && type->rank == 2 && x->type.rank == 3 &&
           type->dim[0] == x->type.dim[0] && type->dim[1] == x->type.dim[1];
}

Node *distill_padding(const Graph *graph, const Node *x) {
    static const char *const NAMES[] = {"attention_mask", "decoder_attention_mask"};
    for (int i = 0; i < 2; i++) {
        Node *mask = graph_find_input(graph, NAMES[i]);
        if (mask && masks_tokens(mask, x)) return mask;
    }
    return NULL;
}

Status distill_sum(Node **out, Distill *d, Node **terms, int count, bool sum,
                   Diag *diag) {
    Objective *o = &d->objective;
    double *ones = ARENA_ARRAY(o->arena, double, (size_t)count);
    for (int i = 0; i < count; i++) ones[i] = 1;
    return edit_sum(out, o->graph, terms, sum ? ones : NULL, count, diag);
}

static int64_t last_width(const Node *node) {
    return node->type.rank ? node->type.dim[node->type.rank - 1] : 1;
}

Status distill_compare_states(Node **out, Distill *d, const Op *op, Node *student,
                              Node *teacher, const char *use, Diag *diag) {
    Graph *graph = d->objective.graph;
    const int64_t width = last_width(student), other = last_width(teacher);
    if (width != other) {
        Status status = edit_fail(d->objective.ctx, diag,
                                  "expected hidden states of equal width, found %lld in "
                                  "the student and %lld in the teacher",
                                  (long long)width, (long long)other);
        diag_hint(diag, "%s compares any widths", use);
        return status;
    }
    Node *mask = distill_padding(graph, student);
    return edit_node(out, graph, NULL, op, (Node *[]){student, teacher, mask},
                     mask ? 3 : 2, diag, NULL);
}

/* Adds a part that is the sum or the mean of terms over layers. */
static Status add_over_layers(Distill *d, const char *name, double weight, Node **terms,
                              int count, bool sum, Diag *diag) {
    Node *part = NULL;
    TRY(distill_sum(&part, d, terms, count, sum, diag));
    return objective_add_part(&d->objective, name, part, weight, diag);
}

/* ---- windows ---- */

/* Attributes of a layer's softmax attention; NULL when it has none. */
static const AttentionAttrs *attention_of(const Graph *graph, const char *stack,
                                          int layer) {
    const Node *node = edit_find(graph, stack, layer, ROLE_ATTENTION, &op_attention);
    return node ? node->attrs : NULL;
}

static const AttentionAttrs *student_attention(const Distill *d, DistillMatch match) {
    return attention_of(d->objective.graph, match.student_stack, match.student);
}

static const AttentionAttrs *teacher_attention(const Distill *d, DistillMatch match) {
    return attention_of(d->objective.teacher_graph, match.teacher_stack, match.teacher);
}

/* Tokens of a window of a layer's attention; 0 where every token attends to all. */
static int64_t window_tokens(const AttentionAttrs *attention) {
    return attention ? attention->window * attention->window : 0;
}

static bool same_windows(const AttentionAttrs *a, const AttentionAttrs *b) {
    if (!window_tokens(a) || !window_tokens(b))
        return window_tokens(a) == window_tokens(b);
    return a->window == b->window && a->shift == b->shift && a->grid_h == b->grid_h &&
           a->grid_w == b->grid_w;
}

/* Queries, keys and values stand window by window: both sides must have the same. */
static Status check_windows(const Distill *d, DistillMatch match, Diag *diag) {
    const AttentionAttrs *ours = student_attention(d, match);
    const AttentionAttrs *theirs = teacher_attention(d, match);
    if (same_windows(ours, theirs)) return STATUS_OK;
    Status status = edit_fail(
        d->objective.ctx, diag,
        "the attention loss expects equal windows, found size %lld, shift %lld in layer "
        "%d of the student and size %lld, shift %lld in layer %d of the teacher",
        (long long)(ours ? ours->window : 0), (long long)(ours ? ours->shift : 0),
        match.student, (long long)(theirs ? theirs->window : 0),
        (long long)(theirs ? theirs->shift : 0), match.teacher);
    diag_hint(diag, "match layers of equal windows (pairs, match), or give attention the "
                    "weight 0");
    return status;
}

/* The tokens of both sides in the windows of the student's layer, where it has some. */
static Status cut_windows(Node *pair[2], Distill *d, DistillMatch match, Diag *diag) {
    const AttentionAttrs *a = student_attention(d, match);
    for (int side = 0; side < 2 && window_tokens(a); side++)
        TRY(edit_node(
            &pair[side], d->objective.graph, NULL, &op_window_partition, &pair[side], 1,
            diag, "grid_h=%lld grid_w=%lld window=%lld shift=%lld", (long long)a->grid_h,
            (long long)a->grid_w, (long long)a->window, (long long)a->shift));
    return STATUS_OK;
}

/* ---- attention ---- */

enum { RELATIONS = 9 };

/* Queries, keys and values relate to each other where they are equally wide: not behind
 * merge_t2r, and not where heads share keys and values. */
static Status check_widths(Distill *d, bool teacher, int layer, Node *const *projection,
                           int count, Diag *diag) {
    int64_t width[3] = {0};
    bool equal = true;
    for (int i = 0; i < count; i++) {
        width[i] = last_width(projection[i]);
        equal &= width[i] == width[0];
    }
    if (equal) return STATUS_OK;
    const char *values = count < 3 ? ""
                                   : arena_printf(d->objective.arena, ", values %lld",
                                                  (long long)width[2]);
    Status status = edit_fail(
        d->objective.ctx, diag,
        "the attention loss expects queries, keys and values of equal width, found "
        "queries %lld, keys %lld%s in layer %d of the %s",
        (long long)width[0], (long long)width[1], values, layer,
        teacher ? "teacher" : "student");
    diag_hint(diag, "behind merge_t2r queries and keys are features: distill before it, "
                    "or give attention the weight 0");
    return status;
}

/* The projections of a pair of layers, those of equal width alone. */
static Status tap_projections(Node *pair[][2], Distill *d, DistillMatch match, int count,
                              Diag *diag) {
    static const Role roles[3] = {ROLE_Q, ROLE_K, ROLE_V};
    for (int i = 0; i < count; i++) TRY(tap(pair[i], d, match, roles[i], diag));
    for (int side = 0; side < 2; side++) {
        Node *projection[3] = {NULL};
        for (int i = 0; i < count; i++) projection[i] = pair[i][side];
        TRY(check_widths(d, side == 1, side ? match.teacher : match.student, projection,
                         count, diag));
    }
    return STATUS_OK;
}

/* Nine relation losses of one pair of layers. */
static Status add_relations(Distill *d, DistillMatch match, Node **terms, Diag *diag) {
    Node *pair[3][2];
    TRY(check_windows(d, match, diag));
    TRY(tap_projections(pair, d, match, 3, diag));
    const int64_t window = window_tokens(student_attention(d, match));
    for (int i = 0; i < RELATIONS; i++) {
        Node *in[4] = {pair[i / 3][0], pair[i % 3][0], pair[i / 3][1], pair[i % 3][1]};
        TRY(edit_node(&terms[i], d->objective.graph, NULL, &op_relation_cross_entropy, in,
                      4, diag, "window=%lld", (long long)window));
    }
    return STATUS_OK;
}

static Status check_heads(Distill *d, DistillMatch match, int64_t *heads, Diag *diag) {
    const AttentionAttrs *s = student_attention(d, match);
    const AttentionAttrs *t = teacher_attention(d, match);
    const int64_t ours = s ? s->heads : 0, theirs = t ? t->heads : 0;
    *heads = ours;
    if (window_tokens(s) || window_tokens(t))
        return edit_fail_option(d->objective.ctx, "attention_form", diag,
                                "map expects attention to all tokens, found "
                                "windows in layer %d of the %s",
                                window_tokens(s) ? match.student : match.teacher,
                                window_tokens(s) ? "student" : "teacher");
    if (ours == theirs && ours > 0) return STATUS_OK;
    Status status = edit_fail_option(
        d->objective.ctx, "attention_form", diag,
        "map expects equal head counts, found %lld in layer %d of the "
        "student and %lld in layer %d of the teacher",
        (long long)ours, match.student, (long long)theirs, match.teacher);
    diag_hint(diag, "attention_form: relation compares any head counts");
    return status;
}

static Status map_term(Node **out, Distill *d, DistillMatch match, Diag *diag) {
    const Objective *o = &d->objective;
    int64_t heads = 0;
    Node *pair[2][2];
    TRY(check_heads(d, match, &heads, diag));
    TRY(tap_projections(pair, d, match, 2, diag));
    Node *q = pair[0][0];
    Node *in[5] = {q, pair[1][0], pair[0][1], pair[1][1], distill_padding(o->graph, q)};
    return edit_node(out, o->graph, NULL, &op_attention_map_mse, in, in[4] ? 5 : 4, diag,
                     "heads=%lld", (long long)heads);
}

static Status fail_unmatched(Distill *d, Diag *diag) {
    Status status = edit_fail_option(d->objective.ctx, "attention_form", diag,
                                     "match: the student's layers have no linear "
                                     "attention");
    diag_hint(diag, "attention_to_t2r gives it to them");
    return status;
}

Status distill_add_attention(Distill *d, Diag *diag) {
    if (d->losses.attention == 0) return STATUS_OK;
    const int form = d->losses.attention_form;
    const bool relations = form == ATTENTION_relation;
    const int each = relations ? RELATIONS : 1;
    Node **terms =
        ARENA_ARRAY(d->objective.arena, Node *, (size_t)(each * d->match_count));
    int count = 0;
    for (int i = 0; i < d->match_count; i++) {
        if (relations)
            TRY(add_relations(d, d->matches[i], terms + count, diag));
        else if (form == ATTENTION_map)
            TRY(map_term(terms + count, d, d->matches[i], diag));
        else
            TRY(distill_match_term(terms + count, d, d->matches[i], diag));
        if (terms[count]) count += each;
    }
    if (count == 0) return fail_unmatched(d, diag);
    return add_over_layers(d, "attention", d->losses.attention, terms, count,
                           !relations && d->options->over_layers == OVER_LAYERS_SUM,
                           diag);
}

/* ---- hidden ---- */

static Status mlp_term(Node **out, Distill *d, DistillMatch match, Diag *diag) {
    Graph *graph = d->objective.graph;
    Node *pair[2];
    const int64_t window = window_tokens(student_attention(d, match));
    TRY(tap(pair, d, match, ROLE_FFN_OUT, diag));
    TRY(cut_windows(pair, d, match, diag));
    if (d->losses.hidden_form == HIDDEN_gram)
        return edit_node(out, graph, NULL, &op_gram_mse, pair, 2, diag,
                         "weight=%.17g window=%lld", d->options->gram_weight,
                         (long long)window);
    return edit_node(out, graph, NULL, &op_relation_cross_entropy,
                     (Node *[]){pair[0], pair[0], pair[1], pair[1]}, 4, diag,
                     "window=%lld", (long long)window);
}

static bool is_in(const Node *node, const char *stack, int layer) {
    return node->layer == layer && node->stack && strcmp(node->stack, stack) == 0;
}

/* The value that a stack's first layer reads: the first operand of its nodes that is
 * computed outside. */
static Node *first_state(const Graph *graph, const char *stack) {
    for (const Node *node = graph->first; node; node = node->next) {
        if (!is_in(node, stack, 0)) continue;
        for (int i = 0; i < node->in_count; i++) {
            Node *value = node->in[i];
            if (value && !value->storage && value->type.dtype == DTYPE_F32 &&
                !is_in(value, stack, 0))
                return value;
        }
    }
    return NULL;
}

/* State before layer 0 (`layer` -1) or behind a layer. */
static Node *state(const Graph *graph, const char *stack, int layer) {
    return layer < 0 ? first_state(graph, stack)
                     : graph_layer_output(graph, stack, layer);
}

static Status state_term(Node **out, Distill *d, DistillMatch match, Diag *diag) {
    const Objective *o = &d->objective;
    Node *student = state(o->graph, match.student_stack, match.student), *teacher = NULL;
    const Node *theirs = state(o->teacher_graph, match.teacher_stack, match.teacher);
    if (!student) return fail_missing(d, false, "residual2", match.student, diag);
    if (!theirs) return fail_missing(d, true, "residual2", match.teacher, diag);
    TRY(distill_student_tokens(&student, d, student, diag));
    TRY(distill_teacher_tokens(&teacher, d, theirs, diag));
    return distill_compare_states(out, d, &op_mean_squared_error, student, teacher,
                                  "hidden_form: relation", diag);
}

/* What the first layers of both sides read. */
static DistillMatch first_states(const Distill *d) {
    return (DistillMatch){d->student_stack, d->teacher_stack, -1, -1};
}

Status distill_add_hidden(Distill *d, Diag *diag) {
    if (d->losses.hidden == 0) return STATUS_OK;
    const bool states = d->losses.hidden_form == HIDDEN_state;
    Node **terms = ARENA_ARRAY(d->objective.arena, Node *, (size_t)d->match_count + 1);
    int count = 0;
    if (states && d->options->embeddings)
        TRY(state_term(&terms[count++], d, first_states(d), diag));
    for (int i = 0; i < d->match_count; i++) {
        if (states)
            TRY(state_term(&terms[count++], d, d->matches[i], diag));
        else
            TRY(mlp_term(&terms[count++], d, d->matches[i], diag));
    }
    return add_over_layers(d, "hidden", d->losses.hidden, terms, count,
                           states && d->options->over_layers == OVER_LAYERS_SUM, diag);
}
