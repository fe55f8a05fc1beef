/* Calibration: samples of a data set going through a model, layer by layer.
 *
 * What one-shot methods know of data are the rows that reach a layer: of a value [N, T,
 * K] one row for each sample and token. A pass asks for the rows of some values, changes
 * what reads them, and asks for the next ones: rows are computed from the graph as it is
 * then, so a layer sees what the compressed layers before it give. The values that run
 * from one block into the next are kept in between, so that a block costs one run of
 * itself, as long as the values asked for come later and later in the model; earlier ones
 * are right too, and take longer. Where the job has several ranks (exec/run/ranks.h),
 * each runs its share of the samples and keeps their values; all receive all rows. */
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

/* Opens the data set that the options name, for the graph of the step's model, and checks
 * it for what `values` depend on (step_data). *out stays NULL when planning and where the
 * recipe is planned without data; both are checked as far as they can be. Fails with
 * STATUS_MODEL at the option `data` for a set without samples; warns, when planning,
 * where it has fewer than asked for, which are then all used. Graph and options are
 * borrowed. */
Status calibration_open(Calibration **out, PassContext *ctx, Graph *graph,
                        Node *const *values, int count, const CalibrationOptions *options,
                        Diag *diag);

/* The same for who looks at rows alone: a plan counts no memory for Gram matrices. */
Status calibration_open_rows(Calibration **out, PassContext *ctx, Graph *graph,
                             Node *const *values, int count,
                             const CalibrationOptions *options, Diag *diag);

/* NULL is allowed. */
void calibration_close(Calibration *c);

/* Samples that are used, and threads that there are. */
int64_t calibration_samples(const Calibration *c);
int calibration_threads(const Calibration *c);

/* How many more times the pass is going to ask for rows: for the progress, which is that
 * of one call after the other when nothing is said. What was told before stays done.
 * `steady`: nothing of the model changes between these calls, up to calibration_restart;
 * what is kept may then lie behind the values asked for, so that each block is run once.
 */
void calibration_expect(Calibration *c, int calls, bool steady);

/* Rows of one value: x[count, width]. */
typedef struct CalibrationRows {
    const float *x;
    int64_t count, width;
} CalibrationRows;

/* Receives the next rows of all values, rows[i] of value i, in order of the data whatever
 * the threads. */
typedef Status CalibrationSink(void *self, const CalibrationRows *rows, Diag *diag);

/* Hands over the rows of `values`, real and of rank 1 or more, of all samples: one row
 * for all that has the same indices before the last. Tokens that fill samples up are left
 * out: those that the data set's mask of a value's tokens has as 0, or that lie behind
 * the sample's length, or that fill windows up. Values [N, T, K] of the same tokens have
 * rows that belong together, in one order.
 *
 * Between two calls weights may be changed and nodes replaced behind the values asked for
 * last, and they are narrower or wider where they will; who changes what comes before
 * them calls calibration_restart. Fails with STATUS_MODEL at the step when a value is not
 * finite, naming the place and the sample, as the sink does, and with
 * STATUS_INTERRUPTED. */
Status calibration_rows(Calibration *c, Node *const *values, int count,
                        CalibrationSink *sink, void *self, Diag *diag);

/* The Gram matrices of `values`, finished: grams[i] of value i, each to be destroyed
 * after success alone. Fails as calibration_rows does, and with STATUS_MODEL where no row
 * counts. */
Status calibration_gram(Calibration *c, Node *const *values, int count, Gram *grams,
                        Diag *diag);

/* One Gram matrix over the rows of all `values`, which have one width: of weights that
 * several layers share. Fails as calibration_gram does. */
Status calibration_gram_of_all(Calibration *c, Node *const *values, int count, Gram *gram,
                               Diag *diag);

/* Finishes a Gram matrix whose rows of `value` came by other ways. Fails as
 * calibration_gram does. */
Status calibration_finish(const Calibration *c, Gram *gram, const Node *value,
                          Diag *diag);

/* Forgets all values that are kept: the next call runs the model from its inputs, and
 * expects changes again. */
void calibration_restart(Calibration *c);

/* Warns, at the option that says how many samples there are, where a layer of `columns`
 * inputs is fitted to fewer rows: what they leave open is decided by damping. */
void calibration_warn_rows(const Calibration *c, int64_t rows, int64_t columns,
                           Diag *diag);

/* Records the data set, samples, and rows of a Gram matrix of it: `calibration: {data,
 * samples, rows}`. */
void calibration_record(const Calibration *c, Tree *into);

#endif
