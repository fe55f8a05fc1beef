/* The configuration that a lifted graph has, in Hugging Face's keys. */
#ifndef COMPRESS_IO_ONNX_LIFT_PLACES_CONFIG_H
#define COMPRESS_IO_ONNX_LIFT_PLACES_CONFIG_H

#include "ir/model.h"

/* A configuration as Hugging Face's of the family that the graph is like: "bert", "gpt2",
 * "vit", ...; without `model_type` when it is like none. */
Tree *places_config(Arena *arena, const Graph *graph);

#endif
