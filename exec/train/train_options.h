/* Options of training: what they are, which storages they do not train, the learning
 * rate over a run. */
#ifndef COMPRESS_EXEC_TRAIN_TRAIN_OPTIONS_H
#define COMPRESS_EXEC_TRAIN_TRAIN_OPTIONS_H

#include "exec/train/train_state.h"
#include "ir/field.h"
#include "ir/graph.h"

#define OPTIMIZER_NAMES "adamw|sgd"
#define SCHEDULE_NAMES  "cosine|linear|constant"
#define OBJECTIVE_NAMES "likelihood|map|variational"

/* Indices into OPTIMIZER_NAMES. */
enum { OPTIMIZER_ADAMW, OPTIMIZER_SGD };

/* Indices into OBJECTIVE_NAMES: see exec/train/prior.h. */
enum { OBJECTIVE_LIKELIHOOD, OBJECTIVE_MAP, OBJECTIVE_VARIATIONAL };

/* What happens after each optimiser step: `step` counts from 1 to `total`, and the
 * trained graph's storages hold the weights as that step left them (variational
 * inference: the means). A failure ends the training with it. */
typedef struct TrainHook {
    void *self;
    Status (*step)(void *self, int64_t step, int64_t total, Diag *diag);
    /* Put what the hook knows after a step into a state (views are fine: it is kept
     * before the next step), and take it back, after `step` of `total` steps. Both NULL:
     * the hook remembers nothing. */
    void (*save)(const void *self, TrainState *state);
    Status (*load)(void *self, TrainState *state, int64_t step, int64_t total,
                   Diag *diag);
} TrainHook;

/* Measures the weights on a development set, if options name one: the result, which may
 * be non-finite. The trained graph's storages hold the weights that would be delivered
 * if training ended there (means, averages). */
typedef struct TrainMeasure {
    void *self;
    bool less; /* less is better */
    Status (*measure)(void *self, double *value, Diag *diag);
} TrainMeasure;

#define TRAIN_PRECISION_NAMES "f32|bf16"
enum { TRAIN_F32, TRAIN_BF16 };

#define RECOMPUTE_NAMES "none|layers"
enum { RECOMPUTE_NONE, RECOMPUTE_LAYERS };

#define MOMENTS_NAMES "f32|bf16"
enum { MOMENTS_F32, MOMENTS_BF16 };

#define KEEP_NAMES "last|best"
enum { KEEP_LAST, KEEP_BEST };

#define FAKE_QUANT_NAMES "none|int8|int8_int8|int4_32|int4_64|int4_128"
enum { FAKE_QUANT_NONE, FAKE_QUANT_INT8, FAKE_QUANT_INT8_INT8 }; /* and int4 */

/* Options shared by every pass that trains. A pass's options struct has this as its FIRST
 * member, so that TRAIN_FIELDS rows fit. */
typedef struct TrainOptions {
    int64_t epochs;      /* passes over the data; ignored when steps > 0 */
    int64_t steps;       /* optimiser steps; 0 = by epochs */
    int64_t batch_size;  /* samples per optimiser step */
    int64_t shards;      /* see exec/train/shards.h; 0 = chosen from the size */
    int64_t micro_batch; /* samples per run; 0 = chosen from the shape */
    int precision;       /* index into TRAIN_PRECISION_NAMES; see TRAIN_PRECISION_FIELD */
    int recompute;       /* index into RECOMPUTE_NAMES; see TRAIN_MEMORY_FIELDS */
    int moments;         /* index into MOMENTS_NAMES; see TRAIN_MEMORY_FIELDS */
    int optimizer;       /* index into OPTIMIZER_NAMES */
    double lr;           /* peak learning rate */
    double beta1, beta2, eps; /* AdamW (Loshchilov and Hutter) */
    double momentum;          /* SGD */
    double weight_decay;  /* decoupled; matrices and convolutions only, see no_decay */
    StringList no_decay;  /* further storages without decay: patterns, see name_matches */
    StringList freeze;    /* patterns of storages that are not trained */
    StringList only;      /* patterns of those that are, if any */
    StringList lr_groups; /* "pattern=factor": learning-rate factor by storage */
    double warmup;        /* share of the steps with a linearly rising rate */
    int schedule;         /* index into SCHEDULE_NAMES; after the warm-up, down to */
    double final_lr;      /* this share of lr */
    double clip;          /* largest gradient norm; 0 = no clipping */
    double ema;           /* decay of the averaged weights, at step t (from 1) at most
                             (1 + t) / (10 + t); 0 = none; they replace the trained ones
                             at the end */
    double dropout; /* rate of every dropout of the trained model, in passes that build an
                       objective; -1 = the model's rates */
    int fake_quant; /* index into FAKE_QUANT_NAMES: what the linear layers' weights and
                       inputs are rounded to in every product, in passes that build an
                       objective */
    int64_t low_rank;      /* rank of the updates that are trained instead of matrices, in
                              passes that build an objective; 0 = matrices are trained
                              (passes/training/low_rank.h) */
    double low_rank_alpha; /* updates are scaled by alpha / rank; 0 = 1 */
    StringList low_rank_whole; /* patterns of storages that are also trained whole */
    bool augment;              /* let the data set augment samples */
    int64_t seed;              /* added to the recipe's seed */
    int64_t log_every;         /* steps between rows of the curve in the record; 0 = by
                                  epochs: see exec/train/history.h */
    int objective;             /* index into OBJECTIVE_NAMES; see PRIOR_FIELDS */
    double prior_weight;       /* factor of what the prior adds to the loss */
    double prior_scale;        /* factor of the prior's variances */
    double init_variance;      /* of q at the start; 0 = the prior's */
    double variance_lr;        /* learning-rate factor of log variances */
    bool keep_prior;           /* the Gaussians of the weights stay in the model */
    const char *dev;           /* development set; see DEV_FIELDS */
    int64_t dev_every;         /* steps between measurements; 0 = one per epoch */
    int dev_metric;            /* index into METRIC_NAMES (passes/evaluate/metric.h) */
    int keep;                  /* index into KEEP_NAMES: which weights are delivered */
    int64_t patience; /* training ends after this many measurements in a row without a
                         better one; 0 = never */

    /* Set by passes, not options of recipes. */
    const TrainMeasure *measure;   /* on the development set; NULL = there is none */
    const TrainHook *hook;         /* NULL = none */
    const char *const *part_names; /* what messages call the parts of the loss */
    const TrainKeeper *keeper;     /* keeps the state; NULL = none */
    int serial;                    /* number of this training within its step, from 0 */
    bool more;                     /* the step continues with another one */
} TrainOptions;

/* Defaults, as an initialiser for pass option structs and as an object. */
#define TRAIN_DEFAULTS                                                                   \
    {                                                                                    \
        .epochs = 1, .batch_size = 64, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999,         \
        .eps = 1e-8, .momentum = 0.9, .weight_decay = 0.05, .warmup = 0.1, .clip = 1.0,  \
        .dropout = -1, .prior_weight = 1, .prior_scale = 1, .variance_lr = 1,            \
        .keep_prior = true                                                               \
    }
extern const TrainOptions train_defaults;

#define TRAIN_FIELDS                                                                     \
    F_INT(TrainOptions, epochs, 0, 100000, "passes over the data"),                      \
        F_INT(TrainOptions, steps, 0, 1000000000, "optimiser steps; 0 = by epochs"),     \
        F_INT(TrainOptions, batch_size, 1, 1000000, "samples per optimiser step"),       \
        F_INT(                                                                           \
            TrainOptions, shards, 0, 1024,                                               \
            "parts of a mini-batch with gradients of "                                   \
            "their own; fixes the order of summation, so results depend on it; 0 = 2, "  \
            "or 1 where a gradient takes more than 128 MiB"),                            \
        F_INT(TrainOptions, micro_batch, 0, 1000000,                                     \
              "samples per run within a part; 0 = "                                      \
              "chosen from the shape"),                                                  \
        F_CHOICE(TrainOptions, optimizer, OPTIMIZER_NAMES, "optimiser"),                 \
        F_REAL(TrainOptions, lr, 0, 1000, "peak learning rate"),                         \
        F_REAL(TrainOptions, beta1, 0, 0.999999, "AdamW: decay of the first moment"),    \
        F_REAL(TrainOptions, beta2, 0, 0.999999999,                                      \
               "AdamW: decay of the second moment"),                                     \
        F_REAL(TrainOptions, eps, 1e-30, 1,                                              \
               "AdamW: added to the root of the second moment"),                         \
        F_REAL(TrainOptions, momentum, 0, 0.999999, "SGD: momentum"),                    \
        F_REAL(TrainOptions, weight_decay, 0, 1000,                                      \
               "decoupled weight decay of matrices "                                     \
               "(rank 2 and more)"),                                                     \
        F_STRINGS(TrainOptions, no_decay,                                                \
                  "further storages without decay: names, * is any text"),               \
        F_STRINGS(TrainOptions, freeze, "storages not to train: names, * is any text"),  \
        F_STRINGS(TrainOptions, only,                                                    \
                  "train no other storages than these: names, * is any text"),           \
        F_STRINGS(TrainOptions, lr_groups, "learning-rate factors: \"head.*=0.1\""),     \
        F_REAL(TrainOptions, warmup, 0, 1, "share of the steps with a rising rate"),     \
        F_CHOICE(TrainOptions, schedule, SCHEDULE_NAMES,                                 \
                 "shape of the rate after warm-up"),                                     \
        F_REAL(TrainOptions, final_lr, 0, 1, "rate at the end, as a share of lr"),       \
        F_REAL(TrainOptions, clip, 0, 1e30, "largest norm of the gradient; 0 = any"),    \
        F_REAL(TrainOptions, ema, 0, 0.9999999,                                          \
               "decay of averaged weights that replace "                                 \
               "the trained ones at the end; 0 = none"),                                 \
        F_REAL(TrainOptions, dropout, 0, 0.99,                                           \
               "rate of every dropout in this training; not given: the model's rates"),  \
        F_CHOICE(TrainOptions, fake_quant, FAKE_QUANT_NAMES,                             \
                 "train through rounding of linear layers' weights (and inputs) as "     \
                 "quantize would do it"),                                                \
        F_BOOL(TrainOptions, augment, "augment the samples if the data set can"),        \
        F_INT(TrainOptions, seed, 0, 1000000000000, "added to the recipe's seed"),       \
        F_INT(TrainOptions, log_every, 0, 1000000000,                                    \
              "steps between rows of the curve; 0 = an epoch, or less of it where that " \
              "were fewer than 20 rows")

/* For passes that train a model as it will be used, in addition to TRAIN_FIELDS. */
#define TRAIN_PRECISION_FIELD                                                            \
    F_CHOICE(TrainOptions, precision, TRAIN_PRECISION_NAMES,                             \
             "what products of linears multiply, forward and backward: floats, or "      \
             "numbers rounded to bfloat16, with sums and weights in float")

/* For passes whose training may take more time and less memory, in addition to
 * TRAIN_FIELDS. */
#define TRAIN_MEMORY_FIELDS                                                              \
    F_CHOICE(TrainOptions, recompute, RECOMPUTE_NAMES,                                   \
             "layers: keep what crosses layers alone, and compute what is in a layer "   \
             "again before its backward run; the same bytes in less memory"),            \
        F_CHOICE(TrainOptions, moments, MOMENTS_NAMES,                                   \
                 "what the optimiser keeps its moments in; bf16: half of their memory, " \
                 "rounded at random, other bytes")

/* For passes that build an objective, in addition to TRAIN_FIELDS. */
#define LOW_RANK_FIELDS                                                                  \
    F_INT(TrainOptions, low_rank, 0, 65536,                                              \
          "train updates of this rank of the matrices that only names (else of "         \
          "attention's projections) and merge them at the end; 0 = train weights"),      \
        F_REAL(TrainOptions, low_rank_alpha, 0, 1e6,                                     \
               "low_rank: updates count alpha / rank; 0 = alpha is the rank"),           \
        F_STRINGS(                                                                       \
            TrainOptions, low_rank_whole,                                                \
            "low_rank: weights that are trained whole beside: names, * is any text")

/* For passes whose loss is a likelihood, in addition to TRAIN_FIELDS. */
#define PRIOR_FIELDS                                                                     \
    F_CHOICE(TrainOptions, objective, OBJECTIVE_NAMES,                                   \
             "the loss alone, with the prior's density (maximum a posteriori), or with " \
             "the divergence of a Gaussian posterior from it"),                          \
        F_REAL(TrainOptions, prior_weight, 0, 1e6,                                       \
               "factor of what the prior adds to the loss"),                             \
        F_REAL(TrainOptions, prior_scale, 1e-6, 1e6, "factor of the prior's variances"), \
        F_REAL(TrainOptions, init_variance, 0, 1e6,                                      \
               "variational: variance of the posterior at the start; 0 = the prior's"),  \
        F_REAL(TrainOptions, variance_lr, 0, 1000,                                       \
               "variational: learning-rate factor of log variances"),                    \
        F_BOOL(                                                                          \
            TrainOptions, keep_prior,                                                    \
            "the model keeps the Gaussians of its weights, as a prior of later steps; "  \
            "false: none is left behind this step, and files are smaller")

/* For passes that measure on a development set, in addition to TRAIN_FIELDS; `metrics`
 * are the names of metrics. */
#define DEV_FIELDS(metrics)                                                              \
    F_STRING(TrainOptions, dev,                                                          \
             "data set on which the model is measured while it is trained",              \
             .nullable = true),                                                          \
        F_INT(TrainOptions, dev_every, 0, 1000000000,                                    \
              "dev: steps between measurements; 0 = an epoch"),                          \
        F_CHOICE(TrainOptions, dev_metric, metrics,                                      \
                 "dev: what is measured, as evaluate does; auto: the usual metric of "   \
                 "the model's task"),                                                    \
        F_CHOICE(TrainOptions, keep, KEEP_NAMES,                                         \
                 "weights that the model takes over: those after the last step, or "     \
                 "those that measured best on dev"),                                     \
        F_INT(TrainOptions, patience, 0, 1000000000,                                     \
              "dev: end after so many measurements in a row without a better one; 0 = "  \
              "never")

/* Whether the options keep storage `name` from being trained: `freeze` names it, or
 * `only` names only others. */
bool train_freezes(const TrainOptions *options, const char *name);

/* Freezes storages as the options say; `was`, with room for graph->storage_count,
 * receives what Storage.frozen was. */
void train_freeze(Graph *graph, const TrainOptions *options, bool *was);
void train_unfreeze(Graph *graph, const bool *was);

/* Factor of the peak rate at step `step` (from 0) of `total`: rises linearly over the
 * first warmup * total steps, the last of which has 1; then falls from 1 towards
 * final_lr, which it would reach at step `total`. */
double schedule_factor(const TrainOptions *options, int64_t step, int64_t total);

/* Whether a storage's name matches a pattern: equal, with * for any text ("head.*",
 * "*.feature_map.*"). Does not use fnmatch, which also interprets ?, [ and \ and takes
 * exponential time for patterns with many stars. */
bool name_matches(const char *pattern, const char *name);
bool name_matches_any(const StringList *patterns, const char *name);

/* Product of the factors of the `lr_groups` that match `name`. */
double train_group_factor(const TrainOptions *options, const char *name);

/* Checks what fields cannot: STATUS_RECIPE for a malformed entry of lr_groups, and
 * for neither epochs nor steps. */
Status train_check_options(const TrainOptions *options, Diag *diag);

#endif
