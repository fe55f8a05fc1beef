/* Measure: the size and cost of a model, from shapes alone. */
#ifndef COMPRESS_PASSES_MEASURE_H
#define COMPRESS_PASSES_MEASURE_H

#include "exec/plan/plan_build.h"
#include "exec/plan/plan_work.h"
#include "ir/field.h"
#include "ir/model.h"

typedef struct Measure {
    int64_t parameters; /* each storage once */
    int64_t bytes;      /* of the weights as stored, each storage once */
    double flops;       /* one forward run of one sample; one multiply-add = 2 */
    int64_t peak_bytes; /* workspace of that run plus weights as it keeps them: float32,
                           or quantised (params_packed_bytes) */
    PlanWork work;      /* of that run, for this many tokens; not stored in files */
    int64_t tokens;
    char input[128]; /* the input shape it is for: "pixel_values [1, 1, 28, 28]" */
} Measure;

/* Which number of a measure a bound or a budget applies to. */
typedef enum MeasureKind {
    MEASURE_PARAMETERS,
    MEASURE_BYTES,
    MEASURE_FLOPS,
    MEASURE_PEAK_BYTES,
    MEASURE_KINDS
} MeasureKind;

/* One number of a measure, and what it is called: "parameters", "bytes", "flops",
 * "peak_bytes". */
double measure_get(const Measure *measure, MeasureKind kind);
const char *measure_name(MeasureKind kind);

/* A bound as recipes write it: up to 1 a share of `whole`, above that absolute. Integers
 * are compared with it, so a share is rounded down. F_BOUND is the row of such an
 * option, 0 = not given. */
#define F_BOUND(S, option, member, unit, ...)                                            \
    {                                                                                    \
        .name = #option, .kind = FIELD_REAL, .offset = FIELD_AT(S, member, double),      \
        .min = 1e-9, .max = 1e18, .units = (unit), .help = __VA_ARGS__                   \
    }
bool measure_is_share(double bound);
double measure_bound(double bound, double whole);

/* Sizes used for a measure if the model leaves them open: one sample, 128 tokens or what
 * the model accepts (plan_fit_sizes), 20 masked positions. */
extern const int64_t measure_sizes[DIM_SYMBOLS];

/* Measures a model at one sample. Outputs of the graph are what is computed. Fails with
 * STATUS_MODEL when the graph cannot be planned. */
Status model_measure(Measure *out, Model *model, Diag *diag);

#endif
