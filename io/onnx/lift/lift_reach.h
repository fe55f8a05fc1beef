/* Windows that slide along the tokens, found in the computation of a mask. Probes have
 * few tokens, so the numbers of a mask do not show a longer window; the comparison of
 * positions that makes it does. */
#ifndef COMPRESS_IO_ONNX_LIFT_LIFT_REACH_H
#define COMPRESS_IO_ONNX_LIFT_LIFT_REACH_H

#include "io/onnx/net/net.h"

typedef struct MaskReach {
    int64_t reach; /* keys fewer tokens away are seen; 0 = at any distance */
    bool both;     /* on both sides, not only before the query */
} MaskReach;

/* What the comparisons that lead to a mask say; the first one that compares
 * distances. */
MaskReach find_reach(const NetValue *mask);

#endif
