/* Measure: the size and cost of a model, from shapes alone. */
#ifndef COMPRESS_PASSES_MEASURE_H
#define COMPRESS_PASSES_MEASURE_H

#include "exec/plan/plan_build.h"
#include "ir/model.h"

typedef struct Measure {
    int64_t parameters; /* each storage once */
    int64_t bytes;      /* of the weights as stored, each storage once */
    double flops;       /* one forward run of one sample; one multiply-add = 2 */
    int64_t peak_bytes; /* workspace of that run plus float32 weights */
    char input[128];    /* the input shape it is for: "pixel_values [1, 1, 28, 28]" */
} Measure;

/* Sizes that a measure is for where the model leaves them open: one sample, 128 tokens or
 * what the model takes (plan_fit_sizes), 20 masked positions. */
extern const int64_t measure_sizes[DIM_SYMBOLS];

/* Measures a model at one sample. Outputs of the graph are what is computed. Fails with
 * STATUS_MODEL when the graph cannot be planned. */
Status model_measure(Measure *out, Model *model, Diag *diag);

#endif
