/* Products of whole numbers of 4 bits with such of 8: see exec/linalg/gemv.h, int4.
 *
 * A group of columns is summed in whole numbers, from weights q of 0 to 15 as they are;
 * what its zero point adds to a sum, the zero point times the sum of the row's numbers,
 * is taken off before the group's scale. Every way to take the sums gives the same, and
 * what follows is in float in order of the groups, none of it fused (this file is
 * compiled so): the same bytes on every processor. */
#include "exec/linalg/thread_room.h"
#include "exec/loops/integer_rows.h"
#include "exec/loops/target.h"

#include "ir/half.h"

#include <string.h>

#ifdef __SSE4_1__
#include <immintrin.h>
#endif

enum {
    OCTET = 2 * QUAD,                /* columns that share bytes */
    OCTET_BYTES = PANEL_ROWS * QUAD, /* of a panel */
    MIDDLE = 8,                      /* the zero point where none is kept */
    TILES_MAX = 8,                   /* panels, or rows, of a tile */
    GROUPS_OCTETS = 4 /* of 32 columns: every group but the last is of these */
};

/* A panel's sums of one row. */
typedef float Totals[PANEL_ROWS];

/* Adds what some panels, `gap` bytes apart, give with some rows to totals[panel][row]. x
 * and sum are those of the first row. */
typedef void Tile(const Matrix *matrix, const uint8_t *w, int64_t gap,
                  const RoundedRows *rows, const int8_t *x, const int32_t *sum,
                  Totals *totals);

/* One way to take sums: tiles of one row and 1 to `panels` panels, powers of two, and of
 * one panel and 1 to `rows` rows. */
typedef struct Way {
    int rows, panels;
    Tile *solo[TILES_MAX + 1], *many[TILES_MAX + 1];
} Way;

/* ---- in float ---- */

/* Scales and zero points of a panel's group. */
typedef struct Head {
    Floats scale[VECTORS];
    Ints zero[VECTORS];
} Head;

/* LANES numbers of a head: scales of 16 bits, zero points of 8. */
#if defined(__AVX512F__)
#define WIDEN_HALF(p) ((Floats)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(p))))
#elif defined(__F16C__)
#define WIDEN_HALF(p) ((Floats)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p))))
#else
ALWAYS_INLINE Floats widen_half(const uint8_t *p) {
    uint16_t half[LANES];
    Floats value;
    memcpy(half, p, sizeof half);
    for (int i = 0; i < LANES; i++) value[i] = f16_to_float(half[i]);
    return value;
}
#define WIDEN_HALF(p) widen_half(p)
#endif
ALWAYS_INLINE Ints widen_bytes(const uint8_t *p) {
    Ints value;
    for (int i = 0; i < LANES; i++) value[i] = p[i];
    return value;
}

/* That of a group which begins at w. */
ALWAYS_INLINE Head read_head(const uint8_t *w, bool zeros) {
    enum { SCALES = PANEL_ROWS * sizeof(uint16_t) };
    Head head;
    for (int i = 0; i < VECTORS; i++) {
        head.scale[i] = WIDEN_HALF(w + i * LANES * (int)sizeof(uint16_t));
        head.zero[i] = (Ints){0} + MIDDLE;
        if (zeros) head.zero[i] = widen_bytes(w + SCALES + i * LANES);
    }
    return head;
}

/* total += s (sum of q w - z sum of q). */
ALWAYS_INLINE void add_group(const Head *head, const int32_t *sums, int32_t sum,
                             float *total) {
    for (int i = 0; i < VECTORS; i++) {
        const Ints whole = *(const Ints *)(sums + i * LANES) - head->zero[i] * sum;
        *(Floats *)(total + i * LANES) +=
            __builtin_convertvector(whole, Floats) * head->scale[i];
    }
}

/* Defines a tile of a fixed size of `way`, with `per` vectors `type` of sums for each
 * panel and row. */
#define DEFINE_TILE(way, target, type, per, panels, n)                                   \
    target static void way##_##panels##_##n(                                             \
        const Matrix *matrix, const uint8_t *w, int64_t gap, const RoundedRows *rows,    \
        const int8_t *x, const int32_t *sum, Totals *totals) {                           \
        const int64_t head = matrix_head_bytes(matrix), groups = rows->groups;           \
        const int64_t step = rows->step, K = matrix->columns, group = matrix->group;     \
        memset(totals, 0, sizeof(Totals) * (panels) * (n));                              \
        for (int64_t g = 0; g < groups; g++, x += group) {                               \
            const int64_t left = K - g * group, columns = left < group ? left : group;   \
            const int64_t octets = (columns + OCTET - 1) / OCTET;                        \
            type held[(per) * (panels) * (n)] = {0};                                     \
            int32_t sums[(panels) * (n)*PANEL_ROWS];                                     \
            way##_group(w + head, gap, x, step, octets, panels, n, held);                \
            memcpy(sums, held, sizeof sums);                                             \
            for (int p = 0; p < (panels); p++) {                                         \
                const Head of = read_head(w + p * gap, matrix->zeros);                   \
                for (int t = 0; t < (n); t++)                                            \
                    add_group(&of, sums + (p * (n) + t) * PANEL_ROWS,                    \
                              sum[t * groups + g], totals[p * (n) + t]);                 \
            }                                                                            \
            w += head + octets * OCTET_BYTES;                                            \
        }                                                                                \
    }

/* ---- in plain C ---- */

ALWAYS_INLINE void plain_group(const uint8_t *w, int64_t gap, const int8_t *x,
                               int64_t step, int64_t octets, int panels, int n,
                               int32_t *sum) {
    (void)gap, (void)step, (void)panels, (void)n;
    for (int64_t octet = 0; octet < octets; octet++, w += OCTET_BYTES, x += OCTET)
        for (int lane = 0; lane < PANEL_ROWS; lane++)
            for (int i = 0; i < QUAD; i++) {
                const uint8_t byte = w[lane * QUAD + i];
                sum[lane] += (byte & 15) * x[i] + (byte >> 4) * x[QUAD + i];
            }
}
DEFINE_TILE(plain, , int32_t, PANEL_ROWS, 1, 1)

static const Way PLAIN = {1, 1, {NULL, plain_1_1}, {NULL, plain_1_1}};

/* ---- pairs of bytes, in 16 bits ---- */

/* A product of two pairs is at most 2 * 15 * 127 in size: sums of the eight of a group of
 * 32 columns fit 16 bits. */
#ifdef __SSE4_1__
#if defined(__AVX512BW__)
enum { PAIR_TILES = 8 };
typedef __m512i Pairs;
#define PAIRS_LOAD(p)     _mm512_loadu_si512(p)
#define PAIRS_LOW(w)      _mm512_and_si512(w, _mm512_set1_epi8(15))
#define PAIRS_HIGH(w)     PAIRS_LOW(_mm512_srli_epi16(w, 4))
#define PAIRS_QUAD(q)     _mm512_set1_epi32(q)
#define PAIRS_TIMES(w, x) _mm512_maddubs_epi16(w, x)
#define PAIRS_ADD(a, b)   _mm512_add_epi16(a, b)
#define PAIRS_WIDEN(sum, few)                                                            \
    _mm512_add_epi32(sum, _mm512_madd_epi16(few, _mm512_set1_epi16(1)))
#elif defined(__AVX2__)
enum { PAIR_TILES = 4 };
typedef __m256i Pairs;
#define PAIRS_LOAD(p)     _mm256_loadu_si256((const __m256i *)(p))
#define PAIRS_LOW(w)      _mm256_and_si256(w, _mm256_set1_epi8(15))
#define PAIRS_HIGH(w)     PAIRS_LOW(_mm256_srli_epi16(w, 4))
#define PAIRS_QUAD(q)     _mm256_set1_epi32(q)
#define PAIRS_TIMES(w, x) _mm256_maddubs_epi16(w, x)
#define PAIRS_ADD(a, b)   _mm256_add_epi16(a, b)
#define PAIRS_WIDEN(sum, few)                                                            \
    _mm256_add_epi32(sum, _mm256_madd_epi16(few, _mm256_set1_epi16(1)))
#else
enum { PAIR_TILES = 2 };
typedef __m128i Pairs;
#define PAIRS_LOAD(p)         _mm_loadu_si128((const __m128i *)(p))
#define PAIRS_LOW(w)          _mm_and_si128(w, _mm_set1_epi8(15))
#define PAIRS_HIGH(w)         PAIRS_LOW(_mm_srli_epi16(w, 4))
#define PAIRS_QUAD(q)         _mm_set1_epi32(q)
#define PAIRS_TIMES(w, x)     _mm_maddubs_epi16(w, x)
#define PAIRS_ADD(a, b)       _mm_add_epi16(a, b)
#define PAIRS_WIDEN(sum, few) _mm_add_epi32(sum, _mm_madd_epi16(few, _mm_set1_epi16(1)))
#endif
enum { PARTS = OCTET_BYTES / sizeof(Pairs) };

/* few += the products of one octet. */
ALWAYS_INLINE void pairs_octet(const uint8_t *w, int64_t gap, const int8_t *x,
                               int64_t step, int panels, int n, Pairs *few) {
    for (int p = 0; p < panels; p++) {
        Pairs low[PARTS], high[PARTS];
        for (int i = 0; i < PARTS; i++) {
            const Pairs both = PAIRS_LOAD(w + p * gap + i * (int)sizeof(Pairs));
            low[i] = PAIRS_LOW(both), high[i] = PAIRS_HIGH(both);
        }
        for (int t = 0; t < n; t++) {
            int32_t first, second;
            memcpy(&first, x + t * step, sizeof first);
            memcpy(&second, x + t * step + QUAD, sizeof second);
            const Pairs even = PAIRS_QUAD(first), odd = PAIRS_QUAD(second);
            for (int i = 0; i < PARTS; i++) {
                Pairs *to = &few[(p * n + t) * PARTS + i];
                *to = PAIRS_ADD(*to, PAIRS_TIMES(low[i], even));
                *to = PAIRS_ADD(*to, PAIRS_TIMES(high[i], odd));
            }
        }
    }
}

ALWAYS_INLINE void pairs_group(const uint8_t *w, int64_t gap, const int8_t *x,
                               int64_t step, int64_t octets, int panels, int n,
                               Pairs *sum) {
    for (int64_t octet = 0; octet < octets;) {
        Pairs few[PAIR_TILES * PARTS] = {0};
        const int64_t end =
            octets - octet < GROUPS_OCTETS ? octets : octet + GROUPS_OCTETS;
        for (; octet < end; octet++, w += OCTET_BYTES, x += OCTET)
            pairs_octet(w, gap, x, step, panels, n, few);
        for (int i = 0; i < panels * n * PARTS; i++) sum[i] = PAIRS_WIDEN(sum[i], few[i]);
    }
}
#define DEFINE_PAIRS(panels, n) DEFINE_TILE(pairs, , Pairs, PARTS, panels, n)

DEFINE_PAIRS(1, 1)
DEFINE_PAIRS(1, 2)
DEFINE_PAIRS(2, 1)
#if defined(__AVX2__)
DEFINE_PAIRS(1, 3)
DEFINE_PAIRS(1, 4)
DEFINE_PAIRS(4, 1)
#endif
#if defined(__AVX512BW__)
DEFINE_PAIRS(1, 5)
DEFINE_PAIRS(1, 6)
DEFINE_PAIRS(1, 7)
DEFINE_PAIRS(1, 8)
static const Way PAIRS = {8,
                          4,
                          {NULL, pairs_1_1, pairs_2_1, NULL, pairs_4_1},
                          {NULL, pairs_1_1, pairs_1_2, pairs_1_3, pairs_1_4, pairs_1_5,
                           pairs_1_6, pairs_1_7, pairs_1_8}};
#elif defined(__AVX2__)
static const Way PAIRS = {4,
                          4,
                          {NULL, pairs_1_1, pairs_2_1, NULL, pairs_4_1},
                          {NULL, pairs_1_1, pairs_1_2, pairs_1_3, pairs_1_4}};
#else
static const Way PAIRS = {
    2, 2, {NULL, pairs_1_1, pairs_2_1}, {NULL, pairs_1_1, pairs_1_2}};
#endif
#endif

/* ---- quads of 8 bits: AVX-512 VNNI, which no level has ---- */

#ifdef __AVX512BW__
#define VNNI __attribute__((target("avx512vnni")))

VNNI ALWAYS_INLINE void quads_group(const uint8_t *w, int64_t gap, const int8_t *x,
                                    int64_t step, int64_t octets, int panels, int n,
                                    __m512i *sum) {
    for (int64_t octet = 0; octet < octets; octet++, w += OCTET_BYTES, x += OCTET)
        for (int p = 0; p < panels; p++) {
            const Pairs both = PAIRS_LOAD(w + p * gap);
            const Pairs low = PAIRS_LOW(both), high = PAIRS_HIGH(both);
            for (int t = 0; t < n; t++) {
                int32_t first, second;
                memcpy(&first, x + t * step, sizeof first);
                memcpy(&second, x + t * step + QUAD, sizeof second);
                __m512i *to = &sum[p * n + t];
                *to = _mm512_dpbusd_epi32(*to, low, PAIRS_QUAD(first));
                *to = _mm512_dpbusd_epi32(*to, high, PAIRS_QUAD(second));
            }
        }
}
#define DEFINE_QUADS(panels, n) DEFINE_TILE(quads, VNNI, __m512i, 1, panels, n)

DEFINE_QUADS(1, 1)
DEFINE_QUADS(2, 1)
DEFINE_QUADS(4, 1)
DEFINE_QUADS(1, 2)
DEFINE_QUADS(1, 3)
DEFINE_QUADS(1, 4)
DEFINE_QUADS(1, 5)
DEFINE_QUADS(1, 6)
DEFINE_QUADS(1, 7)
DEFINE_QUADS(1, 8)
static const Way QUADS = {8,
                          4,
                          {NULL, quads_1_1, quads_2_1, NULL, quads_4_1},
                          {NULL, quads_1_1, quads_1_2, quads_1_3, quads_1_4, quads_1_5,
                           quads_1_6, quads_1_7, quads_1_8}};
#endif

/* A way that integer_has says there is. */
static const Way *find_way(IntegerWay wanted) {
#ifdef __AVX512BW__
    if (wanted >= INTEGER_QUADS) return &QUADS;
#endif
#ifdef __SSE4_1__
    if (wanted == INTEGER_PAIRS) return &PAIRS;
#endif
    (void)wanted;
    return &PLAIN;
}

/* ---- products ---- */

/* The results of one row in the panel whose first column is `column`. */
static void put_panel(const Target *to, int64_t column, float scale, const float *total,
                      float *y) {
    const bool whole = to->first <= column && column + PANEL_ROWS <= to->last;
    for (int i = 0; whole && i < PANEL_ROWS; i += LANES) {
        Floats product = *(const Floats *)(total + i) * scale;
        if (to->bias) product += *(const Floats *)(to->bias + column + i);
        *(Floats *)(y + column + i) = product;
    }
    for (int lane = 0; !whole && lane < PANEL_ROWS; lane++) {
        const float product = total[lane] * scale;
        const int64_t at = column + lane;
        if (at >= to->first && at < to->last)
            y[at] = to->bias ? product + to->bias[at] : product;
    }
}

/* The largest power of two that is no more than `most` and `left`. */
static int64_t panels_of_tile(int64_t most, int64_t left) {
    while (most > left) most /= 2;
    return most;
}

/* All panels of the target times the first `count` rounded rows, the first of which is
 * row `t` of y. */
static void times_rows(const Way *way, const Matrix *matrix, const RoundedRows *rows,
                       int64_t count, const Target *to, int64_t t) {
    const int64_t gap = matrix_panel_bytes(matrix);
    const int64_t end = (to->last + PANEL_ROWS - 1) / PANEL_ROWS;
    _Alignas(64) Totals totals[TILES_MAX];
    for (int64_t p = to->first / PANEL_ROWS, step; p < end; p += step) {
        const uint8_t *w = (const uint8_t *)matrix->data + p * gap;
        step = count == 1 ? panels_of_tile(way->panels, end - p) : 1;
        for (int64_t row = 0, n; row < count; row += n) {
            n = count - row < way->rows ? count - row : way->rows;
            Tile *const run = n == 1 ? way->solo[step] : way->many[n];
            run(matrix, w, gap, rows, (const int8_t *)rows->number + row * rows->step,
                rows->sum + row * rows->groups, totals);
            for (int64_t i = 0; i < step * n; i++)
                put_panel(to, (p + i / n) * PANEL_ROWS, rows->scale[row + i % n],
                          totals[i], to->y + (t + row + i % n) * to->ldy);
        }
    }
}

void REAL_FN(integer4_times_by)(IntegerWay wanted, const Matrix *matrix, int64_t first,
                                int64_t last, const float *bias, const float *x,
                                int64_t ldx, float *y, int64_t ldy, int64_t count) {
    const Way *way = find_way(wanted);
    const Target to = {first, last, NULL, bias, y, ldy};
    RoundedRows *rows = thread_room(sizeof *rows);
    int64_t most = rounded_room(rows, matrix->columns, matrix->group, 1, OCTET);
    if (most > way->rows) most -= most % way->rows;
    for (int64_t t = 0, n; t < count; t += n) {
        n = count - t < most ? count - t : most;
        REAL_FN(round_rows)(rows, x + t * ldx, ldx, n);
        times_rows(way, matrix, rows, n, &to, t);
    }
}
