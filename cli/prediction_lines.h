/* Lines of predictions (session/predictions.h), as `compress run` prints them. */
#ifndef COMPRESS_CLI_PREDICTION_LINES_H
#define COMPRESS_CLI_PREDICTION_LINES_H

#include "session/predictions.h"

/* Prints a model's predictions for samples to standard output, one line of text each, in
 * which line breaks and other control characters of texts become spaces:
 *   classify: the likeliest class's probability, its name, the sample;
 *   multi_label: the labels, most probable first, each with its probability, or "-"; the
 *     sample;
 *   regress: the values and the sample;
 *   label_tokens: a line for each word, the word and its label with a tab between them,
 *     "-" for words that were cut off, and an empty line after each text, as in CoNLL;
 *   find_span: the score, the answer, the sample;
 *   choose: the score and the sample;
 *   embed: JSON, also without `json`.
 * With `json`, the map of prediction_of as one line of JSON each. Fails as
 * predictions_prepare and prediction_of do. */
Status prediction_lines_print(Arena *arena, Predictions *predictions, bool json,
                              Diag *diag);

#endif
