/* Model configuration: what a model's configuration says once passes have changed it.
 *
 * Model.config is the configuration that the graph was first built from; it stays what it
 * was, as heads, labels and numbers of tokens are looked up there. What tells sizes of it
 * is no longer true when layers, heads or units are gone. */
#ifndef COMPRESS_IO_FORMATS_MODEL_CONFIG_H
#define COMPRESS_IO_FORMATS_MODEL_CONFIG_H

#include "ir/model.h"

/* The configuration as the model is now, in `arena`: model->config itself, unless the
 * graph has other sizes than that configuration builds. Then the family's keys of sizes
 * (Family.sizes) tell those of the graph: a number, or, where layers differ, a list with
 * one for each layer; in families with stages a list with one, or a list, for each stage.
 * The configuration of an unknown family stays as it is. */
const Tree *model_config_now(Arena *arena, const Model *model);

/* Puts what a graph's task says of labels into a configuration that has none: their
 * names, "LABEL_0" and so on as transformers has them, their numbers, and the
 * problem_type of several labels and of values. Nothing for tasks without labels. */
void config_put_task(Arena *arena, Tree *config, const Graph *graph);

#endif
