/* Inside of estimating posteriors: see posterior.h. */
#ifndef COMPRESS_PASSES_POSTERIOR_POSTERIOR_INTERNAL_H
#define COMPRESS_PASSES_POSTERIOR_POSTERIOR_INTERNAL_H

#include "passes/posterior/posterior.h"

/* Elements handled together. */
enum { POSTERIOR_CHUNK = 512 };

/* Elements of the chunk at `at` of `total`. */
static inline int64_t posterior_chunk(int64_t total, int64_t at) {
    return total - at < POSTERIOR_CHUNK ? total - at : POSTERIOR_CHUNK;
}

/* The numbers of an area of type F64, which is nobody else's. */
double *posterior_area(const Tensor *tensor);

#endif
