/* Model configuration: what a model's configuration says once passes have changed it.
 *
 * Model.config is the configuration that the graph was first built from; it is not
 * changed, as heads, labels and numbers of tokens are looked up there. Its sizes are no
 * longer true when layers, heads or units have been removed. */
#ifndef COMPRESS_IO_FORMATS_MODEL_CONFIG_H
#define COMPRESS_IO_FORMATS_MODEL_CONFIG_H

#include "ir/model.h"

/* The configuration of the current model, in `arena`: model->config itself, unless the
 * sizes of the graph differ from what that configuration builds. Then the family's size
 * keys (Family.sizes) give those of the graph: a number, or, if layers differ, a list
 * with one for each layer; in families with stages, a list with one, or a list, for each
 * stage. The configuration of an unknown family is unchanged. */
const Tree *model_config_now(Arena *arena, const Model *model);

/* Adds what a graph's task says about labels to a configuration without labels: their
 * names, "LABEL_0" and so on as in transformers, their numbers, and the problem_type for
 * several labels and for values. Does nothing for tasks without labels. */
void config_put_task(Arena *arena, Tree *config, const Graph *graph);

#endif
