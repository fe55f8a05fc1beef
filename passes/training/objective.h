/* Objective: the training graph that finetune and distill build around a model.
 *
 * The model's graph is copied; losses are added to the copy, and a teacher is imported
 * into it with its storages frozen. One plan then covers student, teacher and losses,
 * and gradients flow only to the student. Afterwards the trained weights are copied
 * back. */
#ifndef COMPRESS_PASSES_TRAINING_OBJECTIVE_H
#define COMPRESS_PASSES_TRAINING_OBJECTIVE_H

#include "passes/exits/exits.h"
#include "passes/training/label_loss.h"
#include "passes/training/low_rank.h"

#define OBJECTIVE_PARTS 12

typedef struct Objective {
    PassContext *ctx;
    Model *model;
    Arena *arena;   /* of the training graph */
    Graph *graph;   /* copy of the model's, with losses */
    Node **teacher; /* the copies of the teacher's nodes by id; NULL without a teacher */
    Graph *teacher_graph;
    Node *part[OBJECTIVE_PARTS]; /* scalars */
    double weight[OBJECTIVE_PARTS];
    const char *part_name[OBJECTIVE_PARTS];
    int part_count;
    Node **detail; /* see objective_tell */
    const char *detail_of, *const *detail_place;
    int detail_count;
    const char *dev_metric;  /* measured during training; NULL = none */
    LabelLossOptions labels; /* for objective_add_labels: what was found out before it */
    LowRank low_rank;        /* updates that are trained in place of matrices */

    /* See objective_remember: what the losses read from the teacher, by column. */
    Node **remembered; /* of the teacher's own graph */
    Column *remembered_column;
    Buf **remembered_value;
    int remembered_count;
} Objective;

/* Copies the model's graph. Call objective_end in any case. */
Status objective_begin(Objective *objective, PassContext *ctx, Model *model, Diag *diag);

/* Imports a teacher, frozen and without dropout. */
Status objective_add_teacher(Objective *objective, Model *teacher, Diag *diag);

/* Node of the training graph that computes what `node` computes in the teacher. */
Node *objective_teacher_node(const Objective *objective, const Node *node);

/* Lets the teacher run only once, if that is enough: the losses read at most 256 numbers
 * a sample from it (a classifier's predictions, not the states of tokens), and training
 * takes several epochs over unchanging samples. The losses then read inputs, and the
 * training graph no longer runs the teacher. Call when all parts have been added; `data`
 * is NULL when planning. Does nothing if one run is not enough. */
void objective_remember(Objective *objective, const Batches *data,
                        const TrainOptions *options);

/* Memory that objective_ask_teacher takes for its runs, in addition to the answers and
 * its weights in f32; 0 when objective_remember did nothing. Fails as plan_create
 * does. */
Status objective_ask_bytes(size_t *bytes, const Objective *objective, Diag *diag);

/* Runs the teacher over the data set: *out has its samples with the columns that those
 * inputs read, and belongs to the caller; NULL when objective_remember did nothing.
 * Fails as forward_batches does, and with STATUS_MEMORY. */
Status objective_ask_teacher(Batches **out, Objective *objective, const Batches *data,
                             Diag *diag);

/* Adds a scalar to the objective under a name for reports; weight 0 leaves it out. */
Status objective_add_part(Objective *objective, const char *name, Node *part,
                          double weight, Diag *diag);

/* Adds to the step's record the value over the last epoch of each scalar that part
 * `name` is made of, one for each place. Both lists live as long as the objective. */
void objective_tell(Objective *objective, const char *name, const char *const *places,
                    Node **terms, int count);

/* Which exits a loss is about; a model without early exits has only the last one. */
#define OBJECTIVE_EXITS "all|last|early"
typedef enum ObjectiveExits { EXITS_ALL, EXITS_LAST, EXITS_EARLY } ObjectiveExits;

/* The chosen exits of the training graph, by layer; for a model that embeds, its
 * embedding is the last one. Fails with STATUS_MODEL when there is no exit of that
 * kind. */
Status objective_exits(Exits *out, Objective *objective, ObjectiveExits which,
                       Diag *diag);

/* Finds out whether training will mix samples (`augment` with a data set that has column
 * "mix_labels"); call before objective_add_labels. Not known when planning without data.
 * Fails as step_data does. */
Status objective_find_mixed(Objective *objective, const char *data,
                            const TrainOptions *options, Diag *diag);

/* The output of a training graph that embeds and so has no predictions; NULL when it has
 * predictions. */
Node *objective_embedding(const Graph *graph);

/* Default factor of the cosines between texts: temperature 0.05, as in
 * sentence-transformers. */
#define CONTRASTIVE_SCALE 20.0

/* For a model that embeds: notes in `labels` which samples of the data set form a group,
 * and how their cosines count; call before objective_add_labels. Does nothing for other
 * models. Not known when planning without data. Fails with STATUS_MODEL if samples do
 * not form groups or have classes, and as step_data does. */
Status objective_find_pairs(Objective *objective, const char *data, double scale,
                            bool symmetric, Diag *diag);

/* Adds the label loss of the chosen exits (label_loss.h), summed over exits, as part
 * "label", or of a model that embeds "contrastive" or "cosine"; of a masked-LM model,
 * against the masked tokens at the masked positions (objective_mask_tokens comes first);
 * of a model that predicts the next token, the mean over the tokens that have one. Fails
 * with STATUS_MODEL when there is no exit of that kind. */
Status objective_add_labels(Objective *objective, ObjectiveExits which, double weight,
                            double smoothing, Diag *diag);

/* Whether a model predicts tokens, logits [N, T, V]; and whether it predicts the next
 * one: then the data's `labels` are i32[N, T], the token after each, INDEX_SKIP where
 * there is none, and nothing is masked. By the model's task (ir/model_parts.h). */
bool objective_predicts_tokens(const Graph *graph);
bool objective_predicts_next(const Graph *graph);

/* Fails with STATUS_MODEL for a task that has logits but no loss against labels
 * (passes/training/label_loss.h). objective_begin, objective_add_teacher and
 * objective_mask_graph check it. */
Status objective_check_task(PassContext *ctx, const Graph *graph, Diag *diag);

/* For models that predict tokens: restricts the heads of student and teacher to the
 * masked positions, so that logits are [N, M, V] (input `masked_positions` i32[N, M], 0
 * if a sample has fewer: position 0 is never masked). Does nothing when the next token
 * is predicted. Call after objective_add_teacher, if there is a teacher. */
Status objective_mask_tokens(Objective *objective, Diag *diag);

/* The same for a graph that is differentiated but not trained; does nothing if it does
 * not predict masked tokens. */
Status objective_mask_graph(PassContext *ctx, Graph *graph, Diag *diag);

/* Lets a recurrent decoder read its own predicted words in place of a share 1 -
 * teacher_forcing of the target's tokens (except the first), drawn anew in every step
 * (scheduled sampling, Bengio et al., 2015). Fails with STATUS_MODEL for other models,
 * or if its head is more than one matrix. */
Status objective_feed_back(Objective *objective, double teacher_forcing, Diag *diag);

/* After a data set was refused: hints at the labels that the task needs if those of the
 * data set are of another kind. */
void objective_hint_labels(const Objective *objective, const Batches *data, Diag *diag);

/* Inserts gradient equilibrium on the student (see passes/exits/exits.h) among all
 * exits, or those that the losses are about; does nothing for a single exit. */
Status objective_balance(Objective *objective, ObjectiveExits which, Diag *diag);

/* Freezes every storage of the training graph that no early exit uses. */
Status objective_freeze_trunk(Objective *objective, Diag *diag);

/* Checks that options about the prior come with an objective that has one, those about an
 * optimiser with that optimiser, and those about a development set with one. */
Status objective_check(const TrainOptions *options, const StepSource *source, Diag *diag);

/* Trains (or, when planning, measures memory), takes over the weights (in variational
 * inference also the Gaussians) and fills the step's record: curve, final value of every
 * part, what the prior adds and which weights were trained without one, and the results
 * on the development set, if options->dev names one. The state goes to ctx->keeper. */
Status objective_train(Objective *objective, const char *data, const TrainOptions *given,
                       Diag *diag);

/* Frees the training graph. */
void objective_end(Objective *objective);

#endif
