/* Distillation: what the parts of pass distill share.
 *
 * distill.c holds the options and puts the objective together; distill_match.c finds what
 * is compared with what; distill_losses.c builds the losses, distill_linear.c those of
 * linear attention; distill_restore.c gives layers softmax attention back. */
#ifndef COMPRESS_PASSES_DISTILL_DISTILL_OBJECTIVE_H
#define COMPRESS_PASSES_DISTILL_DISTILL_OBJECTIVE_H

#include "passes/training/objective.h"

/* Forms of losses, named as in recipes; `preset`: the preset's. */
typedef enum AttentionForm {
    ATTENTION_preset,
    ATTENTION_relation, /* cross-entropy of relations of queries, keys, values */
    ATTENTION_map,      /* squared difference of attention scores */
    ATTENTION_match,    /* cross-entropy of linear against softmax attention */
    ATTENTION_output    /* squared error of linear attention's output, relative to
                           the size of softmax attention's */
} AttentionForm;
typedef enum HiddenForm {
    HIDDEN_preset,
    HIDDEN_relation, /* cross-entropy of relations of the MLP outputs */
    HIDDEN_gram,     /* squared difference of their Gram matrices */
    HIDDEN_state     /* squared difference of the layers' outputs */
} HiddenForm;
typedef enum EmbeddingForm {
    EMBEDDING_cosine, /* 1 - cosine */
    EMBEDDING_squared /* squared difference */
} EmbeddingForm;
typedef enum CosineOn { COSINE_preset, COSINE_hidden, COSINE_probabilities } CosineOn;
typedef enum MatchOn { MATCH_ON_TEACHER, MATCH_ON_STUDENT } MatchOn;
typedef enum MatchRule {
    MATCH_EVEN,  /* the same share of the depth */
    MATCH_ENDS,  /* first with first, last with last, evenly in between */
    MATCH_EVERY, /* every n-th layer of the teacher */
    MATCH_ORIGIN /* the layer that originates from the same one */
} MatchRule;
typedef enum OverLayers { OVER_LAYERS_SUM, OVER_LAYERS_MEAN } OverLayers;

typedef struct DistillOptions {
    TrainOptions train; /* first: see TRAIN_FIELDS */
    const char *data, *teacher;
    int preset;
    double prediction, attention, hidden, masked_lm, cosine, label; /* -1 = by preset */
    double embedding, similarity;                                   /* -1 likewise */
    double temperature;                                             /* 0 = by preset */
    double label_smoothing, gram_weight;
    int attention_form, match_on, hidden_form, cosine_on, embedding_form;
    int exits, gradient, over_layers;
    bool kl, embeddings;
    int64_t restore_softmax;
    int match; /* MatchRule */
    int64_t every;
    IntList student_layers, teacher_layers;
    StringList pairs;
} DistillOptions;

/* The losses requested by the options after the preset has filled in what was not
 * given. */
typedef struct DistillLosses {
    double prediction, attention, hidden, masked_lm, cosine, label, temperature;
    int attention_form, hidden_form, cosine_on;
    double embedding, similarity;
    int embedding_form;
} DistillLosses;

/* One pair of matched layers, each in a stack of its own side. */
typedef struct DistillMatch {
    const char *student_stack, *teacher_stack;
    int student, teacher;
} DistillMatch;

typedef struct Distill {
    Objective objective;
    const DistillOptions *options;
    DistillLosses losses;
    bool masked; /* the student predicts masked tokens */
    Model *teacher;
    const char *student_stack, *teacher_stack; /* of transformer layers; NULL = none */
    DistillMatch *matches;
    int match_count;
    const char *apart; /* why layers cannot be compared; NULL when they can */
    int student_skip, teacher_skip; /* leading tokens that each side leaves out */
} Distill;

/* Reads "encoder.1=encoder.3", a place of the student and one of the teacher; the stacks'
 * names go into the arena. False if the text is not such a pair. */
bool distill_read_pair(DistillMatch *pair, Arena *arena, const char *text);

/* Finds the stacks of layers of both sides and the pairs to be matched, as listed or by
 * the rule `match`. If layers cannot be compared (a side is not a transformer, or has
 * different tokens) says why in `apart`. Needs the teacher in the objective. Fails with
 * STATUS_MODEL. */
Status distill_match(Distill *distill, Diag *diag);

/* The teacher's prediction that an exit of the student follows: after the layer that
 * originates from the same layer of the original model; its last one if it has no exit
 * there. Fails with STATUS_MODEL if layers were removed and the teacher lacks that
 * layer. */
Status distill_teacher_exit(Node **out, Distill *distill, const Exit *exit, Diag *diag);

/* Adds the attention and hidden losses over the matched layers. */
Status distill_add_attention(Distill *distill, Diag *diag);
Status distill_add_hidden(Distill *distill, Diag *diag);

/* The losses of the student's linear attention against the teacher's softmax attention in
 * a pair of layers, by the attention form: for self-attention, and with form `output`
 * also for cross-attention (the second). None if the student's layer has no linear
 * attention. `terms` has room for 2. Fails with STATUS_MODEL if the two sides do not
 * fit. */
Status distill_linear_terms(Node **terms, int *count, Distill *distill,
                            DistillMatch match, Diag *diag);

/* After training: restores softmax attention, as in the teacher's layers, on their own
 * queries, keys and values, in options->restore_softmax of the matched layers, those
 * whose attention lost most according to the step's record. When planning any of them is
 * used. Fails with STATUS_MODEL if no layer would be left, or if a layer's queries and
 * keys are not what softmax attention read. */
Status distill_restore(Distill *distill, Diag *diag);

/* Whether a loss compares predictions of student and teacher. */
bool distill_compares_predictions(const Distill *distill);

/* Checks that the teacher predicts what the student does. */
Status distill_check_predictions(Distill *distill, Diag *diag);

/* Adds the losses on predictions, against labels or masked tokens, and the cosine. */
Status distill_add_prediction(Distill *distill, Diag *diag);
Status distill_add_labels(Distill *distill, Diag *diag);
Status distill_add_cosine(Distill *distill, Diag *diag);

/* Adds the losses on embeddings: on the vectors, the student's through a learned
 * projection if its width differs, and on the cosines between those of a mini-batch.
 * Fails with STATUS_MODEL if a side has none. */
Status distill_add_embedding(Distill *distill, Diag *diag);

#endif
