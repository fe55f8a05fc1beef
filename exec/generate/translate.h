/* Translate: generation with an encoder-decoder model, many sentences at once.
 *
 * The encoder runs once for each sentence, and so does everything of the decoder that
 * depends on the source alone (keys and values of cross-attention). The decoder then goes
 * token by token, with a state for each hypothesis: keys and values of the tokens before
 * (attention), cell and result (attention_lstm). Weights are read once for all
 * hypotheses. What comes out does not depend on threads, nor on which sentences are
 * together but for rounding: longer ones beside it pad a source. */
#ifndef COMPRESS_EXEC_GENERATE_TRANSLATE_H
#define COMPRESS_EXEC_GENERATE_TRANSLATE_H

#include "exec/generate/search.h"

typedef struct TranslatorOptions {
    int64_t max_length; /* most tokens of a translation, its end included */
    int64_t hypotheses; /* most of a sentence: the largest Search.beam */
    int threads;        /* at least 1: sentences are shared out among them, and where
                           there are fewer sentences, the steps of each */
    StepWeights weights;
} TranslatorOptions;

typedef struct Translator Translator;

/* Makes a translator for a graph as seq2seq_create takes it, and fails likewise. */
Status translator_create(Translator **out, Graph *graph, const TranslatorOptions *options,
                         Diag *diag);
void translator_destroy(Translator *translator);

/* Whether a graph is one of an encoder-decoder model: it has an input decoder_input_ids.
 */
bool translator_fits(const Graph *graph);

/* Checks that a graph can translate, to so many tokens, without its weights. Fails as
 * translator_create does, with STATUS_MODEL. */
Status translator_check(Graph *graph, int64_t max_length, Diag *diag);

/* Tokens that the model can choose from. */
int64_t translator_vocabulary(const Translator *translator);

/* Threads that work on a call with so many sentences. */
int translator_threads(const Translator *translator, int64_t sentences);

/* Translates; out[i].tokens is the caller's. Fails with STATUS_MODEL for an id without a
 * row or search options outside what the translator was made for, with STATUS_MEMORY
 * where there is none for the hypotheses. One call at a time. */
Status translator_run(Translator *translator, const Sentences *sentences,
                      const Search *search, Translation *out, Diag *diag);

#endif
