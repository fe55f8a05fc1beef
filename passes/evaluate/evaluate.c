/* evaluate: how well a model does on labelled data, optionally as a gate. */
#include "passes/evaluate/evaluation.h"

#include "exec/run/ticker.h"
#include "passes/training/objective.h"

#include <math.h>
#include <string.h>

static const Field fields[] = {
    {.name = "data",
     .kind = FIELD_STRING,
     .offset = FIELD_AT(EvaluateOptions, data, const char *),
     .required = true,
     .help = "data set to evaluate on"},
    F_CHOICE(EvaluateOptions, metric, METRIC_NAMES,
             "what min and max are about; auto: the usual one of the model's task, "
             "accuracy of classes and words (docs/tasks.md names those of each task)"),
    F_REAL(EvaluateOptions, min, 0, 0, "the step fails when the metric is below this"),
    F_REAL(EvaluateOptions, max, 0, 0, "the step fails when the metric is above this"),
    F_REAL(EvaluateOptions, max_drop, 0, 1e9,
           "the step fails when the metric is worse than at an earlier evaluate step by "
           "more than this, in the metric's own units"),
    F_STRING(EvaluateOptions, against,
             "max_drop: label of that step; not given: the first evaluate step on the "
             "same data",
             .nullable = true),
    F_INT(EvaluateOptions, limit, 0, 1000000000000, "first samples only; 0 = all"),
    F_INT(
        EvaluateOptions, batch_size, 1, 1000000,
        "samples per run; fewer where their logits over all tokens would take more than "
        "64 MiB"),
    F_CHOICE(EvaluateOptions, exits, EVALUATE_EXITS,
             "rule: leave early by a rule; each: every exit; last: run to the end; auto: "
             "by the model's stored rule, else last"),
    F_REAL(EvaluateOptions, entropy, 0, 100,
           "leave where the prediction's entropy in nats is below this; 0 = not given"),
    F_INT(EvaluateOptions, patience, 0, 1000000,
          "leave when so many exits in a row agreed with the one before; 0 = not given"),
    F_CHOICE(EvaluateOptions, thresholds, "stored|half|choose",
             "several labels: from which probability on a label is there: as the model "
             "keeps it, else 0.5; 0.5; or as the best F1 of each label on this data asks "
             "for, which the model then keeps"),
    F_CHOICE(EvaluateOptions, entities, "default|strict",
             "words with labels: which entities count, as conlleval has it, or those "
             "alone that begin and end as their tags must"),
    F_INT(EvaluateOptions, draws, 0, 100000,
          "average the predictions of so many weights drawn from their Gaussians; 0 = "
          "the weights themselves"),
    F_TREE(
        EvaluateOptions, decode, "map",
        "translate, and report bleu: a map with search (beam or lookahead), beam (4), "
        "max_length (64), length_penalty (1), early_stopping (false), tokenize (13a or "
        "none), smooth (exp, floor or none)",
        .nullable = true),
    F_STRING(EvaluateOptions, teacher,
             "models that embed: a model file, folder or snapshot:NAME whose embeddings "
             "theirs are compared with (cosine, spearman)",
             .nullable = true),
    F_STRING(EvaluateOptions, fit,
             "models that embed: data set from which nearest neighbours and a linear "
             "classifier learn the classes of `data` by the embeddings",
             .nullable = true),
    F_INT(EvaluateOptions, neighbours, 1, 100000, "fit: nearest neighbours that vote"),
    F_REAL(EvaluateOptions, temperature, 0.001, 1000,
           "fit: a neighbour's vote is exp(cosine / temperature)"),
    F_REAL(EvaluateOptions, l2, 0, 1e6,
           "fit: weight of half the squared weights of the linear classifier"),
    F_END,
};

const EvaluateOptions evaluate_defaults = {.min = -INFINITY,
                                           .max = INFINITY,
                                           .max_drop = -1,
                                           .batch_size = 32,
                                           .neighbours = 20,
                                           .temperature = 0.07,
                                           .l2 = 1e-4};

/* ---- options ---- */

static bool has_rule(const EvaluateOptions *options) {
    return options->entropy > 0 || options->patience > 0;
}

static bool of_tokens(int metric) {
    return metric == METRIC_PERPLEXITY || metric == METRIC_BITS || metric == METRIC_BLEU;
}

/* Name of a metric, `length` bytes long. */
static const char *metric_name(int metric, int *length) {
    return field_choice_name(field_find(fields, "metric"), metric, length);
}

static Status evaluate_check(const void *opaque, const StepSource *source, Diag *diag) {
    int length;
    const EvaluateOptions *o = opaque;
    const char *metric = metric_name(o->metric, &length);
    const bool exits = o->exits == EVALUATE_RULE || o->exits == EVALUATE_EACH;
    if (!(o->min <= o->max))
        return option_fail(source, "min|max", STATUS_RECIPE, diag,
                           "expected min <= max, found min %g and max %g", o->min,
                           o->max);
    if (o->against && o->max_drop < 0)
        return option_fail(source, "against", STATUS_RECIPE, diag,
                           "expected max_drop with it");
    if (o->teacher && o->fit)
        return option_fail(source, "teacher|fit", STATUS_RECIPE, diag,
                           "expected teacher or fit, found both");
    if (o->entropy > 0 && o->patience > 0)
        return option_fail(source, "entropy|patience", STATUS_RECIPE, diag,
                           "expected entropy or patience, found both");
    if (has_rule(o) && o->exits != EVALUATE_AUTO && o->exits != EVALUATE_RULE)
        return option_fail(source, "exits", STATUS_RECIPE, diag,
                           "expected exits: rule with entropy or patience, found %s",
                           o->exits == EVALUATE_EACH ? "each" : "last");
    if (o->draws > 0 && (exits || has_rule(o)))
        return option_fail(source, "draws", STATUS_RECIPE, diag,
                           "evaluated at the last exit alone: expected exits: last, "
                           "without entropy and patience");
    if (o->draws > 0 && (o->decode || o->metric == METRIC_BLEU))
        return option_fail(source, "draws", STATUS_RECIPE, diag,
                           "expected no decode and no bleu");
    DecodeKeys keys;
    Arena *arena = arena_create();
    const Status status = evaluate_decode_keys(&keys, o->decode, arena, diag);
    arena_destroy(arena);
    TRY(status);
    if (of_tokens(o->metric) && (exits || has_rule(o)))
        return option_fail(source, "metric", STATUS_RECIPE, diag,
                           "%.*s is for models that predict tokens, exits are for models "
                           "that predict classes",
                           length, metric);
    return STATUS_OK;
}

/* ---- what to do with this model ---- */

/* Options of one task alone. */
static Status check_of_task(const Evaluation *e, Diag *diag) {
    const EvaluateOptions *o = e->options;
    const Task task = graph_task(e->model->graph);
    const struct {
        const char *names;
        bool given;
        Task task;
    } rows[] = {{"teacher|fit", o->teacher || o->fit, TASK_EMBED},
                {"thresholds", o->thresholds != THRESHOLDS_STORED, TASK_MULTI_LABEL},
                {"entities", o->entities != ENTITIES_DEFAULT, TASK_LABEL_TOKENS}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].given && task != rows[i].task)
            return step_fail_option(e->ctx, rows[i].names, diag,
                                    "expected a model of task %s, found task %s",
                                    task_name(rows[i].task), task_name(task));
    return STATUS_OK;
}

/* The output that the judge of the task compares. */
static Status check_output(const Evaluation *e, Diag *diag) {
    const char *name = e->judge->output;
    if (graph_output(e->model->graph, name)) return STATUS_OK;
    step_fail(e->ctx, diag, "expected an output \"%s\" of a model of task %s", name,
              task_name(e->judge->task));
    if (e->judge->task == TASK_EMBED)
        diag_hint(diag, "`model: {path: ..., pooling: mean}` gives an encoder one");
    return STATUS_MODEL;
}

static Status check_logits(Evaluation *e, Diag *diag) {
    const Task task = graph_task(e->model->graph);
    const EvaluateOptions *o = e->options;
    e->judge = judge_find(task);
    if (o->teacher) e->judge = &judge_follow;
    if (o->fit) e->judge = &judge_probe;
    if (e->judge) return check_output(e, diag);
    if (task != TASK_CLASSIFY && task != TASK_NONE && !task_predicts_tokens(task))
        return step_fail(
            e->ctx, diag,
            "expected a model of a task that can be evaluated, found task %s",
            task_name(task));
    const Node *logits = graph_output(e->model->graph, OUTPUT_LOGITS);
    const int rank = logits ? logits->type.rank : 0;
    e->classes = rank > 0 ? logits->type.dim[rank - 1] : 0;
    e->words = objective_predicts_tokens(e->model->graph);
    e->next = objective_predicts_next(e->model->graph);
    if ((rank == 2 || rank == 3) && e->classes >= 1) return STATUS_OK;
    return step_fail(e->ctx, diag,
                     "expected an output \"logits\" [N, classes] or [N, T, words]");
}

/* What tallies know of classes and of words. */
static const unsigned CLASS_METRICS = JUDGE_KNOWS(METRIC_ACCURACY) |
                                      JUDGE_KNOWS(METRIC_F1) | JUDGE_KNOWS(METRIC_MCC) |
                                      JUDGE_KNOWS(METRIC_LOSS);
static const unsigned WORD_METRICS =
    JUDGE_KNOWS(METRIC_ACCURACY) | JUDGE_KNOWS(METRIC_LOSS) |
    JUDGE_KNOWS(METRIC_PERPLEXITY) | JUDGE_KNOWS(METRIC_BITS) | JUDGE_KNOWS(METRIC_BLEU) |
    JUDGE_KNOWS(METRIC_EXACT_MATCH) | JUDGE_KNOWS(METRIC_CHOICE) |
    JUDGE_KNOWS(METRIC_CHOICE_NORMALIZED) | JUDGE_KNOWS(METRIC_ENDING);

/* Chooses the gate's metric, which must be one of the task's. */
static Status check_metric(Evaluation *e, Diag *diag) {
    int length;
    const unsigned known = e->judge   ? e->judge->metrics
                           : e->words ? WORD_METRICS
                                      : CLASS_METRICS;
    e->metric = (Metric)e->options->metric;
    if (e->metric == METRIC_AUTO)
        e->metric = e->judge ? e->judge->usual : METRIC_ACCURACY;
    if (known & JUDGE_KNOWS(e->metric)) return STATUS_OK;
    Text names = {0};
    for (int i = METRIC_AUTO + 1; i < METRIC_COUNT; i++) {
        const char *name = metric_name(i, &length);
        if (known & JUDGE_KNOWS(i))
            text_add(&names, "%s%.*s", names.length ? ", " : "", length, name);
    }
    const char *name = metric_name(e->metric, &length);
    step_fail_option(e->ctx, e->metric_option, diag,
                     "expected one that is known of a model of task %s (%s), found %.*s",
                     task_name(graph_task(e->model->graph)), names.data, length, name);
    text_free(&names);
    return STATUS_MODEL;
}

/* The options' rule, else the stored one. */
static Status choose_rule(Evaluation *e, Diag *diag) {
    const EvaluateOptions *o = e->options;
    const int early = e->exits.count - 1;
    Arena *arena = e->ctx->arena;
    if (o->patience > early)
        return step_fail_option(e->ctx, "patience", diag,
                                "expected at most %d, the exits before the last one, "
                                "found %lld",
                                early, (long long)o->patience);
    if (o->patience > 0)
        e->rule = (ExitRule){.criterion = EXIT_PATIENCE, .patience = o->patience};
    if (o->entropy > 0) {
        double *threshold = ARENA_ARRAY(arena, double, (size_t)e->exits.count);
        for (int i = 0; i < e->exits.count; i++) threshold[i] = o->entropy;
        e->rule = (ExitRule){.criterion = EXIT_ENTROPY, .threshold = threshold};
    }
    if (has_rule(o)) return STATUS_OK;
    return exits_read_rule(&e->rule, arena, e->ctx, e->model, &e->exits, diag);
}

static Status fail_exits(const Evaluation *e, const char *what, const char *hint,
                         Diag *diag) {
    const Status status =
        step_fail_option(e->ctx, "exits|entropy|patience", diag, "%s", what);
    diag_hint(diag, "%s", hint);
    return status;
}

/* The model's exits; early ones must be among them where they are `wanted`. */
static Status find_exits(Evaluation *e, bool wanted, Diag *diag) {
    TRY(exits_find(&e->exits, e->ctx->arena, e->ctx, e->model->graph, diag));
    if (e->exits.count > 1 || !wanted) return STATUS_OK;
    return fail_exits(e, "the model has no early exits",
                      "add_exits gives a classifier exits", diag);
}

/* Exits, mode and rule of a model that predicts classes. */
static Status choose_exits(Evaluation *e, Diag *diag) {
    const EvaluateOptions *o = e->options;
    const bool wanted = has_rule(o) || o->exits == EVALUATE_RULE;
    TRY(find_exits(e, wanted || o->exits == EVALUATE_EACH, diag));
    e->mode = wanted ? EVALUATE_RULE : o->exits;
    if (e->exits.count == 1) e->mode = EVALUATE_LAST;
    if (e->mode == EVALUATE_RULE || e->mode == EVALUATE_AUTO) TRY(choose_rule(e, diag));
    const bool ruled = e->rule.criterion != EXIT_NEVER;
    if (e->mode == EVALUATE_AUTO) e->mode = ruled ? EVALUATE_RULE : EVALUATE_LAST;
    if (!e->ctx->plan && e->mode == EVALUATE_RULE && !has_rule(o))
        e->stale = exits_warn_stale(e->ctx, e->model, diag);
    if (e->mode != EVALUATE_RULE || ruled) return STATUS_OK;
    return fail_exits(e, "the model has no stored rule for leaving at its exits",
                      "give entropy or patience, or let calibrate_exits find a rule",
                      diag);
}

/* Drawn weights, of a model that predicts classes. */
static Status choose_draws(Evaluation *e, Diag *diag) {
    e->mode = EVALUATE_LAST;
    if (e->words)
        return step_fail_option(
            e->ctx, "draws", diag,
            "they are for models that predict classes, this one predicts "
            "tokens");
    if (graph_gaussian_count(e->model->graph) > 0) return STATUS_OK;
    Status status = step_fail_option(e->ctx, "draws", diag,
                                     "no weights have a Gaussian to draw from");
    diag_hint(diag, "estimate_posterior, or finetune with objective: variational, comes "
                    "before");
    return status;
}

/* Exits of a judged model; and what is for tallies alone: leaving by a rule, draws,
 * translations. */
static Status check_judged(Evaluation *e, Diag *diag) {
    const EvaluateOptions *o = e->options;
    const bool each = o->exits == EVALUATE_EACH;
    if (o->exits == EVALUATE_RULE || (each && !e->judge->exits) || has_rule(o) ||
        o->draws > 0 || o->decode)
        return step_fail_option(e->ctx, "exits|entropy|patience|draws|decode", diag,
                                "expected none for a model of task %s",
                                task_name(e->judge->task));
    e->mode = each ? EVALUATE_EACH : EVALUATE_LAST;
    return each ? find_exits(e, true, diag) : STATUS_OK;
}

static Status choose_mode(Evaluation *e, Diag *diag) {
    TRY(check_of_task(e, diag));
    TRY(check_logits(e, diag));
    TRY(check_metric(e, diag));
    if (e->judge) return check_judged(e, diag);
    if (e->options->draws > 0) return choose_draws(e, diag);
    e->mode = EVALUATE_LAST;
    if (!e->words)
        TRY(choose_exits(e, diag));
    else if (has_rule(e->options) || e->options->exits == EVALUATE_RULE ||
             e->options->exits == EVALUATE_EACH)
        return step_fail_option(e->ctx, "exits|entropy|patience", diag,
                                "exits are for models that predict classes, this one "
                                "predicts tokens");
    e->translate = e->options->decode || e->options->metric == METRIC_BLEU;
    return e->translate ? evaluate_check_translation(e, diag) : STATUS_OK;
}

/* ---- data ---- */

/* Labels are one integer for each sample, masked position or token. */
static Status find_labels(Evaluation *e, const char *column, Diag *diag) {
    const char *each = e->next ? "token" : e->words ? "masked position" : "sample";
    e->labels = batches_column(e->data, column);
    if (e->labels < 0 && (!e->words || e->next))
        return step_fail(e->ctx, diag, "data set \"%s\" has no labels", e->options->data);
    if (e->labels < 0) {
        Status status =
            step_fail(e->ctx, diag, "data set \"%s\" masks no tokens", e->options->data);
        diag_hint(diag, "the model predicts tokens; a masking data set has a column %s",
                  column);
        return status;
    }
    const Type *type = &e->data->columns[e->labels].type;
    if (type->dtype == DTYPE_I32 && type->rank == e->words) return STATUS_OK;
    Status status =
        step_fail(e->ctx, diag, "data set \"%s\": expected %s of one integer for each %s",
                  e->options->data, column, each);
    if (e->next)
        diag_hint(diag, "the model predicts the next token: data sets of format language "
                        "and translation have such labels");
    return status;
}

static Status open_data(Evaluation *e, Diag *diag) {
    PassContext *ctx = e->ctx;
    const char *name = e->options->data;
    const char *column = e->judge               ? NULL
                         : e->words && !e->next ? "masked_labels"
                                                : DATA_LABELS;
    Node *logits =
        graph_output(e->model->graph, e->judge ? e->judge->output : OUTPUT_LOGITS);
    const Type *type = &logits->type;
    TRY(step_data(ctx, name,
                  &(DataUse){.graph = e->model->graph,
                             .roots = &logits,
                             .root_count = 1,
                             .option = e->data_option,
                             .labels = column,
                             .classes = type->dim[type->rank - 1],
                             .batch = e->options->batch_size},
                  &e->data, diag));
    if (!e->data) return STATUS_OK;
    if (!e->judge) TRY(find_labels(e, column, diag));
    if (e->data->count == 0)
        return step_fail(ctx, diag, "data set \"%s\" has no samples", name);
    if (e->metric != METRIC_BITS || e->data->label_characters > 0) return STATUS_OK;
    Status status = step_fail(
        ctx, diag, "data set \"%s\" does not know its number of characters", name);
    diag_hint(diag, "bits_per_character is for data sets of format language");
    return status;
}

/* ---- results ---- */

/* The value of the gate's metric. */
static double gate_value(const Evaluation *e) {
    if (e->judge) return e->judge->metric(e->judged, e->metric);
    switch (e->metric) {
    case METRIC_BLEU: return e->bleu;
    case METRIC_EXACT_MATCH: return e->exact_match;
    case METRIC_CHOICE: return e->choice[0];
    case METRIC_CHOICE_NORMALIZED: return e->choice[1];
    case METRIC_ENDING: return e->ending_perplexity;
    default: return tally_metric(&e->total, e->metric);
    }
}

static bool is_gate(const EvaluateOptions *o) {
    return isfinite(o->min) || isfinite(o->max) || o->max_drop >= 0;
}

/* A bound of 0.8 where percent are meant, or one that no model reaches. */
static void warn_scale(const Evaluation *e, Diag *diag) {
    const double bound[] = {e->options->min, e->options->max};
    static const char *const OPTION[] = {"min", "max"};
    const bool to_100 = METRICS_TO_100 & 1u << e->metric;
    const double most = to_100 ? 100 : METRICS_TO_1 & 1u << e->metric ? 1 : INFINITY;
    for (int i = 0; i < 2; i++)
        if (to_100 && bound[i] > 0 && bound[i] < 1)
            option_warn(
                &e->ctx->source, OPTION[i], diag,
                "%s is from 0 to 100: %g is less than one in a hundred (did you mean "
                "%g?)",
                e->metric_name, bound[i], 100 * bound[i]);
    if (isfinite(bound[0]) && bound[0] > most)
        option_warn(&e->ctx->source, "min", diag,
                    "%s is at most %g: no model can reach %g", e->metric_name, most,
                    bound[0]);
}

static Status check_gate(Evaluation *e, Diag *diag) {
    const EvaluateOptions *options = e->options;
    const double value = e->value;
    if (options->max_drop >= 0) TRY(evaluate_check_drop(e, e->metric_name, value, diag));
    if (value >= options->min && value <= options->max) return STATUS_OK;
    const bool below = isnan(value) ? isfinite(options->min) : value < options->min;
    const GateFault fault = {.metric = e->metric_name,
                             .bound = below ? "min" : "max",
                             .expected = below ? options->min : options->max,
                             .found = value};
    return step_fail_gate(e->ctx, &fault, diag);
}

/* Evaluates; when planning checks the data, which only the ways to do it know. */
static Status run_ways(Evaluation *e, Diag *diag) {
    const bool plan = e->ctx->plan;
    if (e->judge)
        TRY(evaluate_judged(e, diag));
    else if (e->options->draws > 0)
        TRY(plan ? STATUS_OK : evaluate_draws(e, diag));
    else if (e->words)
        TRY(evaluate_words(e, diag));
    else if (!plan)
        TRY(e->mode == EVALUATE_EACH ? evaluate_each(e, diag)
                                     : evaluate_dynamic(e, diag));
    return e->translate ? evaluate_translations(e, diag) : STATUS_OK;
}

static void name_metric(Evaluation *e) {
    int length;
    const char *name = metric_name((int)e->metric, &length);
    e->metric_name = arena_strndup(e->ctx->arena, name, (size_t)length);
}

Status evaluation_run(Evaluation *e, Diag *diag) {
    PassContext *ctx = e->ctx;
    TRY(choose_mode(e, diag));
    name_metric(e);
    TRY(evaluate_find_against(e, e->metric_name, diag));
    TRY(open_data(e, diag));
    if (ctx->plan && !e->data) return STATUS_OK;
    if (!ctx->plan) {
        tally_open(&e->total, ctx->arena, e->classes, e->words);
        if (e->next) e->total.characters = e->data->label_characters;
        tree_put_string(ctx->arena, ctx->record, "data", e->options->data);
        e->start = ticker_seconds();
    }
    TRY(run_ways(e, diag));
    name_metric(e); /* a judge may have chosen by the data */
    if (!ctx->plan) e->value = gate_value(e);
    return STATUS_OK;
}

static Status evaluate_run(PassContext *ctx, Model *model, const void *opaque,
                           Diag *diag) {
    Evaluation e = {.ctx = ctx,
                    .model = model,
                    .options = opaque,
                    .data_option = "data",
                    .metric_option = "metric"};
    TRY(evaluation_run(&e, diag));
    warn_scale(&e, diag);
    if (ctx->plan) return STATUS_OK;
    if (is_gate(opaque)) tree_put_string(ctx->arena, ctx->record, "gated", e.metric_name);
    return check_gate(&e, diag);
}

const Pass pass_evaluate = {
    .name = "evaluate",
    .summary =
        "measure a model on a data set, exits included; min, max and max_drop make "
        "it a gate",
    .paper = "exits: DeeBERT (ACL 2020), PABEE (NeurIPS 2020)",
    .fields = fields,
    .options_size = sizeof(EvaluateOptions),
    .defaults = &evaluate_defaults,
    .data_options = "data|fit",
    .flags = PASS_MEASURES,
    .exactness = PASS_EXACT,
    .check = evaluate_check,
    .run = evaluate_run,
};
