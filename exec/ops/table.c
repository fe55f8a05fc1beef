/* The table of one set of kernels, from exec/ops.def. */
#include "exec/ops/kernel.h"

#define OP_ROW(id) extern KERNEL(id);
#include "exec/ops.def"
#undef OP_ROW

static const Kernel *const KERNELS[] = {
#define OP_ROW(id) &REAL_FN(kernel_##id),
#include "exec/ops.def"
#undef OP_ROW
};

#define TEXT_AGAIN(word) #word
#define TEXT(word)       TEXT_AGAIN(word)

const KernelTable REAL_FN(kernel_table) = {
    .precision = sizeof(REAL) == sizeof(double) ? PRECISION_F64 : PRECISION_F32,
    .set = TEXT(OP_SUFFIX),
    .kernels = KERNELS,
};
