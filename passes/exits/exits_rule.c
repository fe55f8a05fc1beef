/* The rule for leaving at exits, as it lies in a model's provenance:
 *
 *     exits: {criterion: entropy, thresholds: {exit.1: 0.3, exit.2: 0.3}, model: 3f...}
 *     exits: {criterion: patience, patience: 2, model: 3f...}
 *
 * `model` is the hash of the model that it was chosen for. */
#include "passes/exits/exits.h"

#include <math.h>
#include <string.h>

static const char *const criteria[] = {
    [EXIT_NEVER] = "never", [EXIT_ENTROPY] = "entropy", [EXIT_PATIENCE] = "patience"};

static Status fail_rule(PassContext *ctx, const char *what, Diag *diag) {
    Status status =
        edit_fail(ctx, diag, "the model's provenance does not fit it: %s", what);
    diag_hint(diag, "calibrate_exits stores the rule for leaving anew");
    return status;
}

static Status read_criterion(int *out, PassContext *ctx, const Tree *rule, Diag *diag) {
    const Tree *name = tree_get(rule, "criterion");
    const int count = sizeof criteria / sizeof *criteria;
    for (int i = 0; name && name->kind == TREE_STRING && i < count; i++)
        if (strcmp(name->string, criteria[i]) == 0) {
            *out = i;
            return STATUS_OK;
        }
    return fail_rule(
        ctx, "expected the criterion of \"exits\" to be one of " EXIT_CRITERION_NAMES,
        diag);
}

static Status read_threshold(double *out, PassContext *ctx, const Tree *thresholds,
                             const char *output, Diag *diag) {
    const Tree *value = tree_get(thresholds, output);
    if (value && value->kind == TREE_INT)
        *out = (double)value->integer;
    else if (value && value->kind == TREE_FLOAT)
        *out = value->real;
    else
        *out = NAN;
    if (isfinite(*out) && *out >= 0) return STATUS_OK;
    return fail_rule(
        ctx,
        arena_printf(ctx->arena, "expected a threshold of at least 0 for \"%s\"", output),
        diag);
}

static Status read_thresholds(ExitRule *rule, Arena *arena, PassContext *ctx,
                              const Tree *stored, const Exits *exits, Diag *diag) {
    const Tree *thresholds = tree_get(stored, "thresholds");
    double *threshold = ARENA_ARRAY(arena, double, (size_t)exits->count);
    for (int i = 0; i < exits->count - 1; i++)
        TRY(read_threshold(&threshold[i], ctx, thresholds, exits->items[i].output, diag));
    if (thresholds && thresholds->count != exits->count - 1)
        return fail_rule(ctx, "expected one threshold for each early exit", diag);
    rule->threshold = threshold;
    return STATUS_OK;
}

Status exits_read_rule(ExitRule *rule, Arena *arena, PassContext *ctx, const Model *model,
                       const Exits *exits, Diag *diag) {
    const Tree *stored = tree_get(model->provenance, "exits");
    *rule = (ExitRule){.criterion = EXIT_NEVER};
    if (!stored || stored->kind == TREE_NULL) return STATUS_OK;
    TRY(read_criterion(&rule->criterion, ctx, stored, diag));
    if (rule->criterion == EXIT_ENTROPY)
        return read_thresholds(rule, arena, ctx, stored, exits, diag);
    if (rule->criterion == EXIT_NEVER) return STATUS_OK;
    const Tree *patience = tree_get(stored, "patience");
    if (!patience || patience->kind != TREE_INT || patience->integer < 1)
        return fail_rule(ctx, "expected the patience of \"exits\" to be at least 1",
                         diag);
    rule->patience = patience->integer;
    return STATUS_OK;
}

bool exits_rule_is_stale(Model *model) {
    const Tree *of = tree_get(tree_get(model->provenance, "exits"), "model");
    char hash[HASH_TEXT_BYTES];
    if (!of || of->kind != TREE_STRING) return false;
    model_content_hash(model, hash);
    return strcmp(of->string, hash) != 0;
}

bool exits_warn_stale(PassContext *ctx, Model *model, Diag *diag) {
    const bool stale = exits_rule_is_stale(model);
    if (stale)
        diag_warn(diag, ctx->source.at, ctx->source.key,
                  "the stored rule for leaving at exits was calibrated before the "
                  "model's last change: calibrate again");
    return stale;
}

Status exits_store_rule(const ExitRule *rule, Model *model, const Exits *exits,
                        Diag *diag) {
    Arena *arena = model->arena;
    Tree *map = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_put_string(arena, map, "criterion", criteria[rule->criterion]);
    if (rule->criterion == EXIT_ENTROPY) {
        Tree *thresholds = tree_new(arena, TREE_MAP, LOC_NONE);
        for (int i = 0; i < exits->count - 1; i++)
            tree_put_real(arena, thresholds, exits->items[i].output, rule->threshold[i]);
        tree_append(arena, map, "thresholds", LOC_NONE, thresholds);
    }
    if (rule->criterion == EXIT_PATIENCE)
        tree_put_int(arena, map, "patience", rule->patience);
    char hash[HASH_TEXT_BYTES];
    model_content_hash(model, hash);
    tree_put_string(arena, map, "model", hash);
    return tree_set(arena, model->provenance, "exits", map, diag);
}
