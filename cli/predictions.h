/* Predictions: what a model says of texts and images, printed in words by its task. */
#ifndef COMPRESS_CLI_PREDICTIONS_H
#define COMPRESS_CLI_PREDICTIONS_H

#include "session/user_inputs.h"

/* Whether predictions of a task can be printed: classes, labels, values, words, answers,
 * scores, embeddings. */
bool predictions_known(Task task);

/* What a model gives for samples, which are told as they were given. */
typedef struct Predictions {
    const Model *model;
    const Tensor *logits;       /* or embeddings, by sample */
    const char *const *samples; /* texts, or paths of images */
    const UserTexts *texts;     /* of other samples NULL, or none */
    const Tokenizer *tokenizer; /* of texts */
    const int32_t *exits;       /* the layer behind which each left; NULL = all ran */
} Predictions;

/* Prints them to standard output. A line of text each, in which line breaks and other
 * control characters of texts are spaces:
 *   classify: the likeliest class's probability, its name, the sample;
 *   multi_label: the labels that reach their thresholds (the model's, else 0.5), most
 *     probable first, each with its probability, or "-"; the sample;
 *   regress: the values and the sample;
 *   label_tokens: of texts alone: a line for each word, the word and its label with a
 *     tab between them, and an empty line behind each text, as CoNLL has them. Words that
 *     were cut off have "-";
 *   find_span: of texts that are pairs, a question and the text that may hold its answer:
 *     the sum of the logits of the answer's ends less that of there being none (both at
 *     token 0), the answer as its tokens spell it, the sample;
 *   choose: the score and the sample;
 *   embed: JSON, also without `json`.
 * With `json` a line of JSON each: a map with the sample as `input`, of a pair the second
 * text as `input_pair`, `exit_layer` where samples left early, and by task `label`,
 * `score` and the `scores` of all classes; `labels` with `label` and `score`, and
 * `scores`; `values`; `words` with `word` and `label` (null where it was cut off);
 * `answer` and `score`; `score`; `embedding`. Fails with STATUS_MODEL where the model's
 * id2label or stored thresholds do not fit. */
Status predictions_print(Arena *arena, const Predictions *predictions, bool json,
                         Diag *diag);

#endif
