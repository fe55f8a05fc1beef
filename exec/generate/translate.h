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

#include "exec/generate/step.h"

typedef struct TranslatorOptions {
    int64_t max_length; /* most tokens of a translation, its end included */
    int64_t hypotheses; /* most of a sentence: the largest Search.beam */
    int threads;        /* at least 1 */
    StepWeights weights;
} TranslatorOptions;

typedef struct Translator Translator;

/* Makes a translator for output `logits` of a graph with inputs input_ids, attention_mask
 * [N, S], decoder_input_ids, decoder_attention_mask [N, T]. Fails with STATUS_MODEL: an
 * input is missing, or an op of the decoder cannot run token by token (named). The graph
 * must outlive it, unchanged. */
Status translator_create(Translator **out, Graph *graph, const TranslatorOptions *options,
                         Diag *diag);
void translator_destroy(Translator *translator);

/* Whether a graph is one of an encoder-decoder model: it has an input decoder_input_ids.
 */
bool translator_fits(const Graph *graph);

/* Tokens that the model can choose from. */
int64_t translator_vocabulary(const Translator *translator);

/* How the next tokens are searched for.
 *   beam: the `beam` hypotheses with the largest sums of log-probabilities go on; those
 * that end are kept with the score sum / length^length_penalty, the end counted in the
 *     length; the best score wins. The search stops when `beam` have ended
 *     (early_stopping), else when none that goes on could still win. beam 1 takes the
 *     likeliest token each time (greedy) and stops at the first end.
 *   lookahead: of the `beam` likeliest next tokens that one is taken which begins the
 *     likeliest pair of tokens; an end is a pair by itself. */
#define SEARCH_NAMES "beam|lookahead"
typedef enum SearchKind { SEARCH_BEAM, SEARCH_LOOKAHEAD } SearchKind;

typedef struct Search {
    SearchKind kind;
    int64_t beam;
    double length_penalty;
    bool early_stopping;
    int32_t start, end; /* tokens; `start` is never chosen, unless it is `end` */
    int64_t vocabulary; /* tokens below it are chosen; 0 = all */
} Search;

/* Sources of one call, padded to equal length. */
typedef struct Sentences {
    const int32_t *ids, *mask; /* [count, tokens]; mask: 0 = padding */
    int64_t count, tokens;
} Sentences;

/* One sentence's translation. */
typedef struct Translation {
    int32_t *tokens; /* room for max_length; the end is not among them */
    int64_t length;
    bool ended;   /* by the end, not by max_length */
    double score; /* as above; of lookahead the sum of log-probabilities */
} Translation;

/* Translates; out[i].tokens is the caller's. Fails with STATUS_MODEL for an id without a
 * row or search options outside what the translator was made for. One call at a time. */
Status translator_run(Translator *translator, const Sentences *sentences,
                      const Search *search, Translation *out, Diag *diag);

#endif
