/* Words of its own in place of the target's: see objective_feed_back in objective.h. */
#include "passes/training/objective.h"

/* What dropout is applied to. */
static Node *skip_dropout(Node *node) {
    while (node_has_trait(node, OP_PASS_VALUE)) node = node->in[0];
    return node;
}

/* The table of embeddings that a recurrence reads tokens by, NULL when it reads none. */
static Node *find_table(const Node *recurrence) {
    Node *x = node_operand(recurrence, "x");
    if (!x) return NULL;
    x = skip_dropout(x);
    return node_is(x, &op_embedding) && x->in[1]->storage ? x->in[1] : NULL;
}

/* The decoder's recurrence below a head that is one matrix, NULL when there is none. */
static Node *find_recurrence(Node *logits) {
    if (!node_is(logits, &op_linear) || node_operand(logits, "bias") ||
        !logits->in[1]->storage || ((const LinearAttrs *)logits->attrs)->transposed)
        return NULL;
    Node *node = skip_dropout(logits->in[0]);
    return node_is(node, &op_attention_lstm) ? node : NULL;
}

Status objective_feed_back(Objective *o, double teacher_forcing, Diag *diag) {
    Node *logits = graph_output(o->graph, OUTPUT_LOGITS);
    Node *recurrence = find_recurrence(logits);
    Node *table = recurrence ? find_table(recurrence) : NULL;
    if (!table) {
        Status status =
            edit_fail_option(o->ctx, "teacher_forcing", diag,
                             "a share below 1 is for recurrent decoders "
                             "that read the target's tokens, with one matrix as "
                             "head");
        diag_hint(diag, "model_type rnn_attention with decoder_input: token");
        return status;
    }
    node_set_operand(o->graph, recurrence, "embedding", table);
    node_set_operand(o->graph, recurrence, "head", logits->in[1]);
    TRY(node_set(o->graph, recurrence, diag, "teacher_forcing=%.17g", teacher_forcing));
    return node_infer(recurrence, diag);
}
