/* Sequence to sequence: see seq2seq.h. */
#include "io/families/seq2seq.h"

void seq2seq_inputs(Builder *b, Node **source, Node **source_mask, Node **target,
                    Node **target_mask) {
    const int64_t from[] = {DIM_N, DIM_S}, to[] = {DIM_N, DIM_T};
    *source = build_input(b, INPUT_IDS, DTYPE_I32, 2, from);
    *source_mask = build_input(b, INPUT_MASK, DTYPE_I32, 2, from);
    *target = build_input(b, INPUT_TARGET_IDS, DTYPE_I32, 2, to);
    *target_mask = build_input(b, INPUT_TARGET_MASK, DTYPE_I32, 2, to);
}

Node *seq2seq_embed(Builder *b, Node *ids, const char *name, int64_t rows,
                    int64_t width) {
    const int64_t table[] = {rows, width};
    Node *const in[4] = {ids, build_param(b, name, INIT_NORMAL, 2, table)};
    return build_op(b, "embedding", ROLE_EMBED, in, NULL);
}
