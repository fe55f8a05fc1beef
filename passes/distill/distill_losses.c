/* The losses of distillation: on matched layers (attention, hidden states), on
 * predictions, labels and last states. See distill_objective.h; those on linear attention
 * are in distill_linear.c. */
#include "passes/distill/distill_objective.h"

#include "exec/position_terms.h"

#include <string.h>

/* ---- values of both sides ---- */

static Status skip_tokens(Node **out, Distill *d, Node *node, int skip, Diag *diag) {
    *out = node;
    if (!skip) return STATUS_OK;
    return node_add(out, d->objective.graph, NULL, &op_slice_tokens, &node, 1, diag,
                    "from=%d", skip);
}

/* Value of the student at a node of its training graph, or of the teacher at a node of
 * its own graph, without the tokens in front that the other side does not have. */
static Status student_tokens(Node **out, Distill *d, Node *node, Diag *diag) {
    return skip_tokens(out, d, node, d->student_skip, diag);
}

static Status teacher_tokens(Node **out, Distill *d, const Node *node, Diag *diag) {
    return skip_tokens(out, d, objective_teacher_node(&d->objective, node),
                       d->teacher_skip, diag);
}

static Status fail_missing(Distill *d, bool teacher, const char *what, int layer,
                           Diag *diag) {
    const Status status =
        step_fail(d->objective.ctx, diag, "the %s has no node \"%s\" in layer %d",
                  teacher ? "teacher" : "student", what, layer);
    diag_hint(diag, "match other layers (student_layers, teacher_layers), or give the "
                    "loss weight 0");
    return status;
}

/* Nodes of a role in a pair of layers: pair[0] the student's, pair[1] the teacher's. */
static Status tap(Node *pair[2], Distill *d, DistillMatch match, Role role, Diag *diag) {
    const Objective *o = &d->objective;
    Node *ours = graph_find(o->graph, match.student_stack, match.student, role);
    const Node *theirs =
        graph_find(o->teacher_graph, match.teacher_stack, match.teacher, role);
    if (!ours) return fail_missing(d, false, role_name(role), match.student, diag);
    if (!theirs) return fail_missing(d, true, role_name(role), match.teacher, diag);
    TRY(student_tokens(&pair[0], d, ours, diag));
    return teacher_tokens(&pair[1], d, theirs, diag);
}

/* Sum or mean of scalars as one node. */
static Status sum_terms(Node **out, Distill *d, Node **terms, int count, bool sum,
                        Diag *diag) {
    Objective *o = &d->objective;
    double *ones = ARENA_ARRAY(o->arena, double, (size_t)count);
    for (int i = 0; i < count; i++) ones[i] = 1;
    return node_add_sum(out, o->graph, terms, sum ? ones : NULL, count, diag);
}

static int64_t last_width(const Node *node) {
    return node->type.rank ? node->type.dim[node->type.rank - 1] : 1;
}

/* Adds mean_squared_error or cosine_distance of states [N, T, D] of both sides, padding
 * left out. Fails with STATUS_MODEL when the widths differ; `use` says what to use then.
 */
static Status compare_states(Node **out, Distill *d, const Op *op, Node *student,
                             Node *teacher, const char *use, Diag *diag) {
    Graph *graph = d->objective.graph;
    const int64_t width = last_width(student), other = last_width(teacher);
    if (width != other) {
        Status status = step_fail(d->objective.ctx, diag,
                                  "expected hidden states of equal width, found %lld in "
                                  "the student and %lld in the teacher",
                                  (long long)width, (long long)other);
        diag_hint(diag, "%s compares any widths", use);
        return status;
    }
    Node *mask = node_tokens_mask(graph, student);
    return node_add(out, graph, NULL, op, (Node *[]){student, teacher, mask},
                    mask ? 3 : 2, diag, NULL);
}

/* Adds a part that is the sum or the mean of terms over layers. */
static Status add_over_layers(Distill *d, const char *name, double weight, Node **terms,
                              int count, bool sum, Diag *diag) {
    Node *part = NULL;
    TRY(sum_terms(&part, d, terms, count, sum, diag));
    return objective_add_part(&d->objective, name, part, weight, diag);
}

/* ---- windows ---- */

/* Attributes of a layer's softmax attention; NULL when it has none. */
static const AttentionAttrs *attention_of(const Graph *graph, const char *stack,
                                          int layer) {
    const Node *node = node_find(graph, stack, layer, ROLE_ATTENTION, &op_attention);
    return node ? node->attrs : NULL;
}

static const AttentionAttrs *student_attention(const Distill *d, DistillMatch match) {
    return attention_of(d->objective.graph, match.student_stack, match.student);
}

static const AttentionAttrs *teacher_attention(const Distill *d, DistillMatch match) {
    return attention_of(d->objective.teacher_graph, match.teacher_stack, match.teacher);
}

/* Tokens of a window of a layer's attention; 0 where every token attends to all. */
static int64_t window_tokens(const AttentionAttrs *attention) {
    return attention ? attention->window * attention->window : 0;
}

/* Queries, keys and values stand window by window: both sides must have the same. */
static Status check_windows(const Distill *d, DistillMatch match, Diag *diag) {
    const AttentionAttrs *ours = student_attention(d, match);
    const AttentionAttrs *theirs = teacher_attention(d, match);
    const bool both = window_tokens(ours) && window_tokens(theirs);
    if (both ? ours->window == theirs->window && ours->shift == theirs->shift &&
                   ours->grid_h == theirs->grid_h && ours->grid_w == theirs->grid_w
             : window_tokens(ours) == window_tokens(theirs))
        return STATUS_OK;
    Status status = step_fail(
        d->objective.ctx, diag,
        "the attention loss expects equal windows, found size %lld, shift %lld in layer "
        "%d of the student and size %lld, shift %lld in layer %d of the teacher",
        (long long)(ours ? ours->window : 0), (long long)(ours ? ours->shift : 0),
        match.student, (long long)(theirs ? theirs->window : 0),
        (long long)(theirs ? theirs->shift : 0), match.teacher);
    diag_hint(diag, "match layers of equal windows (pairs, match), or give attention the "
                    "weight 0");
    return status;
}

/* ---- attention ---- */

enum { RELATIONS = 9 };

/* Queries, keys and values relate to each other where they are equally wide: not behind
 * merge_t2r, and not where heads share keys and values. */
static Status check_widths(Distill *d, bool teacher, int layer, Node *const *projection,
                           int count, Diag *diag) {
    int64_t width[3] = {0};
    bool equal = true;
    for (int i = 0; i < count; i++) {
        width[i] = last_width(projection[i]);
        equal &= width[i] == width[0];
    }
    if (equal) return STATUS_OK;
    const char *values = count < 3 ? ""
                                   : arena_printf(d->objective.arena, ", values %lld",
                                                  (long long)width[2]);
    Status status = step_fail(
        d->objective.ctx, diag,
        "the attention loss expects queries, keys and values of equal width, found "
        "queries %lld, keys %lld%s in layer %d of the %s",
        (long long)width[0], (long long)width[1], values, layer,
        teacher ? "teacher" : "student");
    diag_hint(diag, "behind merge_t2r queries and keys are features: distill before it, "
                    "or give attention the weight 0");
    return status;
}

/* The projections of a pair of layers, those of equal width alone. */
static Status tap_projections(Node *pair[][2], Distill *d, DistillMatch match, int count,
                              Diag *diag) {
    static const Role roles[3] = {ROLE_Q, ROLE_K, ROLE_V};
    for (int i = 0; i < count; i++) TRY(tap(pair[i], d, match, roles[i], diag));
    for (int side = 0; side < 2; side++) {
        Node *projection[3] = {NULL};
        for (int i = 0; i < count; i++) projection[i] = pair[i][side];
        TRY(check_widths(d, side == 1, side ? match.teacher : match.student, projection,
                         count, diag));
    }
    return STATUS_OK;
}

/* Nine relation losses of one pair of layers. */
static Status add_relations(Distill *d, DistillMatch match, Node **terms, Diag *diag) {
    Node *pair[3][2];
    TRY(check_windows(d, match, diag));
    TRY(tap_projections(pair, d, match, 3, diag));
    Graph *graph = d->objective.graph;
    const int64_t window = window_tokens(student_attention(d, match));
    Node *mask = window ? NULL : node_tokens_mask(graph, pair[0][0]);
    for (int i = 0; i < RELATIONS; i++) {
        Node *in[5] = {pair[i / 3][0], pair[i % 3][0], pair[i / 3][1], pair[i % 3][1],
                       mask};
        TRY(node_add(&terms[i], graph, NULL, &op_relation_cross_entropy, in, mask ? 5 : 4,
                     diag, "window=%lld", (long long)window));
    }
    return STATUS_OK;
}

/* A map is of products of queries and keys: nothing else may be in the scores. */
static Status check_scores(const Distill *d, const Graph *graph, const char *stack,
                           int layer, const char *side, Diag *diag) {
    const Node *node = node_find(graph, stack, layer, ROLE_ATTENTION, &op_attention);
    const char *found = NULL;
    if (node && attention_has_position_terms(node))
        found = "a bias by position is added to them";
    if (node && ((const AttentionAttrs *)node->attrs)->cap > 0) found = "they are capped";
    if (!found) return STATUS_OK;
    Status status = step_fail_option(
        d->objective.ctx, "attention_form", diag,
        "map expects scores that are products of queries and keys alone, but in layer "
        "%d of the %s %s",
        layer, side, found);
    diag_hint(diag, "attention_form: relation compares queries, keys and values");
    return status;
}

static Status check_heads(Distill *d, DistillMatch match, int64_t *heads, Diag *diag) {
    const AttentionAttrs *s = student_attention(d, match);
    const AttentionAttrs *t = teacher_attention(d, match);
    const int64_t ours = s ? s->heads : 0, theirs = t ? t->heads : 0;
    *heads = ours;
    if (window_tokens(s) || window_tokens(t))
        return step_fail_option(d->objective.ctx, "attention_form", diag,
                                "map expects attention to all tokens, found "
                                "windows in layer %d of the %s",
                                window_tokens(s) ? match.student : match.teacher,
                                window_tokens(s) ? "student" : "teacher");
    if ((s && s->reach) || (t && t->reach))
        return step_fail_option(d->objective.ctx, "attention_form", diag,
                                "map expects attention to all tokens, found a window "
                                "that slides along them in layer %d of the %s",
                                s && s->reach ? match.student : match.teacher,
                                s && s->reach ? "student" : "teacher");
    if (ours == theirs && ours > 0) return STATUS_OK;
    Status status = step_fail_option(
        d->objective.ctx, "attention_form", diag,
        "map expects equal head counts, found %lld in layer %d of the "
        "student and %lld in layer %d of the teacher",
        (long long)ours, match.student, (long long)theirs, match.teacher);
    diag_hint(diag, "attention_form: relation compares any head counts");
    return status;
}

static Status map_term(Node **out, Distill *d, DistillMatch match, Diag *diag) {
    const Objective *o = &d->objective;
    int64_t heads = 0;
    Node *pair[2][2];
    TRY(check_heads(d, match, &heads, diag));
    TRY(check_scores(d, o->graph, match.student_stack, match.student, "student", diag));
    TRY(check_scores(d, o->teacher_graph, match.teacher_stack, match.teacher, "teacher",
                     diag));
    TRY(tap_projections(pair, d, match, 2, diag));
    Node *q = pair[0][0];
    Node *in[5] = {q, pair[1][0], pair[0][1], pair[1][1], node_tokens_mask(o->graph, q)};
    return node_add(out, o->graph, NULL, &op_attention_map_mse, in, in[4] ? 5 : 4, diag,
                    "heads=%lld", (long long)heads);
}

/* ---- the attention loss ---- */

/* The terms of one pair of layers: RELATIONS at most. */
static Status attention_terms(Node **terms, int *count, Distill *d, DistillMatch match,
                              Diag *diag) {
    switch (d->losses.attention_form) {
    case ATTENTION_relation:
        *count = RELATIONS;
        return add_relations(d, match, terms, diag);
    case ATTENTION_map: *count = 1; return map_term(terms, d, match, diag);
    default: return distill_linear_terms(terms, count, d, match, diag);
    }
}

static Status fail_no_linear(const Distill *d, Diag *diag) {
    const bool output = d->losses.attention_form == ATTENTION_output;
    step_fail_option(d->objective.ctx, "attention_form", diag,
                     "%s: the student's layers have no linear attention",
                     output ? "output" : "match");
    diag_hint(diag, "attention_to_t2r gives it to them");
    return STATUS_MODEL;
}

Status distill_add_attention(Distill *d, Diag *diag) {
    if (d->losses.attention == 0) return STATUS_OK;
    Objective *o = &d->objective;
    const bool relations = d->losses.attention_form == ATTENTION_relation;
    const size_t most = (size_t)(RELATIONS * d->match_count);
    Node **terms = ARENA_ARRAY(o->arena, Node *, most);
    const char **places = ARENA_ARRAY(o->arena, const char *, most);
    int count = 0;
    for (int i = 0; i < d->match_count; i++) {
        const DistillMatch match = d->matches[i];
        int added = 0;
        TRY(attention_terms(terms + count, &added, d, match, diag));
        for (int j = 0; j < added; j++)
            places[count++] =
                arena_printf(o->arena, "%s.%d%s", match.student_stack, match.student,
                             j && !relations ? ".cross" : "");
    }
    if (count == 0) return fail_no_linear(d, diag);
    if (!relations) objective_tell(o, "attention", places, terms, count);
    return add_over_layers(d, "attention", d->losses.attention, terms, count,
                           !relations && d->options->over_layers == OVER_LAYERS_SUM,
                           diag);
}

/* ---- hidden ---- */

static Status mlp_term(Node **out, Distill *d, DistillMatch match, Diag *diag) {
    Graph *graph = d->objective.graph;
    Node *pair[2];
    const AttentionAttrs *a = student_attention(d, match);
    const int64_t window = window_tokens(a);
    TRY(tap(pair, d, match, ROLE_FFN_OUT, diag));
    /* The tokens of both sides in the windows of the student's layer, if it has some. */
    for (int side = 0; side < 2 && window; side++)
        TRY(node_add(&pair[side], graph, NULL, &op_window_partition, &pair[side], 1, diag,
                     "grid_h=%lld grid_w=%lld window=%lld shift=%lld",
                     (long long)a->grid_h, (long long)a->grid_w, (long long)a->window,
                     (long long)a->shift));
    Node *mask = window ? NULL : node_tokens_mask(graph, pair[0]);
    if (d->losses.hidden_form == HIDDEN_gram)
        return node_add(out, graph, NULL, &op_gram_mse,
                        (Node *[]){pair[0], pair[1], mask}, mask ? 3 : 2, diag,
                        "weight=%.17g window=%lld", d->options->gram_weight,
                        (long long)window);
    return node_add(out, graph, NULL, &op_relation_cross_entropy,
                    (Node *[]){pair[0], pair[0], pair[1], pair[1], mask}, mask ? 5 : 4,
                    diag, "window=%lld", (long long)window);
}

/* The value that a stack's first layer reads: the first operand of its nodes that is
 * computed outside. */
static Node *first_state(const Graph *graph, const char *stack) {
    for (const Node *node = graph->first; node; node = node->next) {
        if (!node_is_in(node, stack, 0)) continue;
        for (int i = 0; i < node->in_count; i++) {
            Node *value = node->in[i];
            if (value && !value->storage && value->type.dtype == DTYPE_F32 &&
                !node_is_in(value, stack, 0))
                return value;
        }
    }
    return NULL;
}

/* State before layer 0 (`layer` -1) or behind a layer. */
static Node *state(const Graph *graph, const char *stack, int layer) {
    return layer < 0 ? first_state(graph, stack)
                     : graph_layer_output(graph, stack, layer);
}

static Status state_term(Node **out, Distill *d, DistillMatch match, Diag *diag) {
    const Objective *o = &d->objective;
    Node *student = state(o->graph, match.student_stack, match.student), *teacher = NULL;
    const Node *theirs = state(o->teacher_graph, match.teacher_stack, match.teacher);
    if (!student) return fail_missing(d, false, "residual2", match.student, diag);
    if (!theirs) return fail_missing(d, true, "residual2", match.teacher, diag);
    TRY(student_tokens(&student, d, student, diag));
    TRY(teacher_tokens(&teacher, d, theirs, diag));
    return compare_states(out, d, &op_mean_squared_error, student, teacher,
                          "hidden_form: relation", diag);
}

Status distill_add_hidden(Distill *d, Diag *diag) {
    if (d->losses.hidden == 0) return STATUS_OK;
    const bool states = d->losses.hidden_form == HIDDEN_state;
    Node **terms = ARENA_ARRAY(d->objective.arena, Node *, (size_t)d->match_count + 1);
    int count = 0;
    /* Layer -1: what the first layers of both sides read. */
    const DistillMatch embeddings = {d->student_stack, d->teacher_stack, -1, -1};
    if (states && d->options->embeddings)
        TRY(state_term(&terms[count++], d, embeddings, diag));
    for (int i = 0; i < d->match_count; i++) {
        if (states)
            TRY(state_term(&terms[count++], d, d->matches[i], diag));
        else
            TRY(mlp_term(&terms[count++], d, d->matches[i], diag));
    }
    return add_over_layers(d, "hidden", d->losses.hidden, terms, count,
                           states && d->options->over_layers == OVER_LAYERS_SUM, diag);
}

/* ---- predictions ---- */

static Status fail_logits(PassContext *ctx, const Type *ours, const Type *theirs,
                          Diag *diag) {
    Text expected = {0}, found = {0};
    type_print(&expected, ours);
    type_print(&found, theirs);
    Status status = step_fail(ctx, diag, "expected a teacher with logits %s, found %s",
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
            step_fail(o->ctx, diag, "the teacher has no output \"logits\" to follow");
        diag_hint(diag, "give a teacher with a head, or prediction: 0");
        return status;
    }
    if (objective_predicts_next(o->graph) != objective_predicts_next(o->teacher_graph))
        return step_fail(o->ctx, diag,
                         "expected a teacher that predicts what the student does: one "
                         "predicts next tokens, the other does not");
    if (!type_equal(&ours->type, &theirs->type))
        return fail_logits(o->ctx, &ours->type, &theirs->type, diag);
    const Task task = graph_task(o->graph), other = graph_task(o->teacher_graph);
    if (task == other || task == TASK_NONE || other == TASK_NONE) return STATUS_OK;
    return step_fail(o->ctx, diag, "expected a teacher of task %s, found %s",
                     task_name(task), task_name(other));
}

/* Rows of predictions that count: all samples; the masked tokens, whose positions are
 * never 0 (fillers are); or all tokens that are not padding. */
static Node *prediction_mask(const Distill *d) {
    const Graph *graph = d->objective.graph;
    return d->masked ? graph_find_input(graph, "masked_positions")
                     : node_tokens_mask(graph, graph_output(graph, OUTPUT_LOGITS));
}

/* What the loss of predictions reads beside both of them: which rows count; of spans
 * which tokens; of choices the places in their groups. */
static Node *prediction_rows(const Distill *d, const Node *logits) {
    Graph *graph = d->objective.graph;
    const Task task = graph_task(graph);
    const Type place = {.dtype = DTYPE_I32, .rank = 1, .dim = {logits->type.dim[0]}};
    if (task == TASK_FIND_SPAN) return graph_find_input(graph, INPUT_MASK);
    if (task != TASK_CHOOSE) return prediction_mask(d);
    Node *input = graph_find_input(graph, DATA_CHOICE_PLACE);
    return input ? input : graph_input(graph, DATA_CHOICE_PLACE, &place);
}

static Status prediction_term(Node **out, Distill *d, const Exit *exit, Diag *diag) {
    static const Op *const LOSSES[TASK_COUNT] = {
        [TASK_MULTI_LABEL] = &op_soft_binary_cross_entropy,
        [TASK_FIND_SPAN] = &op_soft_span_cross_entropy,
        [TASK_CHOOSE] = &op_soft_choice_cross_entropy};
    const Objective *o = &d->objective;
    Node *teacher = NULL, *mask = prediction_rows(d, exit->logits);
    TRY(distill_teacher_exit(&teacher, d, exit, diag));
    if (!type_equal(&exit->logits->type, &teacher->type))
        return fail_logits(o->ctx, &exit->logits->type, &teacher->type, diag);
    Node *in[] = {exit->logits, teacher, mask};
    const Task task = graph_task(o->graph);
    if (task == TASK_REGRESS)
        return node_add(out, o->graph, NULL, &op_mean_squared_error, in, 2, diag, NULL);
    return node_add(out, o->graph, NULL,
                    LOSSES[task] ? LOSSES[task] : &op_soft_cross_entropy, in,
                    mask ? 3 : 2, diag, "temperature=%.17g kl=%s", d->losses.temperature,
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
    TRY(sum_terms(&sum, d, terms, exits.count, true, diag));
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
        return step_fail(o->ctx, diag, "the %s has no hidden states for cosine",
                         student ? "teacher" : "student");
    TRY(student_tokens(&student, d, student, diag));
    TRY(teacher_tokens(&teacher, d, theirs, diag));
    return compare_states(out, d, &op_cosine_distance, student, teacher,
                          "cosine_on: probabilities", diag);
}

/* What logits say of classes, or of each label, at the temperature. */
static Status add_probabilities(Node **out, Distill *d, Node *logits, Diag *diag) {
    Graph *graph = d->objective.graph;
    const double temperature = d->losses.temperature;
    Node *scaled = NULL;
    if (graph_task(graph) != TASK_MULTI_LABEL)
        return node_add(out, graph, NULL, &op_softmax, &logits, 1, diag,
                        "temperature=%.17g", temperature);
    TRY(node_add(&scaled, graph, NULL, &op_scale, &logits, 1, diag, "by=%.17g",
                 1 / temperature));
    return node_add(out, graph, NULL, &op_activation, &scaled, 1, diag, "fn=sigmoid");
}

static Status cosine_of_predictions(Node **out, Distill *d, Diag *diag) {
    const Objective *o = &d->objective;
    const Node *theirs = graph_output(o->teacher_graph, OUTPUT_LOGITS);
    Node *logits[2] = {graph_output(o->graph, OUTPUT_LOGITS),
                       objective_teacher_node(o, theirs)};
    Node *in[3] = {NULL, NULL, prediction_mask(d)};
    const Task task = graph_task(o->graph);
    if (task == TASK_REGRESS || task == TASK_FIND_SPAN || task == TASK_CHOOSE)
        return step_fail_option(
            o->ctx, "cosine_on", diag,
            "expected hidden, as a token or a sample of task %s has no "
            "probabilities of its own",
            task_name(task));
    for (int i = 0; i < 2; i++) TRY(add_probabilities(&in[i], d, logits[i], diag));
    return node_add(out, o->graph, NULL, &op_cosine_distance, in, in[2] ? 3 : 2, diag,
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
