/* The program's ops, and which set of kernels computes them. */
#include "exec/ops/kernel.h"

static const Op *const OPS[OP_COUNT] = {
#define OP_ROW(id) &op_##id,
#include "exec/ops.def"
#undef OP_ROW
};

const OpTable *ops_table(void) {
    static const OpTable TABLE = {OPS, OP_COUNT};
    return &TABLE;
}

extern const KernelTable kernel_table_f64;

const KernelTable *kernels_for(Precision precision) {
    return precision == PRECISION_F64 ? &kernel_table_f64 : &kernel_table_f32;
}
