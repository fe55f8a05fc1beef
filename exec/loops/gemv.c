/* Products with a few vectors: see exec/linalg/gemv.h.
 *
 * The inner blocks hold one register of 16 sums for each panel and vector. With one
 * vector four panels are read at once, which is what memory needs to be busy; with
 * several, each panel read is used for all of them. */
#include "exec/loops/loops.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

typedef float Vec
    __attribute__((vector_size(4 * PANEL_ROWS), aligned(sizeof(float)), may_alias));
typedef uint32_t Words
    __attribute__((vector_size(4 * PANEL_ROWS), aligned(sizeof(float)), may_alias));

/* Panels at once for one vector; vectors at once and panels for them: as many sums as
 * there are registers. */
enum { SOLO_PANELS = 4, ACCUMULATORS = 16 };
#ifdef __AVX512F__
enum { VECTORS = 8, VECTOR_PANELS = 2 };
#elif defined(__SSE2__) && !defined(__AVX__)
enum { VECTORS = 2, VECTOR_PANELS = 1 };
#else
enum { VECTORS = 4, VECTOR_PANELS = 1 };
#endif

/* ---- inner blocks ---- */

/* sums[p * n + t] = sum_k w[p, k] x[t, k] with floats as weights. */
ALWAYS_INLINE void block_f32(const Panels *in, const float *x, int64_t ldx, int panels,
                             int n, Vec *sums) {
    const float *w = in->w;
    for (int i = 0; i < panels * n; i++) sums[i] = (Vec){0};
    for (int64_t k = 0; k < in->K; k++, w += in->step)
        for (int p = 0; p < panels; p++) {
            const Vec row = *(const Vec *)(w + p * in->gap);
            for (int t = 0; t < n; t++) sums[p * n + t] += row * x[t * ldx + k];
        }
}

/* The same with pairs of bf16: the upper half of a float is one. An odd last column is
 * paired with nothing. */
ALWAYS_INLINE void block_bf16(const Panels *in, const float *x, int64_t ldx, int panels,
                              int n, Vec *sums) {
    const float *w = in->w;
    for (int i = 0; i < panels * n; i++) sums[i] = (Vec){0};
    int64_t k = 0;
    for (; k + 1 < in->K; k += 2, w += in->step)
        for (int p = 0; p < panels; p++) {
            const Words pair = *(const Words *)(w + p * in->gap);
            const Vec even = (Vec)(pair << 16), odd = (Vec)(pair & 0xffff0000u);
            for (int t = 0; t < n; t++) sums[p * n + t] += even * x[t * ldx + k];
            for (int t = 0; t < n; t++) sums[p * n + t] += odd * x[t * ldx + k + 1];
        }
    for (int p = 0; p < panels && k < in->K; p++) {
        const Vec even = (Vec)(*(const Words *)(w + p * in->gap) << 16);
        for (int t = 0; t < n; t++) sums[p * n + t] += even * x[t * ldx + k];
    }
}

typedef void Block(const Panels *in, const float *x, int64_t ldx, Vec *sums);

/* Defines a block of a fixed size, so that the sums stay in registers. */
#define DEFINE_BLOCK(kind, name, panels, n)                                              \
    static void kind##_##name(const Panels *in, const float *x, int64_t ldx,             \
                              Vec *sums) {                                               \
        Vec held[(panels) * (n)];                                                        \
        block_##kind(in, x, ldx, panels, n, held);                                       \
        for (int i = 0; i < (panels) * (n); i++) sums[i] = held[i];                      \
    }
#define DEFINE_BLOCKS(kind)                                                              \
    DEFINE_BLOCK(kind, single, 1, 1)                                                     \
    DEFINE_BLOCK(kind, solo, SOLO_PANELS, 1)                                             \
    DEFINE_BLOCK(kind, narrow, 1, VECTORS)                                               \
    DEFINE_BLOCK(kind, full, VECTOR_PANELS, VECTORS)
/* clang-format off */
DEFINE_BLOCKS(f32)
DEFINE_BLOCKS(bf16)
/* clang-format on */

/* [kind][several vectors][several panels] */
static Block *const BLOCKS[2][2][2] = {
    {{f32_single, f32_solo}, {f32_narrow, f32_full}},
    {{bf16_single, bf16_solo}, {bf16_narrow, bf16_full}},
};

/* ---- products ---- */

/* What goes to y: columns first .. last - 1 of panels whose first column is `column`. */
typedef struct Target {
    int64_t first, last;
    const float *bias;
    float *y;
    int64_t ldy;
} Target;

static void put_panel(const Target *to, int64_t column, int64_t t, const Vec *sums) {
    float *y = to->y + t * to->ldy;
    if (column >= to->first && column + PANEL_ROWS <= to->last) {
        const Vec bias = to->bias ? *(const Vec *)(to->bias + column) : (Vec){0};
        *(Vec *)(y + column) = *sums + bias;
        return;
    }
    for (int lane = 0; lane < PANEL_ROWS; lane++) {
        const int64_t at = column + lane;
        if (at >= to->first && at < to->last)
            y[at] = (*sums)[lane] + (to->bias ? to->bias[at] : 0);
    }
}

/* `panels` panels from the one at `column` on, times all vectors. */
static void times_panels(const Panels *in, StepWeights kind, int64_t column,
                         const float *x, int64_t ldx, int64_t count, const Target *to) {
    Vec sums[ACCUMULATORS];
    int64_t t = 0;
    for (int n; t < count; t += n) {
        n = count - t >= VECTORS ? VECTORS : 1;
        const int wide = n > 1 ? VECTOR_PANELS : SOLO_PANELS;
        for (int64_t p = 0, step; p < in->panels; p += step) {
            Panels part = *in;
            step = in->panels - p >= wide ? wide : 1;
            part.w += p * in->gap;
            BLOCKS[kind][n > 1][step > 1](&part, x + t * ldx, ldx, sums);
            for (int64_t i = 0; i < step * n; i++)
                put_panel(to, column + (p + i / n) * PANEL_ROWS, t + i % n, &sums[i]);
        }
    }
}

void REAL_FN(matrix_times)(const Matrix *matrix, int64_t first, int64_t last,
                           const float *bias, const float *x, int64_t ldx, float *y,
                           int64_t ldy, int64_t count) {
    if (matrix->kind == STEP_INT8) {
        REAL_FN(integer_times)(matrix, first, last, bias, x, ldx, y, ldy, count);
        return;
    }
    const int64_t pairs = (matrix->columns + 1) / 2;
    const int64_t gap =
        PANEL_ROWS * (matrix->kind == STEP_BF16 ? pairs : matrix->columns);
    const Target to = {first, last, bias, y, ldy};
    const int64_t end = (last + PANEL_ROWS - 1) / PANEL_ROWS;
    for (int64_t p = first / PANEL_ROWS, n; p < end; p += n) {
        n = end - p < SOLO_PANELS ? end - p : SOLO_PANELS;
        const Panels part = {(const float *)matrix->data + p * gap, PANEL_ROWS, gap, n,
                             matrix->columns};
        times_panels(&part, matrix->kind, p * PANEL_ROWS, x, ldx, count, &to);
    }
}

void REAL_FN(panels_times)(const Panels *panels, const float *x, int64_t ldx, float *y,
                           int64_t ldy, int64_t count) {
    const Target to = {0, panels->panels * PANEL_ROWS, NULL, y, ldy};
    times_panels(panels, STEP_F32, 0, x, ldx, count, &to);
}
