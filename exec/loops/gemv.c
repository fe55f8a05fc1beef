/* Products with packed weights: see exec/linalg/gemv.h.
 *
 * A tile is some panels times some vectors; its sums stay in registers. With one vector
 * several panels are read at once, which is what memory needs to be busy; with several,
 * each weight that is read, and widened where it is kept in fewer bits, is used for all
 * of them. */
#include "exec/linalg/thread_room.h"
#include "exec/loops/loops.h"
#include "exec/loops/panel.h"
#include "exec/loops/target.h"
#include "exec/loops/unchecked.h"

#include "ir/half.h"

#include <string.h>

#ifdef __SSE4_1__
#include <immintrin.h>
#endif

/* Floats of a register, and the largest tiles: with one vector SOLO_PANELS panels, else
 * VECTORS vectors times PANELS panels of floats, FEW_VECTORS times FEW_PANELS of fewer
 * bits, for whose widening registers are left. As many sums as there is room for: the
 * fewer numbers are loaded for each product, and the less each one waits for the last. */
#if defined(__AVX512F__)
enum { LANES = 16, SOLO_PANELS = 4, PANELS = 4, VECTORS = 6 };
enum { FEW_PANELS = 2, FEW_VECTORS = 8 };
#elif defined(__AVX2__)
enum { LANES = 8, SOLO_PANELS = 4, PANELS = 1, VECTORS = 6 };
enum { FEW_PANELS = 1, FEW_VECTORS = 6 };
#elif defined(__aarch64__)
enum { LANES = 4, SOLO_PANELS = 4, PANELS = 1, VECTORS = 6 };
enum { FEW_PANELS = 1, FEW_VECTORS = 6 };
#else
enum { LANES = 4, SOLO_PANELS = 2, PANELS = 1, VECTORS = 2 };
enum { FEW_PANELS = 1, FEW_VECTORS = 2 };
#endif
_Static_assert((int)PANELS <= (int)ROOM_PANELS, "more panels than there is room");
enum { PARTS = PANEL_ROWS / LANES, /* registers of a panel */ SUMS = 24 };
enum { MANY_VECTORS = 32 }; /* for which weights are widened once */
enum { LINE_BYTES = 64 };   /* of the cache */
enum { TRIO_PANELS = SOLO_PANELS < 3 ? SOLO_PANELS : 3 };
enum { MIDDLE_PANELS = PANELS < 2 ? PANELS : 2 };

#define VECTOR(type, bytes)                                                              \
    type __attribute__((vector_size(bytes), aligned(1), may_alias))
typedef VECTOR(float, 4 * LANES) Vec;
typedef VECTOR(uint32_t, 4 * LANES) Words;
typedef VECTOR(int32_t, 4 * LANES) Ints;

/* Weights of a tile: panel p begins at w + p * gap bytes, the next column `step` bytes
 * further. */
typedef struct Source {
    const char *w;
    int64_t step, gap, K;
    const Matrix *matrix; /* int4 */
    const float *floats;  /* int4, widened: columns of 16 numbers, a panel of K after the
                             other; NULL = not */
} Source;

/* ---- widening ---- */

/* LANES bytes as whole numbers of 32 bits. */
#if defined(__AVX512F__)
#define WIDEN_SIGNED(p)                                                                  \
    ((Ints)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(p))))
#define WIDEN(p) ((Words)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(p))))
#elif defined(__AVX2__)
#define WIDEN_SIGNED(p)                                                                  \
    ((Ints)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(p))))
#define WIDEN(p) ((Words)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(p))))
#elif defined(__SSE4_1__)
ALWAYS_INLINE __m128i four_bytes(const void *p) {
    int32_t bytes;
    memcpy(&bytes, p, sizeof bytes);
    return _mm_cvtsi32_si128(bytes);
}
#define WIDEN_SIGNED(p) ((Ints)_mm_cvtepi8_epi32(four_bytes(p)))
#define WIDEN(p)        ((Words)_mm_cvtepu8_epi32(four_bytes(p)))
#else
typedef VECTOR(int8_t, LANES) SignedBytes;
typedef VECTOR(uint8_t, LANES) Bytes;
#define WIDEN_SIGNED(p) __builtin_convertvector(*(const SignedBytes *)(p), Ints)
#define WIDEN(p)        __builtin_convertvector(*(const Bytes *)(p), Words)
#endif
#define TO_FLOAT(ints) __builtin_convertvector((Ints)(ints), Vec)

/* LANES numbers of 16 bits, float16. */
#if defined(__AVX512F__)
#define WIDEN_HALF(p) ((Vec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(p))))
#elif defined(__F16C__)
#define WIDEN_HALF(p) ((Vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p))))
#else
ALWAYS_INLINE Vec widen_half(const uint16_t *p) {
    Vec value;
    for (int i = 0; i < LANES; i++) value[i] = f16_to_float(p[i]);
    return value;
}
#define WIDEN_HALF(p) widen_half((const uint16_t *)(p))
#endif

/* The floats of 4 bits each in the low halves of bytes, which were widened, from the
 * middle on: -8 to 7. */
enum { MIDDLE = 8 };
#if defined(__AVX512F__)
#define NIBBLES(words)                                                                   \
    ((Vec)_mm512_permutexvar_ps(                                                         \
        (__m512i)(words),                                                                \
        (__m512)(Vec){-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7}))
#else
#define NIBBLES(words) (TO_FLOAT((words)&15) - MIDDLE)
#endif

/* ---- tiles ---- */

/* Asks for what the next tile has where this one's panels have `bytes` bytes from w on:
 * panels of few bits are too short for the processor to see that they are read from
 * first to last. */
ALWAYS_INLINE void ask_for_next(const Source *in, const char *w, int panels,
                                int64_t bytes) {
    for (int p = panels; p < 2 * panels; p++)
        for (int64_t i = 0; i < bytes; i += LINE_BYTES)
            __builtin_prefetch(w + p * in->gap + i, 0, 2);
}

/* sum[p, t] += row[p] x[t, k] for one column k of the panels, PARTS registers each. */
ALWAYS_INLINE void add_column(const Vec *row, const float *x, int64_t ldx, int panels,
                              int n, Vec *sum) {
    for (int t = 0; t < n; t++)
        for (int p = 0; p < panels; p++)
            for (int i = 0; i < PARTS; i++)
                sum[(p * n + t) * PARTS + i] += row[p * PARTS + i] * x[t * ldx];
}

/* sum[p, t] = sum_k w[p, k] x[t, k]: floats. */
ALWAYS_INLINE void f32_tile(const Source *in, const float *x, int64_t ldx, int panels,
                            int n, Vec *sum) {
    const char *w = in->w;
    for (int64_t k = 0; k < in->K; k++, w += in->step) {
        Vec row[SOLO_PANELS * PARTS];
        for (int p = 0; p < panels; p++)
            for (int i = 0; i < PARTS; i++)
                row[p * PARTS + i] = ((const Vec *)(w + p * in->gap))[i];
        add_column(row, x + k, ldx, panels, n, sum);
    }
}

/* One column, or with `both` two in pairs of bf16: the upper half of a float is one. */
ALWAYS_INLINE void bf16_pair(const char *w, int64_t gap, const float *x, int64_t ldx,
                             bool both, int panels, int n, Vec *sum) {
    Vec even[SOLO_PANELS * PARTS], odd[SOLO_PANELS * PARTS];
    for (int p = 0; p < panels; p++)
        for (int i = 0; i < PARTS; i++) {
            const Words pair = ((const Words *)(w + p * gap))[i];
            even[p * PARTS + i] = (Vec)(pair << 16);
            odd[p * PARTS + i] = (Vec)(pair & 0xffff0000u);
        }
    add_column(even, x, ldx, panels, n, sum);
    if (both) add_column(odd, x + 1, ldx, panels, n, sum);
}

ALWAYS_INLINE void bf16_tile(const Source *in, const float *x, int64_t ldx, int panels,
                             int n, Vec *sum) {
    const char *w = in->w;
    int64_t k = 0;
    for (; k + 1 < in->K; k += 2, w += in->step)
        bf16_pair(w, in->gap, x + k, ldx, true, panels, n, sum);
    for (; k < in->K; k++) bf16_pair(w, in->gap, x + k, ldx, false, panels, n, sum);
}

/* Bytes with a sign; the scale is for who takes the sums. */
ALWAYS_INLINE void q8_tile(const Source *in, const float *x, int64_t ldx, int panels,
                           int n, Vec *sum) {
    const char *w = in->w;
    for (int64_t k = 0; k < in->K; k++, w += in->step) {
        Vec row[SOLO_PANELS * PARTS];
        if (n == 1 && k % (LINE_BYTES / PANEL_ROWS) == 0)
            ask_for_next(in, w, panels, LINE_BYTES);
        for (int p = 0; p < panels; p++)
            for (int i = 0; i < PARTS; i++)
                row[p * PARTS + i] = TO_FLOAT(WIDEN_SIGNED(w + p * in->gap + i * LANES));
        add_column(row, x + k, ldx, panels, n, sum);
    }
}

/* One or two columns of q - z; without `zero` z is the middle. */
ALWAYS_INLINE void q4_pair(const char *w, int64_t gap, const Vec *zero, const float *x,
                           int64_t ldx, bool both, int panels, int n, Vec *sum) {
    Vec even[SOLO_PANELS * PARTS], odd[SOLO_PANELS * PARTS];
    for (int p = 0; p < panels; p++)
        for (int i = 0; i < PARTS; i++) {
            const int at = p * PARTS + i;
            const Words pair = WIDEN(w + p * gap + i * LANES);
            even[at] = NIBBLES(pair);
            odd[at] = NIBBLES(pair >> 4);
            if (zero) even[at] -= zero[at];
            if (zero) odd[at] -= zero[at];
        }
    add_column(even, x, ldx, panels, n, sum);
    if (both) add_column(odd, x + 1, ldx, panels, n, sum);
}

/* Register `part` of the zero points, from the middle on, of a group that begins at w. */
ALWAYS_INLINE Vec zero_points(const Matrix *matrix, const char *w, int part) {
    enum { SCALES = 2 * PANEL_ROWS };
    if (matrix->zeros) return TO_FLOAT(WIDEN(w + SCALES + part * LANES)) - MIDDLE;
    return (Vec){0};
}

/* The columns of one group. */
ALWAYS_INLINE void q4_columns(const Source *in, const char *w, const Vec *zero,
                              const float *x, int64_t ldx, int64_t count, int panels,
                              int n, Vec *sum) {
    int64_t k = 0;
    for (; k + 1 < count; k += 2, w += PANEL_ROWS)
        q4_pair(w, in->gap, zero, x + k, ldx, true, panels, n, sum);
    for (; k < count; k++) q4_pair(w, in->gap, zero, x + k, ldx, false, panels, n, sum);
}

/* One group of `count` columns from the k-th on, which begins at w. */
ALWAYS_INLINE void q4_group(const Source *in, const char *w, int64_t first,
                            const float *x, int64_t ldx, int64_t count, int panels, int n,
                            Vec *sum) {
    const char *columns = w + matrix_head_bytes(in->matrix);
    Vec zero[SOLO_PANELS * PARTS];
    (void)first;
    for (int i = 0; i < panels * PARTS; i++)
        zero[i] = zero_points(in->matrix, w + i / PARTS * in->gap, i % PARTS);
    if (in->matrix->zeros)
        q4_columns(in, columns, zero, x, ldx, count, panels, n, sum);
    else
        q4_columns(in, columns, NULL, x, ldx, count, panels, n, sum);
}

/* The same of widened ones. */
ALWAYS_INLINE void wide4_group(const Source *in, const char *w, int64_t first,
                               const float *x, int64_t ldx, int64_t count, int panels,
                               int n, Vec *sum) {
    const int64_t column = PANEL_ROWS * sizeof(float);
    const Source group = {(const char *)(in->floats + first * PANEL_ROWS), column,
                          in->K * column, count};
    (void)w;
    f32_tile(&group, x, ldx, panels, n, sum);
}

/* Defines a tile of a fixed size. Sums that are one struct, and no loops around the
 * tile's own, keep them in registers. */
#define DEFINE_TILE(kind, name, panels, n)                                               \
    UNCHECKED static void kind##_##name(const Source *in, const float *x, int64_t ldx,   \
                                        Vec *sums) {                                     \
        typedef struct Held {                                                            \
            Vec sum[(panels) * (n)*PARTS];                                               \
        } Held;                                                                          \
        Held held = {0};                                                                 \
        kind##_tile(in, x, ldx, panels, n, held.sum);                                    \
        *(Held *)sums = held;                                                            \
    }

/* Tiles of floats that write their sums to y, those of panel p and vector t to
 * y[t * ldy + p * 16], or go on from what is there. */
#define DEFINE_DIRECT(kind, name, panels, n, add)                                        \
    UNCHECKED static void kind##_##name(const Source *in, const float *x, int64_t ldx,   \
                                        float *y, int64_t ldy) {                         \
        typedef struct Held {                                                            \
            Vec sum[(panels) * (n)*PARTS];                                               \
        } Held;                                                                          \
        Held held = {0};                                                                 \
        for (int i = 0; (add) && i < (panels) * (n)*PARTS; i++)                          \
            held.sum[i] = *DIRECT_AT(y, ldy, n, i);                                      \
        f32_tile(in, x, ldx, panels, n, held.sum);                                       \
        for (int i = 0; i < (panels) * (n)*PARTS; i++)                                   \
            *DIRECT_AT(y, ldy, n, i) = held.sum[i];                                      \
    }
#define DIRECT_AT(y, ldy, n, i)                                                          \
    ((Vec *)((y) + (i) / PARTS % (n) * (ldy) + (i) / PARTS / (n)*PANEL_ROWS +            \
             (i) % PARTS * LANES))
#define DEFINE_PUT(kind, name, panels, n) DEFINE_DIRECT(kind, name, panels, n, false)
#define DEFINE_ADD(kind, name, panels, n) DEFINE_DIRECT(kind, name, panels, n, true)

/* The same of int4: sums of a group times its scales are added up. */
#define DEFINE_Q4(kind, name, panels, n)                                                 \
    UNCHECKED static void kind##_##name(const Source *in, const float *x, int64_t ldx,   \
                                        Vec *sums) {                                     \
        typedef struct Held {                                                            \
            Vec sum[(panels) * (n)*PARTS];                                               \
        } Held;                                                                          \
        const Matrix *matrix = in->matrix;                                               \
        const int64_t head = matrix_head_bytes(matrix);                                  \
        const char *w = in->w;                                                           \
        Held total = {0};                                                                \
        for (int64_t k = 0; k < in->K; k += matrix->group) {                             \
            const int64_t rest = in->K - k;                                              \
            const int64_t count = rest < matrix->group ? rest : matrix->group;           \
            Held held = {0};                                                             \
            if ((n) == 1) ask_for_next(in, w, panels, head + count / 2 * PANEL_ROWS);    \
            kind##_group(in, w, k, x + k, ldx, count, panels, n, held.sum);              \
            for (int p = 0; p < (panels); p++)                                           \
                for (int i = 0; i < PARTS; i++) {                                        \
                    const Vec scale = WIDEN_HALF(w + p * in->gap + 2 * i * LANES);       \
                    for (int t = 0; t < (n); t++) {                                      \
                        const int at = (p * (n) + t) * PARTS + i;                        \
                        total.sum[at] += scale * held.sum[at];                           \
                    }                                                                    \
                }                                                                        \
            w += head + (count + 1) / 2 * PANEL_ROWS;                                    \
        }                                                                                \
        *(Held *)sums = total;                                                           \
    }

/* Tiles of one vector, and of several with so many panels. */
#define DEFINE_SOLO(kind, DEFINE)                                                        \
    DEFINE(kind, single, 1, 1)                                                           \
    DEFINE(kind, duo, 2, 1)                                                              \
    DEFINE(kind, trio, TRIO_PANELS, 1)                                                   \
    DEFINE(kind, solo, SOLO_PANELS, 1)
#define DEFINE_WIDTH(kind, DEFINE, width, panels, vectors)                               \
    DEFINE(kind, width##2, panels, 2)                                                    \
    DEFINE(kind, width##4, panels, 4)                                                    \
    DEFINE(kind, width, panels, vectors)
#define SOLO(kind)                                                                       \
    { NULL, kind##_single, kind##_duo, kind##_trio, kind##_solo }
#define WIDTH(kind, width)                                                               \
    { NULL, kind##_##width##2, kind##_##width##4, kind##_##width }

#define DEFINE_FLOATS(kind, DEFINE)                                                      \
    DEFINE_SOLO(kind, DEFINE)                                                            \
    DEFINE_WIDTH(kind, DEFINE, narrow, 1, VECTORS)                                       \
    DEFINE_WIDTH(kind, DEFINE, middle, MIDDLE_PANELS, VECTORS)                           \
    DEFINE_WIDTH(kind, DEFINE, wide, PANELS, VECTORS)
#define DEFINE_FEW(kind, DEFINE)                                                         \
    DEFINE_SOLO(kind, DEFINE)                                                            \
    DEFINE_WIDTH(kind, DEFINE, narrow, 1, FEW_VECTORS)                                   \
    DEFINE_WIDTH(kind, DEFINE, middle, FEW_PANELS, FEW_VECTORS)
/* clang-format off */
DEFINE_FLOATS(f32, DEFINE_TILE)
DEFINE_FLOATS(put, DEFINE_PUT)
DEFINE_FLOATS(add, DEFINE_ADD)
DEFINE_FEW(bf16, DEFINE_TILE)
DEFINE_FEW(q8, DEFINE_TILE)
DEFINE_FEW(q4, DEFINE_Q4)
DEFINE_FEW(wide4, DEFINE_Q4)
/* clang-format on */

/* Numbers of vectors that there are tiles for, and of panels. */
enum { SIZES = 4, WIDTHS = 3 };
typedef struct Sizes {
    int vectors[SIZES], panels; /* the most */
} Sizes;
static const Sizes FLOATS = {{1, 2, 4, VECTORS}, PANELS};
static const Sizes FEW = {{1, 2, 4, FEW_VECTORS}, FEW_PANELS};

typedef void Tile(const Source *in, const float *x, int64_t ldx, Vec *sums);
typedef struct Tiles {
    const Sizes *sizes;
    Tile *solo[5];                /* [panels] */
    Tile *several[WIDTHS][SIZES]; /* of 1, 2 and 4 panels */
} Tiles;
static const Tiles TILES[] = {
    [STEP_F32] = {&FLOATS,
                  SOLO(f32),
                  {WIDTH(f32, narrow), WIDTH(f32, middle), WIDTH(f32, wide)}},
    [STEP_BF16] = {&FEW, SOLO(bf16), {WIDTH(bf16, narrow), WIDTH(bf16, middle)}},
    [STEP_Q8] = {&FEW, SOLO(q8), {WIDTH(q8, narrow), WIDTH(q8, middle)}},
    [STEP_Q4] = {&FEW, SOLO(q4), {WIDTH(q4, narrow), WIDTH(q4, middle)}},
};
static const Tiles WIDE4 = {
    &FEW, SOLO(wide4), {WIDTH(wide4, narrow), WIDTH(wide4, middle)}};

/* The same of floats that write, or with [1] add, to y. */
typedef void DirectTile(const Source *in, const float *x, int64_t ldx, float *y,
                        int64_t ldy);
static DirectTile *const DIRECT[2][WIDTHS][SIZES] = {
    {WIDTH(put, narrow), WIDTH(put, middle), WIDTH(put, wide)},
    {WIDTH(add, narrow), WIDTH(add, middle), WIDTH(add, wide)}};
static DirectTile *const DIRECT_SOLO[2][5] = {SOLO(put), SOLO(add)};

/* The index of the largest number of vectors that is at most `count`. */
static int tile_size(const Sizes *sizes, int64_t count) {
    int size = SIZES - 1;
    while (sizes->vectors[size] > count) size--;
    return size;
}

/* Panels of a tile of n vectors where `left` are left: any number up to SOLO_PANELS for
 * one vector, else 1, 2 or 4, whose index is `width`. */
static int64_t tile_panels(const Sizes *sizes, int64_t left, int64_t n, int *width) {
    *width = 0;
    if (n == 1) return left < SOLO_PANELS ? left : SOLO_PANELS;
    while (*width + 1 < WIDTHS && 2 << *width <= left && 2 << *width <= sizes->panels)
        ++*width;
    return 1 << *width;
}

/* What a tile of `panels` panels and n vectors reads. */
static void touch_tile(const Source *in, const float *x, int64_t ldx, int64_t panels,
                       int64_t n) {
    const int64_t row = in->K * (int64_t)sizeof(float),
                  column = PANEL_ROWS * sizeof(float);
    const int64_t bytes = in->matrix  ? matrix_panel_bytes(in->matrix)
                          : in->K > 0 ? (in->K - 1) * in->step + column
                                      : 0;
    for (int64_t p = 0; p < panels; p++) touch(in->w + p * in->gap, bytes);
    if (in->floats) touch(in->floats, panels * PANEL_ROWS * row);
    for (int64_t t = 0; t < n; t++) touch(x + t * ldx, row);
}

/* ---- products ---- */

/* The sums of one vector with the panel whose first column is `column`. */
static void put_panel(const Target *to, int64_t column, int64_t t, const Vec *sums) {
    float *y = to->y + t * to->ldy;
    if (column < to->first || column + PANEL_ROWS > to->last) {
        for (int lane = 0; lane < PANEL_ROWS; lane++) {
            const int64_t at = column + lane;
            const float sum = sums[lane / LANES][lane % LANES];
            if (at < to->first || at >= to->last) continue;
            y[at] =
                (to->scale ? sum * to->scale[at] : sum) + (to->bias ? to->bias[at] : 0);
        }
        return;
    }
    for (int i = 0; i < PARTS; i++) {
        const int64_t at = column + i * LANES;
        Vec sum = sums[i];
        if (to->scale) sum *= *(const Vec *)(to->scale + at);
        if (to->bias) sum += *(const Vec *)(to->bias + at);
        *(Vec *)(y + at) = sum;
    }
}

/* `panels` panels from the one at `column` on, times all vectors. */
static void times_panels(const Source *in, const Tiles *tiles, int64_t panels,
                         int64_t column, const float *x, int64_t ldx, int64_t count,
                         const Target *to) {
    Vec sums[SUMS * PARTS];
    for (int64_t t = 0, n; t < count; t += n) {
        const int size = tile_size(tiles->sizes, count - t);
        n = tiles->sizes->vectors[size];
        for (int64_t p = 0, step; p < panels; p += step) {
            Source part = *in;
            int width;
            step = tile_panels(tiles->sizes, panels - p, n, &width);
            part.w += p * in->gap;
            if (part.floats) part.floats += p * in->K * PANEL_ROWS;
            Tile *tile = n > 1 ? tiles->several[width][size] : tiles->solo[step];
            if (SANITIZED) touch_tile(&part, x + t * ldx, ldx, step, n);
            tile(&part, x + t * ldx, ldx, sums);
            for (int64_t i = 0; i < step * n; i++)
                put_panel(to, column + (p + i / n) * PANEL_ROWS, t + i % n,
                          &sums[i * PARTS]);
        }
    }
}

/* ---- many vectors ---- */

/* A panel of bf16 as floats. */
static void widen_bf16(const Source *in, const char *w, Vec *to) {
    for (int64_t k = 0; k < in->K; k++, to += PARTS)
        for (int i = 0; i < PARTS; i++) {
            const Words pair = ((const Words *)(w + k / 2 * in->step))[i];
            if (k % 2 == 0)
                to[i] = (Vec)(pair << 16);
            else
                to[i] = (Vec)(pair & 0xffff0000u);
        }
}

/* A panel of int4 as floats, without the scales of its groups. */
static void widen_q4(const Source *in, const char *w, Vec *to) {
    const int64_t head = matrix_head_bytes(in->matrix);
    for (int64_t k = 0, count; k < in->K;
         k += count, w += head + (count + 1) / 2 * PANEL_ROWS) {
        count = in->K - k < in->matrix->group ? in->K - k : in->matrix->group;
        for (int64_t j = 0; j < count; j++, to += PARTS)
            for (int i = 0; i < PARTS; i++) {
                const Words pair = WIDEN(w + head + j / 2 * PANEL_ROWS + i * LANES);
                to[i] = NIBBLES(j % 2 ? pair >> 4 : pair) - zero_points(in->matrix, w, i);
            }
    }
}

/* Has panels of fewer bits read as floats, which lie in the thread's room: many vectors
 * are multiplied faster with these, and come to the same. */
static const Tiles *widen(Source *in, int64_t panels) {
    const StepWeights kind = in->matrix->kind;
    const int64_t panel = in->K * PANEL_ROWS, column = PANEL_ROWS * sizeof(float);
    if (kind != STEP_BF16 && kind != STEP_Q4) return &TILES[kind];
    float *room = thread_room((size_t)(panels * in->K * column));
    for (int64_t p = 0; p < panels; p++)
        (kind == STEP_Q4 ? widen_q4 : widen_bf16)(in, in->w + p * in->gap,
                                                  (Vec *)(room + p * panel));
    if (kind == STEP_Q4) {
        in->floats = room;
        return &WIDE4;
    }
    *in = (Source){(const char *)room, column, in->K * column, in->K};
    return &TILES[STEP_F32];
}

/* ---- products with a matrix ---- */

void REAL_FN(matrix_times)(const Matrix *matrix, int64_t first, int64_t last,
                           const float *bias, const float *x, int64_t ldx, float *y,
                           int64_t ldy, int64_t count) {
    if (matrix_rounds(matrix)) {
        REAL_FN(integer_times)(matrix, first, last, bias, x, ldx, y, ldy, count);
        return;
    }
    const int64_t gap = matrix_panel_bytes(matrix),
                  end = (last + PANEL_ROWS - 1) / PANEL_ROWS;
    const Target to = {
        first, last, matrix->kind == STEP_Q8 ? matrix_scales(matrix) : NULL,
        bias,  y,    ldy};
    for (int64_t p = first / PANEL_ROWS, n; p < end; p += n) {
        Source part = {(const char *)matrix->data + p * gap, matrix_step_bytes(matrix),
                       gap, matrix->columns, matrix};
        n = end - p < SOLO_PANELS ? end - p : SOLO_PANELS;
        const Tiles *tiles =
            count >= MANY_VECTORS ? widen(&part, n) : &TILES[matrix->kind];
        times_panels(&part, tiles, n, p * PANEL_ROWS, x, ldx, count, &to);
    }
}

/* ---- floats that are packed while they are multiplied ---- */

void REAL_FN(weights_times)(const Matrix *matrix, int64_t first, int64_t last,
                            const float *w, bool transposed, const float *bias,
                            const float *x, int64_t ldx, float *y, int64_t ldy,
                            int64_t count, float *room) {
    const int64_t M = matrix->rows, K = matrix->columns, gap = matrix_panel_bytes(matrix);
    const Source in = {(const char *)room, matrix_step_bytes(matrix), gap, K};
    const Target to = {first, last, NULL, bias, y, ldy};
    enum { COLUMNS = PANELS * PANEL_ROWS };
    for (int64_t row = first; row < last; row += COLUMNS) {
        const int64_t rows = last - row < COLUMNS ? last - row : COLUMNS;
        const int64_t panels = (rows + PANEL_ROWS - 1) / PANEL_ROWS;
        if (transposed)
            panels_of_columns(w + row, M, K, rows, room);
        else
            panels_of_rows(w + row * K, K, K, rows, room);
        times_panels(&in, &TILES[STEP_F32], panels, row, x, ldx, count, &to);
    }
}

void REAL_FN(panels_times)(const Panels *panels, const float *x, int64_t ldx, float *y,
                           int64_t ldy, int64_t count) {
    const int64_t size_of = sizeof(float);
    for (int64_t t = 0, n; t < count; t += n) {
        const int size = tile_size(&FLOATS, count - t);
        n = FLOATS.vectors[size];
        for (int64_t p = 0, step; p < panels->panels; p += step) {
            const Source in = {(const char *)(panels->w + p * panels->gap),
                               panels->step * size_of, panels->gap * size_of, panels->K};
            int width;
            step = tile_panels(&FLOATS, panels->panels - p, n, &width);
            DirectTile *tile =
                n > 1 ? DIRECT[panels->add][width][size] : DIRECT_SOLO[panels->add][step];
            float *to = y + t * ldy + p * PANEL_ROWS;
            if (SANITIZED) {
                touch_tile(&in, x + t * ldx, ldx, step, n);
                for (int64_t i = 0; i < n; i++)
                    touch(to + i * ldy, step * PANEL_ROWS * size_of);
            }
            tile(&in, x + t * ldx, ldx, to, ldy);
        }
    }
}
