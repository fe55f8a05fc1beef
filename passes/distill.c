/* distill: trains the model to follow a teacher.
 *
 * The objective is prediction * L_pred + attention * L_attn + hidden * L_hidden
 * + label * L_label, after MiniViT (Zhang et al., CVPR 2022), section 3.3: soft
 * cross-entropy of the predictions; cross-entropy between the relations of queries, keys
 * and values (nine pairs a layer); cross-entropy between the relations of the MLP
 * outputs. docs/passes/distill.md lists what differs. */
#include "passes/objective.h"

#include <math.h>

typedef enum HiddenForm { HIDDEN_RELATION, HIDDEN_GRAM } HiddenForm;

typedef struct DistillOptions {
    TrainOptions train; /* first: see TRAIN_FIELDS */
    const char *data, *teacher;
    double prediction, attention, hidden, label;
    double temperature, label_smoothing, gram_weight;
    int hidden_form;
    IntList student_layers, teacher_layers;
} DistillOptions;

#define D DistillOptions
static const Field fields[] = {
    {.name = "data",
     .kind = FIELD_STRING,
     .offset = FIELD_AT(D, data, const char *),
     .required = true,
     .help = "data set to train on"},
    F_STRING(D, teacher,
             "model file or folder of the teacher; not given: the recipe's "
             "input model"),
    F_REAL(D, prediction, 0, 1e6, "weight of the prediction loss"),
    F_REAL(D, attention, 0, 1e6, "weight of the attention-relation loss"),
    F_REAL(D, hidden, 0, 1e6, "weight of the hidden-relation loss"),
    F_REAL(D, label, 0, 1e6, "weight of the loss against the data's labels"),
    F_REAL(D, temperature, 0.01, 1000, "temperature of the prediction loss"),
    F_REAL(D, label_smoothing, 0, 0.99, "smoothing of the label loss"),
    F_CHOICE(D, hidden_form, "relation|gram",
             "hidden loss: cross-entropy of relations, or squared difference of Gram "
             "matrices of normalised rows"),
    F_REAL(D, gram_weight, 0, 1e6, "factor of the gram form"),
    F_INTS(D, student_layers, 0, 100000, "layers of the student to match; empty: all"),
    F_INTS(D, teacher_layers, 0, 100000,
           "layers of the teacher they are matched with; empty: evenly spread"),
    TRAIN_FIELDS,
    F_END,
};

static const D defaults = {.train = TRAIN_DEFAULTS,
                           .prediction = 1,
                           .attention = 1,
                           .hidden = 0.1,
                           .temperature = 1,
                           .gram_weight = 49};

/* One pair of matched layers and the tokens each side leaves out in front. */
typedef struct Match {
    int student, teacher;
} Match;

typedef struct Distill {
    Objective objective;
    const D *options;
    Match *matches;
    int match_count;
    int student_skip, teacher_skip;
} Distill;

/* Node of a layer and role in the student, without extra tokens when sides differ. */
static Status tap(Node **out, Distill *d, bool teacher, int layer, Role role,
                  Diag *diag) {
    Objective *o = &d->objective;
    Graph *from = teacher ? o->teacher_graph : o->model->graph;
    const Node *found = graph_find(from, "encoder", layer, role);
    if (!found)
        return edit_fail(o->ctx, diag, "the %s has no node \"%s\" in layer %d",
                         teacher ? "teacher" : "student", role_name(role), layer);
    Node *node = teacher ? objective_teacher_node(o, found)
                         : graph_find(o->graph, "encoder", layer, role);
    const int skip = teacher ? d->teacher_skip : d->student_skip;
    *out = node;
    if (!skip) return STATUS_OK;
    return edit_node(out, o->graph, NULL, "slice_tokens", &node, 1, diag, "from=%d",
                     skip);
}

/* Nine relation losses of one pair of layers into terms[0..9). */
static Status add_relations(Distill *d, Match match, Node **terms, Diag *diag) {
    static const Role roles[3] = {ROLE_Q, ROLE_K, ROLE_V};
    Node *student[3], *teacher[3];
    for (int i = 0; i < 3; i++) {
        TRY(tap(&student[i], d, false, match.student, roles[i], diag));
        TRY(tap(&teacher[i], d, true, match.teacher, roles[i], diag));
    }
    for (int i = 0; i < 9; i++) {
        Node *in[4] = {student[i / 3], student[i % 3], teacher[i / 3], teacher[i % 3]};
        TRY(edit_node(&terms[i], d->objective.graph, NULL, "relation_cross_entropy", in,
                      4, diag, NULL));
    }
    return STATUS_OK;
}

static Status add_attention(Distill *d, Diag *diag) {
    Objective *o = &d->objective;
    if (d->options->attention == 0) return STATUS_OK;
    const int count = 9 * d->match_count;
    Node **terms = ARENA_ARRAY(o->arena, Node *, (size_t)count);
    for (int i = 0; i < d->match_count; i++)
        TRY(add_relations(d, d->matches[i], terms + 9 * (ptrdiff_t)i, diag));
    Node *mean = NULL;
    TRY(edit_sum(&mean, o->graph, terms, NULL, count, diag));
    return objective_add_part(o, "attention", mean, d->options->attention, diag);
}

static Status hidden_term(Node **out, Distill *d, Match match, Diag *diag) {
    Node *student = NULL, *teacher = NULL;
    TRY(tap(&student, d, false, match.student, ROLE_FFN_OUT, diag));
    TRY(tap(&teacher, d, true, match.teacher, ROLE_FFN_OUT, diag));
    Graph *graph = d->objective.graph;
    if (d->options->hidden_form == HIDDEN_GRAM)
        return edit_node(out, graph, NULL, "gram_mse", (Node *[]){student, teacher}, 2,
                         diag, "weight=%.17g", d->options->gram_weight);
    return edit_node(out, graph, NULL, "relation_cross_entropy",
                     (Node *[]){student, student, teacher, teacher}, 4, diag, NULL);
}

static Status add_hidden(Distill *d, Diag *diag) {
    Objective *o = &d->objective;
    if (d->options->hidden == 0) return STATUS_OK;
    Node **terms = ARENA_ARRAY(o->arena, Node *, (size_t)d->match_count);
    for (int i = 0; i < d->match_count; i++)
        TRY(hidden_term(&terms[i], d, d->matches[i], diag));
    Node *mean = NULL;
    TRY(edit_sum(&mean, o->graph, terms, NULL, d->match_count, diag));
    return objective_add_part(o, "hidden", mean, d->options->hidden, diag);
}

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

static Status add_prediction(Distill *d, Diag *diag) {
    Objective *o = &d->objective;
    if (d->options->prediction == 0) return STATUS_OK;
    const Node *theirs = graph_output(o->teacher_graph, "logits");
    if (!theirs) return edit_fail(o->ctx, diag, "the teacher has no output \"logits\"");
    Node *student = graph_output(o->graph, "logits");
    Node *teacher = objective_teacher_node(o, theirs);
    if (!type_equal(&student->type, &teacher->type))
        return fail_logits(o->ctx, &student->type, &teacher->type, diag);
    Node *loss = NULL;
    TRY(edit_node(&loss, o->graph, NULL, "soft_cross_entropy",
                  (Node *[]){student, teacher}, 2, diag, "temperature=%.17g",
                  d->options->temperature));
    return objective_add_part(o, "prediction", loss, d->options->prediction, diag);
}

static Status check_layer(PassContext *ctx, const char *side, int64_t layer, int count,
                          Diag *diag) {
    if (layer < count) return STATUS_OK;
    return edit_fail(ctx, diag, "expected %s layers below %d, found %lld", side, count,
                     (long long)layer);
}

/* Pairs of layers: as listed, or student layer i with the teacher's layer that ends at
 * the same share of the depth. */
static Status match_layers(Distill *d, Diag *diag) {
    const D *options = d->options;
    Objective *o = &d->objective;
    const int ours = graph_layer_count(o->model->graph, "encoder");
    const int theirs = graph_layer_count(o->teacher_graph, "encoder");
    const int listed = options->student_layers.count;
    const int count = listed ? listed : ours;
    if (options->teacher_layers.count && options->teacher_layers.count != count)
        return edit_fail(o->ctx, diag, "expected %d teacher_layers, found %d", count,
                         options->teacher_layers.count);
    d->matches = ARENA_ARRAY(o->arena, Match, (size_t)count);
    d->match_count = theirs ? count : 0;
    for (int i = 0; i < d->match_count; i++) {
        const int64_t s = listed ? options->student_layers.items[i] : i;
        TRY(check_layer(o->ctx, "student", s, ours, diag));
        const int64_t t = options->teacher_layers.count ? options->teacher_layers.items[i]
                                                        : (s + 1) * theirs / ours - 1;
        TRY(check_layer(o->ctx, "teacher", t, theirs, diag));
        d->matches[i] = (Match){(int)s, t < 0 ? 0 : (int)t};
    }
    return STATUS_OK;
}

/* Tokens in front of the patches are left out of relations when only one side has them
 * (a mean-pooled student keeps none). */
static void match_tokens(Distill *d) {
    const int ours = edit_extra_tokens(d->objective.model->graph);
    const int theirs = edit_extra_tokens(d->objective.teacher_graph);
    d->student_skip = ours == theirs ? 0 : ours;
    d->teacher_skip = ours == theirs ? 0 : theirs;
}

static Status build(Distill *d, Diag *diag) {
    Objective *o = &d->objective;
    Model *teacher = NULL;
    TRY(o->ctx->model(o->ctx->self, d->options->teacher, o->ctx->at, &teacher, diag));
    TRY(objective_add_teacher(o, teacher, diag));
    TRY(match_layers(d, diag));
    match_tokens(d);
    TRY(add_prediction(d, diag));
    if (d->match_count) {
        TRY(add_attention(d, diag));
        TRY(add_hidden(d, diag));
    } else if (!o->ctx->plan && (d->options->attention > 0 || d->options->hidden > 0)) {
        diag_warn(diag, o->ctx->at, o->ctx->key,
                  "the %s has no transformer layers: attention and hidden losses are "
                  "left out",
                  graph_layer_count(teacher->graph, "encoder") ? "student" : "teacher");
    }
    if (d->options->label > 0)
        TRY(objective_add_labels(o, EXITS_LAST, d->options->label,
                                 d->options->label_smoothing, diag));
    if (!o->part_count)
        return edit_fail(o->ctx, diag, "nothing to train on: every loss has weight 0");
    return STATUS_OK;
}

static Status distill_run(PassContext *ctx, Model *model, const void *opaque,
                          Diag *diag) {
    Distill d = {.options = opaque};
    TRY(objective_begin(&d.objective, ctx, model, diag));
    Status status = build(&d, diag);
    if (status == STATUS_OK)
        status = objective_train(&d.objective, d.options->data, &d.options->train, diag);
    objective_end(&d.objective);
    return status;
}

static Status distill_check(const void *opaque, Loc at, const char *key, Diag *diag) {
    const D *options = opaque;
    if (options->prediction + options->attention + options->hidden + options->label > 0)
        return STATUS_OK;
    return diag_fail(diag, STATUS_RECIPE, at, key,
                     "expected at least one loss with a weight above 0, found none");
}

const Pass pass_distill = {
    .name = "distill",
    .summary = "train the model to follow a teacher: predictions, attention relations, "
               "hidden relations",
    .paper = "MiniViT: Compressing Vision Transformers with Weight Multiplexing "
             "(CVPR 2022), section 3.3",
    .fields = fields,
    .options_size = sizeof(D),
    .defaults = &defaults,
    .data_options = "data",
    .flags = PASS_TRAINS,
    .exactness = PASS_LOSSY,
    .check = distill_check,
    .run = distill_run,
};
