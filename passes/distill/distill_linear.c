/* Losses of linear attention against the softmax attention that it replaced. See
 * distill_objective.h.
 *
 * Form `match`: Zhang et al., The Hedgehog & the Porcupine: Expressive Linear Attentions
 * with Softmax Mimicry, ICLR 2024. Form `output`: Zhang et al., LoLCATs: On Low-Rank
 * Linearizing of Large Language Models, ICLR 2025, section 3.1, here relative to the
 * teacher's own size.
 *
 * The student's attention may read the teacher's queries, keys and values: then no layer
 * depends on what the ones before it make of theirs, and nothing of the student is run
 * that lies before them. */
#include "passes/distill/distill_objective.h"

#include <string.h>

/* ---- pairs ---- */

/* A pair of attentions, each in its own graph. */
typedef struct AttentionPair {
    const Node *ours;   /* linear attention, in the training graph */
    const Node *theirs; /* softmax attention, in the teacher's graph */
    DistillMatch match;
} AttentionPair;

/* The attentions of a role in a pair of layers; `ours` is NULL where the student has no
 * linear attention there. Fails with STATUS_MODEL where the teacher has no softmax
 * attention to match. */
static Status find_pair(AttentionPair *out, Distill *d, DistillMatch match, Role role,
                        Diag *diag) {
    const Objective *o = &d->objective;
    *out = (AttentionPair){.ours = node_find(o->graph, match.student_stack, match.student,
                                             role, &op_linear_attention),
                           .theirs = node_find(o->teacher_graph, match.teacher_stack,
                                               match.teacher, role, &op_attention),
                           .match = match};
    if (!out->ours || out->theirs) return STATUS_OK;
    return step_fail(o->ctx, diag,
                     "layer %d of the teacher has no softmax attention to match",
                     match.teacher);
}

/* ---- weights ---- */

enum { QUERY, KEY };

static Status check_pair(const Distill *d, const AttentionPair *pair, Diag *diag) {
    const LinearAttentionAttrs *s = pair->ours->attrs;
    const AttentionAttrs *t = pair->theirs->attrs;
    const int64_t ours = heads_of_keys(s->heads, s->kv_heads);
    const int64_t theirs = heads_of_keys(t->heads, t->kv_heads);
    PassContext *ctx = d->objective.ctx;
    if (s->heads != t->heads || ours != theirs)
        return step_fail_option(
            ctx, "attention_form", diag,
            "match expects equal head counts, found %lld "
            "(%lld of keys) in layer %d of the student and %lld (%lld of "
            "keys) in layer %d of the teacher",
            (long long)s->heads, (long long)ours, pair->match.student,
            (long long)t->heads, (long long)theirs, pair->match.teacher);
    if (t->reach || t->cap > 0)
        return step_fail_option(ctx, "attention_form", diag,
                                "match: expected attention of the teacher's layer %d to "
                                "all tokens, without a cap, found reach=%lld cap=%g",
                                pair->match.teacher, (long long)t->reach, t->cap);
    if (s->causal == t->causal) return STATUS_OK;
    return step_fail_option(ctx, "attention_form", diag,
                            "match: attention of layer %d of the student and "
                            "layer %d of the teacher must both be causal or not",
                            pair->match.student, pair->match.teacher);
}

/* The student's feature map of what the teacher's attention reads; where the map does not
 * see rotary positions, of that before them. */
static Status map_teacher(Node **out, Distill *d, const AttentionPair *pair, int side,
                          Diag *diag) {
    Objective *o = &d->objective;
    const Node *map = pair->ours->in[side], *value = pair->theirs->in[side];
    if (!node_is(map, &op_feature_map)) {
        Status status = step_fail(o->ctx, diag,
                                  "layer %d of the student has no feature map that could "
                                  "read the teacher's queries and keys",
                                  pair->match.student);
        diag_hint(diag, "match_on: student compares what it computes itself, also after "
                        "merge_t2r");
        return status;
    }
    if (node_is(value, &op_rotary) && !node_is(map->in[0], &op_rotary))
        value = value->in[0];
    if (node_width(value) != node_width(map->in[0]))
        return step_fail_option(o->ctx, "attention_form", diag,
                                "match expects heads of equal width in layer %d "
                                "of the student and layer %d of the teacher",
                                pair->match.student, pair->match.teacher);
    Node *in[3] = {objective_teacher_node(o, value), node_operand(map, "weight"),
                   node_operand(map, "bias")};
    *out = graph_insert(o->graph, NULL, map->op, in, 3);
    memcpy((*out)->attrs, map->attrs, map->op->attrs_size);
    return node_infer(*out, diag);
}

static Status add_pair(Node **out, Distill *d, const AttentionPair *pair, Diag *diag) {
    const Objective *o = &d->objective;
    const LinearAttentionAttrs *ours = pair->ours->attrs;
    const AttentionAttrs *theirs = pair->theirs->attrs;
    Node *in[6] = {pair->ours->in[QUERY],
                   pair->ours->in[KEY],
                   NULL,
                   NULL,
                   node_operand(pair->ours, "mask"),
                   node_tokens_mask(o->graph, pair->ours)};
    const int count = in[5] ? 6 : in[4] ? 5 : 4;
    TRY(check_pair(d, pair, diag));
    for (int side = QUERY; side <= KEY; side++) {
        in[2 + side] = objective_teacher_node(o, pair->theirs->in[side]);
        if (d->options->match_on == MATCH_ON_TEACHER)
            TRY(map_teacher(&in[side], d, pair, side, diag));
    }
    return node_add(out, o->graph, NULL, &op_attention_match, in, count, diag,
                    "heads=%lld kv_heads=%lld causal=%s scale=%.17g eps=%.17g",
                    (long long)ours->heads, (long long)ours->kv_heads,
                    ours->causal ? "true" : "false", theirs->scale, ours->eps);
}

/* ---- outputs ---- */

/* Roles whose values the teacher's take the place of, from what attention reads back to
 * its projections. */
static bool is_source(Role role) {
    return role == ROLE_ROTARY_Q || role == ROLE_ROTARY_K || role == ROLE_NORM_Q ||
           role == ROLE_NORM_K || role == ROLE_Q || role == ROLE_K || role == ROLE_V ||
           role == ROLE_CROSS_Q || role == ROLE_CROSS_K || role == ROLE_CROSS_V;
}

/* The teacher's value in place of the student's node of the same role. */
static Status take_source(Node **out, Distill *d, const AttentionPair *pair,
                          const Node *node, Diag *diag) {
    const Objective *o = &d->objective;
    const Node *theirs = graph_find(o->teacher_graph, pair->match.teacher_stack,
                                    pair->match.teacher, node->role);
    if (theirs && type_equal(&theirs->type, &node->type)) {
        *out = objective_teacher_node(o, theirs);
        return STATUS_OK;
    }
    Status status = step_fail_option(
        o->ctx, "attention_form", diag,
        "output: expected a value \"%s\" of equal width in layer %d of the student and "
        "layer %d of the teacher",
        role_name(node->role), pair->match.student, pair->match.teacher);
    diag_hint(diag, "match_on: student compares what the student computes itself, also "
                    "after merge_t2r");
    return status;
}

/* What `node`, of the student's attention or before it, gives of the teacher's queries,
 * keys and values: a copy with the same weights. Leaves, and what lies outside of the
 * layer (masks), are as they are. */
static Status read_teacher(Node **out, Distill *d, const AttentionPair *pair, Node *node,
                           Diag *diag) {
    Graph *graph = d->objective.graph;
    *out = node;
    if (node_is_leaf(node) ||
        !node_is_in(node, pair->match.student_stack, pair->match.student))
        return STATUS_OK;
    if (is_source(node->role)) return take_source(out, d, pair, node, diag);
    if (node_is(node, &op_linear))
        return step_fail(d->objective.ctx, diag,
                         "layer %d of the student has a projection in front of attention "
                         "that the teacher's queries, keys and values pass by",
                         pair->match.student);
    Node **in = ARENA_ARRAY(graph->arena, Node *, (size_t)node->in_count);
    for (int i = 0; i < node->in_count; i++)
        if (node->in[i]) TRY(read_teacher(&in[i], d, pair, node->in[i], diag));
    *out = graph_insert(graph, NULL, node->op, in, node->in_count);
    memcpy((*out)->attrs, node->attrs, node->op->attrs_size);
    return node_infer(*out, diag);
}

/* The relative squared error of what the student's attention gives, padding left out. */
static Status output_term(Node **out, Distill *d, const AttentionPair *pair, Diag *diag) {
    const Objective *o = &d->objective;
    Node *ours = (Node *)(uintptr_t)pair->ours;
    Node *theirs = objective_teacher_node(o, pair->theirs);
    if (d->options->match_on == MATCH_ON_TEACHER)
        TRY(read_teacher(&ours, d, pair, ours, diag));
    if (!type_equal(&ours->type, &theirs->type))
        return step_fail_option(o->ctx, "attention_form", diag,
                                "output expects attention of equal widths in layer %d of "
                                "the student and layer %d of the teacher",
                                pair->match.student, pair->match.teacher);
    Node *in[3] = {ours, theirs, node_tokens_mask(o->graph, ours)};
    return node_add(out, o->graph, NULL, &op_relative_squared_error, in, in[2] ? 3 : 2,
                    diag, NULL);
}

/* ---- terms ---- */

Status distill_linear_terms(Node **terms, int *count, Distill *d, DistillMatch match,
                            Diag *diag) {
    AttentionPair pair;
    TRY(find_pair(&pair, d, match, ROLE_ATTENTION, diag));
    const bool output = d->losses.attention_form == ATTENTION_output;
    *count = 0;
    if (pair.ours && output) TRY(output_term(&terms[(*count)++], d, &pair, diag));
    if (pair.ours && !output) TRY(add_pair(&terms[(*count)++], d, &pair, diag));
    if (!output) return STATUS_OK;
    TRY(find_pair(&pair, d, match, ROLE_CROSS_ATTENTION, diag));
    if (pair.ours) TRY(output_term(&terms[(*count)++], d, &pair, diag));
    return STATUS_OK;
}
