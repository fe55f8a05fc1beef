/* Panels of bfloat16: see exec/linalg/bf16_panels.h.
 *
 * A tile of 12 x 32 sums stays in registers over all of k; an instruction multiplies 16
 * pairs by 16 and adds both products of each to its sum. A panel of columns is multiplied
 * by as many panels of rows as fit half of a second-level cache. */
#include "exec/linalg/bf16_panels.h"

enum { TILE_ROWS = 12, TILE_COLUMNS = 32 };

static size_t panel_bytes(int64_t count, int64_t k, int64_t width) {
    const int64_t pairs = (count + width - 1) / width * width * ((k + 1) / 2);
    return ((size_t)pairs * sizeof(uint32_t) + 63) / 64 * 64;
}

size_t bf16_left_bytes(int64_t count, int64_t k) {
    return panel_bytes(count, k, TILE_ROWS);
}

size_t bf16_right_bytes(int64_t count, int64_t k) {
    return panel_bytes(count, k, TILE_COLUMNS);
}

#ifdef __x86_64__

#include "exec/processor.h"

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

/* `lanes` vectors that lie side by side, element j at x[j * step]: pair p goes to
 * out[p * width], where there is room for so many. */
NATIVE static void pack_beside(uint32_t *out, int64_t width, int64_t room, const float *x,
                               int64_t lanes, int64_t step, int64_t k) {
    const __mmask16 in = first_lanes(lanes), to = first_lanes(room);
    for (int64_t j = 0; j < k; j += 2, out += width) {
        const __mmask16 second = j + 1 < k ? in : 0;
        const __m512 low = _mm512_maskz_loadu_ps(in, x + j * step);
        const __m512 high = _mm512_maskz_loadu_ps(second, x + (j + (second != 0)) * step);
        const __m512i l = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(low));
        const __m512i h = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(high));
        _mm512_mask_storeu_epi32(out, to, _mm512_or_si512(l, _mm512_slli_epi32(h, 16)));
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

/* `lanes` vectors that follow each other, vector i at x[i * next]. */
NATIVE static void pack_behind(uint32_t *out, int64_t width, int64_t room, const float *x,
                               int64_t lanes, int64_t next, int64_t k) {
    const __mmask16 to = first_lanes(room);
    for (int64_t j = 0; j < k; j += 2 * LANES) {
        const __mmask16 low = first_lanes(k - j), high = first_lanes(k - j - LANES);
        const int64_t pairs = at_most((k - j + 1) / 2, LANES);
        __m512i r[LANES];
        for (int64_t i = 0; i < LANES; i++) {
            const float *from = x + (i < lanes ? i * next + j : 0);
            r[i] = (__m512i)_mm512_cvtne2ps_pbh(
                _mm512_maskz_loadu_ps(i < lanes ? high : 0, from + (high ? LANES : 0)),
                _mm512_maskz_loadu_ps(i < lanes ? low : 0, from));
        }
        turn(r);
        for (int64_t p = 0; p < pairs; p++, out += width)
            _mm512_mask_storeu_epi32(out, to, r[p]);
    }
}

/* Panels of so many vectors. */
static void pack(uint32_t *out, int64_t width, const float *x, int64_t count, int64_t k,
                 int64_t next, int64_t step) {
    const int64_t panel = (k + 1) / 2 * width;
    for (int64_t first = 0; first < count; first += width, out += panel)
        for (int64_t lane = 0; lane < width; lane += LANES) {
            const int64_t left = count - first - lane, room = width - lane;
            const int64_t lanes = left > 0 ? at_most(at_most(left, room), LANES) : 0;
            const float *from = x + (left > 0 ? (first + lane) * next : 0);
            if (step == 1)
                pack_behind(out + lane, width, room, from, lanes, next, k);
            else
                pack_beside(out + lane, width, room, from, lanes, step, k);
        }
}

void bf16_pack_left(void *out, const float *x, int64_t count, int64_t k, int64_t next,
                    int64_t step) {
    pack(out, TILE_ROWS, x, count, k, next, step);
}

void bf16_pack_right(void *out, const float *x, int64_t count, int64_t k, int64_t next,
                     int64_t step) {
    pack(out, TILE_COLUMNS, x, count, k, next, step);
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

void bf16_multiply(const void *left, const void *right, int64_t m, int64_t n, int64_t k,
                   bool add, float *c) {
    const uint32_t *a = left, *b = right;
    const int64_t pairs = (k + 1) / 2;
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
