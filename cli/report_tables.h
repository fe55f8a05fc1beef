/* The report of a recipe's run as tables for people. */
#ifndef COMPRESS_CLI_REPORT_TABLES_H
#define COMPRESS_CLI_REPORT_TABLES_H

#include "session/report.h"

/* Prints sizes and memory after every step. */
void report_print_plan(const RunReport *report, FILE *out);

/* Prints the input beside the result: sizes, metrics of evaluate steps, time; below it
 * the numbers that steps timed, where a step has few. */
void report_print_result(const RunReport *report, FILE *out);

#endif
