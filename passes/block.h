/* Blocks: the residual blocks of a layer.
 *
 * A layer is a chain of blocks, each of which adds its result to the values that run
 * through the model:
 *
 *     x + f(norm(x))     norm before
 *     norm(x + f(x))     norm after
 *     x + norm(f(x))     norm on the branch
 *
 * f ends in a projection; if that gives zero, the block is the identity (with a norm
 * after the sum: as far as the norm leaves x unchanged). A block is removed by replacing
 * its output by x. Blocks are found by data flow, with roles only for naming, so that
 * layers changed by other passes are recognised as well. */
#ifndef COMPRESS_PASSES_BLOCK_H
#define COMPRESS_PASSES_BLOCK_H

#include "passes/layers.h"

/* Blocks by what they compute; options list those before BLOCK_OTHER. */
#define BLOCK_NAMES "attention|cross_attention|ffn"
typedef enum BlockKind {
    BLOCK_ATTENTION,       /* softmax or linear, of the values that run through */
    BLOCK_CROSS_ATTENTION, /* with keys and values of other values */
    BLOCK_FFN,
    BLOCK_OTHER, /* transforms of the feed-forward block's input, on the residual stream
                    (weight_multiplex); they belong to it */
    BLOCK_PLAIN  /* ops on tensors of any shape: their meaning is not known, so they are
                    removed only with the whole layer */
} BlockKind;

/* What is removed from a layer: all of it, or its blocks of a kind. */
enum { BLOCK_ALL = -1 };

typedef struct Block {
    BlockKind kind;
    Node *input;  /* x */
    Node *output; /* the block's output: its sum, or the norm after it */
    Node *last;   /* the end of the branch: a projection, a convolution, an op on tensors,
                     or the parameter left by an attention without heads; NULL: a norm on
                     its own */
    Node *branch_norm; /* between `last` and the sum; NULL = none */
    Node *norm;        /* after the sum; NULL = none */
} Block;

enum { LAYER_BLOCKS = 8 };

typedef struct LayerBlocks {
    Block items[LAYER_BLOCKS]; /* in the order in which they run */
    int count;
} LayerBlocks;

/* Finds the blocks of a layer. Fails with STATUS_MODEL, naming the value, if the layer
 * is not such a chain, or as layer_ends does. */
Status layer_blocks(LayerBlocks *out, PassContext *ctx, const Graph *graph,
                    const char *stack, int layer, Diag *diag);

/* Whether a block belongs to a part of its layer: BLOCK_ALL or a BlockKind. */
bool block_is_part(const Block *block, int part);

/* Number of blocks that belong to a part. */
int layer_count_part(const LayerBlocks *blocks, int part);

/* Replaces a block's output by its input. Call graph_remove_dead and graph_infer
 * afterwards. */
void block_bypass(Graph *graph, const Block *block);

/* A parameter, and the value for all its elements that makes a block the identity. */
typedef struct BlockZero {
    Node *leaf;
    double value;
} BlockZero;

enum { BLOCK_ZEROS = 5 };

/* Those of a block: weight and bias of the end of the branch (0), the shift of a norm on
 * the branch (0), gain and shift of a norm after the sum (1 and 0). Returns their
 * number. With a norm after the sum the block is then the identity only for normalised
 * x. */
int block_zeros(const Block *block, BlockZero out[BLOCK_ZEROS]);

/* Printed name: "cross_attention". */
const char *block_name(BlockKind kind);

#endif
