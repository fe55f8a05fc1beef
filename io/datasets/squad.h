/* Answers to questions about texts, compared as SQuAD's evaluation script does
 * (Rajpurkar et al., 2016, section 6.1; with unanswerable questions: 2018): in lower
 * case, without ASCII punctuation and the words a, an and the, with white space reduced
 * to one space. */
#ifndef COMPRESS_IO_DATASETS_SQUAD_H
#define COMPRESS_IO_DATASETS_SQUAD_H

#include "ir/text.h"

/* Appends an answer, valid UTF-8, in the form used for comparison. */
void squad_normalize(Text *out, TextSpan answer);

/* How an answer compares with a right one: 1 or 0 for the same or not, and the F1 of
 * their words, each counted as often as both contain it. If one of them has no words, F1
 * is 1 if neither has any. */
void squad_compare(TextSpan answer, TextSpan right, double *exact, double *f1);

#endif
