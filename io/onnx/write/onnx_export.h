/* Onnx export: a graph of the IR as ONNX operators, node by node.
 *
 * Every op has a function that appends its operators (io/onnx/write/ops_*.c, listed in
 * io/onnx/write/onnx_ops.def). What they share is here: values by node, lengths and
 * positions, and the states that a decoder takes as inputs and returns as outputs when
 * it generates text token by token. Patterns are those that PyTorch's exporter writes,
 * which onnxruntime fuses. */
#ifndef COMPRESS_IO_ONNX_WRITE_ONNX_EXPORT_H
#define COMPRESS_IO_ONNX_WRITE_ONNX_EXPORT_H

#include "io/onnx/write/onnx_build.h"
#include "ir/model.h"

/* Names of symbolic dimensions, as in Hugging Face's exporter. */
#define ONNX_BATCH    "batch_size"
#define ONNX_SEQUENCE "sequence_length"
#define ONNX_PAST     "past_sequence_length"
#define ONNX_TOTAL    "total_sequence_length"
#define ONNX_SOURCE   "encoder_sequence_length"
#define ONNX_MASKED   "masked_length"

typedef struct OnnxExport {
    OnnxBuild *b; /* where operators are appended: the file's graph or a body */
    const Graph *graph;
    const char **values;  /* by Node.id; NULL = not written yet */
    const bool *whole;    /* by place among graph->storages: every user is a linear that
                             needs the transpose, so the file holds that */
    bool by_rows;         /* act=i8 rounds as this program does, else as onnxruntime */
    bool with_sign;       /* weights of 8 bits keep their sign in products with act=i8 */
    bool cached;          /* states of earlier tokens are inputs and outputs */
    const char *key_mask; /* cached: input [batch, total], 0 = token takes no part; NULL =
                             there is none */
    const char *first_key; /* cached without key_mask: a state [N, G, past, d] */
    const char *use_cache; /* cached decoders of encoder-decoders: input, whether keys and
                              values of the source are given */
    const char *cross[2];  /* keys and values of the source for the node being written, as
                              heads [N, G, S, d]; NULL = its operands */
    int key_states;        /* cached: states of keys and values declared so far */
} OnnxExport;

/* Appends the operators of one node and returns the name of its value, which may be that
 * of an operand. */
typedef const char *OnnxOp(OnnxExport *x, const Node *node);

#define ONNX_OP(name) OnnxOp onnx_op_##name;
#include "io/onnx/write/onnx_ops.def"
#undef ONNX_OP

/* The function of an op by name, NULL when it has no form in ONNX. */
OnnxOp *onnx_op_find(const char *name);

/* Appends the operators of a node, if not done yet, with `scope` saying where it is. Its
 * operands must have been written before. */
const char *onnx_export_node(OnnxExport *x, const Node *node);

/* Marks what a node's value is computed from, by Node.id, up to nodes that are marked. */
void onnx_mark(const Node *node, bool *needed);

/* Value of operand `i`: of a node, of an input, or a parameter's weights. */
const char *onnx_operand(OnnxExport *x, const Node *node, int i);

/* Value of an operand by its declared name; NULL when it is absent. */
const char *onnx_named(OnnxExport *x, const Node *node, const char *name);

/* The storage behind operand `i`, NULL when it is not a parameter. */
const Storage *onnx_storage(const Node *node, int i);

/* The weight of a linear as MatMul needs it, [K, M]. A storage that others read
 * untransposed, or that is quantised, stays as it is, followed by a Transpose. */
const char *onnx_linear_matrix(OnnxExport *x, const Node *node);

/* The product of a linear, x times its weight without bias, if the weight is quantised
 * or x is rounded (act=i8); NULL for ordinary products. See onnx_few_bits.h. */
const char *onnx_few_bits_product(OnnxExport *x, const Node *node);

/* Number of tokens that a dimension stands for, a vector of one element: a constant, or
 * from the shape of an input that has it. */
const char *onnx_length(OnnxExport *x, int64_t dim);

/* Number of tokens before those of a dimension, a vector of one. */
const char *onnx_past(OnnxExport *x, int64_t dim);

/* Indices of tokens along a dimension, from `offset` on, [N or 1, T]. Padding before a
 * text is not counted if there are input states. */
const char *onnx_positions(OnnxExport *x, int64_t dim, int64_t offset);

/* Which keys each of the tokens of `dim` may see if it sees no later ones: bool [N or 1,
 * 1, T, S], S being the earlier tokens plus these if there are input states. */
const char *onnx_causal(OnnxExport *x, int64_t dim);

/* The same for keys fewer than `reach` tokens away: on both sides, or without `both`
 * only before the token, with later keys counting as near. */
const char *onnx_near(OnnxExport *x, int64_t dim, int64_t reach, bool both);

/* The distance in tokens from queries to keys (positive if later), [T, S], both counted
 * from the text's first; S is the earlier tokens plus these if there are input
 * states. */
const char *onnx_offsets(OnnxExport *x, int64_t queries, int64_t keys);

/* A mask [N, S] of integers as real numbers 0 and 1, otherwise unchanged. */
const char *onnx_mask_real(OnnxExport *x, const char *mask);

/* x[N, T, heads * width] as [N, heads, T, width], and back. */
const char *onnx_split_heads(OnnxBuild *b, const char *x, int64_t heads, int64_t width);
const char *onnx_join_heads(OnnxBuild *b, const char *x, int64_t width);

/* Heads of keys and values [N, groups, S, d] repeated to [N, heads, S, d]. */
const char *onnx_repeat_heads(OnnxBuild *b, const char *x, int64_t groups, int64_t heads,
                              int64_t width);

/* States of a decoder. onnx_state_in declares the input `name` of this shape and returns
 * it; onnx_state_out makes `value`, which the operator appended last must compute, the
 * output `name` and returns it. A dimension is a number, or a name where names[i] is not
 * NULL.
 */
const char *onnx_state_in(OnnxExport *x, const char *name, const int64_t *dim,
                          const char *const *names, int rank);
const char *onnx_state_out(OnnxExport *x, const char *name, const char *value,
                           const int64_t *dim, const char *const *names, int rank);

#endif
