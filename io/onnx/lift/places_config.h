/* The configuration of a lifted graph, in Hugging Face's keys. */
#ifndef COMPRESS_IO_ONNX_LIFT_PLACES_CONFIG_H
#define COMPRESS_IO_ONNX_LIFT_PLACES_CONFIG_H

#include "ir/model.h"

/* A configuration like Hugging Face's for the family that the graph resembles: "bert",
 * "gpt2", "vit", ...; without `model_type` when it resembles none. */
Tree *places_config(Arena *arena, const Graph *graph);

#endif
