/* What the files of `compress inspect` share: the printers of an inspection. */
#ifndef COMPRESS_CLI_INSPECT_H
#define COMPRESS_CLI_INSPECT_H

#include "session/inspection.h"

/* A string of the provenance that is safe to print, "?" when it is none; in the arena. */
const char *safe_string(Arena *arena, const Tree *tree);

/* "; 0, 2, 5 of the original" for a stack that lost layers, else "". */
const char *original_layers(const Inspection *it, const char *stack);

/* Prints what pruning left, place by place; nothing where it left all. */
void print_lineages(const Inspection *it);

/* Prints the steps that made the model, and what they began with; nothing where there
 * were none. */
void print_history(const Inspection *it);

#endif
