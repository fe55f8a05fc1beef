/* Inputs of a net in its probes (io/onnx/net/probe.h): what they are, and their sizes. */
#ifndef COMPRESS_IO_ONNX_NET_PROBE_INPUT_H
#define COMPRESS_IO_ONNX_NET_PROBE_INPUT_H

#include "io/onnx/net/array.h"

/* What an input is. */
typedef enum InputKind {
    INPUT_OTHER,
    INPUT_TOKENS,    /* ids [N, T] */
    INPUT_TYPE_IDS,  /* kinds of the tokens [N, T] */
    INPUT_PADDING,   /* the mask [N, T] */
    INPUT_POSITIONS, /* positions [N, T]: always 0, 1, 2, ... here */
    INPUT_IMAGE,     /* pixels [N, C, H, W] */
    INPUT_STATES,    /* an encoder's states [N, S, width] */
    INPUT_PAST,      /* keys or values of earlier tokens: always none here */
    INPUT_SWITCH     /* use_cache_branch: always false here */
} InputKind;

/* By its name, as used by Hugging Face's exporter. */
InputKind probe_input_kind(const NetValue *input);

/* The type of an input that is a tensor; NULL when it is not, or has no type. */
const OnnxTensorType *probe_input_type(const NetValue *input);

/* Sizes of a probe; those of a source are for models that also have a target. */
int64_t probe_samples(int probe);
int64_t probe_tokens(int probe);
int64_t probe_source_tokens(int probe);

/* Whether token `t` of sample `n` counts in a probe's mask of `tokens` tokens. */
bool probe_mask(int64_t tokens, int64_t n, int64_t t);

/* Whether an input of this name belongs to the source of a model that also has a
 * target. */
bool probe_is_source(const Net *net, const char *input);

#endif
