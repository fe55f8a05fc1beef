/* evaluate: max_drop, the gate on how much worse a model has become. */
#include "passes/evaluate/evaluation.h"

#include <string.h>

#define OTHER_MEASURE "one with another `teacher` or `fit`, or with one of them alone"

static bool option_is(const Tree *step, const char *key, const char *value) {
    const Tree *option = tree_get_nonnull(tree_get(step, "options"), key);
    return value ? tree_is_string(option, value) : !option;
}

/* Whether an entry of the provenance is an evaluate step on the same data, */
static bool is_same_data(const Evaluation *e, const Tree *step) {
    return tree_is_string(tree_get(step, "pass"), "evaluate") &&
           option_is(step, "data", e->options->data);
}

/* and measures the same there: agreement with the same teacher, or features read by what
 * was fitted to the same data, or else labels. */
static bool is_same_measure(const Evaluation *e, const Tree *step) {
    return is_same_data(e, step) && option_is(step, "teacher", e->options->teacher) &&
           option_is(step, "fit", e->options->fit);
}

/* The first step of this run, among all that the model has been through. */
static const Tree *first_step(const Evaluation *e) {
    const Tree *steps = tree_get(e->model->provenance, "steps");
    if (!steps || steps->kind != TREE_LIST || steps->count < e->ctx->index) return NULL;
    const Tree *step = steps->first;
    for (int skip = steps->count - e->ctx->index; skip > 0; skip--) step = step->next;
    return step;
}

static Status fail_against(const Evaluation *e, const char *found, Diag *diag) {
    const char *wanted = e->options->against;
    const EvaluateOptions *o = e->options;
    const char *how = o->teacher ? " with the same `teacher`"
                      : o->fit   ? " with the same `fit`"
                                 : "";
    option_fail(&e->ctx->source, wanted ? "against" : "max_drop", STATUS_RECIPE, diag,
                "expected an earlier evaluate step on data set \"%s\"%s%s%s%s, found %s",
                o->data, how, wanted ? " with label \"" : "", wanted ? wanted : "",
                wanted ? "\"" : "", found);
    diag_hint(diag,
              "an evaluate step before the ones that change the model measures what "
              "it is worth then%s",
              wanted ? "; `label: NAME` beside it gives it a name" : "");
    return STATUS_RECIPE;
}

/* BLEU is compared with one of translations that were made and compared alike. */
static Status check_bleu(const Evaluation *e, const Tree *options, Diag *diag) {
    Arena *arena = e->ctx->arena;
    const Tree *decode = tree_get_nonnull(options, "decode");
    if (!decode && !tree_is_string(tree_get(options, "metric"), "bleu"))
        return fail_against(e, "one without bleu", diag);
    const char *there = evaluate_decode_text(decode, arena);
    const char *here = evaluate_decode_text(e->options->decode, arena);
    if (strcmp(there, here) == 0) return STATUS_OK;
    option_fail(&e->ctx->source, e->options->against ? "against" : "max_drop",
                STATUS_RECIPE, diag,
                "expected a bleu of the same `decode`, %s, found one of %s", here, there);
    diag_hint(diag, "give both steps the same `decode`, or name another with `against`");
    return STATUS_RECIPE;
}

Status evaluate_find_against(Evaluation *e, const char *metric, Diag *diag) {
    const EvaluateOptions *o = e->options;
    if (o->max_drop < 0) return STATUS_OK;
    const Tree *step = first_step(e);
    const char *others = "none";
    int index = 0;
    for (; step; step = step->next, index++) {
        if (is_same_data(e, step)) others = OTHER_MEASURE;
        if (o->against ? tree_is_string(tree_get(step, "label"), o->against)
                       : is_same_measure(e, step))
            break;
    }
    if (!step) return fail_against(e, o->against ? "none" : others, diag);
    if (!is_same_data(e, step))
        return fail_against(e, "one of another pass or data set", diag);
    if (!is_same_measure(e, step)) return fail_against(e, OTHER_MEASURE, diag);
    if (strcmp(metric, "bleu") == 0) TRY(check_bleu(e, tree_get(step, "options"), diag));
    step_uses_record(e->ctx, index);
    e->against = tree_get(step, "record");
    e->against_name = o->against ? arena_printf(e->ctx->arena, "\"%s\"", o->against)
                                 : arena_printf(e->ctx->arena, "step %d", index + 1);
    return STATUS_OK;
}

Status evaluate_check_drop(Evaluation *e, const char *metric, double value, Diag *diag) {
    double reference;
    Arena *arena = e->ctx->arena;
    if (!tree_number(tree_get(e->against, metric), &reference))
        return fail_against(
            e, arena_printf(arena, "%s, which has no %s", e->against_name, metric), diag);
    const bool loss = METRICS_OF_LOSS & JUDGE_KNOWS(e->metric);
    const double drop = loss ? value - reference : reference - value;
    tree_put_real(arena, e->ctx->record, "reference", reference);
    tree_put_real(arena, e->ctx->record, "drop", drop);
    if (drop <= e->options->max_drop) return STATUS_OK;
    const GateFault fault = {.metric = arena_printf(arena, "drop of %s", metric),
                             .bound = "max_drop",
                             .expected = e->options->max_drop,
                             .found = drop,
                             .detail = arena_printf(arena, ": %.4f at %s, %.4f here",
                                                    reference, e->against_name, value)};
    return step_fail_gate(e->ctx, &fault, diag);
}
