/* The report of a recipe's run as tables for people. */
#ifndef COMPRESS_CLI_REPORT_TABLES_H
#define COMPRESS_CLI_REPORT_TABLES_H

#include "session/session.h"

/* Prints sizes and memory after every step. */
void report_print_plan(const RunReport *report, FILE *out);

/* Prints the input next to the result: sizes, in memory and on disk, metrics of evaluate
 * steps, time; below that, the numbers that steps timed, if a step has few, and what was
 * written. */
void report_print_result(const Session *session, FILE *out);

/* Prints what was written: "wrote small.h5, 1,234 bytes". */
void print_written(Arena *arena, const ModelOutput *output, FILE *out);

#endif
