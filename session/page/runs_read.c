/* Reports and model files as runs: see runs.h. */
#include "session/page/runs.h"

#include "exec/ops.h"
#include "io/files/file.h"
#include "io/formats/load.h"
#include "passes/measure.h"
#include "passes/pass.h"
#include "session/report/report_read.h"
#include "session/structure.h"

#include <math.h>
#include <string.h>

#define SIZE_MOST 1e18

double run_number(const Tree *map, const char *key) {
    double value;
    return tree_number(tree_get(map, key), &value) ? value : (double)NAN;
}

const Tree *run_list(const Tree *map, const char *key) {
    const Tree *value = tree_get(map, key);
    return value && value->kind == TREE_LIST ? value : NULL;
}

static const Tree *map_of(const Tree *map, const char *key) {
    const Tree *value = tree_get(map, key);
    return value && value->kind == TREE_MAP ? value : NULL;
}

/* A number that a size or a time can be. */
static double size_number(const Tree *map, const char *key) {
    const double value = run_number(map, key);
    return value >= 0 && value <= SIZE_MOST ? value : (double)NAN;
}

static RunSize read_size(const Tree *map) {
    return (RunSize){size_number(map, "parameters"), size_number(map, "bytes"),
                     size_number(map, "flops")};
}

static bool read_flag(const Tree *map, const char *key) {
    const Tree *value = tree_get(map, key);
    return value && value->kind == TREE_BOOL && value->boolean;
}

static void read_step(RunStep *step, Arena *arena, const Tree *map) {
    const char *label = tree_string(map, "label");
    *step = (RunStep){.pass = tree_string(map, "pass"),
                      .size = read_size(map),
                      .seconds = size_number(map, "seconds"),
                      .failed = read_flag(map, "failed"),
                      .reused = read_flag(map, "reused"),
                      .options = map_of(map, "options"),
                      .record = map_of(map, "record"),
                      .structure = map_of(map, "structure")};
    if (!step->pass) step->pass = "?";
    const Pass *pass = pass_find(step->pass);
    step->measures = pass && (pass->flags & PASS_MEASURES);
    step->title =
        label ? arena_printf(arena, "%.200s (%.200s)", step->pass, label) : step->pass;
}

static void read_steps(Run *run, Arena *arena, const Tree *steps) {
    if (!steps) return;
    const int most = steps->count < RUN_STEPS_MAX ? steps->count : RUN_STEPS_MAX;
    run->steps = ARENA_ARRAY(arena, RunStep, (size_t)most + 1);
    for (const Tree *step = steps->first; step && run->count < most; step = step->next)
        read_step(&run->steps[run->count++], arena, step);
}

/* The time of the steps, unless a step's is not known. */
static double sum_seconds(const Run *run) {
    double sum = 0;
    for (int i = 0; i < run->count; i++) sum += run->steps[i].seconds;
    return run->count ? sum : (double)NAN;
}

void run_of_report(Run *run, Arena *arena, const char *file, const Tree *document) {
    const Tree *input = map_of(document, "input");
    const Tree *files = run_list(map_of(document, "output"), "files");
    const char *status = tree_string(document, "status");
    *run = (Run){.file = file, .name = file, .document = document};
    run->status = status ? status : "";
    run->before = read_size(input);
    run->file_before = size_number(input, "file_bytes");
    run->structure = map_of(input, "structure");
    read_steps(run, arena, run_list(document, "steps"));
    /* Of a run that ended before any step nothing is known but what went in. */
    const bool nothing = run->count == 0 && strcmp(run->status, "done") != 0;
    run->after = nothing      ? (RunSize){NAN, NAN, NAN}
                 : run->count ? run->steps[run->count - 1].size
                              : run->before;
    run->file_after =
        files && files->first ? size_number(files->first, "bytes") : (double)NAN;
    run->seconds = size_number(document, "seconds");
    if (isnan(run->seconds)) run->seconds = sum_seconds(run);
}

/* What the model is, and what its provenance says of the steps. The input is not told
 * there; it is what a first step that measures found. */
static Status read_model(Run *run, Arena *arena, const char *file, Diag *diag) {
    Model *model = NULL;
    Measure measure = {0};
    TRY(model_load(&model, file, ops_table(), false, diag));
    const Status status = model_measure(&measure, model, diag);
    run->document = tree_copy(arena, model->provenance);
    run->is_model = true;
    run->status = "";
    run->before = (RunSize){NAN, NAN, NAN};
    run->file_before = NAN;
    read_steps(run, arena, run_list(run->document, "steps"));
    if (run->count && run->steps[0].measures) run->before = run->steps[0].size;
    run->after =
        (RunSize){(double)measure.parameters, (double)measure.bytes, measure.flops};
    run->file_after = model->file_bytes ? (double)model->file_bytes : (double)NAN;
    run->seconds = NAN;
    if (run->count)
        run->steps[run->count - 1].structure = structure_tree(arena, model);
    else
        run->structure = structure_tree(arena, model);
    model_destroy(model);
    return status;
}

/* Whether a file holds JSON, by its first character. */
static bool is_json(const char *file) {
    FILE *stream = path_is_folder(file) ? NULL : fopen(file, "rb");
    int first = stream ? getc(stream) : EOF;
    while (first == ' ' || first == '\n' || first == '\t' || first == '\r')
        first = getc(stream);
    if (stream) fclose(stream);
    return first == '{' || first == '[';
}

static Status read_run(Run *run, Arena *arena, const char *file, Diag *diag) {
    Tree *document;
    *run = (Run){.file = file};
    if (!is_json(file)) return read_model(run, arena, file, diag);
    TRY(report_read(&document, arena, file, diag));
    run_of_report(run, arena, file, document);
    return STATUS_OK;
}

/* ---- names ---- */

static const char *short_name(Arena *arena, const char *file) {
    const char *name = path_base(arena, file);
    const char *dot = strrchr(name, '.');
    return dot && dot > name ? arena_strndup(arena, name, (size_t)(dot - name)) : name;
}

/* Runs whose files have one name are told by their paths, and by numbers where those are
 * the same. */
static void name_runs(Run *runs, Arena *arena, int count) {
    for (int i = 0; i < count; i++) runs[i].name = short_name(arena, runs[i].file);
    for (int i = 0; i < count; i++) {
        bool taken = false;
        for (int j = 0; j < count; j++)
            taken |= j != i && strcmp(short_name(arena, runs[j].file),
                                      short_name(arena, runs[i].file)) == 0;
        if (taken) runs[i].name = runs[i].file;
    }
    for (int i = 0; i < count; i++) {
        int same = 1;
        for (int j = 0; j < i; j++) same += strcmp(runs[j].file, runs[i].file) == 0;
        if (same > 1) runs[i].name = arena_printf(arena, "%s #%d", runs[i].file, same);
    }
}

Status runs_read(Run *runs, Arena *arena, const char *const *files, int count,
                 Diag *diag) {
    for (int i = 0; i < count; i++) TRY(read_run(&runs[i], arena, files[i], diag));
    name_runs(runs, arena, count);
    return STATUS_OK;
}
