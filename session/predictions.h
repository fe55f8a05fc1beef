/* Predictions: what a model predicts for texts and images, depending on its task. */
#ifndef COMPRESS_SESSION_PREDICTIONS_H
#define COMPRESS_SESSION_PREDICTIONS_H

#include "session/user_inputs.h"

/* Name of the output from which predictions of a task are read; NULL if there are none:
 * they are classes, labels, values, words, answers, scores, embeddings. */
const char *predictions_output(Task task);

/* A model's outputs for samples, with the samples as they were given. */
typedef struct Predictions {
    const Model *model;
    const Tensor *logits;       /* or embeddings, by sample */
    const char *const *samples; /* texts, or paths of images */
    const UserTexts *texts;     /* for other samples NULL, or none */
    const Tokenizer *tokenizer; /* of texts */
    const int32_t *exits; /* the layer after which each left; NULL = all ran to the end */

    /* set by predictions_prepare */
    const double *threshold; /* multi_label: for every label */
} Predictions;

/* Sets what all samples need, in the arena. Fails with STATUS_MODEL if the model's
 * id2label or stored thresholds do not fit, or if the task needs texts and there are
 * none. */
Status predictions_prepare(Predictions *predictions, Arena *arena, Diag *diag);

/* What the model says of a sample, as a map in the arena: the sample as `input`, of a
 * pair the second text as `input_pair`, `exit_layer` where samples left early, and by
 * task
 *   classify: `label`, the likeliest class, `score`, its probability, and the `scores` of
 *     all classes;
 *   multi_label: `labels` that reach their thresholds (the model's, else 0.5), most
 *     probable first, with `label` and `score`; and `scores` of all;
 *   regress: `values`;
 *   label_tokens: only for texts: `words` with `word` and `label` (null where it was cut
 *     off);
 *   find_span: of texts that are pairs, a question and the text that may hold its answer:
 *     the `answer` as its tokens spell it, and `score`, the sum of the logits of its ends
 *     less that of there being none (both at token 0);
 *   choose: `score`;
 *   embed: `embedding`.
 * Fails with STATUS_USAGE at a sample that should be a pair and is not. */
Status prediction_of(Tree **out, const Predictions *predictions, int64_t sample,
                     Arena *arena, Diag *diag);

#endif
