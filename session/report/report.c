/* Gathering a report, and the report as a tree, for JSON. */
#include "session/report/report.h"

#include "session/structure.h"

#include <string.h>

const char *step_title(Arena *arena, const Step *step) {
    if (!step->label) return step->pass->name;
    return arena_printf(arena, "%s (%s)", step->pass->name, step->label);
}

ReportStep *report_add(RunReport *report, const Recipe *recipe, int index,
                       const StepResult *result) {
    if (report->count == report->capacity) {
        const int capacity = report->capacity ? 2 * report->capacity : 16;
        ReportStep *steps = ARENA_ARRAY(report->arena, ReportStep, (size_t)capacity);
        if (report->count > 0)
            memcpy(steps, report->steps, (size_t)report->count * sizeof *steps);
        report->steps = steps;
        report->capacity = capacity;
    }
    ReportStep *step = &report->steps[report->count++];
    *step = (ReportStep){.step = &recipe->steps[index], .result = *result};
    step->result.record = tree_copy(report->arena, result->record);
    step->result.times = tree_copy(report->arena, result->times);
    if (result->uses) step->result.uses = tree_copy(report->arena, result->uses);
    return step;
}

void report_note_structure(RunReport *report, const Model *model) {
    const Tree *last = report->structure, *now = structure_tree(report->arena, model);
    for (int i = 0; i < report->count; i++)
        if (report->steps[i].structure) last = report->steps[i].structure;
    if (report->count == 0)
        report->structure = now;
    else if (!tree_equal(last, now))
        report->steps[report->count - 1].structure = now;
}

void measure_put(Arena *arena, Tree *map, const Measure *measure) {
    tree_put_int(arena, map, "parameters", measure->parameters);
    tree_put_int(arena, map, "bytes", measure->bytes);
    tree_put_real(arena, map, "flops", measure->flops);
    tree_put_int(arena, map, "peak_bytes", measure->peak_bytes);
}

static Tree *step_tree(Arena *arena, const ReportStep *step, bool times) {
    const Pass *pass = step->step->pass;
    Tree *map = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_put_string(arena, map, "pass", pass->name);
    if (step->step->label) tree_put_string(arena, map, "label", step->step->label);
    if (pass->fields)
        tree_append(arena, map, "options", LOC_NONE,
                    fields_to_tree(arena, pass->fields, step->step->options));
    measure_put(arena, map, &step->result.measure);
    tree_put_int(arena, map, "training_bytes", (int64_t)step->result.train_bytes);
    if (step->result.train_shards > 0)
        tree_put_int(arena, map, "training_shards", step->result.train_shards);
    if (step->memory > 0) tree_put_int(arena, map, "memory_bytes", step->memory);
    tree_append(arena, map, "record", LOC_NONE, tree_copy(arena, step->result.record));
    if (step->failed) tree_put_bool(arena, map, "failed", true);
    if (step->structure)
        tree_put(arena, map, "structure", tree_copy(arena, step->structure));
    if (!times) return map;
    tree_put_real(arena, map, "seconds", step->result.seconds);
    if (step->result.reused) tree_put_bool(arena, map, "reused", true);
    if (step->result.times->count > 0)
        tree_append(arena, map, "times", LOC_NONE, tree_copy(arena, step->result.times));
    return map;
}

Tree *report_steps(const RunReport *report, bool times) {
    Arena *arena = report->arena;
    Tree *steps = tree_new(arena, TREE_LIST, LOC_NONE);
    for (int i = 0; i < report->count; i++)
        tree_append(arena, steps, NULL, LOC_NONE,
                    step_tree(arena, &report->steps[i], times));
    return steps;
}

void report_put_start(const RunReport *report, Tree *map) {
    tree_put_string(report->arena, map, "sample", report->start.input);
    tree_put_string(report->arena, map, "task", task_name(report->task));
    measure_put(report->arena, map, &report->start);
    if (report->structure)
        tree_put(report->arena, map, "structure",
                 tree_copy(report->arena, report->structure));
}
