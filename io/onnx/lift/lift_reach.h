/* Windows that slide along the tokens, found in what makes a mask. Probes have few
 * tokens, so the numbers of a mask do not show a window that is longer; the comparison of
 * positions that makes it does. */
#ifndef COMPRESS_IO_ONNX_LIFT_LIFT_REACH_H
#define COMPRESS_IO_ONNX_LIFT_LIFT_REACH_H

#include "io/onnx/net/net.h"

typedef struct MaskReach {
    int64_t reach; /* keys fewer tokens away are seen; 0 = at any distance */
    bool both;     /* on both sides, not behind the query alone */
} MaskReach;

/* What the comparisons before a mask say; the first one that is of distances. */
MaskReach find_reach(const NetValue *mask);

#endif
