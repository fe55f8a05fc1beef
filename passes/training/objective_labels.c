/* Objective: what it learns from the labels of a data set, by the model's task, or from
 * its pairs. See objective.h. */
#include "passes/training/label_loss.h"
#include "passes/training/objective.h"

Status objective_find_mixed(Objective *o, const char *data, const TrainOptions *options,
                            Diag *diag) {
    Batches *set = NULL;
    if (!options->augment) return STATUS_OK;
    TRY(step_data(o->ctx, data, NULL, &set, diag));
    o->labels.mixed = set && batches_column(set, DATA_MIX_LABELS) >= 0;
    return STATUS_OK;
}

Status objective_find_pairs(Objective *o, const char *data, double scale, bool symmetric,
                            Diag *diag) {
    PassContext *ctx = o->ctx;
    Batches *set = NULL;
    if (!objective_embedding(o->graph)) return STATUS_OK;
    o->labels.scale = scale;
    o->labels.symmetric = symmetric;
    TRY(step_data(ctx, data, NULL, &set, diag));
    if (!set) return STATUS_OK;
    o->labels.group = batches_group(set);
    if (o->labels.group < 2) {
        step_fail(ctx, diag,
                  "data set \"%s\": expected pairs of samples that belong together, as "
                  "the model embeds",
                  data);
        diag_hint(diag, "`pairs: separate` reads sentence and sentence2 as two samples");
        return STATUS_MODEL;
    }
    const int labels = batches_column(set, DATA_LABELS);
    o->labels.scored = labels >= 0 && set->columns[labels].type.dtype == DTYPE_F32;
    if (labels < 0 || o->labels.scored) return STATUS_OK;
    step_fail(ctx, diag,
              "data set \"%s\": expected no labels, as all of its pairs belong together, "
              "or scores",
              data);
    diag_hint(diag, "label: \"\" reads none; `targets: values` reads scores");
    return STATUS_MODEL;
}

/* Options that the loss of this task does not read. */
static Status check_label_options(const Objective *o, Diag *diag) {
    const Task task = graph_task(o->graph);
    const bool smooths = task != TASK_REGRESS && task != TASK_FIND_SPAN &&
                         task != TASK_CHOOSE && task != TASK_EMBED;
    if (o->labels.smoothing > 0 && !smooths)
        return step_fail_option(o->ctx, "label_smoothing", diag,
                                "expected none for a model of task %s", task_name(task));
    if (o->labels.positive && o->labels.positive->count && task != TASK_MULTI_LABEL)
        return step_fail_option(o->ctx, "positive_weights", diag,
                                "expected a model of task multi_label, found %s",
                                task_name(task));
    return STATUS_OK;
}

Status objective_add_labels(Objective *o, ObjectiveExits which, double weight,
                            double smoothing, Diag *diag) {
    Exits exits;
    Node *loss = NULL;
    const char *name = !objective_embedding(o->graph) ? "label"
                       : o->labels.scored             ? "cosine"
                                                      : "contrastive";
    o->labels.smoothing = smoothing;
    TRY(check_label_options(o, diag));
    TRY(objective_exits(&exits, o, which, diag));
    TRY(exits_label_loss(&loss, o->graph, &exits, &o->labels, diag));
    return objective_add_part(o, name, loss, weight, diag);
}
