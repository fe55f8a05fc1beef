/* Products of whole numbers of 8 bits: see exec/linalg/gemv.h.
 *
 * Rows of x are rounded, some of them at a time, and every tile of some rows and some
 * panels of weights is summed in registers. Weights are bytes without a sign, w + 128:
 * what that adds to a sum, 128 times the sum of the row's numbers, is taken off at the
 * end. The sums are whole numbers, so that every way to take them gives the same; what
 * follows is one product, one product and one sum in float, none of them fused (this file
 * is compiled so). Results are the same bytes on every processor. */
#include "exec/linalg/thread_room.h"
#include "exec/linalg/tiles.h"
#include "exec/loops/integer_rows.h"
#include "exec/loops/target.h"

#include <string.h>

enum {
    GROUP = PANEL_ROWS * QUAD, /* bytes of one quad of a panel */
    OFFSET = 128,
    ROWS_MAX = 8,   /* of a tile */
    PANELS_MAX = 8, /* of a tile */
    SUMS_MAX = 24   /* panels times rows of a tile; of pairs twice as many */
};

/* Sums of a tile, [panel][row][lane]: of `quads` quads of columns of `panels` panels,
 * `gap` bytes apart, and of `n` rows of x, ldx bytes apart. */
typedef void Tile(const uint8_t *w, int64_t gap, const char *x, int64_t ldx,
                  int64_t quads, uint32_t *sums);

/* Puts the products of the matrix with the first `count` rounded rows to y, from its row
 * t on. */
typedef struct Way Way;
typedef void Block(const Way *way, const Matrix *matrix, const RoundedRows *rows,
                   int64_t count, const Target *to, int64_t t);
static Block times_block;

/* One way to take sums: in registers, by tiles of 1 to `rows` rows, as wide as rows leave
 * room for, and of one panel; or without them. */
struct Way {
    Block *block;
    int rows, panels, solo_panels; /* solo: with one row */
    int bytes, unit; /* of a number of x; numbers of a row, a multiple of these */
    Tile *wide[ROWS_MAX], *narrow[ROWS_MAX];
};

/* Defines a tile of a fixed size: of `way` with `per` vectors `type` for each panel and
 * row. Sums that are one struct, without loops around the tile's own, stay in registers.
 */
#define DEFINE_TILE(way, target, type, per, panels, n)                                   \
    target static void way##_##panels##_##n(const uint8_t *w, int64_t gap,               \
                                            const char *x, int64_t ldx, int64_t quads,   \
                                            uint32_t *sums) {                            \
        typedef struct Held {                                                            \
            type sum[(per) * (panels) * (n)];                                            \
        } Held;                                                                          \
        Held held = {0}, *const to = (Held *)sums;                                       \
        way##_tile(w, gap, x, ldx, quads, panels, n, held.sum);                          \
        *to = held;                                                                      \
        way##_join(sums, (panels) * (n));                                                \
    }

/* ---- in plain C ---- */

typedef uint32_t PlainSum __attribute__((may_alias));

ALWAYS_INLINE void plain_tile(const uint8_t *w, int64_t gap, const char *x, int64_t ldx,
                              int64_t quads, int panels, int n, PlainSum *sum) {
    (void)gap, (void)ldx, (void)panels, (void)n;
    for (int64_t quad = 0; quad < quads; quad++)
        for (int lane = 0; lane < PANEL_ROWS; lane++)
            for (int i = 0; i < QUAD; i++)
                sum[lane] += (uint32_t)(w[quad * GROUP + lane * QUAD + i] *
                                        ((const int8_t *)x)[quad * QUAD + i]);
}
ALWAYS_INLINE void plain_join(uint32_t *sums, int count) {
    (void)sums, (void)count;
}
DEFINE_TILE(plain, , PlainSum, PANEL_ROWS, 1, 1)

static const Way PLAIN = {times_block, 1, 1, 1, 1, QUAD, {plain_1_1}, {plain_1_1}};

/* ---- pairs of 16 bits ---- */

#ifdef __SSE4_1__
#include <immintrin.h>

/* A vector of bytes of weights becomes two of 16 bits: columns 0 and 2 of each quad of a
 * lane, and columns 1 and 3. Rows of x are in that order, too (round_rows), so that a
 * lane's 32 bits get the sum of both products. */
#if defined(__AVX512BW__)
enum { PAIR_ROWS = 8, PAIR_SOLO = 4 };
typedef __m512i Pairs;
#define PAIRS_LOAD(p)        _mm512_loadu_si512(p)
#define PAIRS_EVEN(w)        _mm512_and_si512(w, _mm512_set1_epi16(255))
#define PAIRS_ODD(w)         _mm512_srli_epi16(w, 8)
#define PAIRS_OF(x)          _mm512_set1_epi32(x)
#define PAIRS_ADD(sum, w, x) _mm512_add_epi32(sum, _mm512_madd_epi16(w, x))
#elif defined(__AVX2__)
enum { PAIR_ROWS = 4, PAIR_SOLO = 4 };
typedef __m256i Pairs;
#define PAIRS_LOAD(p)        _mm256_loadu_si256((const __m256i *)(p))
#define PAIRS_EVEN(w)        _mm256_and_si256(w, _mm256_set1_epi16(255))
#define PAIRS_ODD(w)         _mm256_srli_epi16(w, 8)
#define PAIRS_OF(x)          _mm256_set1_epi32(x)
#define PAIRS_ADD(sum, w, x) _mm256_add_epi32(sum, _mm256_madd_epi16(w, x))
#else
enum { PAIR_ROWS = 2, PAIR_SOLO = 1 };
typedef __m128i Pairs;
#define PAIRS_LOAD(p)        _mm_loadu_si128((const __m128i *)(p))
#define PAIRS_EVEN(w)        _mm_and_si128(w, _mm_set1_epi16(255))
#define PAIRS_ODD(w)         _mm_srli_epi16(w, 8)
#define PAIRS_OF(x)          _mm_set1_epi32(x)
#define PAIRS_ADD(sum, w, x) _mm_add_epi32(sum, _mm_madd_epi16(w, x))
#endif
enum { PAIR_BYTES = sizeof(Pairs), PARTS = GROUP / PAIR_BYTES };
typedef int32_t Word __attribute__((aligned(1), may_alias));

ALWAYS_INLINE void pairs_tile(const uint8_t *w, int64_t gap, const char *x, int64_t ldx,
                              int64_t quads, int panels, int n, Pairs *sum) {
    for (int64_t quad = 0; quad < quads; quad++, w += GROUP, x += QUAD * sizeof(int16_t))
        for (int p = 0; p < panels; p++) {
            Pairs even[PARTS], odd[PARTS];
            for (int i = 0; i < PARTS; i++) {
                const Pairs bytes = PAIRS_LOAD(w + p * gap + i * PAIR_BYTES);
                even[i] = PAIRS_EVEN(bytes), odd[i] = PAIRS_ODD(bytes);
            }
            for (int t = 0; t < n; t++) {
                const Word *pair = (const Word *)(x + t * ldx); /* two loads, not one */
                const Pairs first = PAIRS_OF(pair[0]), second = PAIRS_OF(pair[1]);
                for (int i = 0; i < PARTS; i++) {
                    Pairs *to = &sum[(p * n + t) * PARTS + i];
                    *to = PAIRS_ADD(*to, even[i], first);
                    *to = PAIRS_ADD(*to, odd[i], second);
                }
            }
        }
}

ALWAYS_INLINE void pairs_join(uint32_t *sums, int count) {
    (void)sums, (void)count;
}
#define DEFINE_PAIRS(panels, n) DEFINE_TILE(pairs, , Pairs, PARTS, panels, n)

DEFINE_PAIRS(1, 1)
DEFINE_PAIRS(1, 2)
#if defined(__AVX2__)
DEFINE_PAIRS(4, 1)
DEFINE_PAIRS(1, 3)
DEFINE_PAIRS(1, 4)
#endif
#if defined(__AVX512BW__)
DEFINE_PAIRS(1, 5)
DEFINE_PAIRS(1, 6)
DEFINE_PAIRS(1, 7)
DEFINE_PAIRS(1, 8)
#define PAIRS_NARROW                                                                     \
    pairs_1_2, pairs_1_3, pairs_1_4, pairs_1_5, pairs_1_6, pairs_1_7, pairs_1_8
#define PAIRS_WIDE pairs_4_1
#elif defined(__AVX2__)
#define PAIRS_NARROW pairs_1_2, pairs_1_3, pairs_1_4
#define PAIRS_WIDE   pairs_4_1
#else
#define PAIRS_NARROW pairs_1_2
#define PAIRS_WIDE   pairs_1_1
#endif
static const Way PAIRS = {times_block,
                          PAIR_ROWS,
                          1,
                          PAIR_SOLO,
                          sizeof(int16_t),
                          QUAD,
                          {PAIRS_WIDE, PAIRS_NARROW},
                          {pairs_1_1, PAIRS_NARROW}};
#endif

/* ---- quads of 8 bits: AVX-512 VNNI, which no level has ---- */

#ifdef __AVX512BW__
typedef int32_t QuadSums
    __attribute__((vector_size(64), aligned(sizeof(int32_t)), may_alias));
#define VNNI __attribute__((target("avx512vnni")))

VNNI ALWAYS_INLINE void quads_tile(const uint8_t *w, int64_t gap, const char *x,
                                   int64_t ldx, int64_t quads, int panels, int n,
                                   QuadSums *sum) {
    for (int64_t quad = 0; quad < quads; quad++, w += GROUP, x += QUAD) {
        __m512i part[PANELS_MAX];
        for (int p = 0; p < panels; p++) part[p] = _mm512_loadu_si512(w + p * gap);
        for (int t = 0; t < n; t++) {
            int32_t numbers;
            memcpy(&numbers, x + t * ldx, sizeof numbers);
            const __m512i row = _mm512_set1_epi32(numbers);
            for (int p = 0; p < panels; p++)
                sum[p * n + t] =
                    (QuadSums)_mm512_dpbusd_epi32((__m512i)sum[p * n + t], part[p], row);
        }
    }
}

ALWAYS_INLINE void quads_join(uint32_t *sums, int count) {
    (void)sums, (void)count;
}
#define DEFINE_QUADS(panels, n) DEFINE_TILE(quads, VNNI, QuadSums, 1, panels, n)

/* clang-format off */
DEFINE_QUADS(8, 1)
DEFINE_QUADS(1, 1)
DEFINE_QUADS(3, 2)
DEFINE_QUADS(1, 2)
DEFINE_QUADS(3, 3)
DEFINE_QUADS(1, 3)
DEFINE_QUADS(3, 4)
DEFINE_QUADS(1, 4)
DEFINE_QUADS(3, 5)
DEFINE_QUADS(1, 5)
DEFINE_QUADS(3, 6)
DEFINE_QUADS(1, 6)
DEFINE_QUADS(3, 7)
DEFINE_QUADS(1, 7)
DEFINE_QUADS(3, 8)
DEFINE_QUADS(1, 8)
static const Way QUADS = {
    times_block, 8, 3, 8, 1, QUAD,
    {quads_8_1, quads_3_2, quads_3_3, quads_3_4, quads_3_5, quads_3_6, quads_3_7, quads_3_8},
    {quads_1_1, quads_1_2, quads_1_3, quads_1_4, quads_1_5, quads_1_6, quads_1_7, quads_1_8}};
/* clang-format on */

/* ---- tiles of 8 bits: AMX, which no level has ---- */

static Block times_tiles;
static const Way TILES = {times_tiles,    TILE_PAIR,  2,      2,
                          sizeof(int8_t), TILE_BYTES, {NULL}, {NULL}};
#endif

/* The way `wanted`, NULL where this set or this processor has not got it. */
static const Way *find_way(IntegerWay wanted) {
#ifdef __AVX512BW__
    if (wanted == INTEGER_TILES) return processor_tiles() ? &TILES : NULL;
    if (wanted == INTEGER_QUADS)
        return __builtin_cpu_supports("avx512vnni") ? &QUADS : NULL;
#endif
#ifdef __SSE4_1__
    if (wanted == INTEGER_PAIRS) return &PAIRS;
#endif
    return wanted == INTEGER_PLAIN ? &PLAIN : NULL;
}

bool REAL_FN(integer_has)(IntegerWay way) {
    return find_way(way) != NULL;
}

/* ---- products ---- */

/* Sums as real numbers, plus the bias where there is one. */
ALWAYS_INLINE void scale_panel(const uint32_t *sums, uint32_t excess, float scale,
                               const float *scales, const float *bias, float *y) {
    for (int i = 0; i < PANEL_ROWS; i += LANES) {
        const Ints whole = (Ints)(*(const Words *)(sums + i) - excess);
        Floats product = __builtin_convertvector(whole, Floats) *
                         (scale * *(const Floats *)(scales + i));
        if (bias) product += *(const Floats *)(bias + i);
        *(Floats *)(y + i) = product;
    }
}

/* The results of one row in the panel whose first column is `column`. */
static void put_panel(const Target *to, int64_t column, float scale, uint32_t excess,
                      const uint32_t *sums, float *y) {
    const float *scales = to->scale + column, *bias = to->bias ? to->bias + column : NULL;
    if (to->first <= column && column + PANEL_ROWS <= to->last) {
        scale_panel(sums, excess, scale, scales, bias, y + column);
        return;
    }
    for (int lane = 0; lane < PANEL_ROWS; lane++) {
        const float product =
            (float)(int32_t)(sums[lane] - excess) * (scale * scales[lane]);
        if (column + lane >= to->first && column + lane < to->last)
            y[column + lane] = bias ? product + bias[lane] : product;
    }
}

static void times_block(const Way *way, const Matrix *matrix, const RoundedRows *rows,
                        int64_t count, const Target *to, int64_t t) {
    const int64_t quads = (matrix->columns + QUAD - 1) / QUAD, gap = quads * GROUP;
    const int64_t end = (to->last + PANEL_ROWS - 1) / PANEL_ROWS;
    const int64_t tiles = (count + way->rows - 1) / way->rows;
    const int wide = count == 1 ? way->solo_panels : way->panels;
    _Alignas(64) uint32_t sums[SUMS_MAX * PANEL_ROWS]; /* as tiles store them */
    for (int64_t p = to->first / PANEL_ROWS, step; p < end; p += step) {
        step = end - p >= wide ? wide : 1;
        for (int64_t tile = 0; tile < tiles; tile++) {
            const int64_t row = count * tile / tiles;
            const int64_t n = count * (tile + 1) / tiles - row;
            const bool lone = n == 1 && count > 1; /* tiles of one row are wider */
            Tile *const run = (step > 1 && !lone ? way->wide : way->narrow)[n - 1];
            for (int64_t q = 0; q < (lone ? step : 1); q++)
                run((const uint8_t *)matrix->data + (p + q) * gap, gap,
                    rows->number + row * rows->step, rows->step, quads,
                    sums + q * PANEL_ROWS);
            for (int64_t i = 0; i < step * n; i++)
                put_panel(to, (p + i / n) * PANEL_ROWS, rows->scale[row + i % n],
                          OFFSET * (uint32_t)rows->sum[row + i % n],
                          sums + i * PANEL_ROWS, to->y + (t + row + i % n) * to->ldy);
        }
    }
}

/* ---- products by tiles ---- */

#ifdef __AVX512BW__

/* Two panels of weights, and what is multiplied of them: their whole steps of 64 columns,
 * and what is left of columns behind those, with zeros. */
typedef struct PanelPair {
    const uint8_t *first, *second;
    int64_t steps;
    bool left;
    _Alignas(TILE_BYTES) uint8_t rest[2][TILE_LINES * TILE_BYTES];
} PanelPair;

static void take_panels(PanelPair *pair, const Matrix *matrix, int64_t panel, bool both) {
    const int64_t quads = (matrix->columns + QUAD - 1) / QUAD;
    pair->first = (const uint8_t *)matrix->data + panel * quads * GROUP;
    pair->second = pair->first + (both ? quads * GROUP : 0);
    pair->steps = quads / TILE_LINES;
    pair->left = quads % TILE_LINES != 0;
    if (!pair->left) return;
    const int64_t done = pair->steps * TILE_LINES, bytes = (quads - done) * GROUP;
    memset(pair->rest, 0, sizeof pair->rest);
    memcpy(pair->rest[0], pair->first + done * GROUP, (size_t)bytes);
    memcpy(pair->rest[1], pair->second + done * GROUP, (size_t)bytes);
}

/* Sums of up to 32 rows, [row][lane], lanes of both panels one after the other. */
TILES_TARGET static void sum_tiles(const PanelPair *pair, const char *x, int64_t ldx,
                                   bool below, uint32_t *sums) {
    const uint8_t *first = pair->first, *second = pair->second;
    tiles_zero(below);
    for (int64_t step = 0; step < pair->steps; step++) {
        TILES_ADD(_tile_dpbsud, below, x, ldx, first, second, GROUP);
        first += TILE_LINES * GROUP, second += TILE_LINES * GROUP, x += TILE_BYTES;
    }
    if (pair->left)
        TILES_ADD(_tile_dpbsud, below, x, ldx, pair->rest[0], pair->rest[1], GROUP);
    tiles_store(below, sums, 2 * PANEL_ROWS * sizeof *sums);
}

/* The results of `count` rows from `row` on in a panel, of which the sums of each lie
 * beside those of another panel. */
static void put_rows(const Target *to, int64_t panel, const RoundedRows *rows,
                     int64_t row, int64_t count, int64_t t, const uint32_t *sums) {
    for (int64_t r = row; r < row + count; r++, sums += 2 * PANEL_ROWS)
        put_panel(to, panel * PANEL_ROWS, rows->scale[r], OFFSET * (uint32_t)rows->sum[r],
                  sums, to->y + (t + r) * to->ldy);
}

/* The products of the rows from..end, `at_once` at a time. */
TILES_TARGET static void times_rows(const Matrix *matrix, const RoundedRows *rows,
                                    int64_t from, int64_t end, int64_t at_once,
                                    const Target *to, int64_t t) {
    _Alignas(TILE_BYTES) uint32_t sums[TILE_PAIR * 2 * PANEL_ROWS];
    const int64_t panels = (to->last + PANEL_ROWS - 1) / PANEL_ROWS;
    const bool below = tiles_open(at_once);
    PanelPair pair;
    for (int64_t p = to->first / PANEL_ROWS; p < panels; p += 2) {
        const bool both = p + 1 < panels;
        take_panels(&pair, matrix, p, both);
        for (int64_t row = from; row < end; row += at_once) {
            sum_tiles(&pair, rows->number + row * rows->step, rows->step, below, sums);
            for (int half = 0; half <= both; half++)
                put_rows(to, p + half, rows, row, at_once, t, sums + half * PANEL_ROWS);
        }
    }
    tiles_close();
}

static void times_tiles(const Way *way, const Matrix *matrix, const RoundedRows *rows,
                        int64_t count, const Target *to, int64_t t) {
    const int64_t whole = count - count % way->rows;
    if (whole) times_rows(matrix, rows, 0, whole, way->rows, to, t);
    if (whole < count) times_rows(matrix, rows, whole, count, count - whole, to, t);
}
#endif

/* ---- all ---- */

void REAL_FN(integer_times_by)(IntegerWay wanted, const Matrix *matrix, int64_t first,
                               int64_t last, const float *bias, const float *x,
                               int64_t ldx, float *y, int64_t ldy, int64_t count) {
    if (matrix->kind == STEP_INT4) {
        REAL_FN(integer4_times_by)
        (wanted, matrix, first, last, bias, x, ldx, y, ldy, count);
        return;
    }
    const Way *way = find_way(wanted);
    RoundedRows *rows = thread_room(sizeof *rows);
    int64_t most =
        rounded_room(rows, matrix->columns, matrix->columns, way->bytes, way->unit);
    if (most > way->rows) most -= most % way->rows;
    const Target to = {first, last, matrix_scales(matrix), bias, y, ldy};
    for (int64_t t = 0, n; t < count; t += n) {
        n = count - t < most ? count - t : most;
        REAL_FN(round_rows)(rows, x + t * ldx, ldx, n);
        way->block(way, matrix, rows, n, &to, t);
    }
}

void REAL_FN(integer_times)(const Matrix *matrix, int64_t first, int64_t last,
                            const float *bias, const float *x, int64_t ldx, float *y,
                            int64_t ldy, int64_t count) {
    IntegerWay way = count < TILE_LINES ? INTEGER_QUADS : INTEGER_TILES;
    while (!find_way(way)) way--;
    REAL_FN(integer_times_by)(way, matrix, first, last, bias, x, ldx, y, ldy, count);
}
