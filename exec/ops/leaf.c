/* Leaves of a graph: values that come from outside. No computation. */
#include "exec/ops/kernel.h"

OP_RECORD(input) = {
    OP_ID(input),
    .summary = "data bound by name when the graph runs",
    .traits = OP_INPUT,
};

KERNEL(input) = {0};

OP_RECORD(param) = {
    OP_ID(param),
    .summary = "weights of a storage",
    .traits = OP_PARAM,
};

KERNEL(param) = {0};
