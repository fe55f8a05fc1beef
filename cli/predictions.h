/* Predictions: what a model says of texts and images, printed in words by its task. */
#ifndef COMPRESS_CLI_PREDICTIONS_H
#define COMPRESS_CLI_PREDICTIONS_H

#include "session/user_inputs.h"

/* Whether predictions of a task can be printed: classes, labels, values, words, answers,
 * scores, embeddings. */
bool predictions_known(Task task);

/* Prints logits, or embeddings, of a model for samples, which are told as they were
 * given:
 *   classify: a line each, the likeliest class's probability, its name, the sample;
 *   multi_label: a line each, the labels that reach their thresholds (the model's, else
 *     0.5), most probable first, each with its probability, or "-"; the sample;
 *   regress: a line each, the values and the sample;
 *   label_tokens: of `texts` alone: a line for each word, the word and its label with a
 *     tab between them, and an empty line behind each text, as CoNLL has them. Words that
 *     were cut off have "-";
 *   find_span: of `texts` that are pairs, a question and the text that may hold its
 *     answer: a line each, the sum of the logits of the answer's ends less that of there
 *     being none (both at token 0), the answer as its tokens spell it, the sample;
 *   choose: a line each, the score and the sample;
 *   embed: a line of JSON each, the sample as `input` and its `embedding`.
 * `texts` and `tokenizer` are NULL for other samples. Fails with STATUS_MODEL where the
 * model's id2label or stored thresholds do not fit. */
Status predictions_print(Arena *arena, const Model *model, const Tensor *logits,
                         const char *const *samples, const UserTexts *texts,
                         const Tokenizer *tokenizer, Diag *diag);

#endif
