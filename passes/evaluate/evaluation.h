/* What the files of the pass evaluate share. */
#ifndef COMPRESS_PASSES_EVALUATE_EVALUATION_H
#define COMPRESS_PASSES_EVALUATE_EVALUATION_H

#include "passes/evaluate/evaluate_tally.h"
#include "passes/evaluate/judge.h"
#include "passes/exits/exits.h"

/* Which exits are evaluated, and how. */
#define EVALUATE_EXITS "auto|rule|each|last"
typedef enum EvaluateExits {
    EVALUATE_AUTO, /* by the rule if the model has one, else the last */
    EVALUATE_RULE,
    EVALUATE_EACH,
    EVALUATE_LAST
} EvaluateExits;

/* How several labels are decided, and which entities count. */
typedef enum EvaluateThresholds {
    THRESHOLDS_STORED, /* the model's, else 0.5 */
    THRESHOLDS_HALF,   /* 0.5 */
    THRESHOLDS_CHOOSE  /* those with the best F1 here, which the model then keeps */
} EvaluateThresholds;
typedef enum EvaluateEntities { ENTITIES_DEFAULT, ENTITIES_STRICT } EvaluateEntities;

typedef struct EvaluateOptions {
    const char *data;
    int metric;
    double min, max;
    double max_drop;     /* against an earlier step; below 0 = not given */
    const char *against; /* label of that step; NULL = the first on the same data */
    int64_t limit, batch_size;
    int exits, thresholds, entities;
    double entropy;
    int64_t patience;
    int64_t draws; /* number of draws of weights from their Gaussians; 0 = the weights
                      themselves */
    const Tree *decode; /* a map of DecodeKeys; NULL = not given */

    /* of models that embed */
    const char *teacher; /* a model whose embeddings are compared; NULL = none */
    const char *fit;     /* data set from which probes learn classes; NULL = none */
    int64_t neighbours;
    double temperature, l2;
} EvaluateOptions;

extern const EvaluateOptions evaluate_defaults;

/* How translations are made and compared. */
typedef struct DecodeKeys {
    int search; /* SearchKind */
    int64_t beam, max_length;
    double length_penalty;
    bool early_stopping;
    int tokenize, smooth; /* BleuTokenize, BleuSmooth */
} DecodeKeys;

typedef struct Evaluation {
    PassContext *ctx;
    Model *model;
    const EvaluateOptions *options;
    const char *data_option, *metric_option; /* of the step, which messages point at */
    bool words;                              /* the model predicts tokens */
    bool next; /* the next one after each, not masked ones */
    EvaluateExits mode;
    Exits exits;
    ExitRule rule;
    bool stale; /* the rule is the stored one, chosen before the model's last change */
    Batches *data;
    const Judge *judge; /* of the task; NULL: tallies do */
    void *judged;       /* the judge's state */
    int labels;         /* the column */
    int64_t classes;    /* or words */
    Metric metric;      /* the gate's */
    const char *metric_name;
    double value;        /* of the metric */
    const Tree *against; /* record of the step that max_drop refers to; NULL = none */
    const char *against_name; /* its name in messages */
    Tally total;              /* the gate's metric */
    bool translate; /* sources are translated and compared with the references */
    DecodeKeys decode;
    double bleu;
    double exact_match, choice[2]; /* of texts with endings, percent; [1]: by bytes */
    double ending_perplexity;
    double start; /* of the run, by ticker_seconds */
} Evaluation;

/* Everything that the pass does except its gate: given context, model, options and the
 * names of options given, fills in the others and the step's record. When planning
 * checks the model and the data set, and there is no value. Fails as the pass does. */
Status evaluation_run(Evaluation *e, Diag *diag);

/* Adds one row to a tally; fails at the data set or the step if the label is not one of
 * the classes or a logit is not finite. */
Status evaluation_add(const Evaluation *e, Tally *tally, int64_t sample,
                      const float *logits, int32_t label, Diag *diag);

/* The same for a row that tally_score has scored, for many rows in parallel. */
Status evaluation_add_scored(const Evaluation *e, Tally *tally, int64_t sample,
                             const RowScore *score, const float *logits, int32_t label,
                             Diag *diag);

/* Runs the data set through the last exit, or with the rule; through the last exit with
 * drawn weights, whose predictions are averaged; through every exit; through the head of
 * a model that predicts tokens, at the masked positions or at all. Each fills e->total
 * and the step's record. */
Status evaluate_dynamic(Evaluation *e, Diag *diag);
Status evaluate_draws(Evaluation *e, Diag *diag);
Status evaluate_each(Evaluation *e, Diag *diag);
Status evaluate_words(Evaluation *e, Diag *diag);

/* The same by e->judge, which fills the record; checks the data set first, and when
 * planning does no more. */
Status evaluate_judged(Evaluation *e, Diag *diag);

/* Appends {exit, layer} of one exit to a list, for its numbers. */
Tree *evaluation_exit_row(Arena *arena, Tree *list, const Exit *exit);

/* The evaluated samples: the first `limit` of the data set, or all. */
int64_t evaluation_samples(const Evaluation *e);

/* Type of the labels of a data set; NULL = it has none. */
const Type *evaluation_label_type(const Batches *data);

/* The values of a sample's prediction, checked: fails at the step when one is not finite.
 */
Status evaluation_check_finite(const Evaluation *e, int64_t sample, const float *values,
                               int64_t count, Diag *diag);

/* Binds the option `decode`, NULL = defaults. Fails with STATUS_RECIPE. */
Status evaluate_decode_keys(DecodeKeys *keys, const Tree *decode, Arena *arena,
                            Diag *diag);

/* The option `decode` (NULL = defaults) with omitted keys filled in, as one line in the
 * arena: equal if translations are made and compared in the same way. */
const char *evaluate_decode_text(const Tree *decode, Arena *arena);

/* Checks that the model can translate; planning stops there. Then translates the sources
 * of the data set and fills e->bleu and the step's record. */
Status evaluate_check_translation(Evaluation *e, Diag *diag);
Status evaluate_translations(Evaluation *e, Diag *diag);

/* Finds the step that max_drop refers to among those that ran before, if the option is
 * given. The same when planning. Fails with STATUS_RECIPE if there is none, it is not an
 * evaluation on the same data, or has no bleu or one with a different `decode`. */
Status evaluate_find_against(Evaluation *e, const char *metric, Diag *diag);

/* Compares `value` of the metric with that step's: records `reference` and `drop`. Fails
 * with STATUS_GATE, or STATUS_RECIPE if that step did not measure it. */
Status evaluate_check_drop(Evaluation *e, const char *metric, double value, Diag *diag);

/* Puts the time since e->start, and `seconds` of running if known (else 0), into the
 * step's times. */
void evaluation_time(const Evaluation *e, int64_t samples, double seconds);

#endif
