/* Losses on predictions and last states: see distill.h. */
#include "passes/distill/distill.h"

#include <string.h>

/* ---- predictions ---- */

static Status fail_logits(PassContext *ctx, const Type *ours, const Type *theirs,
                          Diag *diag) {
    Text expected = {0}, found = {0};
    type_print(&expected, ours);
    type_print(&found, theirs);
    Status status = edit_fail(ctx, diag, "expected a teacher with logits %s, found %s",
                              expected.data, found.data);
    text_free(&expected);
    text_free(&found);
    return status;
}

bool distill_compares_predictions(const Distill *d) {
    return d->losses.prediction > 0 ||
           (d->losses.cosine > 0 && d->losses.cosine_on == COSINE_probabilities);
}

Status distill_check_predictions(Distill *d, Diag *diag) {
    const Objective *o = &d->objective;
    const Node *ours = graph_output(o->graph, OUTPUT_LOGITS);
    const Node *theirs = graph_output(o->teacher_graph, OUTPUT_LOGITS);
    if (!theirs) {
        Status status =
            edit_fail(o->ctx, diag, "the teacher has no output \"logits\" to follow");
        diag_hint(diag, "give a teacher with a head, or prediction: 0");
        return status;
    }
    if (objective_predicts_next(o->graph) != objective_predicts_next(o->teacher_graph))
        return edit_fail(o->ctx, diag,
                         "expected a teacher that predicts what the student does: one "
                         "predicts next tokens, the other does not");
    if (type_equal(&ours->type, &theirs->type)) return STATUS_OK;
    return fail_logits(o->ctx, &ours->type, &theirs->type, diag);
}

/* Rows of predictions that count: all samples; the masked tokens, whose positions are
 * never 0 (fillers are); or all tokens that are not padding. */
static Node *prediction_mask(const Distill *d) {
    const Graph *graph = d->objective.graph;
    return d->masked ? graph_find_input(graph, "masked_positions")
                     : distill_padding(graph, graph_output(graph, OUTPUT_LOGITS));
}

static Status prediction_term(Node **out, Distill *d, const Exit *exit, Diag *diag) {
    const Objective *o = &d->objective;
    Node *teacher = NULL, *mask = prediction_mask(d);
    TRY(distill_teacher_exit(&teacher, d, exit, diag));
    if (!type_equal(&exit->logits->type, &teacher->type))
        return fail_logits(o->ctx, &exit->logits->type, &teacher->type, diag);
    return edit_node(out, o->graph, NULL, &op_soft_cross_entropy,
                     (Node *[]){exit->logits, teacher, mask}, mask ? 3 : 2, diag,
                     "temperature=%.17g kl=%s", d->losses.temperature,
                     d->options->kl ? "true" : "false");
}

Status distill_add_prediction(Distill *d, Diag *diag) {
    Objective *o = &d->objective;
    if (d->losses.prediction == 0) return STATUS_OK;
    Exits exits;
    TRY(objective_exits(&exits, o, (ObjectiveExits)d->options->exits, diag));
    Node **terms = ARENA_ARRAY(o->arena, Node *, (size_t)exits.count), *sum = NULL;
    for (int i = 0; i < exits.count; i++)
        TRY(prediction_term(&terms[i], d, &exits.items[i], diag));
    TRY(distill_sum(&sum, d, terms, exits.count, true, diag));
    return objective_add_part(o, "prediction", sum, d->losses.prediction, diag);
}

/* ---- labels and masked tokens ---- */

Status distill_add_labels(Distill *d, Diag *diag) {
    Objective *o = &d->objective;
    const double weight = d->masked ? d->losses.masked_lm : d->losses.label;
    if (weight == 0) return STATUS_OK;
    TRY(objective_find_mixed(o, d->options->data, &d->options->train, diag));
    TRY(objective_add_labels(o, (ObjectiveExits)d->options->exits, weight,
                             d->options->label_smoothing, diag));
    if (d->masked) o->part_name[o->part_count - 1] = "masked_lm";
    return STATUS_OK;
}

/* ---- cosine ---- */

static Node *last_state(const Graph *graph, const char *stack) {
    Node *state = graph_output(graph, OUTPUT_STATES);
    if (state || !stack) return state;
    return graph_layer_output(graph, stack, graph_layer_count(graph, stack) - 1);
}

static Status cosine_of_states(Node **out, Distill *d, Diag *diag) {
    const Objective *o = &d->objective;
    Node *student = last_state(o->graph, d->student_stack), *teacher = NULL;
    const Node *theirs = last_state(o->teacher_graph, d->teacher_stack);
    if ((!student || !theirs) && d->apart && d->options->cosine < 0) return STATUS_OK;
    if (!student || !theirs)
        return edit_fail(o->ctx, diag, "the %s has no hidden states for cosine",
                         student ? "teacher" : "student");
    TRY(distill_student_tokens(&student, d, student, diag));
    TRY(distill_teacher_tokens(&teacher, d, theirs, diag));
    return distill_compare_states(out, d, &op_cosine_distance, student, teacher,
                                  "cosine_on: probabilities", diag);
}

static Status cosine_of_predictions(Node **out, Distill *d, Diag *diag) {
    const Objective *o = &d->objective;
    const Node *theirs = graph_output(o->teacher_graph, OUTPUT_LOGITS);
    Node *logits[2] = {graph_output(o->graph, OUTPUT_LOGITS),
                       objective_teacher_node(o, theirs)};
    Node *in[3] = {NULL, NULL, prediction_mask(d)};
    for (int i = 0; i < 2; i++)
        TRY(edit_node(&in[i], o->graph, NULL, &op_softmax, &logits[i], 1, diag,
                      "temperature=%.17g", d->losses.temperature));
    return edit_node(out, o->graph, NULL, &op_cosine_distance, in, in[2] ? 3 : 2, diag,
                     NULL);
}

Status distill_add_cosine(Distill *d, Diag *diag) {
    Objective *o = &d->objective;
    Node *term = NULL;
    if (d->losses.cosine == 0) return STATUS_OK;
    if (d->losses.cosine_on == COSINE_probabilities)
        TRY(cosine_of_predictions(&term, d, diag));
    else
        TRY(cosine_of_states(&term, d, diag));
    if (!term) return STATUS_OK;
    return objective_add_part(o, "cosine", term, d->losses.cosine, diag);
}
