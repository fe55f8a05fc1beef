/* Products of two matrices of floats that are used once, in training above all.
 *
 * Columns of the right operand are packed into panels of 16 (exec/linalg/gemv.h), a block
 * of k at a time, whose sums are added to those of the blocks before it in c. So an
 * element depends on its row, its column and their strides alone, whatever is cut. Rows
 * of the left operand are read where they are. Where k goes along its columns and these
 * are far apart, parts of it are copied first: numbers that lie a multiple of a page
 * apart push each other out of the cache. */
#include "exec/loops/loops.h"
#include "exec/loops/panel.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* Floats of a register; panels and rows of the largest tile, whose sums stay in
 * registers. */
#if defined(__AVX512F__)
enum { LANES = 16, PANELS = 4, ROWS = 6 };
#elif defined(__AVX2__)
enum { LANES = 8, PANELS = 1, ROWS = 6 };
#elif defined(__aarch64__)
enum { LANES = 4, PANELS = 1, ROWS = 6 };
#else
enum { LANES = 4, PANELS = 1, ROWS = 2 };
#endif
enum { MIDDLE_PANELS = PANELS < 2 ? 1 : 2, PARTS = PANEL_ROWS / LANES };

/* Columns and k of a block; of the left operand's copies, k, rows, and the floats from
 * one k to the next. */
enum {
    COLUMNS = PANELS * PANEL_ROWS,
    DEPTH = 384,
    COPY_DEPTH = 128,
    COPY_ROWS = 384,
    COPY_STEP = COPY_ROWS + PANEL_ROWS,
    NEAR_FLOATS = 1 << 14 /* of a left operand that is not copied, from first to last */
};

typedef float __attribute__((vector_size(4 * LANES), aligned(1), may_alias)) Vec;

/* The left operand: element (i, k) at x[i * next + k * step]. */
typedef struct Left {
    const float *x;
    int64_t next, step;
} Left;

/* The right one: element (k, j) at x[k * ld + j], or with `turned` x[j * ld + k]; all
 * are multiplied by alpha. */
typedef struct Right {
    const float *x;
    int64_t ld;
    bool turned;
    float alpha;
} Right;

/* Where products go; with `add`, added to what is there. */
typedef struct Result {
    float *c;
    int64_t ldc;
    bool add;
} Result;

/* ---- tiles ---- */

/* n rows times `panels` panels of K each. `step` is the left operand's. */
ALWAYS_INLINE void sum_tile(int panels, int n, const float *w, int64_t K,
                            const Left *left, int64_t step, const Result *to) {
    typedef struct Held {
        Vec sum[ROWS * PANELS * PARTS];
    } Held;
    const int wide = panels * PARTS;
    const float *x = left->x;
    Held held = {0};
    for (int t = 0; t < n; t++)
        for (int p = 0; p < panels; p++)
            __builtin_prefetch(to->c + t * to->ldc + p * PANEL_ROWS);
    for (int64_t k = 0; k < K; k++, w += PANEL_ROWS, x += step) {
        Vec row[PANELS * PARTS];
        for (int i = 0; i < wide; i++)
            row[i] = *(const Vec *)(w + i / PARTS * K * PANEL_ROWS + i % PARTS * LANES);
        for (int t = 0; t < n; t++)
            for (int i = 0; i < wide; i++)
                held.sum[t * wide + i] += row[i] * x[t * left->next];
    }
    for (int t = 0; t < n; t++)
        for (int i = 0; i < wide; i++) {
            Vec *at = (Vec *)(to->c + t * to->ldc + i * LANES);
            if (to->add) held.sum[t * wide + i] += *at;
            *at = held.sum[t * wide + i];
        }
}

/* Tiles of a fixed size; a left operand with its k side by side is read faster. */
typedef void Tile(const float *w, int64_t K, const Left *left, const Result *to);
#define DEFINE_TILE(name, panels, n)                                                     \
    static void name(const float *w, int64_t K, const Left *left, const Result *to) {    \
        if (left->step == 1)                                                             \
            sum_tile(panels, n, w, K, left, 1, to);                                      \
        else                                                                             \
            sum_tile(panels, n, w, K, left, left->step, to);                             \
    }
DEFINE_TILE(narrow_1, 1, 1)
DEFINE_TILE(narrow_2, 1, 2)
DEFINE_TILE(narrow, 1, ROWS)
DEFINE_TILE(middle_1, MIDDLE_PANELS, 1)
DEFINE_TILE(middle_2, MIDDLE_PANELS, 2)
DEFINE_TILE(middle, MIDDLE_PANELS, ROWS)
DEFINE_TILE(wide_1, PANELS, 1)
DEFINE_TILE(wide_2, PANELS, 2)
DEFINE_TILE(wide, PANELS, ROWS)

/* Numbers of panels and of rows that there are tiles for. */
enum { SIZES = 3 };
static const int WIDTH[SIZES] = {1, MIDDLE_PANELS, PANELS}, HEIGHT[SIZES] = {1, 2, ROWS};
static Tile *const TILES[SIZES][SIZES] = {
    {narrow_1, narrow_2, narrow}, {middle_1, middle_2, middle}, {wide_1, wide_2, wide}};

static int64_t at_most(int64_t count, int64_t most) {
    return count < most ? count : most;
}

/* The largest size that is at most `count`. */
static int size_for(const int size[SIZES], int64_t count) {
    int i = SIZES - 1;
    while (i > 0 && size[i] > count) i--;
    return i;
}

/* A tile of which c has fewer columns. */
static void put_edge(Tile *tile, const float *w, int64_t K, const Left *left, int rows,
                     int64_t columns, const Result *to) {
    float room[ROWS * COLUMNS] = {0};
    const size_t bytes = (size_t)columns * sizeof *room;
    for (int t = 0; to->add && t < rows; t++)
        memcpy(room + t * COLUMNS, to->c + t * to->ldc, bytes);
    tile(w, K, left, &(Result){room, COLUMNS, to->add});
    for (int t = 0; t < rows; t++) memcpy(to->c + t * to->ldc, room + t * COLUMNS, bytes);
}

/* All rows times the panels of at most COLUMNS columns. */
static void put_panels(const float *panels, int64_t K, const Left *left, int64_t rows,
                       int64_t columns, const Result *to) {
    for (int64_t t = 0; t < rows;) {
        const int tall = size_for(HEIGHT, rows - t);
        const Left here = {left->x + t * left->next, left->next, left->step};
        for (int64_t j = 0; j < columns;) {
            const int across =
                size_for(WIDTH, (columns - j + PANEL_ROWS - 1) / PANEL_ROWS);
            Tile *tile = TILES[across][tall];
            const Result at = {to->c + t * to->ldc + j, to->ldc, to->add};
            if (WIDTH[across] * PANEL_ROWS <= columns - j)
                tile(panels + j * K, K, &here, &at);
            else
                put_edge(tile, panels + j * K, K, &here, HEIGHT[tall], columns - j, &at);
            j += WIDTH[across] * PANEL_ROWS;
        }
        t += HEIGHT[tall];
    }
}

/* ---- blocks ---- */

/* The columns j .. j + columns - 1 of the right operand. */
static void pack_right(const Right *right, int64_t j, int64_t columns, int64_t K,
                       float *to) {
    const int64_t packed = (columns + PANEL_ROWS - 1) / PANEL_ROWS * PANEL_ROWS * K;
    if (right->turned)
        panels_of_rows(right->x + j * right->ld, right->ld, K, columns, to);
    else
        panels_of_columns(right->x + j, right->ld, K, columns, to);
    for (int64_t i = 0; right->alpha != 1 && i < packed; i++) to[i] *= right->alpha;
}

static void put_block(const Left *left, const Right *right, int64_t m, int64_t n,
                      int64_t K, const Result *to) {
    _Alignas(64) float panels[COLUMNS * DEPTH];
    for (int64_t j = 0; j < n; j += COLUMNS) {
        const int64_t columns = at_most(n - j, COLUMNS);
        pack_right(right, j, columns, K, panels);
        put_panels(panels, K, left, m, columns, &(Result){to->c + j, to->ldc, to->add});
    }
}

/* The same with copies of the left operand, whose rows are side by side. */
static void put_copied(const Left *left, const Right *right, int64_t m, int64_t n,
                       int64_t K, const Result *to) {
    _Alignas(64) float copy[COPY_STEP * COPY_DEPTH];
    for (int64_t i = 0; i < m; i += COPY_ROWS) {
        const int64_t rows = at_most(m - i, COPY_ROWS);
        for (int64_t k = 0; k < K; k++)
            memcpy(copy + k * COPY_STEP, left->x + k * left->step + i,
                   (size_t)rows * sizeof *copy);
        put_block(&(Left){copy, 1, COPY_STEP}, right, rows, n, K,
                  &(Result){to->c + i * to->ldc, to->ldc, to->add});
    }
}

/* c = beta c: what k = 0 comes to, and before sums are added to it. */
static void scale_result(float *c, int64_t ldc, int64_t m, int64_t n, float beta) {
    for (int64_t i = 0; i < m && beta != 1; i++, c += ldc)
        for (int64_t j = 0; j < n; j++) c[j] = beta == 0 ? 0 : beta * c[j];
}

void REAL_FN(multiply)(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
                       float alpha, const float *a, int64_t lda, const float *b,
                       int64_t ldb, float beta, float *c, int64_t ldc) {
    const bool copied = trans_a && k * lda > NEAR_FLOATS;
    const int64_t depth = copied ? COPY_DEPTH : DEPTH;
    Left left = {a, trans_a ? 1 : lda, trans_a ? lda : 1};
    Right right = {b, ldb, trans_b, alpha};
    Result to = {c, ldc, beta != 0};
    if (beta != 0 || k == 0) scale_result(c, ldc, m, n, beta);
    for (int64_t first = 0; first < k; first += depth, to.add = true) {
        left.x = a + first * left.step;
        right.x = b + first * (trans_b ? 1 : ldb);
        (copied ? put_copied : put_block)(&left, &right, m, n, at_most(k - first, depth),
                                          &to);
    }
}
