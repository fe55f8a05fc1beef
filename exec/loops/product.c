/* Products of two matrices of floats that are used once, in training above all.
 *
 * A block of k is multiplied at a time, whose sums are added to those of the blocks
 * before it in c. So an element depends on its row, its column and their strides alone,
 * whatever is cut. Columns of the right operand are packed into panels of 16
 * (exec/linalg/gemv.h), but for those of a small matrix and those that few rows are
 * multiplied with, which are read where they are. So are rows of the left operand. Where
 * k goes along its columns and these are far apart, parts of it are copied first: numbers
 * that lie a multiple of a page apart push each other out of the cache. */
#include "exec/linalg/thread_room.h"
#include "exec/loops/loops.h"
#include "exec/loops/panel.h"
#include "exec/loops/unchecked.h"

/* Floats of a register; panels and rows of the largest tile, whose sums stay in
 * registers; panels of a block, which stay in the second-level cache while rows of the
 * left operand, those of a tile in the first level, pass by. */
#if defined(__AVX512F__)
enum { LANES = 16, PANELS = 4, ROWS = 6, BLOCK_PANELS = 4 };
#elif defined(__AVX2__)
enum { LANES = 8, PANELS = 1, ROWS = 6, BLOCK_PANELS = 8 };
#elif defined(__aarch64__)
enum { LANES = 4, PANELS = 1, ROWS = 6, BLOCK_PANELS = 8 };
#else
enum { LANES = 4, PANELS = 1, ROWS = 2, BLOCK_PANELS = 1 };
#endif
enum { MIDDLE_PANELS = PANELS < 2 ? 1 : 2, MIDDLE_ROWS = ROWS < 4 ? 2 : 4 };
enum { PARTS = PANEL_ROWS / LANES };

/* Columns and k of a block; of the left operand's copies, k, rows, and the floats from
 * one k to the next. */
enum {
    COLUMNS = BLOCK_PANELS * PANEL_ROWS,
    DEPTH = 384,
    COPY_DEPTH = 128,
    COPY_ROWS = 384,
    COPY_STEP = COPY_ROWS + PANEL_ROWS,
    COPIED_FLOATS = (COLUMNS + COPY_STEP) * COPY_DEPTH, /* of panels and copies */
    NEAR_FLOATS =
        1 << 14,         /* of an operand that is read where it is, from first to last */
    FEW_ROWS = 2 * ROWS, /* for which nothing is packed */
    LINE_FLOATS = 16     /* of the cache */
};

typedef float __attribute__((vector_size(4 * LANES), aligned(1), may_alias)) Vec;

/* The left operand: element (i, k) at x[i * next + k * step]. */
typedef struct Left {
    const float *x;
    int64_t next, step;
} Left;

/* The right one: element (k, j) at x[k * ld + j], or with `turned` x[j * ld + k]. */
typedef struct Right {
    const float *x;
    int64_t ld;
    bool turned;
} Right;

/* Panels of it, K columns of 16 each: from one column to the next, and from one panel to
 * the next. */
typedef struct Strips {
    const float *w;
    int64_t K, step, gap;
} Strips;

/* Where products go, times alpha: panels `gap` columns apart; with `add`, added to what
 * is there. */
typedef struct Result {
    float *c;
    int64_t ldc, gap;
    float alpha;
    bool add;
} Result;

/* ---- tiles ---- */

/* A tile's sums, times alpha, go to their places. */
ALWAYS_INLINE void put_sums(int n, int wide, const Vec *sum, const Result *to, bool add) {
    const float alpha = to->alpha;
    const int64_t ldc = to->ldc, gap = to->gap;
    float *c = to->c;
#pragma GCC unroll 6
    for (int t = 0; t < n; t++, c += ldc)
#pragma GCC unroll 4
        for (int i = 0; i < wide; i++) {
            Vec *at = (Vec *)(c + i / PARTS * gap + i % PARTS * LANES);
            Vec result = alpha * sum[t * wide + i];
            if (add) result += *at;
            *at = result;
        }
}

/* n rows times `panels` panels. `step` is the left operand's. */
ALWAYS_INLINE void sum_tile(int panels, int n, const Strips *right, const Left *left,
                            int64_t step, const Result *to) {
    const int wide = panels * PARTS;
    Vec sum[ROWS * PANELS * PARTS];
    const float *x = left->x, *w = right->w;
#pragma GCC unroll 24
    for (int i = 0; i < n * wide; i++) sum[i] = (Vec){0};
    for (int t = 0; t < n; t++)
        for (int p = 0; p < panels; p++)
            __builtin_prefetch(to->c + t * to->ldc + p * to->gap);
    for (int64_t k = 0; k < right->K; k++, w += right->step, x += step) {
        Vec row[PANELS * PARTS];
        for (int i = 0; i < wide; i++)
            row[i] = *(const Vec *)(w + i / PARTS * right->gap + i % PARTS * LANES);
        for (int t = 0; t < n; t++)
            for (int i = 0; i < wide; i++)
                sum[t * wide + i] += row[i] * x[t * left->next];
    }
    if (to->add)
        put_sums(n, wide, sum, to, true);
    else
        put_sums(n, wide, sum, to, false);
}

/* Tiles of a fixed size; a left operand with its k side by side is read faster. */
typedef void Tile(const Strips *right, const Left *left, const Result *to);
#define DEFINE_TILE(name, panels, n)                                                     \
    UNCHECKED static void name(const Strips *right, const Left *left,                    \
                               const Result *to) {                                       \
        if (left->step == 1)                                                             \
            sum_tile(panels, n, right, left, 1, to);                                     \
        else                                                                             \
            sum_tile(panels, n, right, left, left->step, to);                            \
    }
#define DEFINE_TILES(name, panels)                                                       \
    DEFINE_TILE(name##_1, panels, 1)                                                     \
    DEFINE_TILE(name##_2, panels, 2)                                                     \
    DEFINE_TILE(name##_4, panels, MIDDLE_ROWS)                                           \
    DEFINE_TILE(name, panels, ROWS)
#define TILES_OF(name)                                                                   \
    { name##_1, name##_2, name##_4, name }
DEFINE_TILES(narrow, 1)
DEFINE_TILES(middle, MIDDLE_PANELS)
DEFINE_TILES(wide, PANELS)

/* Numbers of panels and of rows that there are tiles for. */
enum { WIDTHS = 3, HEIGHTS = 4 };
static const int WIDTH[WIDTHS] = {1, MIDDLE_PANELS, PANELS};
static const int HEIGHT[HEIGHTS] = {1, 2, MIDDLE_ROWS, ROWS};
static Tile *const TILES[WIDTHS][HEIGHTS] = {TILES_OF(narrow), TILES_OF(middle),
                                             TILES_OF(wide)};

/* What a tile of `panels` panels and n rows reads and writes. */
static void touch_tile(int panels, int n, const Strips *right, const Left *left,
                       const Result *to) {
    const int64_t size = sizeof(float), line = PANEL_ROWS * size, last = right->K - 1;
    for (int p = 0; p < panels; p++) {
        touch(right->w + p * right->gap, last < 0 ? 0 : last * right->step * size + line);
        for (int t = 0; t < n; t++) touch(to->c + t * to->ldc + p * to->gap, line);
    }
    for (int t = 0; t < n; t++)
        touch(left->x + t * left->next, (last * left->step + 1) * size);
}

static void run_tile(int across, int tall, const Strips *right, const Left *left,
                     const Result *to) {
    if (SANITIZED) touch_tile(WIDTH[across], HEIGHT[tall], right, left, to);
    TILES[across][tall](right, left, to);
}

static int64_t at_most(int64_t count, int64_t most) {
    return count < most ? count : most;
}

/* The last of `sizes` sizes that is at most `count`. */
static int size_for(const int *size, int sizes, int64_t count) {
    int i = sizes - 1;
    while (i > 0 && size[i] > count) i--;
    return i;
}

/* The tile for rows from *t on. The last one begins earlier where a larger tile takes
 * what would be several: rows come to the same twice, unless they are added. */
static int height_for(int64_t *t, int64_t rows, bool add) {
    const int tall = size_for(HEIGHT, HEIGHTS, rows - *t);
    const bool covered = HEIGHT[tall] == rows - *t || tall + 1 == HEIGHTS;
    if (add || covered || HEIGHT[tall + 1] > rows) return tall;
    *t = rows - HEIGHT[tall + 1];
    return tall + 1;
}

/* Asks for what the panels `p` .. `p + count` of `panels` have as their share of the next
 * tile's rows, K numbers each, while this one's are multiplied. */
static void fetch_share(const Left *next, int64_t K, int64_t p, int64_t count,
                        int64_t panels) {
    const int64_t end = K * (p + count) / panels;
    int64_t k = K * p / panels;
    if (next->step == 1)
        for (; k < end; k += LINE_FLOATS)
            for (int i = 0; i < ROWS; i++)
                __builtin_prefetch(next->x + i * next->next + k);
    else
        for (; k < end; k++) __builtin_prefetch(next->x + k * next->step + ROWS - 1);
}

/* Whole panels times all rows. */
static void put_panels(const Strips *right, int64_t panels, const Left *left,
                       int64_t rows, const Result *to) {
    for (int64_t t = 0; t < rows;) {
        const int tall = height_for(&t, rows, to->add);
        const Left here = {left->x + t * left->next, left->next, left->step};
        const Left next = {here.x + ROWS * left->next, left->next, left->step};
        const bool fetched = BLOCK_PANELS > PANELS && t + 2 * ROWS <= rows;
        for (int64_t p = 0; p < panels;) {
            const int across = size_for(WIDTH, WIDTHS, panels - p);
            const Strips strips = {right->w + p * right->gap, right->K, right->step,
                                   right->gap};
            Result at = *to;
            at.c += t * to->ldc + p * to->gap;
            if (fetched) fetch_share(&next, right->K, p, WIDTH[across], panels);
            run_tile(across, tall, &strips, &here, &at);
            p += WIDTH[across];
        }
        t += HEIGHT[tall];
    }
}

/* A panel of which c has fewer columns. */
static void put_edge(const Strips *right, const Left *left, int64_t rows, int64_t columns,
                     const Result *to) {
    float room[ROWS * PANEL_ROWS];
    const size_t bytes = (size_t)columns * sizeof *room;
    for (int64_t t = 0; t < rows;) {
        const int tall = size_for(HEIGHT, HEIGHTS, rows - t), n = HEIGHT[tall];
        const Left here = {left->x + t * left->next, left->next, left->step};
        float *c = to->c + t * to->ldc;
        memset(room, 0, (size_t)n * PANEL_ROWS * sizeof *room);
        for (int i = 0; to->add && i < n; i++)
            memcpy(room + i * PANEL_ROWS, c + i * to->ldc, bytes);
        run_tile(0, tall, right, &here,
                 &(Result){room, PANEL_ROWS, PANEL_ROWS, to->alpha, to->add});
        for (int i = 0; i < n; i++) memcpy(c + i * to->ldc, room + i * PANEL_ROWS, bytes);
        t += n;
    }
}

/* ---- blocks ---- */

/* `columns` columns from j on, at most COLUMNS, and where they go. */
typedef struct Block {
    const Right *right;
    int64_t j, columns, K;
    bool here;   /* whole panels are read where they are; else they are packed: */
    float *room; /* [COLUMNS * K] */
    Result to;   /* from column j on */
} Block;

/* `count` columns from the block's i-th on, packed into panels. */
static void pack(const Block *b, int64_t i, int64_t count, float *room) {
    const Right *right = b->right;
    const int64_t at = b->j + i;
    if (right->turned)
        panels_of_rows(right->x + at * right->ld, right->ld, b->K, count, room);
    else
        panels_of_columns(right->x + at, right->ld, b->K, count, room);
}

/* Panels from the block's i-th column on, `gap` columns apart; packed as the p-th. */
static void put_from(const Block *b, int64_t i, int64_t p, int64_t panels, int64_t gap,
                     const Left *left, int64_t m) {
    const float *x = b->right->x + b->j + i;
    const int64_t K = b->K;
    const Strips packed = {b->room + p * K * PANEL_ROWS, K, PANEL_ROWS, K * PANEL_ROWS};
    const Strips found = {x, K, b->right->ld, gap};
    Result to = b->to;
    to.c += i;
    to.gap = gap;
    put_panels(b->here ? &found : &packed, panels, left, m, &to);
}

/* The last columns, fewer than a panel, are those of one that begins earlier, whose first
 * columns come to the same twice; it is read together with the one before it. */
static void put_overlapping(const Block *b, const Left *left, int64_t m) {
    const int64_t whole = b->columns / PANEL_ROWS, rest = b->columns % PANEL_ROWS;
    const int64_t last = b->columns - PANEL_ROWS;
    if (!b->here) pack(b, 0, whole * PANEL_ROWS, b->room);
    if (!b->here) pack(b, last, PANEL_ROWS, b->room + whole * PANEL_ROWS * b->K);
    if (whole > 1) put_from(b, 0, 0, whole - 1, PANEL_ROWS, left, m);
    if (whole > 0)
        put_from(b, last - rest, whole - 1, 2, rest, left, m);
    else
        put_from(b, last, 0, 1, PANEL_ROWS, left, m);
}

static void put_columns(const Block *b, const Left *left, int64_t m) {
    const int64_t whole = b->columns / PANEL_ROWS, rest = b->columns % PANEL_ROWS;
    if (rest > 0 && !b->to.add && b->j + b->columns >= PANEL_ROWS) {
        put_overlapping(b, left, m);
        return;
    }
    if (!b->here) pack(b, 0, whole * PANEL_ROWS, b->room);
    put_from(b, 0, 0, whole, PANEL_ROWS, left, m);
    if (rest == 0) return;
    Result to = b->to;
    to.c += whole * PANEL_ROWS;
    pack(b, whole * PANEL_ROWS, rest, b->room);
    put_edge(&(Strips){b->room, b->K, PANEL_ROWS, 0}, left, m, rest, &to);
}

/* `room`: [COLUMNS * K]. */
static void put_block(const Left *left, const Right *right, int64_t m, int64_t n,
                      int64_t K, float *room, const Result *to) {
    const bool here = !right->turned && (K * right->ld <= NEAR_FLOATS || m <= FEW_ROWS);
    for (int64_t j = 0; j < n; j += COLUMNS) {
        Block block = {right, j, at_most(n - j, COLUMNS), K, here, room, *to};
        block.to.c += j;
        put_columns(&block, left, m);
    }
}

/* The same with copies of the left operand, whose rows are side by side; they are put
 * behind the room. */
static void put_copied(const Left *left, const Right *right, int64_t m, int64_t n,
                       int64_t K, float *room, const Result *to) {
    float *copy = room + COLUMNS * COPY_DEPTH;
    for (int64_t i = 0; i < m; i += COPY_ROWS) {
        const int64_t rows = at_most(m - i, COPY_ROWS);
        for (int64_t k = 0; k < K; k++)
            memcpy(copy + k * COPY_STEP, left->x + k * left->step + i,
                   (size_t)rows * sizeof *copy);
        Result at = *to;
        at.c += i * to->ldc;
        put_block(&(Left){copy, 1, COPY_STEP}, right, rows, n, K, room, &at);
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
    const int64_t most = at_most(k, depth) * COLUMNS;
    float *room = thread_room(sizeof *room * (size_t)(copied ? COPIED_FLOATS : most));
    Left left = {a, trans_a ? 1 : lda, trans_a ? lda : 1};
    Right right = {b, ldb, trans_b};
    Result to = {c, ldc, PANEL_ROWS, alpha, beta != 0};
    if (beta != 0 || k == 0) scale_result(c, ldc, m, n, beta);
    for (int64_t first = 0; first < k; first += depth, to.add = true) {
        left.x = a + first * left.step;
        right.x = b + first * (trans_b ? 1 : ldb);
        (copied ? put_copied : put_block)(&left, &right, m, n, at_most(k - first, depth),
                                          room, &to);
    }
}
