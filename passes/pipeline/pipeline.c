/* The pipeline: every step run, verified, measured, checked and recorded, or taken as it
 * was left before. */
#include "passes/pipeline/pipeline.h"

#include "exec/run/ticker.h"
#include "ir/irtext.h"
#include "ir/random.h"
#include "ir/storage.h"
#include "passes/fault.h"
#include "passes/guess.h"
#include "passes/pipeline/pipeline_check.h"
#include "passes/pipeline/snapshot.h"

#include <string.h>

/* What is known about a run. */
typedef struct Run {
    const PipelineOptions *options;
    const Recipe *recipe;
    Arena *arena;
    bool *changed;               /* of each step so far: it changed the model */
    bool guessed;                /* see PassContext.guessed */
    GuessedShape *guesses;       /* likewise */
    char hash[HASH_TEXT_BYTES];  /* of the model as the last step left it */
    char state[HASH_TEXT_BYTES]; /* its state, where there is a keeper */
    const StepKeeper *keeper;    /* NULL = nothing is kept */
} Run;

/* What is known about one step while it runs. */
typedef struct StepRun {
    Run *whole;
    const PipelineOptions *options;
    const Recipe *recipe;
    const Step *step;
    int index;
    Model *model;
    Model *before; /* copy of what the step got, NULL when none is kept */
    Text text;     /* IR before the step; empty unless needed */
    PassContext ctx;
    Measure measure;
    bool changed;
    double start; /* in seconds */
    int warnings; /* recorded before the step */
} StepRun;

/* Hands an IR text to the caller. */
static Status dump_text(const StepRun *run, const char *when, const Text *text,
                        Diag *diag) {
    const PipelineHooks *hooks = &run->options->hooks;
    if (!hooks->dump) return STATUS_OK;
    return hooks->dump(hooks->self, run->index, run->step->pass->name, when,
                       text->data ? text->data : "", text->length, diag);
}

/* The model's text as it is to be dumped. */
static void print_dump(Text *text, const StepRun *run) {
    graph_print_named(text, run->model->graph, run->options->dump_values);
}

static Status dump_model(const StepRun *run, const char *when, Diag *diag) {
    Text text = {0};
    print_dump(&text, run);
    Status status = dump_text(run, when, &text, diag);
    text_free(&text);
    return status;
}

/* Hash of what a step may change: with weights, or when planning of the IR text alone. */
static void hash_model(Model *model, bool plan, char out[HASH_TEXT_BYTES]) {
    if (!plan) {
        model_hash(model, out);
        return;
    }
    Text text = {0};
    graph_print(&text, model->graph);
    bytes_hash(text.data, text.length, out);
    text_free(&text);
}

uint64_t pipeline_step_seed(const Recipe *recipe, int index) {
    return random_key((uint64_t)recipe->seed, (uint64_t)index);
}

static void step_prepare(StepRun *run) {
    Arena *arena = run->whole->arena;
    const PipelineOptions *options = run->options;
    const Step *step = run->step;
    run->ctx = (PassContext){
        .pass = step->pass,
        .ops = run->model->graph->ops,
        .arena = arena,
        .plan = options->plan,
        .seed = pipeline_step_seed(run->recipe, run->index),
        .threads = options->threads,
        .index = run->index,
        .guessed = run->whole->guessed,
        .guesses = options->plan ? &run->whole->guesses : NULL,
        .source = step->source,
        .record = tree_new(arena, TREE_MAP, LOC_NONE),
        .times = tree_new(arena, TREE_MAP, LOC_NONE),
        .uses = tree_new(arena, TREE_LIST, LOC_NONE),
        .watch = options->watch,
        .keeper = options->train_keeper,
        .model = run->model,
        .resources = options->resources,
    };
    /* for the check of exactness, and for who is told of a failure; training writes all
     * weights, so that a copy would be as many bytes more */
    if (!(step->pass->flags & PASS_TRAINS) && !options->plan)
        run->before = model_copy(run->model);
    if (options->dump == DUMP_FAILURE) print_dump(&run->text, run);
}

/* Whether a repeated step may still change the model, or has done so: a slow range may
 * stand still in some rounds. */
static bool may_rest(const StepRun *run) {
    const Step *step = run->step;
    if (step->round < step->rounds) return true;
    for (int round = 1; round < step->round; round++)
        if (run->whole->changed[run->index - round * step->stride]) return true;
    return false;
}

/* Fails when a step that had to change the model did not. */
static Status check_changed(const StepRun *run, Diag *diag) {
    const Step *step = run->step;
    run->whole->changed[run->index] = run->changed;
    bool exempt =
        step->allow_unchanged || (step->pass->flags & PASS_MEASURES) ||
        (run->options->plan && (run->ctx.unsure || (step->pass->flags & PASS_TRAINS)));
    if (run->changed || exempt || may_rest(run)) return STATUS_OK;
    Status status = diag_fail(diag, STATUS_RECIPE, step->source.at, step->source.key,
                              "expected %s to change the model, it changed nothing%s",
                              step->pass->name, step->rounds ? " in any round" : "");
    diag_hint(diag, "add `allow_unchanged: true` beside the pass if that is fine");
    return status;
}

/* Posteriors follow their storages through a step, or are dropped with a message. A step
 * that was asked to drop them has recorded it itself. */
static void warn_dropped(StepRun *run, Diag *diag) {
    const char *first = NULL;
    PassContext *ctx = &run->ctx;
    const int dropped = graph_take_dropped(run->model->graph, &first);
    if (dropped == 0 || tree_get(ctx->record, "posteriors_dropped")) return;
    diag_warn(diag, ctx->source.at, ctx->source.key,
              "the posterior of %d of the weights is dropped, which this step changes "
              "otherwise than by cutting or averaging: first '%s'",
              dropped, first);
    tree_put_int(ctx->arena, ctx->record, "posteriors_dropped", dropped);
}

/* Everything that is checked after a step. */
static Status step_check(StepRun *run, Diag *diag) {
    const char *name = run->step->pass->name;
    warn_dropped(run, diag);
    TRY(check_model(run->model, name, false, diag));
    char hash[HASH_TEXT_BYTES];
    hash_model(run->model, run->options->plan, hash);
    run->changed = strcmp(hash, run->whole->hash) != 0;
    strcpy(run->whole->hash, hash);
    if (run->changed && !run->options->plan)
        TRY(check_model(run->model, name, true, diag));
    TRY(model_measure(&run->measure, run->model, diag));
    TRY(check_changed(run, diag));
    if (!run->ctx.exact || run->options->plan || !run->changed) return STATUS_OK;
    if (!run->before || (run->step->pass->flags & PASS_MEASURES))
        return diag_fail(diag, STATUS_INTERNAL, LOC_NONE, NULL,
                         "%s trains or measures and cannot claim to be exact", name);
    return check_exactness(run->before, run->model, name, run->ctx.seed, diag);
}

/* Appends the step's record to the model's provenance. */
static void step_record(const StepRun *run) {
    Model *model = run->model;
    Arena *arena = model->arena;
    const Step *step = run->step;
    Tree *steps = tree_get(model->provenance, "steps");
    if (!steps || steps->kind != TREE_LIST) {
        Diag *none = diag_create();
        steps = tree_new(arena, TREE_LIST, LOC_NONE);
        tree_set(arena, model->provenance, "steps", steps, none);
        diag_destroy(none);
    }
    Tree *map = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_put_string(arena, map, "pass", step->pass->name);
    if (step->pass->origin) tree_put_string(arena, map, "plugin", step->pass->origin);
    if (step->label) tree_put_string(arena, map, "label", step->label);
    Tree *options = step->pass->fields
                        ? fields_to_tree(arena, step->pass->fields, step->options)
                        : tree_new(arena, TREE_MAP, LOC_NONE);
    tree_append(arena, map, "options", LOC_NONE, options);
    tree_put_int(arena, map, "parameters", run->measure.parameters);
    tree_put_int(arena, map, "bytes", run->measure.bytes);
    tree_put_real(arena, map, "flops", run->measure.flops);
    if (!run->options->plan) tree_put_string(arena, map, "hash", run->whole->hash);
    tree_append(arena, map, "record", LOC_NONE, tree_copy(arena, run->ctx.record));
    tree_append(arena, steps, NULL, LOC_NONE, map);
}

static Status step_execute(StepRun *run, Diag *diag) {
    const Step *step = run->step;
    const DumpWhen dump = run->options->dump;
    const Watch *watch = run->options->watch;
    if (watch && watch->cancelled && watch->cancelled(watch->self))
        return diag_fail(diag, STATUS_INTERRUPTED, LOC_NONE, NULL, "interrupted");
    step_prepare(run);
    if (dump == DUMP_BEFORE) TRY(dump_model(run, "before", diag));
    TRY(check_fits(&run->ctx, run->model, step->options, diag));
    TRY(step->pass->run(&run->ctx, run->model, step->options, diag));
    guess_follow(&run->ctx, run->model->graph, diag);
    run->whole->guessed = run->ctx.guessed;
    TRY(step_check(run, diag));
    step_record(run);
    if (dump == DUMP_AFTER || (dump == DUMP_CHANGE && run->changed))
        return dump_model(run, "after", diag);
    return STATUS_OK;
}

/* Tells the caller about a step that succeeded. */
static void step_report(const StepRun *run, double seconds) {
    const PipelineHooks *hooks = &run->options->hooks;
    const StepResult result = {.measure = run->measure,
                               .record = run->ctx.record,
                               .times = run->ctx.times,
                               .train_bytes = run->ctx.train_bytes,
                               .run_bytes = run->ctx.run_bytes,
                               .guessed = run->ctx.guessed,
                               .stays = run->ctx.stays,
                               .train_shards = run->ctx.train_shards,
                               .train_work = run->ctx.train_work,
                               .threads = run->ctx.threads,
                               .seconds = seconds,
                               .uses = run->ctx.uses};
    if (hooks->step_end) hooks->step_end(hooks->self, run->recipe, run->index, &result);
}

/* Lets what the step left be kept. */
static void step_keep(const StepRun *run, double seconds, Diag *diag) {
    Run *whole = run->whole;
    StepEntry entry = {.changed = run->changed,
                       .measure = run->measure,
                       .record = run->ctx.record,
                       .times = run->ctx.times,
                       .seconds = seconds};
    if (!whole->keeper) return;
    entry.warnings =
        step_entry_warnings(whole->arena, diag, run->warnings, &run->step->source);
    model_state_hash(run->model, entry.state);
    strcpy(entry.hash, whole->hash);
    whole->keeper->keep(whole->keeper->self, run->index, whole->state, &entry, run->model,
                        diag);
    strcpy(whole->state, entry.state);
}

/* Says which step an error is about, dumps what there was and is, and tells the caller.
 */
static void step_failed(StepRun *run, Status status, double seconds, Diag *diag) {
    const PipelineHooks *hooks = &run->options->hooks;
    const char *label = run->step->label;
    const StepFailure failure = {.status = status,
                                 .record = run->ctx.record,
                                 .times = run->ctx.times,
                                 .gate = run->ctx.gate,
                                 .before = run->before,
                                 .seconds = seconds};
    diag_place(diag, run->step->source.at, run->step->source.key);
    diag_note(diag, "in step %d of %d, %s%s%s%s", run->index + 1, run->recipe->step_count,
              run->step->pass->name, label ? " (" : "", label ? label : "",
              label ? ")" : "");
    if (run->options->dump == DUMP_FAILURE) {
        dump_text(run, "before", &run->text, diag);
        dump_model(run, "failure", diag);
    }
    if (hooks->step_failed)
        hooks->step_failed(hooks->self, run->recipe, run->index, &failure, diag);
}

static void step_begin(StepRun *run, Run *whole, int index, Model *model,
                       const Diag *diag) {
    const PipelineHooks *hooks = &whole->options->hooks;
    *run = (StepRun){.whole = whole,
                     .options = whole->options,
                     .recipe = whole->recipe,
                     .step = &whole->recipe->steps[index],
                     .index = index,
                     .model = model,
                     .start = ticker_seconds(),
                     .warnings = diag_warning_count(diag)};
    if (hooks->step_begin) hooks->step_begin(hooks->self, run->recipe, index);
}

static Status step_run(Run *whole, int index, Model *model, Diag *diag) {
    StepRun run;
    step_begin(&run, whole, index, model, diag);
    const StepKeeper *keeper = whole->keeper;
    Status status =
        keeper ? keeper->begin(keeper->self, index, whole->state, diag) : STATUS_OK;
    if (status == STATUS_OK) status = step_execute(&run, diag);
    const double seconds = ticker_seconds() - run.start;
    if (status == STATUS_OK) {
        step_report(&run, seconds);
        step_keep(&run, seconds, diag);
    } else {
        step_failed(&run, status, seconds, diag);
    }
    model_destroy(run.before);
    text_free(&run.text);
    return status;
}

/* ---- steps that were finished before ---- */

/* A model of a state: the present one's copy, or one that is kept; NULL where none is. */
static Model *find_model(const Run *run, const char *state, const Model *now,
                         Diag *diag) {
    const StepKeeper *keeper = run->keeper;
    if (strcmp(state, run->state) == 0) return model_copy(now);
    return keeper->model(keeper->self, state, now->graph->ops, diag);
}

/* Takes up the snapshots that steps [first, first + count) made and later ones name.
 * Returns `count`, or less: the number of steps before one whose snapshot is not kept. */
static int restore_snapshots(const Run *run, int first, const StepEntry *chain, int count,
                             const Model *now, Diag *diag) {
    for (int i = 0; i < count; i++) {
        const char *name = recipe_snapshot_made(&run->recipe->steps[first + i]);
        if (!name || !recipe_snapshot_needed(run->recipe, first + i, first + count))
            continue;
        Model *model = find_model(run, chain[i].state, now, diag);
        if (!model) return i;
        PassContext ctx = {.resources = run->options->resources};
        step_snapshot(&ctx, name, model);
        model_destroy(model);
    }
    return count;
}

/* Tells of a step that is not run, and records it as if it had been. Fails where it would
 * have to change the model, which another recipe allowed it not to. */
static Status step_reuse(Run *whole, int index, const StepEntry *entry, Model *model,
                         Diag *diag) {
    const PipelineHooks *hooks = &whole->options->hooks;
    StepRun run;
    step_begin(&run, whole, index, model, diag);
    run.measure = entry->measure;
    run.changed = entry->changed;
    run.ctx.record = tree_copy(whole->arena, entry->record);
    run.ctx.times = tree_copy(whole->arena, entry->times);
    strcpy(whole->hash, entry->hash);
    step_entry_warn(entry->warnings, &run.step->source, diag);
    const Status status = check_changed(&run, diag);
    const double seconds = ticker_seconds() - run.start;
    if (status != STATUS_OK) {
        step_failed(&run, status, seconds, diag);
        return status;
    }
    step_record(&run);
    const StepResult result = {.measure = entry->measure,
                               .record = run.ctx.record,
                               .times = run.ctx.times,
                               .threads = whole->options->threads,
                               .seconds = seconds,
                               .reused = true};
    if (hooks->step_end) hooks->step_end(hooks->self, whole->recipe, index, &result);
    return STATUS_OK;
}

/* The entries of steps from `first` on that are kept, one behind the other; returns their
 * number. */
static int find_chain(const Run *run, int first, StepEntry *chain, Diag *diag) {
    const StepKeeper *keeper = run->keeper;
    const int most = run->recipe->step_count - first;
    int count = 0;
    while (count < most && keeper->find(keeper->self, first + count,
                                        count ? chain[count - 1].state : run->state,
                                        run->arena, &chain[count], diag))
        count++;
    return count;
}

/* Goes over as many of the steps from *next on as are kept, down to a model that is. */
static Status steps_reuse(Run *run, int *next, Model *model, Diag *diag) {
    const int first = *next;
    if (!run->keeper) return STATUS_OK;
    StepEntry *chain =
        ARENA_ARRAY(run->arena, StepEntry, (size_t)(run->recipe->step_count - first) + 1);
    int count = find_chain(run, first, chain, diag);
    Model *kept = NULL;
    while (count > 0 && !kept) {
        const int whole = restore_snapshots(run, first, chain, count, model, diag);
        if (whole == count) kept = find_model(run, chain[count - 1].state, model, diag);
        if (!kept) count = whole == count ? count - 1 : whole;
    }
    if (!kept) return STATUS_OK;
    model_take_state(model, kept);
    strcpy(run->state, chain[count - 1].state);
    model_hash(model, run->hash);
    *next += count;
    for (int i = 0; i < count; i++)
        TRY(step_reuse(run, first + i, &chain[i], model, diag));
    return STATUS_OK;
}

/* Puts what the steps start from into the provenance: the recipe and the input's hash.
 * What the run notes here and in step_record is not the model's state: step_entry.c. */
static Status record_input(const Run *run, Model *model, Diag *diag) {
    Arena *arena = model->arena;
    const Recipe *recipe = run->recipe;
    if (recipe->source)
        TRY(tree_set(arena, model->provenance, "recipe", tree_copy(arena, recipe->source),
                     diag));
    if (run->options->plan) return STATUS_OK;
    Tree *text = tree_new(arena, TREE_STRING, LOC_NONE);
    text->string = arena_strdup(arena, run->hash);
    return tree_set(arena, model->provenance, "input_hash", text, diag);
}

Status pipeline_run(Model *model, const Recipe *recipe, const PipelineOptions *options,
                    Diag *diag) {
    Run run = {.options = options,
               .recipe = recipe,
               .arena = arena_create(),
               .keeper = options->plan ? NULL : options->keeper};
    run.changed = ARENA_ARRAY(run.arena, bool, (size_t)recipe->step_count + 1);
    hash_model(model, options->plan, run.hash);
    Status status = record_input(&run, model, diag);
    if (run.keeper) model_state_hash(model, run.state);
    const int end = options->only ? options->only : recipe->step_count;
    for (int next = options->only ? end - 1 : 0; next < end && status == STATUS_OK;) {
        status = steps_reuse(&run, &next, model, diag);
        if (status == STATUS_OK && next < end)
            status = step_run(&run, next++, model, diag);
    }
    if (options->resources) resources_drop_snapshots(options->resources);
    arena_destroy(run.arena);
    return status;
}
