/* Weight multiplexing: the parts of weight_multiplex.c.
 *
 * Zhang et al., MiniViT: Compressing Vision Transformers with Weight Multiplexing, CVPR
 * 2022, section 3.2, in the DeiT and Swin forms of its reference implementation. Layers l
 * of a group share every parameter except their layer norms; each gets its own
 * transformations: H x H mixing before and after the softmax (F1, F2), a table of
 * contextual relative positions on keys, and a depth-wise convolution before the MLP. */
#ifndef COMPRESS_PASSES_MULTIPLEX_MULTIPLEX_H
#define COMPRESS_PASSES_MULTIPLEX_MULTIPLEX_H

#include "ir/storage.h"
#include "passes/fault.h"
#include "passes/nodes.h"

typedef enum MultiplexInit { SHARE_FIRST, SHARE_MEAN, SHARE_LSQ } MultiplexInit;
typedef enum MlpTransform { MLP_NONE, MLP_CONV, MLP_NORM_CONV } MlpTransform;

typedef struct MultiplexOptions {
    int64_t group;
    IntList groups, layers_left;
    int init;        /* MultiplexInit */
    int mixing;      /* none, both, before, after */
    int mixing_init; /* identity, trunc_normal */
    bool mixing_bias;
    int position;      /* none, contextual */
    int mlp_transform; /* MlpTransform */
    int64_t kernel;
    int pooling; /* keep, mean */
    double mixing_std;
    const char *stack;
} MultiplexOptions;

enum { MIXING_NONE, MIXING_BOTH, MIXING_BEFORE, MIXING_AFTER };
enum { MIXING_IDENTITY, MIXING_TRUNC_NORMAL };
enum { POSITION_NONE, POSITION_CONTEXTUAL };
enum { POOLING_KEEP, POOLING_MEAN };

/* One application of the pass. */
typedef struct Multiplex {
    PassContext *ctx;
    Model *model;
    Graph *graph;
    const MultiplexOptions *options;
    int layers;
    double deviation; /* largest ||W_l - W|| / ||W_l|| of the present group */
    double largest;   /* of all groups */
    bool warned;      /* that a plan does not know whether layers are equal */
} Multiplex;

/* Sizes of the groups, first to last, in the context's arena: as listed, or as `group` or
 * `layers_left` say for every stage (graph_layer_stage) that has layers; most models have
 * one. Fails with STATUS_MODEL. */
Status multiplex_groups(IntList *out, Multiplex *m, Diag *diag);

/* Makes layers [first, first + count) share projections and MLP: checks that their shapes
 * agree, merges weights by options->init and redirects all users to one leaf. Sets
 * m->deviation. Fails with STATUS_MODEL naming both layers. */
Status multiplex_share(Multiplex *m, int first, int count, Diag *diag);

/* Least-squares merge of the projections that read one norm: the shared W and per-layer
 * column scales s_l minimise sum_l ||W_l - W diag(s_l)||_F^2 (exactly, column by column,
 * as a rank-one approximation); s_l goes into layer l's norm, which is not shared.
 * `norm` is that norm's role and `roles` those of its `per_layer` readers, whose shapes
 * have been compared. Fails with STATUS_MODEL when the norm is shared or has other
 * readers. */
Status multiplex_lsq(Multiplex *m, int first, int count, Role norm, const Role *roles,
                     int per_layer, Diag *diag);

/* Gives layer `layer` its own transformations. Fails with STATUS_MODEL. */
Status multiplex_transform(Multiplex *m, int layer, Diag *diag);

/* Replaces class and distillation tokens by the mean over patches, with their position
 * rows and the distillation head. */
Status multiplex_pool_mean(Multiplex *m, Diag *diag);

#endif
