/* Report: sizes, records and times of a recipe's steps, as tables and as JSON. */
#ifndef COMPRESS_CLI_REPORT_H
#define COMPRESS_CLI_REPORT_H

#include "passes/pipeline/pipeline.h"

typedef struct ReportStep {
    const Step *step;
    StepResult result; /* the trees in the report's arena */
} ReportStep;

typedef struct Report {
    Arena *arena;
    Measure start; /* of the input model */
    ReportStep *steps;
    int count, capacity;
} Report;

/* Adds a step that succeeded; its trees are copied. */
void report_add(Report *report, const Recipe *recipe, int index,
                const StepResult *result);

/* Prints sizes and memory after every step. */
void report_print_plan(const Report *report, FILE *out);

/* Prints the input beside the result: sizes, metrics of evaluate steps, time; below it
 * the numbers that steps timed, where a step has few. */
void report_print_result(const Report *report, FILE *out);

/* The report as a map; `times` = with what no two runs measure alike. */
Tree *report_tree(const Report *report, bool times);

/* A measure's numbers put into a map. */
void measure_put(Arena *arena, Tree *map, const Measure *measure);

/* Step's name for people: "distill" or "distill (label)"; in the arena. */
const char *step_title(Arena *arena, const Step *step);

#endif
