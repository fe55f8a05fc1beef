/* Report: sizes, records and times of a recipe's steps. */
#ifndef COMPRESS_SESSION_REPORT_REPORT_H
#define COMPRESS_SESSION_REPORT_REPORT_H

#include "passes/pipeline/pipeline.h"

typedef struct ReportStep {
    const Step *step;
    StepResult result; /* the trees in the report's arena */
    const Tree
        *structure; /* of the model after it, if it differs; see report_note_structure */
    bool failed;    /* it ended the run: a gate that did not hold */
    int64_t memory; /* in a plan: peak resident bytes (session/memory.h) */
} ReportStep;

/* What takes the most memory in a plan, if no step does. */
enum { MEMORY_OF_FILES = -1, MEMORY_OF_DATA = -2 };

typedef struct RunReport {
    Arena *arena;
    Task task;             /* of the input model */
    Measure start;         /* the same */
    const Tree *structure; /* the same; NULL = not noted */
    ReportStep *steps;
    int count, capacity;
    int64_t memory;  /* in a plan: the maximum over its steps; 0 = not known */
    int memory_step; /* which one that is, or MEMORY_OF_ */
} RunReport;

/* Adds a step that ran; its trees are copied. The entry is the report's. */
ReportStep *report_add(RunReport *report, const Recipe *recipe, int index,
                       const StepResult *result);

/* Records the structure of the model's layers (session/structure.h): before the first
 * step that of the input, later that after the latest step, if it has changed. */
void report_note_structure(RunReport *report, const Model *model);

/* The steps as a list of maps; `times` = include measured times, which differ from run
 * to run. */
Tree *report_steps(const RunReport *report, bool times);

/* Facts about the input model, put into a map: task and sizes. */
void report_put_start(const RunReport *report, Tree *map);

/* A measure's numbers put into a map. */
void measure_put(Arena *arena, Tree *map, const Measure *measure);

/* Step's name for people: "distill" or "distill (label)"; in the arena. */
const char *step_title(Arena *arena, const Step *step);

#endif
