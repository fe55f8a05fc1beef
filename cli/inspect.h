/* What the files of `compress inspect` share: the printers of an inspection. */
#ifndef COMPRESS_CLI_INSPECT_H
#define COMPRESS_CLI_INSPECT_H

#include "session/inspection.h"

/* A string of the provenance made safe to print, "?" when it is not a string; in the
 * arena. */
const char *safe_string(Arena *arena, const Tree *tree);

/* "; 0, 2, 5 of the original" for a stack that lost layers, else "". */
const char *original_layers(const Inspection *it, const char *stack);

/* Prints what pruning left, place by place; nothing if it left everything. */
void print_lineages(const Inspection *it);

/* Prints the steps that made the model, and what they started from; nothing if there
 * were none. */
void print_history(const Inspection *it);

#endif
