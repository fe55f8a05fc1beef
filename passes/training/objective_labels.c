/* Objective: what it learns from the labels of a data set, by the model's task, or from
 * its pairs. See objective.h. */
#include "passes/training/label_loss.h"
#include "passes/training/objective.h"

Status objective_find_mixed(Objective *o, const char *name, const TrainOptions *options,
                            Diag *diag) {
    PassContext *ctx = o->ctx;
    Batches *data = NULL;
    if (!options->augment) return STATUS_OK;
    TRY(step_data(ctx, name, NULL, &data, diag));
    o->labels.mixed = data && batches_column(data, DATA_MIX_LABELS) >= 0;
    return STATUS_OK;
}

Status objective_find_pairs(Objective *o, const char *name, double scale, bool symmetric,
                            Diag *diag) {
    PassContext *ctx = o->ctx;
    Batches *data = NULL;
    if (!objective_embedding(o->graph)) return STATUS_OK;
    o->labels.scale = scale;
    o->labels.symmetric = symmetric;
    TRY(step_data(ctx, name, NULL, &data, diag));
    if (!data) return STATUS_OK;
    o->labels.group = batches_group(data);
    if (o->labels.group < 2) {
        step_fail(ctx, diag,
                  "data set \"%s\": expected pairs of samples that belong together, as "
                  "the model embeds",
                  name);
        diag_hint(diag, "`pairs: separate` reads sentence and sentence2 as two samples");
        return STATUS_MODEL;
    }
    const int labels = batches_column(data, DATA_LABELS);
    o->labels.scored = labels >= 0 && data->columns[labels].type.dtype == DTYPE_F32;
    if (labels < 0 || o->labels.scored) return STATUS_OK;
    step_fail(ctx, diag,
              "data set \"%s\": expected no labels, as all of its pairs belong together, "
              "or scores",
              name);
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
