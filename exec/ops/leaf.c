/* Leaves of a graph: values that come from outside. No computation. */
#include "exec/ops/kernel.h"

const Op OP(input) = {
    .name = "input",
    .summary = "data bound by name when the graph runs",
    .flags = OP_LEAF,
};

const Op OP(param) = {
    .name = "param",
    .summary = "weights of a storage",
    .flags = OP_LEAF,
};
