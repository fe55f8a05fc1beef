/* Form `match` of the attention loss: the rows of the student's linear attention against
 * those of the teacher's softmax attention. See distill.h.
 *
 * Zhang et al., The Hedgehog & the Porcupine: Expressive Linear Attentions with Softmax
 * Mimicry, ICLR 2024. The student's feature maps may read the teacher's queries and keys:
 * then no layer depends on what the ones before it make of theirs, nothing but feature
 * maps gets a gradient, and nothing else of the student is run. */
#include "passes/distill/distill.h"

#include <string.h>

/* A pair of attentions, each in its own graph. */
typedef struct Pair {
    const Node *ours;   /* linear_attention, in the training graph */
    const Node *theirs; /* attention, in the teacher's graph */
    DistillMatch match;
} Pair;

enum { QUERY, KEY };

static const LinearAttentionAttrs *student_attrs(const Pair *pair) {
    return pair->ours->attrs;
}

static const AttentionAttrs *teacher_attrs(const Pair *pair) {
    return pair->theirs->attrs;
}

static Status check_pair(const Distill *d, const Pair *pair, Diag *diag) {
    const LinearAttentionAttrs *s = student_attrs(pair);
    const AttentionAttrs *t = teacher_attrs(pair);
    const int64_t ours = heads_of_keys(s->heads, s->kv_heads);
    const int64_t theirs = heads_of_keys(t->heads, t->kv_heads);
    PassContext *ctx = d->objective.ctx;
    if (s->heads != t->heads || ours != theirs)
        return edit_fail_option(
            ctx, "attention_form", diag,
            "match expects equal head counts, found %lld "
            "(%lld of keys) in layer %d of the student and %lld (%lld of "
            "keys) in layer %d of the teacher",
            (long long)s->heads, (long long)ours, pair->match.student,
            (long long)t->heads, (long long)theirs, pair->match.teacher);
    if (s->causal == t->causal) return STATUS_OK;
    return edit_fail_option(ctx, "attention_form", diag,
                            "match: attention of layer %d of the student and "
                            "layer %d of the teacher must both be causal or not",
                            pair->match.student, pair->match.teacher);
}

static int64_t last_width(const Node *node) {
    return node->type.dim[node->type.rank - 1];
}

/* The student's feature map of what the teacher's attention reads; where the map does not
 * see rotary positions, of that before them. */
static Status map_teacher(Node **out, Distill *d, const Pair *pair, int side,
                          Diag *diag) {
    Objective *o = &d->objective;
    const Node *map = pair->ours->in[side], *value = pair->theirs->in[side];
    if (!node_is(map, &op_feature_map)) {
        Status status = edit_fail(o->ctx, diag,
                                  "layer %d of the student has no feature map that could "
                                  "read the teacher's queries and keys",
                                  pair->match.student);
        diag_hint(diag, "match_on: student compares what it computes itself, also after "
                        "merge_t2r");
        return status;
    }
    if (node_is(value, &op_rotary) && !node_is(map->in[0], &op_rotary))
        value = value->in[0];
    if (last_width(value) != last_width(map->in[0]))
        return edit_fail_option(o->ctx, "attention_form", diag,
                                "match expects heads of equal width in layer %d "
                                "of the student and layer %d of the teacher",
                                pair->match.student, pair->match.teacher);
    Node *in[3] = {objective_teacher_node(o, value), node_operand(map, "weight"),
                   node_operand(map, "bias")};
    *out = graph_insert(o->graph, NULL, map->op, in, 3);
    memcpy((*out)->attrs, map->attrs, map->op->attrs_size);
    return node_infer(*out, diag);
}

static Status add_pair(Node **out, Distill *d, const Pair *pair, Diag *diag) {
    const Objective *o = &d->objective;
    Node *in[5] = {pair->ours->in[QUERY], pair->ours->in[KEY], NULL, NULL,
                   node_operand(pair->ours, "mask")};
    TRY(check_pair(d, pair, diag));
    for (int side = QUERY; side <= KEY; side++) {
        in[2 + side] = objective_teacher_node(o, pair->theirs->in[side]);
        if (d->options->match_on == MATCH_ON_TEACHER)
            TRY(map_teacher(&in[side], d, pair, side, diag));
    }
    return edit_node(out, o->graph, NULL, &op_attention_match, in, in[4] ? 5 : 4, diag,
                     "heads=%lld kv_heads=%lld causal=%s scale=%.17g eps=%.17g",
                     (long long)student_attrs(pair)->heads,
                     (long long)student_attrs(pair)->kv_heads,
                     student_attrs(pair)->causal ? "true" : "false",
                     teacher_attrs(pair)->scale, student_attrs(pair)->eps);
}

Status distill_match_term(Node **out, Distill *d, DistillMatch match, Diag *diag) {
    const Objective *o = &d->objective;
    const Pair pair = {.ours = edit_find(o->graph, match.student_stack, match.student,
                                         ROLE_ATTENTION, &op_linear_attention),
                       .theirs = edit_find(o->teacher_graph, match.teacher_stack,
                                           match.teacher, ROLE_ATTENTION, &op_attention),
                       .match = match};
    *out = NULL;
    if (!pair.ours) return STATUS_OK;
    if (!pair.theirs)
        return edit_fail(o->ctx, diag,
                         "layer %d of the teacher has no softmax attention to match",
                         match.teacher);
    return add_pair(out, d, &pair, diag);
}
