/* add(a[...], b): y = a + b, b repeated along dimensions where it has 1.
 *
 * da = dy; db = dy summed over the repeated dimensions. */
#include "exec/generate/step.h"
#include "exec/infer.h"
#include "exec/ops/kernel_math.h"
#include "exec/ops/tiles.h"

#include <string.h>

static const Operand OPERANDS[] = {
    {"a", OPERAND_REQUIRED, "any shape"},
    {"b", OPERAND_REQUIRED, "the rank of a; each dimension that of a, or 1"},
    {NULL, 0, NULL}};

static Status infer(const Node *node, Type *out, Diag *diag) {
    const Type *a = &node->in[0]->type, *b = &node->in[1]->type;
    TRY(infer_rank(node, 1, a->rank, a->rank, diag));
    char text[DIM_TEXT_BYTES];
    for (int i = 0; i < a->rank; i++)
        if (b->dim[i] != a->dim[i] && b->dim[i] != 1)
            return infer_fail(node, 1, diag, "%s (as in a) or 1 as dimension %d",
                              dim_text(text, a->dim[i]), i);
    *out = *a;
    return STATUS_OK;
}

/* The shape with dimensions of the same kind merged. The last two are walked by loops
 * over rows; those before by an index. */
typedef struct Repeat {
    int rank;
    int64_t dim[RANK_MAX + 1],
        step[RANK_MAX + 1]; /* steps of b in elements; 0 = repeated */
} Repeat;

static Repeat merge_dims(const View *a, const View *b) {
    Repeat m = {0};
    int64_t step = 1;
    for (int i = a->rank - 1; i >= 0; i--) { /* last dimension first */
        if (a->dim[i] == 1) continue;
        const bool repeated = b->dim[i] == 1;
        if (m.rank > 0 && repeated == (m.step[m.rank - 1] == 0)) {
            m.dim[m.rank - 1] *= a->dim[i];
        } else {
            m.step[m.rank] = repeated ? 0 : step;
            m.dim[m.rank++] = a->dim[i];
        }
        if (!repeated) step *= a->dim[i];
    }
    if (m.rank == 0) m.dim[m.rank] = 1, m.step[m.rank++] = 1;
    return m;
}

/* Offset in b of row `r` of y, a row being the merged last dimension. */
static int64_t row_offset(const Repeat *m, int64_t r) {
    int64_t offset = 0;
    for (int i = 1; i < m->rank; i++) {
        offset += r % m->dim[i] * m->step[i];
        r /= m->dim[i];
    }
    return offset;
}

/* Whether b has the shape of a. */
static bool is_plain(const Repeat *m) {
    return m->rank == 1 && m->step[0];
}

static void forward(const Call *call) {
    const Repeat m = merge_dims(&call->in[0], &call->in[1]);
    const int64_t width = m.dim[0], rows = call->out.count / width;
    const Range part = call_range(call, width, TILE_UNIT); /* of a plain one */
    for (int64_t r = 0; r < rows; r++) {
        const REAL *a = (const REAL *)call->in[0].data + r * width;
        const REAL *b = (const REAL *)call->in[1].data + row_offset(&m, r);
        REAL *restrict y = (REAL *)call->out.data + r * width;
        if (m.step[0])
            for (int64_t j = part.first; j < part.end; j++) y[j] = a[j] + b[j];
        else
            for (int64_t j = 0; j < width; j++) y[j] = a[j] + b[0];
    }
}

/* d (+)= dy in a range of elements. The gradient of a may have taken dy's place, which
 * for add(x, x) is that of b too. */
static void copy_gradient(const View *d, const View *dy, Range r) {
    REAL *to = (REAL *)d->data + r.first;
    const REAL *from = (const REAL *)dy->data + r.first;
    if (to != from)
        put_row(to, from, r.end - r.first, d->accumulate);
    else if (d->accumulate)
        for (int64_t i = 0; i < r.end - r.first; i++) to[i] += to[i];
}

static void backward(const Call *call) {
    const View *da = &call->d_in[0], *db = &call->d_in[1], *dy = &call->d_out;
    const Range part = call_range(call, dy->count, TILE_UNIT);
    if (da->data && da->data != dy->data) copy_gradient(da, dy, part);
    if (!db->data) return;
    const Repeat m = merge_dims(&call->in[0], &call->in[1]);
    if (is_plain(&m)) {
        copy_gradient(db, dy, part);
        return;
    }
    if (!db->accumulate) memset(db->data, 0, (size_t)call->in[1].count * sizeof(REAL));
    const int64_t width = m.dim[0];
    for (int64_t r = 0; r < dy->count / width; r++) { /* sums over what is repeated */
        const REAL *restrict row = (const REAL *)dy->data + r * width;
        REAL *restrict to = (REAL *)db->data + row_offset(&m, r);
        if (m.step[0])
            for (int64_t j = 0; j < width; j++) to[j] += row[j];
        else
            *to += row_sum(row, width);
    }
}

static int64_t tiles(const Call *call) {
    const Repeat m = merge_dims(&call->in[0], &call->in[1]);
    return is_plain(&m) ? element_tiles(call) : 1;
}

OP_RECORD(add) = {
    OP_ID(add),
    .summary = "a + b; b is repeated along dimensions where it has 1",
    .operands = OPERANDS,
    .traits = OP_PASS_GRADIENT | OP_ELEMENTWISE | OP_ROWWISE,
    .infer = infer,
};

KERNEL(add) = {
    .step = STEP(elementwise),
    .forward = forward,
    .backward = backward,
    .forward_tiles = tiles,
    .backward_tiles = tiles,
};
