/* What the files of the translator share.
 *
 *     translate.c         makes it; sentences to threads; the encoder
 *     translate_rows.c    one token for all hypotheses of a thread
 *     translate_search.c  which tokens to go on with
 *
 * A thread's sentences have `hypotheses` slots each, in which states lie. */
#ifndef COMPRESS_EXEC_GENERATE_TRANSLATE_INTERNAL_H
#define COMPRESS_EXEC_GENERATE_TRANSLATE_INTERNAL_H

#include "exec/generate/decode_internal.h"
#include "exec/generate/translate.h"
#include "exec/run/lanes.h"
#include "exec/run/run.h"

/* Memory of one step. */
typedef struct TranslateStep {
    int64_t at;                   /* of the result, in floats, times the rows there are */
    size_t state_bytes, state_at; /* of a slot; where the states lie, times the slots */
    size_t prepared_bytes;        /* of a sentence */
    size_t prepared_at;           /* of the first one */
} TranslateStep;

/* One thread's sentences and hypotheses. */
typedef struct TranslateLane {
    Translator *translator;
    Workspace *workspace;             /* of the encoder */
    int64_t first, sentences, source; /* sentences of the call; padded length */

    /* Hypotheses of the next step. */
    int64_t rows, position;
    int32_t *token;
    int64_t *sentence, *slot; /* slot: below sentences * hypotheses */
    int32_t *ones;
    void **state; /* [rows], of the step at hand */

    Buf *values, *scratch, *states, *prepared;
    const void **source_data; /* by value of the source */
} TranslateLane;

struct Translator {
    Decoder *decoder; /* steps and weights alone */
    TranslatorOptions options;
    TranslateStep *steps;
    int64_t row_floats; /* of all values of a row */
    size_t state_bytes; /* of a slot */
    Params *params;
    PlanCache *plans;     /* of the encoder */
    int64_t source_limit; /* ids of sources are below it; 0 = any */

    Lanes *lanes;
    TranslateLane *memory;                          /* by lane */
    int64_t sentences_room, rows_room, source_room; /* of each lane */
};

/* Room in every lane for `sentences` of at most `source` tokens. Fails with
 * STATUS_MEMORY. */
Status translate_reserve(Translator *translator, int64_t sentences, int64_t source,
                         Diag *diag);
void lane_close(TranslateLane *lane);

/* Runs the encoder, then what is prepared for each sentence. The plan is there. */
Status lane_encode(TranslateLane *lane, const Sentences *all, Diag *diag);

/* One token for rows 0 .. rows - 1 at lane->position, which goes on by one. */
void lane_step(TranslateLane *lane);

/* Logits of a row [vocabulary] of the last step. */
const float *lane_logits(const TranslateLane *lane, int64_t row);

/* Copies the states of slot `from` to slot `to`. */
void lane_copy(TranslateLane *lane, int64_t from, int64_t to);

/* Searches for the translations of the lane's sentences: out[0 .. sentences). */
void lane_search(TranslateLane *lane, const Search *search, Translation *out);

#endif
