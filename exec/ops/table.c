/* The tables of ops, from exec/ops.def. */
#include "exec/ops/kernel.h"

#define OP_ROW(name) extern const Op OP(name);
#include "exec/ops.def"
#undef OP_ROW

static const Op *const OPS[] = {
#define OP_ROW(name) &OP(name),
#include "exec/ops.def"
#undef OP_ROW
};

static const OpTable TABLE = {OPS, (int)(sizeof OPS / sizeof OPS[0])};

#ifdef REAL_IS_DOUBLE
const OpTable *ops_table_f64(void) {
    return &TABLE;
}
#else
const OpTable *ops_table(void) {
    return &TABLE;
}
#endif
