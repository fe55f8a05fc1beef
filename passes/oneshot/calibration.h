/* Calibration: samples of a data set going through a model, layer by layer.
 *
 * All that one-shot methods know about the data is the rows that reach a layer: for a
 * value [N, T, K], one row per sample and token. A pass asks for the rows of some
 * values, changes what reads them, and asks for the next ones: rows are computed from
 * the graph as it is then, so a layer sees the outputs of the compressed layers before
 * it. The values that pass from one block to the next are kept in between, so a block is
 * run only once as long as the values asked for come later and later in the model;
 * earlier values may be asked for, but take longer. Where the job has several ranks
 * (exec/run/ranks.h), each runs its share of the samples and keeps their values; all
 * receive all rows. */
#ifndef COMPRESS_PASSES_ONESHOT_CALIBRATION_H
#define COMPRESS_PASSES_ONESHOT_CALIBRATION_H

#include "passes/context.h"
#include "passes/oneshot/gram.h"

/* The options, a member of a pass's own. */
typedef struct CalibrationOptions {
    const char *data; /* NULL = not given */
    int64_t samples;
    double damp; /* of Gram matrices: see gram_damp */
} CalibrationOptions;

/* Their defaults and rows, for struct S with CalibrationOptions `member`. */
#define CALIBRATION_DEFAULTS                                                             \
    { .samples = 128, .damp = 0.01 }
#define F_CALIBRATION(S, member)                                                         \
    {.name = "data",                                                                     \
     .kind = FIELD_STRING,                                                               \
     .offset = FIELD_AT(S, member.data, const char *),                                   \
     .nullable = true,                                                                   \
     .help = "data set to calibrate with; labels are not needed"},                       \
        {.name = "samples",                                                              \
         .kind = FIELD_INT,                                                              \
         .offset = FIELD_AT(S, member.samples, int64_t),                                 \
         .min = 1,                                                                       \
         .max = 1000000000,                                                              \
         .help = "samples of it, drawn by the step's seed"},                             \
    {                                                                                    \
        .name = "damp", .kind = FIELD_REAL, .offset = FIELD_AT(S, member.damp, double),  \
        .min = 0, .max = 1e6,                                                            \
        .help = "part of the mean of the diagonal that is added to the diagonal of "     \
                "Gram matrices before they are inverted"                                 \
    }

typedef struct Calibration Calibration;

/* Opens the data set that the options name, for the graph of the step's model, and
 * checks it for what `values` depend on (step_data). *out stays NULL when planning and
 * if the recipe is planned without data; both are checked as far as possible. Fails with
 * STATUS_MODEL at the option `data` for a set without samples; when planning, warns if
 * it has fewer than asked for, in which case all are used. Graph and options are
 * borrowed. */
Status calibration_open(Calibration **out, PassContext *ctx, Graph *graph,
                        Node *const *values, int count, const CalibrationOptions *options,
                        Diag *diag);

/* The same for passes that only look at rows: a plan counts no memory for Gram
 * matrices. */
Status calibration_open_rows(Calibration **out, PassContext *ctx, Graph *graph,
                             Node *const *values, int count,
                             const CalibrationOptions *options, Diag *diag);

/* NULL is allowed. */
void calibration_close(Calibration *c);

/* Number of samples used, and of threads. */
int64_t calibration_samples(const Calibration *c);
int calibration_threads(const Calibration *c);

/* How many more times the pass will ask for rows, for the progress; without this, each
 * call reports its own progress. Progress reported before stays done. `steady`: the
 * model does not change between these calls, until calibration_restart; kept values may
 * then lie after the values asked for, so that each block is run once.
 */
void calibration_expect(Calibration *c, int calls, bool steady);

/* Rows of one value: x[count, width]. */
typedef struct CalibrationRows {
    const float *x;
    int64_t count, width;
} CalibrationRows;

/* Receives the next rows of all values, rows[i] of value i, in the order of the data for
 * any number of threads. */
typedef Status CalibrationSink(void *self, const CalibrationRows *rows, Diag *diag);

/* Hands over the rows of `values`, real and of rank 1 or more, of all samples: one row
 * per combination of indices before the last. Padding tokens are left out: those that
 * are 0 in the data set's mask for a value's tokens, lie beyond the sample's length, or
 * fill up windows. Values [N, T, K] of the same tokens have matching rows, in the same
 * order.
 *
 * Between two calls, weights may be changed and nodes replaced after the values asked
 * for last, and those nodes may become narrower or wider; after a change to anything
 * before them, call calibration_restart. Fails with STATUS_MODEL at the step when a
 * value is not finite, naming the place and the sample; as the sink does; and with
 * STATUS_INTERRUPTED. */
Status calibration_rows(Calibration *c, Node *const *values, int count,
                        CalibrationSink *sink, void *self, Diag *diag);

/* The Gram matrices of `values`, finished: grams[i] of value i, each to be destroyed
 * only after success. Fails as calibration_rows does, and with STATUS_MODEL if no row
 * counts. */
Status calibration_gram(Calibration *c, Node *const *values, int count, Gram *grams,
                        Diag *diag);

/* One Gram matrix over the rows of all `values`, which have the same width: for weights
 * that several layers share. Fails as calibration_gram does. */
Status calibration_gram_of_all(Calibration *c, Node *const *values, int count, Gram *gram,
                               Diag *diag);

/* Finishes a Gram matrix whose rows of `value` were added by other means. Fails as
 * calibration_gram does. */
Status calibration_finish(const Calibration *c, Gram *gram, const Node *value,
                          Diag *diag);

/* Forgets all kept values: the next call runs the model from its inputs, and expects
 * changes again. */
void calibration_restart(Calibration *c);

/* Warns, at the option for the number of samples, if a layer of `columns` inputs is
 * fitted to fewer rows: damping decides what they leave open. */
void calibration_warn_rows(const Calibration *c, int64_t rows, int64_t columns,
                           Diag *diag);

/* Records the data set, its samples, and the rows of a Gram matrix over it:
 * `calibration: {data, samples, rows}`. */
void calibration_record(const Calibration *c, Tree *into);

#endif
