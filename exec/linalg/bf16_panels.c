/* Panels of bfloat16: see exec/linalg/bf16_panels.h.
 *
 * A tile of 12 x 32 sums stays in registers over all of k; an instruction multiplies 16
 * pairs by 16 and adds both products of each to its sum. A panel of columns is multiplied
 * by as many panels of rows as fit half of a second-level cache. */
#include "exec/linalg/bf16_panels.h"

#include "exec/linalg/tiles.h"
#include "exec/processor.h"

/* Of the sums in registers, where there are no tiles, and of panels. */
enum { TILE_ROWS = 12, TILE_COLUMNS = 32 };

bool bf16_tiles_here(void) {
    return bf16_panels_here() && processor_tiles();
}

int64_t bf16_left_unit(void) {
    return bf16_tiles_here() ? TILE_PAIR : TILE_ROWS;
}

/* Pairs that k elements are packed as. */
static int64_t pairs_of(int64_t k) {
    const int64_t step = bf16_tiles_here() ? TILE_BYTES / (int64_t)sizeof(uint32_t) : 1;
    return ((k + 1) / 2 + step - 1) / step * step;
}

static size_t panel_bytes(int64_t count, int64_t k, int64_t width) {
    const int64_t pairs = (count + width - 1) / width * width * pairs_of(k);
    return ((size_t)pairs * sizeof(uint32_t) + 63) / 64 * 64;
}

size_t bf16_left_bytes(int64_t count, int64_t k) {
    return panel_bytes(count, k, bf16_tiles_here() ? 1 : TILE_ROWS);
}

size_t bf16_right_bytes(int64_t count, int64_t k) {
    return panel_bytes(count, k, TILE_COLUMNS);
}

#ifdef __x86_64__

#include <immintrin.h>

#define NATIVE __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

/* Elements of a vector, and bytes of packed rows that are multiplied at a time. */
enum { LANES = 16, BLOCK_BYTES = 384 << 10 };

bool bf16_panels_here(void) {
    return !processor_fixed() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512bf16");
}

static int64_t at_most(int64_t count, int64_t most) {
    return count < most ? count : most;
}

static __mmask16 first_lanes(int64_t count) {
    return count >= LANES ? 0xffff : count <= 0 ? 0 : (__mmask16)((1 << count) - 1);
}

/* ---- packing ---- */

/* 16 pairs of up to 16 vectors, of which `left` elements are left, zeros behind them and
 * in vectors that are not there. Vectors that lie side by side, element j at x[j * step]:
 * r[p] gets pair p of all. */
NATIVE static void take_beside(__m512i r[LANES], const float *x, int64_t lanes,
                               int64_t step, int64_t left) {
    const __mmask16 in = first_lanes(lanes);
    for (int64_t p = 0; p < LANES; p++) {
        const __mmask16 first = 2 * p < left ? in : 0, second = 2 * p + 1 < left ? in : 0;
        const float *from = x + (first ? 2 * p * step : 0);
        const __m512 low = _mm512_maskz_loadu_ps(first, from);
        const __m512 high = _mm512_maskz_loadu_ps(second, from + (second ? step : 0));
        const __m512i l = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(low));
        const __m512i h = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(high));
        r[p] = _mm512_or_si512(l, _mm512_slli_epi32(h, 16));
    }
}

/* Vectors that follow each other, vector i at x[i * next]: r[i] gets those of vector
 * i. */
NATIVE static void take_behind(__m512i r[LANES], const float *x, int64_t lanes,
                               int64_t next, int64_t left) {
    const __mmask16 low = first_lanes(left), high = first_lanes(left - LANES);
    for (int64_t i = 0; i < LANES; i++) {
        const float *from = x + (i < lanes ? i * next : 0);
        r[i] = (__m512i)_mm512_cvtne2ps_pbh(
            _mm512_maskz_loadu_ps(i < lanes ? high : 0, from + (high ? LANES : 0)),
            _mm512_maskz_loadu_ps(i < lanes ? low : 0, from));
    }
}

/* Turns 16 x 16 elements of 32 bits. */
NATIVE static void turn(__m512i r[LANES]) {
    __m512i t[LANES];
    for (int i = 0; i < LANES; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < LANES; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    /* r[4 b + c] has column 4 q + c of rows 4 b .. 4 b + 3 in its quarter q */
    for (int c = 0; c < 4; c++) {
        const __m512i even = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88);
        const __m512i odd = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xdd);
        const __m512i even_below = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88);
        const __m512i odd_below = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xdd);
        t[c] = _mm512_shuffle_i32x4(even, even_below, 0x88);
        t[8 + c] = _mm512_shuffle_i32x4(even, even_below, 0xdd);
        t[4 + c] = _mm512_shuffle_i32x4(odd, odd_below, 0x88);
        t[12 + c] = _mm512_shuffle_i32x4(odd, odd_below, 0xdd);
    }
    for (int i = 0; i < LANES; i++) r[i] = t[i];
}

/* Pair by pair: that of vector i goes to out[p * width + i]. */
NATIVE static void pack_panels(uint32_t *out, int64_t width, const float *x,
                               int64_t count, int64_t k, int64_t next, int64_t step) {
    const int64_t pairs = pairs_of(k);
    __m512i r[LANES];
    for (int64_t first = 0; first < count; first += width, out += pairs * width)
        for (int64_t lane = 0; lane < width; lane += LANES) {
            const int64_t left = count - first - lane, room = width - lane;
            const int64_t lanes = left > 0 ? at_most(at_most(left, room), LANES) : 0;
            const float *from = x + (left > 0 ? (first + lane) * next : 0);
            for (int64_t p = 0; p < pairs; p += LANES) {
                if (step == 1) {
                    take_behind(r, from + 2 * p, lanes, next, k - 2 * p);
                    turn(r);
                } else {
                    take_beside(r, from + 2 * p * step, lanes, step, k - 2 * p);
                }
                for (int64_t q = 0; q < LANES && p + q < pairs; q++)
                    _mm512_mask_storeu_epi32(out + (p + q) * width + lane,
                                             first_lanes(room), r[q]);
            }
        }
}

/* Vector by vector, for tiles. */
NATIVE static void pack_rows(uint32_t *out, const float *x, int64_t count, int64_t k,
                             int64_t next, int64_t step) {
    const int64_t pairs = pairs_of(k);
    __m512i r[LANES];
    for (int64_t first = 0; first < count; first += LANES)
        for (int64_t p = 0; p < pairs; p += LANES) {
            const float *from = x + first * next + 2 * p * step;
            const int64_t lanes = at_most(count - first, LANES);
            if (step == 1) {
                take_behind(r, from, lanes, next, k - 2 * p);
            } else {
                take_beside(r, from, lanes, step, k - 2 * p);
                turn(r);
            }
            for (int64_t i = 0; i < lanes; i++)
                _mm512_storeu_si512(out + (first + i) * pairs + p, r[i]);
        }
}

void bf16_pack_left(void *out, const float *x, int64_t count, int64_t k, int64_t next,
                    int64_t step) {
    if (bf16_tiles_here())
        pack_rows(out, x, count, k, next, step);
    else
        pack_panels(out, TILE_ROWS, x, count, k, next, step);
}

void bf16_pack_right(void *out, const float *x, int64_t count, int64_t k, int64_t next,
                     int64_t step) {
    pack_panels(out, TILE_COLUMNS, x, count, k, next, step);
}

/* ---- products ---- */

/* A tile of c, whose rows are ldc apart. */
typedef struct Tile {
    float *c;
    int64_t ldc, rows, columns;
    bool add;
} Tile;

NATIVE static void multiply_tile(const Tile *tile, const uint32_t *a, const uint32_t *b,
                                 int64_t pairs) {
    const __mmask16 first = first_lanes(tile->columns);
    const __mmask16 second = first_lanes(tile->columns - LANES);
    __m512 sum[TILE_ROWS][2];
    for (int64_t r = 0; r < tile->rows; r++) {
        const float *y = tile->c + r * tile->ldc;
        _mm_prefetch((const char *)y, _MM_HINT_T0);
        _mm_prefetch((const char *)(y + tile->columns - 1), _MM_HINT_T0);
    }
#pragma GCC unroll 12
    for (int r = 0; r < TILE_ROWS; r++) sum[r][0] = sum[r][1] = _mm512_setzero_ps();
    for (int64_t p = 0; p < pairs; p++, a += TILE_ROWS, b += TILE_COLUMNS) {
        const __m512bh b0 = (__m512bh)_mm512_load_si512(b);
        const __m512bh b1 = (__m512bh)_mm512_load_si512(b + LANES);
#pragma GCC unroll 12
        for (int r = 0; r < TILE_ROWS; r++) {
            const __m512bh x = (__m512bh)_mm512_set1_epi32((int)a[r]);
            sum[r][0] = _mm512_dpbf16_ps(sum[r][0], x, b0);
            sum[r][1] = _mm512_dpbf16_ps(sum[r][1], x, b1);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < TILE_ROWS; r++) {
        if (r >= tile->rows) break;
        float *y = tile->c + r * tile->ldc, *z = second ? y + LANES : y;
        if (tile->add) {
            sum[r][0] = _mm512_add_ps(sum[r][0], _mm512_maskz_loadu_ps(first, y));
            sum[r][1] = _mm512_add_ps(sum[r][1], _mm512_maskz_loadu_ps(second, z));
        }
        _mm512_mask_storeu_ps(y, first, sum[r][0]);
        _mm512_mask_storeu_ps(z, second, sum[r][1]);
    }
}

static void multiply_panels(const uint32_t *a, const uint32_t *b, int64_t m, int64_t n,
                            int64_t pairs, bool add, float *c) {
    const int64_t fitting = BLOCK_BYTES / (TILE_ROWS * pairs * (int64_t)sizeof *a);
    const int64_t block = (fitting > 1 ? fitting : 1) * TILE_ROWS;
    for (int64_t first = 0; first < m; first += block)
        for (int64_t j = 0; j < n; j += TILE_COLUMNS)
            for (int64_t i = first; i < at_most(m, first + block); i += TILE_ROWS) {
                const Tile tile = {.c = c + i * n + j,
                                   .ldc = n,
                                   .rows = at_most(m - i, TILE_ROWS),
                                   .columns = at_most(n - j, TILE_COLUMNS),
                                   .add = add};
                multiply_tile(&tile, a + i * pairs, b + j * pairs, pairs);
            }
}

/* ---- products by tiles of AMX ---- */

/* The sums of a block of rows, which lie one after the other at a, with 32 columns. */
TILES_TARGET static void sum_tiles(const uint32_t *a, const uint32_t *b, int64_t pairs,
                                   bool below) {
    enum { LINE = TILE_COLUMNS * sizeof *b, HALF = TILE_COLUMNS / 2 };
    const int64_t lda = pairs * (int64_t)sizeof *a;
    for (int64_t p = 0; p < pairs; p += LANES, b += LANES * TILE_COLUMNS)
        TILES_ADD(_tile_dpbf16ps, below, (const char *)(a + p), lda, b, b + HALF, LINE);
}

/* Columns of c that are fewer than 32 go through `room`: rows of 32. */
NATIVE static void move_columns(float *to, int64_t of_to, const float *from,
                                int64_t of_from, int64_t rows, int64_t columns) {
    const __mmask16 first = first_lanes(columns), second = first_lanes(columns - LANES);
    for (int64_t r = 0; r < rows; r++, to += of_to, from += of_from) {
        _mm512_mask_storeu_ps(to, first, _mm512_maskz_loadu_ps(first, from));
        if (second)
            _mm512_mask_storeu_ps(to + LANES, second,
                                  _mm512_maskz_loadu_ps(second, from + LANES));
    }
}

/* The rows from..end of c, `at_once` at a time. Sums go on from what c is with `add`. */
TILES_TARGET static void multiply_rows(const uint32_t *a, const uint32_t *b, int64_t from,
                                       int64_t end, int64_t at_once, int64_t n,
                                       int64_t pairs, bool add, float *c) {
    _Alignas(64) float room[TILE_PAIR * TILE_COLUMNS];
    const bool below = tiles_open(at_once);
    for (int64_t j = 0; j < n; j += TILE_COLUMNS) {
        const int64_t columns = at_most(n - j, TILE_COLUMNS);
        const bool whole = columns == TILE_COLUMNS;
        for (int64_t i = from; i < end; i += at_once) {
            float *at = c + i * n + j, *to = whole ? at : room;
            const int64_t stride = (whole ? n : TILE_COLUMNS) * (int64_t)sizeof *c;
            if (add && !whole) move_columns(room, TILE_COLUMNS, at, n, at_once, columns);
            if (add)
                tiles_load(below, to, stride);
            else
                tiles_zero(below);
            sum_tiles(a + i * pairs, b + j * pairs, pairs, below);
            tiles_store(below, to, stride);
            if (!whole) move_columns(at, n, room, TILE_COLUMNS, at_once, columns);
        }
    }
    tiles_close();
}

static void multiply_tiles(const uint32_t *a, const uint32_t *b, int64_t m, int64_t n,
                           int64_t pairs, bool add, float *c) {
    const int64_t fitting = BLOCK_BYTES / (TILE_PAIR * pairs * (int64_t)sizeof *a);
    const int64_t block = (fitting > 1 ? fitting : 1) * TILE_PAIR;
    const int64_t whole = m - m % TILE_PAIR;
    for (int64_t i = 0; i < whole; i += block)
        multiply_rows(a, b, i, at_most(whole, i + block), TILE_PAIR, n, pairs, add, c);
    if (whole < m) multiply_rows(a, b, whole, m, m - whole, n, pairs, add, c);
}

void bf16_multiply(const void *left, const void *right, int64_t m, int64_t n, int64_t k,
                   bool add, float *c) {
    (bf16_tiles_here() ? multiply_tiles : multiply_panels)(left, right, m, n, pairs_of(k),
                                                           add, c);
}

#else

#include <stdlib.h>

bool bf16_panels_here(void) {
    return false;
}

void bf16_pack_left(void *out, const float *x, int64_t count, int64_t k, int64_t next,
                    int64_t step) {
    (void)out, (void)x, (void)count, (void)k, (void)next, (void)step;
    abort();
}

void bf16_pack_right(void *out, const float *x, int64_t count, int64_t k, int64_t next,
                     int64_t step) {
    (void)out, (void)x, (void)count, (void)k, (void)next, (void)step;
    abort();
}

void bf16_multiply(const void *left, const void *right, int64_t m, int64_t n, int64_t k,
                   bool add, float *c) {
    (void)left, (void)right, (void)m, (void)n, (void)k, (void)add, (void)c;
    abort();
}

#endif
