/* Label loss: the loss of predictions against the labels of a data set, by the model's
 * task. */
#ifndef COMPRESS_PASSES_TRAINING_LABEL_LOSS_H
#define COMPRESS_PASSES_TRAINING_LABEL_LOSS_H

#include "ir/field.h"
#include "ir/graph.h"

typedef struct LabelLossOptions {
    double smoothing; /* share of each target spread over all classes, or over both
                         answers of a label; only for these losses */
    bool mixed;       /* each sample is a mix of two: inputs mix_labels, mix_share */
    int64_t group; /* of embeddings: samples that form a group, the first two being alike;
                      0 = 2 */
    double scale;  /* of embeddings: factor of cosines, 1 / temperature */
    bool symmetric; /* of embeddings: second samples are also matched to their first ones
                     */
    bool scored;    /* of embeddings: `labels` f32[1] say how alike the first two are */
    const RealList *positive; /* multi_label: weights of present labels, one for all or
                                 one for each; NULL or empty = 1 */
} LabelLossOptions;

/* Whether a task has a loss. */
bool label_loss_known(Task task);

/* The loss of `logits`, a prediction of graph->task, as a scalar node; adds the inputs
 * that it reads if the graph lacks them:
 *   classify, fill_in, next_token, translate, label_tokens: cross-entropy, mean over the
 *     rows whose label is not INDEX_SKIP; `labels` i32, one for each row of logits, or
 *     `masked_labels` where logits are of masked positions [N, M, V]. Where samples are
 *     mixed of two, `mix_labels` and `mix_share` hold the other's label and its share;
 *   find_span: half the sum of the cross-entropies over the tokens, those of the mask, of
 *     the first and the last; `start_positions`, `end_positions` i32[];
 *   multi_label: binary cross-entropy, mean over labels; `labels` f32 as the logits;
 *   choose: cross-entropy over the samples of a group; `labels` i32[], 1 = the right one,
 *     and `choice_place` i32[], a sample's number in its group;
 *   regress: mean squared error; `labels` f32 as the logits;
 *   embed, `logits` being the embeddings: the contrastive loss of groups, whose samples
 *     are told apart from all others of the mini-batch, and no labels are read; where
 *     they are scored, the squared difference of the cosine of the first two and the
 *     label.
 * Fails with STATUS_MODEL where the graph refuses it. */
Status label_loss_add(Node **out, Graph *graph, Node *logits,
                      const LabelLossOptions *options, Diag *diag);

#endif
