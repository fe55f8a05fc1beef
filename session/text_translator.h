/* Text translator: texts translated by an encoder-decoder model with its tokenizers. */
#ifndef COMPRESS_SESSION_TEXT_TRANSLATOR_H
#define COMPRESS_SESSION_TEXT_TRANSLATOR_H

#include "exec/generate/translate.h"
#include "io/files/lines.h"
#include "ir/model.h"

/* Defaults. */
enum { TRANSLATION_TOKENS = 128, TRANSLATION_BEAM = 4, TRANSLATIONS_TOGETHER = 16 };

typedef struct TextTranslatorOptions {
    const char *source, *target; /* paths of tokenizers; NULL = see below */
    int64_t max_tokens;          /* most tokens of a translation, including its end */
    int64_t beam;                /* hypotheses; 1 = greedy */
    double length_penalty;       /* Search.length_penalty */
    int threads;
    StepWeights weights;
} TextTranslatorOptions;

typedef struct TextTranslator TextTranslator;

/* Reads the tokenizers and packs the model's weights; the model must outlive it. The
 * target's tokenizer defaults to the source's, or for a Marian folder its target.spm;
 * without both they are taken from the model, from beside its file or from its folder
 * `path` (NULL = it has none): source_tokenizer.json and target_tokenizer.json, or one
 * for both. To be closed. Fails with STATUS_USAGE if there is none, STATUS_MODEL if
 * model and tokenizers do not fit, STATUS_MEMORY, and as tokenizer_read and
 * translator_create. */
Status text_translator_open(TextTranslator **out, const Model *model, const char *path,
                            const TextTranslatorOptions *options, Diag *diag);
void text_translator_close(TextTranslator *translator);

/* Threads that work on a call with this many texts. */
int text_translator_threads(const TextTranslator *translator, int64_t texts);

typedef struct TranslatedText {
    const char *text; /* NUL ends it */
    int64_t read;     /* tokens of the source */
    int64_t made;     /* tokens, without the end */
    bool ended;       /* ended by the end token, not by max_tokens */
    double score;     /* Translation.score */
} TranslatedText;

/* Describes a translation in a map: `text`, `tokens`, `ended` ("end", "length") and
 * `score`. */
void translated_text_tell(Tree *map, const TranslatedText *made, Arena *arena);

/* Translates texts side by side, into out[0 .. count), in the arena. Which texts are
 * grouped affects only rounding. Fails with STATUS_USAGE at a text without tokens, with
 * STATUS_MODEL at the first whose logits are not finite (Translation.odd), and as
 * tokenizer_encode and translator_run. */
Status text_translator_run(TextTranslator *translator, TranslatedText *out,
                           const Line *texts, int64_t count, Arena *arena, Diag *diag);

#endif
