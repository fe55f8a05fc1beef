/* The program's ops, and which set of kernels and loops computes them. */
#include "exec/loops/loops.h"
#include "exec/ops/kernel.h"
#include "exec/processor.h"

static const Op *const OPS[] = {
#define OP_ROW(id) &op_##id,
#include "exec/ops.def"
#undef OP_ROW
};

const OpTable *ops_table(void) {
    static const OpTable TABLE = {OPS, sizeof OPS / sizeof *OPS};
    return &TABLE;
}

/* What is compiled for one level. */
typedef struct Set {
    const KernelTable *kernels;
    const Loops *loops;
} Set;

extern const KernelTable kernel_table_f64;

#ifdef COMPRESS_LEVELS
extern const KernelTable kernel_table_f32_v3, kernel_table_f32_v4;
extern const Loops loops_f32_v3, loops_f32_v4;
static const Set SETS[PROCESSOR_COUNT] = {
    [PROCESSOR_V2] = {&kernel_table_f32, &loops_f32},
    [PROCESSOR_V3] = {&kernel_table_f32_v3, &loops_f32_v3},
    [PROCESSOR_V4] = {&kernel_table_f32_v4, &loops_f32_v4},
};
#else
static const Set SETS[PROCESSOR_COUNT] = {
    [PROCESSOR_AUTO] = {&kernel_table_f32, &loops_f32}};
#endif

const KernelTable *kernels_for(Precision precision) {
    return precision == PRECISION_F64 ? &kernel_table_f64
                                      : SETS[processor_level()].kernels;
}

const Loops *loops_here(void) {
    return SETS[processor_level()].loops;
}

const Loops *loops_at(Processor level) {
    return level == PROCESSOR_AUTO ? loops_here() : SETS[level].loops;
}
