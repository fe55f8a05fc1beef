/* Decoders: see decoder.h. */
#include "io/families/decoder.h"

#include <string.h>

#define HEAD_WEIGHT "lm_head.weight"

Node *decoder_embed(Builder *b, const char *name, int64_t rows, int64_t width) {
    const int64_t tokens[] = {DIM_N, DIM_T}, table[] = {rows, width};
    b->stack = STACK_EMBEDDINGS;
    Node *const in[4] = {build_input(b, INPUT_IDS, DTYPE_I32, 2, tokens),
                         build_param(b, name, INIT_NORMAL, 2, table)};
    return build_op(b, "embedding", ROLE_EMBED, in, NULL);
}

const char *decoder_part(Builder *b, const char *layers, const char *name) {
    return arena_printf(b->model->arena, "%s.%d.%s", layers, b->layer, name);
}

void decoder_predict(Builder *b, Node *x, Node *tied, int64_t vocabulary, double cap) {
    if (b->status != STATUS_OK) return;
    const int64_t dim[] = {vocabulary, x->type.dim[x->type.rank - 1]};
    b->stack = STACK_HEAD;
    b->prefix = "";
    if (!tied) tied = build_param(b, HEAD_WEIGHT, INIT_TRUNC_NORMAL, 2, dim);
    Node *const in[4] = {x, tied};
    x = build_op(b, "linear", ROLE_HEAD, in, NULL);
    if (cap > 0) {
        x = build_op(b, "scale", ROLE_NONE, (Node *[4]){x}, "by=%.17g", 1 / cap);
        x = build_op(b, "activation", ROLE_NONE, (Node *[4]){x}, "fn=tanh");
        x = build_op(b, "scale", ROLE_LOGITS, (Node *[4]){x}, "by=%.17g", cap);
    }
    build_logits(b, TASK_NEXT_TOKEN, x);
}

bool decoder_spare(const char *tensor) {
    return strcmp(tensor, HEAD_WEIGHT) == 0;
}

const char *const decoder_heads[] = {"lm_head.", NULL};
