/* Passes within the step of another: see inner_step.h. */
#include "passes/pipeline/inner_step.h"

#include "passes/fault.h"
#include "passes/pipeline/pipeline_check.h"
#include "passes/pipeline/recipe.h"

/* The pass, where it may run within another's step. */
static Status find_pass(const Pass **out, PassContext *step, const char *name,
                        Diag *diag) {
    *out = pass_find(name);
    if (!*out)
        return pass_fail_unknown(name, STATUS_MODEL, step->source.at, step->source.key,
                                 diag);
    if ((*out)->origin)
        return step_fail(step, diag, "%s is a plug-in's: it is a step of its own", name);
    if ((*out)->flags & (PASS_TRAINS | PASS_MEASURES))
        return step_fail(step, diag, "%s %s: it is a step of its own", name,
                         (*out)->flags & PASS_TRAINS ? "trains" : "measures");
    return STATUS_OK;
}

/* What the step is told of a pass that ran in it. */
static void note_applied(PassContext *step, const PassContext *inner,
                         const void *options) {
    Arena *arena = step->arena;
    Tree *applied = tree_get(step->record, INNER_STEPS_KEY);
    if (!applied) applied = tree_put_list(arena, step->record, INNER_STEPS_KEY);
    Tree *entry = tree_add_map(arena, applied);
    tree_put_string(arena, entry, "pass", inner->pass->name);
    if (inner->pass->fields)
        tree_append(arena, entry, "options", LOC_NONE,
                    fields_to_tree(arena, inner->pass->fields, options));
    tree_append(arena, entry, "record", LOC_NONE, inner->record);
    step->guessed |= inner->guessed;
    step->unsure |= inner->unsure;
    if (inner->run_bytes > step->run_bytes) step->run_bytes = inner->run_bytes;
}

Status inner_step_fail(const PassContext *step, Status status, Diag *diag) {
    const Loc at = step->source.at;
    if (at.file && at.line > 0)
        diag_note(diag, "applied by %s, %s:%d:%d", step->source.key, at.file, at.line,
                  at.column);
    else
        diag_note(diag, "applied by %s", step->source.key);
    return status;
}

static Status run_bound(PassContext *step, Model *model, Step *bound, Diag *diag) {
    const char *name = bound->pass->name;
    TRY(step_bind(bound, bound->source.options, step->arena, diag));
    PassContext inner = *step;
    inner.pass = bound->pass;
    inner.source = bound->source;
    inner.record = tree_new(step->arena, TREE_MAP, LOC_NONE);
    inner.run_bytes = 0;
    TRY(check_fits(&inner, model, bound->options, diag));
    TRY(bound->pass->run(&inner, model, bound->options, diag));
    TRY(check_model(model, name, false, diag));
    note_applied(step, &inner, bound->options);
    return STATUS_OK;
}

Status inner_step_run(PassContext *step, Model *model, const char *name,
                      const Tree *options, Diag *diag) {
    Step bound = {.source = {.at = options ? options->loc : step->source.at,
                             .key = name,
                             .options = options}};
    TRY(find_pass(&bound.pass, step, name, diag));
    const Status status = run_bound(step, model, &bound, diag);
    return status == STATUS_OK ? status : inner_step_fail(step, status, diag);
}
