/* distill: trains the model to follow a teacher.
 *
 * The objective is the weighted sum of up to six losses, after MiniViT (Zhang et al.,
 * CVPR 2022, section 3.3), DistilBERT (Sanh et al., 2019), COST-EFF (Shen et al., EMNLP
 * 2022, section 3.4) and TinyBERT (Jiao et al., 2020). docs/passes/distill.md has the
 * formulas and lists what differs. */
#include "passes/distill/distill_objective.h"

#include "passes/evaluate/metric.h"

/* PRESET(name, prediction, attention, hidden, masked_lm, cosine, temperature, form of
 * attention, form of hidden, what the cosine is of). Table, names and help derive from
 * these lines. */
#define PRESETS(PRESET)                                                                  \
    PRESET(none, 0, 0, 0, 0, 0, 1, relation, relation, hidden)                           \
    PRESET(minivit, 1, 1, 0.1, 0, 0, 1, relation, relation, hidden)                      \
    PRESET(distilbert, 5, 0, 0, 2, 1, 2, relation, relation, hidden)                     \
    PRESET(distilbert_mean, 1.0 / 3, 0, 0, 1.0 / 3, 1.0 / 3, 2, relation, relation,      \
           probabilities)                                                                \
    PRESET(cost_eff, 1, 0, 1, 0, 0, 1, relation, state, hidden)                          \
    PRESET(tinybert, 1, 1, 1, 0, 0, 1, map, state, hidden)

enum {
#define PRESET(name, ...) PRESET_##name,
    PRESETS(PRESET) PRESET_COUNT
#undef PRESET
};

static const DistillLosses presets[PRESET_COUNT] = {
#define PRESET(name, p, a, h, m, c, t, attention, hidden, on)                            \
    {p, a, h, m, c, 0, t, ATTENTION_##attention, HIDDEN_##hidden, COSINE_##on},
    PRESETS(PRESET)
#undef PRESET
};

#define NAME(name, ...) "|" #name

/* Help: what an option is in each preset, ", name value". */
#define SAY(name, value)                                 ", " #name " " #value
#define SAY_PREDICTION(n, p, a, h, m, c, t, fa, fh, on)  SAY(n, p)
#define SAY_ATTENTION(n, p, a, h, m, c, t, fa, fh, on)   SAY(n, a)
#define SAY_HIDDEN(n, p, a, h, m, c, t, fa, fh, on)      SAY(n, h)
#define SAY_MASKED_LM(n, p, a, h, m, c, t, fa, fh, on)   SAY(n, m)
#define SAY_COSINE(n, p, a, h, m, c, t, fa, fh, on)      SAY(n, c)
#define SAY_TEMPERATURE(n, p, a, h, m, c, t, fa, fh, on) SAY(n, t)
#define SAY_FORM_A(n, p, a, h, m, c, t, fa, fh, on)      SAY(n, fa)
#define SAY_FORM_H(n, p, a, h, m, c, t, fa, fh, on)      SAY(n, fh)
#define SAY_ON(n, p, a, h, m, c, t, fa, fh, on)          SAY(n, on)
#define BY_PRESET(say)                                   " by preset" PRESETS(say)

typedef enum Gradient { GRADIENT_EQUILIBRIUM, GRADIENT_SUM } Gradient;

#define D DistillOptions
static const Field fields[] = {
    {.name = "data",
     .kind = FIELD_STRING,
     .offset = FIELD_AT(D, data, const char *),
     .required = true,
     .help = "data set to train on"},
    F_STRING(D, teacher,
             "model file or folder of the teacher, or snapshot:NAME; not given: the "
             "recipe's input model",
             .nullable = true),
    F_CHOICE(D, preset, &PRESETS(NAME)[1], /* without the first | */
             "method whose weights, temperature and forms hold where none are given"),
    F_REAL(D, prediction, 0, 1e6,
           "weight of the soft cross-entropy of predictions; not given:" BY_PRESET(
               SAY_PREDICTION)),
    F_REAL(D, attention, 0, 1e6,
           "weight of the attention loss; not given:" BY_PRESET(SAY_ATTENTION)),
    F_REAL(D, hidden, 0, 1e6,
           "weight of the hidden loss; not given:" BY_PRESET(SAY_HIDDEN)),
    F_REAL(
        D, masked_lm, 0, 1e6,
        "weight of the cross-entropy against masked tokens; not given:" BY_PRESET(
            SAY_MASKED_LM) ", as label weight for models that do not predict masked tokens"),
    F_REAL(D, cosine, 0, 1e6,
           "weight of 1 - cosine of last states; not given:" BY_PRESET(SAY_COSINE)),
    F_REAL(D, embedding, 0, 1e6,
           "weight of the loss on embeddings; not given: that of predictions for models "
           "that embed, else 0"),
    F_CHOICE(D, embedding_form, "cosine|squared",
             "1 - cosine, or squared difference; through a learned projection where the "
             "teacher's width is another one"),
    F_REAL(D, similarity, 0, 1e6,
           "weight of the squared difference of the cosines between the embeddings of a "
           "mini-batch; any widths"),
    F_REAL(
        D, label, 0, 1e6,
        "weight of the loss against the data's labels; not given: 0, but see masked_lm"),
    F_REAL(D, temperature, 0.01, 1000,
           "temperature of predictions; not given:" BY_PRESET(SAY_TEMPERATURE)),
    F_CHOICE(D, exits, OBJECTIVE_EXITS,
             "exits that the prediction and label losses are about, summed over them"),
    F_CHOICE(D, gradient, "equilibrium|sum",
             "several exits: a layer gets the mean, or the sum, of their gradients"),
    F_BOOL(D, kl, "prediction: report KL divergence, less the teacher's entropy"),
    F_REAL(D, label_smoothing, 0, 0.99, "smoothing of the label loss"),
    F_CHOICE(D, attention_form, "preset|relation|map|match|output",
             "cross-entropy of relations, squared difference of scores, rows of linear "
             "attention against the teacher's softmax, or error of its output relative "
             "to the teacher's;" BY_PRESET(SAY_FORM_A)),
    F_CHOICE(D, match_on, "teacher|student",
             "forms match and output: linear attention reads the teacher's queries, keys "
             "and values, so that nothing else is trained, or the student's own"),
    F_INT(D, restore_softmax, 0, 100000,
          "forms match and output: so many of the matched layers, those that lose most, "
          "get softmax attention back"),
    F_CHOICE(D, hidden_form, "preset|relation|gram|state",
             "cross-entropy of relations of MLP outputs, squared difference of their "
             "Gram matrices, or of the layers' outputs;" BY_PRESET(SAY_FORM_H)),
    F_REAL(D, gram_weight, 0, 1e6, "factor of the gram form"),
    F_CHOICE(
        D, over_layers, "sum|mean",
        "forms map, match, output and state: over the matched layers; the others are means"),
    F_BOOL(D, embeddings, "form state: match what the first layers read as well"),
    F_CHOICE(D, cosine_on, "preset|hidden|probabilities",
             "what the cosine is of;" BY_PRESET(SAY_ON)),
    F_CHOICE(D, match, "even|ends|every|origin",
             "the teacher's layer for a layer of the student: at the same share of the "
             "depth, evenly with both ends, every n-th, or the one that stems from the "
             "same layer"),
    F_INT(D, every, 0, 100000, "match every: n; 0 = the ratio of the depths"),
    F_INTS(D, student_layers, 0, 100000, "layers of the student to match; empty: all"),
    F_INTS(D, teacher_layers, 0, 100000,
           "layers of the teacher they are matched with; empty: by `match`"),
    F_STRINGS(D, pairs,
              "places that are matched in place of all that: \"encoder.0=encoder.1\", "
              "the student's first"),
    DEV_FIELDS(METRIC_NAMES),
    PRIOR_FIELDS,
    TRAIN_FIELDS,
    TRAIN_PRECISION_FIELD,
    TRAIN_MEMORY_FIELDS,
    LOW_RANK_FIELDS,
    F_END,
};

static const D defaults = {.train = TRAIN_DEFAULTS,
                           .preset = PRESET_minivit,
                           .prediction = -1,
                           .attention = -1,
                           .hidden = -1,
                           .masked_lm = -1,
                           .cosine = -1,
                           .label = -1,
                           .embedding = -1,
                           .gram_weight = 49,
                           .embeddings = true};

/* Takes a value that was given, that is, not below 0. */
static void take(double *into, double given) {
    if (given >= 0) *into = given;
}

static DistillLosses resolve(const D *options) {
    DistillLosses losses = presets[options->preset];
    take(&losses.prediction, options->prediction);
    take(&losses.attention, options->attention);
    take(&losses.hidden, options->hidden);
    take(&losses.masked_lm, options->masked_lm);
    take(&losses.cosine, options->cosine);
    take(&losses.label, options->label);
    take(&losses.embedding, options->embedding);
    losses.similarity = options->similarity;
    losses.embedding_form = options->embedding_form;
    if (options->temperature > 0) losses.temperature = options->temperature;
    if (options->attention_form) losses.attention_form = options->attention_form;
    if (options->hidden_form) losses.hidden_form = options->hidden_form;
    if (options->cosine_on) losses.cosine_on = options->cosine_on;
    return losses;
}

/* A preset's masked-LM weight is that of labels in a model that predicts something else:
 * classes or next tokens. */
static Status label_masked_tokens(Distill *d, Diag *diag) {
    DistillLosses *losses = &d->losses;
    if (d->masked && losses->label > 0)
        return step_fail_option(
            d->objective.ctx, "label", diag,
            "expected masked_lm in place of label: the model predicts "
            "masked tokens");
    if (d->masked || losses->masked_lm == 0) return STATUS_OK;
    if (d->options->masked_lm > 0)
        return step_fail_option(
            d->objective.ctx, "masked_lm", diag,
            "expected label in place of masked_lm: the model does not "
            "predict masked tokens");
    if (d->options->label < 0) losses->label = losses->masked_lm;
    losses->masked_lm = 0;
    return STATUS_OK;
}

/* A preset's weight of predictions is that of the embedding in a model that embeds, which
 * has nothing else to predict. */
static Status embed_predictions(Distill *d, Diag *diag) {
    DistillLosses *losses = &d->losses;
    const D *options = d->options;
    if (!objective_embedding(d->objective.graph)) return STATUS_OK;
    if (options->prediction > 0)
        return step_fail_option(d->objective.ctx, "prediction", diag,
                                "expected embedding in place of prediction: the model "
                                "embeds");
    if (options->masked_lm > 0)
        return step_fail_option(d->objective.ctx, "masked_lm", diag,
                                "expected label in place of masked_lm: the model embeds");
    if (options->embedding < 0) losses->embedding = losses->prediction;
    losses->prediction = losses->masked_lm = 0;
    if (losses->label == 0) return STATUS_OK;
    return objective_find_pairs(&d->objective, options->data, CONTRASTIVE_SCALE, false,
                                diag);
}

/* Imports the teacher; heads that predict tokens see the masked ones alone. A head of the
 * teacher that is not compared is let be: it need not predict tokens. */
static Status add_teacher(Distill *d, Diag *diag) {
    Objective *o = &d->objective;
    Model *teacher = NULL;
    const bool both = distill_compares_predictions(d);
    TRY(step_teacher(o->ctx, d->options->teacher, &teacher, diag));
    if (d->masked && !both && d->losses.masked_lm > 0)
        TRY(objective_mask_tokens(o, diag));
    TRY(objective_add_teacher(o, teacher, diag));
    d->teacher = teacher;
    if (both) TRY(distill_check_predictions(d, diag));
    TRY(step_check_teacher(o->ctx, d->options->teacher, teacher, d->options->data, both,
                           diag));
    if (!both) return STATUS_OK;
    return d->masked ? objective_mask_tokens(o, diag) : STATUS_OK;
}

/* Layers that cannot be compared: what a preset alone wants of them is left out. */
static Status leave_layers_out(Distill *d, Diag *diag) {
    PassContext *ctx = d->objective.ctx;
    const D *options = d->options;
    if (options->attention > 0 || options->attention_form || options->hidden > 0 ||
        options->hidden_form)
        return step_fail(ctx, diag, "no attention and hidden losses are possible: %s",
                         d->apart);
    tree_put_string(ctx->arena, ctx->record, "left_out",
                    arena_printf(ctx->arena, "attention, hidden: %s", d->apart));
    if (!ctx->plan)
        diag_warn(diag, ctx->source.at, ctx->source.key,
                  "attention and hidden losses are left out: %s", d->apart);
    return STATUS_OK;
}

/* What was matched, "encoder.0=encoder.1", into the step's record. */
static void record_matches(const Distill *d) {
    PassContext *ctx = d->objective.ctx;
    Tree *list = tree_new(ctx->arena, TREE_LIST, LOC_NONE);
    for (int i = 0; i < d->match_count; i++) {
        const DistillMatch m = d->matches[i];
        Tree *item = tree_new(ctx->arena, TREE_STRING, LOC_NONE);
        item->string = arena_printf(ctx->arena, "%s.%d=%s.%d", m.student_stack, m.student,
                                    m.teacher_stack, m.teacher);
        tree_append(ctx->arena, list, NULL, LOC_NONE, item);
    }
    tree_append(ctx->arena, ctx->record, "matched", LOC_NONE, list);
}

/* Losses on matched layers. */
static Status add_layers(Distill *d, Diag *diag) {
    if (d->losses.attention + d->losses.hidden == 0) return STATUS_OK;
    if (d->apart) return leave_layers_out(d, diag);
    record_matches(d);
    TRY(distill_add_attention(d, diag));
    return distill_add_hidden(d, diag);
}

/* The weights that hold, by part, into the step's record. */
static void record_losses(Distill *d) {
    const Objective *o = &d->objective;
    PassContext *ctx = o->ctx;
    Tree *weights = tree_new(ctx->arena, TREE_MAP, LOC_NONE);
    for (int i = 0; i < o->part_count; i++)
        tree_put_real(ctx->arena, weights, o->part_name[i], o->weight[i]);
    tree_append(ctx->arena, ctx->record, "weights", LOC_NONE, weights);
    if (d->losses.prediction > 0)
        tree_put_real(ctx->arena, ctx->record, "temperature", d->losses.temperature);
}

static Status build(Distill *d, Diag *diag) {
    Objective *o = &d->objective;
    const Graph *graph = o->model->graph;
    d->masked = objective_predicts_tokens(graph) && !objective_predicts_next(graph);
    TRY(embed_predictions(d, diag));
    TRY(label_masked_tokens(d, diag));
    TRY(add_teacher(d, diag));
    TRY(distill_match(d, diag));
    /* Equilibrium is about the losses of exits; without any there is nothing to balance.
     */
    if (d->options->gradient == GRADIENT_EQUILIBRIUM &&
        d->losses.prediction + d->losses.label > 0)
        TRY(objective_balance(o, (ObjectiveExits)d->options->exits, diag));
    TRY(distill_add_prediction(d, diag));
    TRY(add_layers(d, diag));
    TRY(distill_add_cosine(d, diag));
    TRY(distill_add_embedding(d, diag));
    TRY(distill_add_labels(d, diag));
    if (!o->part_count && !d->apart)
        return step_fail(o->ctx, diag, "nothing to train on: every loss has weight 0");
    if (!o->part_count)
        return step_fail(o->ctx, diag,
                         "nothing to train on but losses that are not possible: %s",
                         d->apart);
    record_losses(d);
    return STATUS_OK;
}

static Status distill_run(PassContext *ctx, Model *model, const void *opaque,
                          Diag *diag) {
    Distill d = {.options = opaque, .losses = resolve(opaque)};
    TRY(objective_begin(&d.objective, ctx, model, diag));
    Status status = build(&d, diag);
    if (status == STATUS_OK)
        status = objective_train(&d.objective, d.options->data, &d.options->train, diag);
    if (status == STATUS_OK) status = distill_restore(&d, diag);
    objective_end(&d.objective);
    return status;
}

/* The form of a loss is told in vain when nothing gives the loss a weight. A weight of 0
 * that is given is fine: it switches the loss off. */
static Status check_form(const char *form, bool told, const char *loss, double own,
                         double weight, const StepSource *source, Diag *diag) {
    if (!told || own >= 0 || weight > 0) return STATUS_OK;
    option_fail(source, form, STATUS_RECIPE, diag,
                "expected a weight for the %s loss beside %s: by preset it is 0", loss,
                form);
    diag_hint(diag, "add `%s: 1`, or leave %s out", loss, form);
    return STATUS_RECIPE;
}

/* Pairs stand alone and can be read; `every` has its rule. */
static Status check_matching(const D *options, const StepSource *source, Diag *diag) {
    const bool rule = options->match != MATCH_EVEN;
    if (options->every && options->match != MATCH_EVERY)
        return option_fail(source, "every", STATUS_RECIPE, diag,
                           "expected match: every beside it");
    if (rule && options->teacher_layers.count)
        return option_fail(source, "teacher_layers|match", STATUS_RECIPE, diag,
                           "expected teacher_layers or match, found both");
    if (options->pairs.count &&
        (rule || options->student_layers.count || options->teacher_layers.count))
        return option_fail(source, "pairs", STATUS_RECIPE, diag,
                           "expected pairs, or match, student_layers and teacher_layers, "
                           "found both");
    Status status = STATUS_OK;
    Arena *arena = arena_create();
    for (int i = 0; i < options->pairs.count && status == STATUS_OK; i++) {
        DistillMatch pair;
        if (!distill_read_pair(&pair, arena, options->pairs.items[i]))
            status = option_fail(source, "pairs", STATUS_RECIPE, diag,
                                 "expected \"STACK.LAYER=STACK.LAYER\", the "
                                 "student's place and the teacher's, found \"%s\"",
                                 options->pairs.items[i]);
    }
    arena_destroy(arena);
    return status;
}

static Status distill_check(const void *opaque, const StepSource *source, Diag *diag) {
    const D *options = opaque;
    const DistillLosses l = resolve(options);
    TRY(objective_check(&options->train, source, diag));
    TRY(check_form("attention_form", options->attention_form > 0, "attention",
                   options->attention, l.attention, source, diag));
    TRY(check_form("hidden_form", options->hidden_form > 0, "hidden", options->hidden,
                   l.hidden, source, diag));
    TRY(check_form("cosine_on", options->cosine_on > 0, "cosine", options->cosine,
                   l.cosine, source, diag));
    if (options->embedding_form && options->embedding == 0)
        return option_fail(source, "embedding_form", STATUS_RECIPE, diag,
                           "expected a weight for the embedding loss beside it");
    TRY(check_form("label_smoothing", options->label_smoothing > 0, "label",
                   options->label, l.label + l.masked_lm, source, diag));
    TRY(check_matching(options, source, diag));
    if (options->match_on != MATCH_ON_TEACHER && l.attention_form != ATTENTION_match &&
        l.attention_form != ATTENTION_output)
        return option_fail(source, "match_on", STATUS_RECIPE, diag,
                           "expected attention_form: match or output beside match_on: "
                           "student");
    const bool linear = l.attention > 0 && (l.attention_form == ATTENTION_match ||
                                            l.attention_form == ATTENTION_output);
    if (options->restore_softmax > 0 && !linear)
        return option_fail(source, "restore_softmax", STATUS_RECIPE, diag,
                           "expected attention_form: match or output, which say what a "
                           "layer loses");
    if (l.prediction + l.attention + l.hidden + l.masked_lm + l.cosine + l.label +
            l.embedding + l.similarity >
        0)
        return STATUS_OK;
    return option_fail(source, NULL, STATUS_RECIPE, diag,
                       "expected at least one loss with a weight above 0, found none");
}

/* What is compared within layers must be there. */
static void distill_effects(const void *opaque, PassEffects *effects) {
    const DistillLosses losses = resolve(opaque);
    if (((const D *)opaque)->restore_softmax > 0)
        effects->gives |= MODEL_SOFTMAX_ATTENTION;
    const bool relations =
        losses.attention > 0 && losses.attention_form == ATTENTION_relation;
    if (!relations) effects->needs &= ~(unsigned)MODEL_EQUAL_WIDTHS;
    if (losses.attention == 0) effects->needs &= ~(unsigned)MODEL_WHOLE_LAYERS;
}

const Pass pass_distill = {
    .name = "distill",
    .summary =
        "train the model to follow a teacher: predictions of all exits, attention, "
        "hidden states, masked tokens, embeddings",
    .paper =
        "MiniViT (CVPR 2022), section 3.3; DistilBERT (2019); COST-EFF (EMNLP 2022), "
        "section 3.4; TinyBERT (2020)",
    .fields = fields,
    .options_size = sizeof(D),
    .defaults = &defaults,
    .data_options = "data|dev",
    .flags = PASS_TRAINS,
    .exactness = PASS_LOSSY,
    .effects = {.needs = MODEL_WHOLE_LAYERS | MODEL_EQUAL_WIDTHS},
    .effects_of = distill_effects,
    .check = distill_check,
    .run = distill_run,
};
