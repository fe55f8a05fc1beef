/* Objective: the training graph that finetune and distill build around a model.
 *
 * The model's graph is copied; losses are added to the copy, and a teacher is imported
 * into it with its storages frozen. One plan then covers student, teacher and losses, and
 * gradients flow to the student alone. Afterwards the trained weights go back. */
#ifndef COMPRESS_PASSES_OBJECTIVE_H
#define COMPRESS_PASSES_OBJECTIVE_H

#include "passes/edit.h"

#define OBJECTIVE_PARTS 8

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
} Objective;

/* Copies the model's graph. Call objective_end in any case. */
Status objective_begin(Objective *objective, PassContext *ctx, Model *model, Diag *diag);

/* Imports a teacher, frozen. */
Status objective_add_teacher(Objective *objective, Model *teacher, Diag *diag);

/* Node of the training graph that computes what `node` computes in the teacher. */
Node *objective_teacher_node(const Objective *objective, const Node *node);

/* Adds a scalar to the objective under a name for reports; weight 0 leaves it out. */
Status objective_add_part(Objective *objective, const char *name, Node *part,
                          double weight, Diag *diag);

/* Adds cross-entropy of output `logits` against the data's labels. */
Status objective_add_labels(Objective *objective, double weight, double smoothing,
                            Diag *diag);

/* Trains (or, when planning, measures memory), takes the weights over and fills the
 * step's record: loss curve, final value of every part. */
Status objective_train(Objective *objective, const char *data,
                       const TrainOptions *options, Diag *diag);

/* Frees the training graph. */
void objective_end(Objective *objective);

#endif
