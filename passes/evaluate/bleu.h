/* BLEU: how much of a translation's n-grams, n = 1 to 4, its reference has (Papineni et
 * al., ACL 2002), computed as sacreBLEU defines it (Post, WMT 2018): of a whole corpus,
 * one reference for each sentence, the tokenization 13a of NIST's mteval, and smoothing
 * of orders without a match (Chen and Cherry, WMT 2014, methods 1 and 3). */
#ifndef COMPRESS_PASSES_EVALUATE_BLEU_H
#define COMPRESS_PASSES_EVALUATE_BLEU_H

#include "ir/text.h"

#include <stdint.h>

enum { BLEU_ORDERS = 4 };

/* How sentences are cut into tokens. 13a: every ASCII punctuation character except ' - .
 * , is a token; so are . and , unless between digits, and - after a digit; &quot; &amp;
 * &lt; &gt; are decoded. none: only at white space. */
#define BLEU_TOKENIZE_NAMES "13a|none"
typedef enum BleuTokenize { BLEU_13A, BLEU_SPACES } BleuTokenize;

/* The precision of an order without a match among `total` n-grams. exp: 1 / (2^k total)
 * for the k-th such order; floor: 0.1 / total; none: 0, and so is the score. */
#define BLEU_SMOOTH_NAMES "exp|floor|none"
typedef enum BleuSmooth { BLEU_EXP, BLEU_FLOOR, BLEU_NONE } BleuSmooth;

/* Counts over a corpus; start with zeros. */
typedef struct Bleu {
    int64_t correct[BLEU_ORDERS]; /* n-grams that the reference has, each at most as often
                                     as there */
    int64_t total[BLEU_ORDERS];
    int64_t length, reference; /* tokens of translations, of references */
    int64_t sentences;
} Bleu;

typedef struct BleuScore {
    double score;                  /* 0 to 100: penalty times the geometric mean */
    double precision[BLEU_ORDERS]; /* percent, smoothed */
    double penalty; /* of brevity: exp(1 - reference / length), at most 1 */
} BleuScore;

/* Adds a sentence; both are UTF-8. */
void bleu_add(Bleu *bleu, BleuTokenize tokenize, const char *translation,
              const char *reference);

/* The corpus's score; 0 if no word matches, or no sentence has four tokens. */
BleuScore bleu_score(const Bleu *bleu, BleuSmooth smooth);

/* Appends the tokens of a sentence with a space between two. */
void bleu_tokens(Text *out, BleuTokenize tokenize, const char *sentence);

#endif
