/* What inputs are, and how large they are in a probe: see probe_input.h. */
#include "io/onnx/net/probe_input.h"

#include "ir/model_parts.h"

#include <string.h>

/* Few tokens: tables of positions may be short. */
static const int64_t SAMPLES[NET_PROBES] = {2, 3}, TOKENS[NET_PROBES] = {3, 5},
                     SOURCE_TOKENS[NET_PROBES] = {4, 7};

int64_t probe_samples(int probe) {
    return SAMPLES[probe];
}

int64_t probe_tokens(int probe) {
    return TOKENS[probe];
}

int64_t probe_source_tokens(int probe) {
    return SOURCE_TOKENS[probe];
}

/* Filled up at the end, as tokenizers do, by other lengths in every sample. */
bool probe_mask(int64_t tokens, int64_t n, int64_t t) {
    return t < tokens - 2 * n;
}

bool probe_is_source(const Net *net, const char *input) {
    return net->translates &&
           (strcmp(input, INPUT_IDS) == 0 || strcmp(input, INPUT_MASK) == 0);
}

const OnnxTensorType *probe_input_type(const NetValue *input) {
    const OnnxType *type = input->input->type;
    const bool tensor = type && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    return tensor ? type->tensor_type : NULL;
}

InputKind probe_input_kind(const NetValue *input) {
    static const struct {
        const char *name;
        InputKind kind;
    } NAMES[] = {{INPUT_IDS, INPUT_TOKENS},
                 {"input", INPUT_TOKENS},
                 {"ids", INPUT_TOKENS},
                 {"tokens", INPUT_TOKENS},
                 {INPUT_TARGET_IDS, INPUT_TOKENS},
                 {INPUT_TYPES, INPUT_TYPE_IDS},
                 {"segment_ids", INPUT_TYPE_IDS},
                 {INPUT_MASK, INPUT_PADDING},
                 {INPUT_TARGET_MASK, INPUT_PADDING},
                 {"input_mask", INPUT_PADDING},
                 {"mask", INPUT_PADDING},
                 {"position_ids", INPUT_POSITIONS},
                 {INPUT_PIXELS, INPUT_IMAGE},
                 {"use_cache_branch", INPUT_SWITCH}};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (strcmp(input->name, NAMES[i].name) == 0) return NAMES[i].kind;
    return strncmp(input->name, "past_", 5) == 0 ? INPUT_PAST : INPUT_OTHER;
}
