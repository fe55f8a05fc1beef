/* Lines of predictions (session/predictions.h), as `compress run` prints them. */
#ifndef COMPRESS_CLI_PREDICTION_LINES_H
#define COMPRESS_CLI_PREDICTION_LINES_H

#include "session/predictions.h"

/* Prints what a model says of samples to standard output. A line of text each, in which
 * line breaks and other control characters of texts are spaces:
 *   classify: the likeliest class's probability, its name, the sample;
 *   multi_label: the labels, most probable first, each with its probability, or "-"; the
 *     sample;
 *   regress: the values and the sample;
 *   label_tokens: a line for each word, the word and its label with a tab between them,
 *     "-" for words that were cut off, and an empty line behind each text, as CoNLL has
 *     them;
 *   find_span: the score, the answer, the sample;
 *   choose: the score and the sample;
 *   embed: JSON, also without `json`.
 * With `json` the map of prediction_of as a line of JSON each. Fails as
 * predictions_prepare and prediction_of do. */
Status prediction_lines_print(Arena *arena, Predictions *predictions, bool json,
                              Diag *diag);

#endif
