/* Tiles: registers of 16 rows of 64 bytes each that multiply one another (Intel AMX:
 * Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18).
 * For kernels that are compiled with TILES_TARGET and run where processor_tiles
 * (exec/processor.h) says so.
 *
 * Of the eight tiles four hold sums: of two blocks of rows by two of 16 columns. Two
 * hold the left matrix, 64 bytes of each row of a block; two the right one, 16 lines of
 * which each has 4 bytes of 16 columns. A thread's tiles keep their shape until
 * tiles_close, which must follow. */
#ifndef COMPRESS_EXEC_LINALG_TILES_H
#define COMPRESS_EXEC_LINALG_TILES_H

#include <stdbool.h>
#include <stdint.h>

enum {
    TILE_LINES = 16,            /* rows of a tile */
    TILE_BYTES = 64,            /* of a row */
    TILE_PAIR = 2 * TILE_LINES, /* rows, or columns, of the four tiles of sums */
};

#ifdef __x86_64__

#include <immintrin.h>

#define TILES_TARGET __attribute__((target("amx-tile,amx-int8,amx-bf16")))

#define TILES_INLINE TILES_TARGET static inline __attribute__((always_inline))

/* Places of tiles, sums by block and half. Digits, since instructions are made of them.
 */
#define TILE_SUM_00  0
#define TILE_SUM_01  1
#define TILE_SUM_10  2
#define TILE_SUM_11  3
#define TILE_LEFT_0  4
#define TILE_LEFT_1  5
#define TILE_RIGHT_0 6
#define TILE_RIGHT_1 7

/* Shapes all tiles for 1 to 32 rows; if there are more than 16, the first block has 16.
 * Returns whether the second block has any: if not, its tiles cannot be used. */
TILES_INLINE bool tiles_open(int64_t rows) {
    const int64_t above = rows < TILE_LINES ? rows : TILE_LINES, below = rows - above;
    const uint8_t lines[8] = {
        [TILE_SUM_00] = (uint8_t)above, [TILE_SUM_01] = (uint8_t)above,
        [TILE_SUM_10] = (uint8_t)below, [TILE_SUM_11] = (uint8_t)below,
        [TILE_LEFT_0] = (uint8_t)above, [TILE_LEFT_1] = (uint8_t)below,
        [TILE_RIGHT_0] = TILE_LINES,    [TILE_RIGHT_1] = TILE_LINES,
    };
    struct {
        uint8_t palette, start, none[14];
        uint16_t bytes[16];
        uint8_t lines[16];
    } shapes = {.palette = 1};
    for (int tile = 0; tile < 8; tile++) {
        shapes.bytes[tile] = lines[tile] ? TILE_BYTES : 0;
        shapes.lines[tile] = lines[tile];
    }
    __asm__ volatile("" ::"m"(shapes)); /* of which gcc 12 assumes 8 bytes to be read */
    _tile_loadconfig(&shapes);
    return below > 0;
}

/* Releases them, so that the system need not save them. */
TILES_INLINE void tiles_close(void) {
    _tile_release();
}

/* Ensures that earlier writes to memory are done when tiles are loaded: gcc's load
 * intrinsics do not tell it that they read. */
TILES_INLINE void tiles_wait(void) {
    __asm__ volatile("" ::: "memory");
}

/* Sets the sums to 0, with `below` also those of the second block. What is multiplied
 * next must be in memory by now. */
TILES_INLINE void tiles_zero(bool below) {
    tiles_wait();
    _tile_zero(TILE_SUM_00);
    _tile_zero(TILE_SUM_01);
    if (!below) return;
    _tile_zero(TILE_SUM_10);
    _tile_zero(TILE_SUM_11);
}

/* Sums from rows of 32, `stride` bytes apart, and the same of what is multiplied. */
TILES_INLINE void tiles_load(bool below, const void *from, int64_t stride) {
    const char *at = from, *next = at + TILE_LINES * stride;
    tiles_wait();
    _tile_loadd(TILE_SUM_00, at, stride);
    _tile_loadd(TILE_SUM_01, at + TILE_BYTES, stride);
    if (!below) return;
    _tile_loadd(TILE_SUM_10, next, stride);
    _tile_loadd(TILE_SUM_11, next + TILE_BYTES, stride);
}

/* Sums to such rows. */
TILES_INLINE void tiles_store(bool below, void *to, int64_t stride) {
    char *at = to, *next = at + TILE_LINES * stride;
    _tile_stored(TILE_SUM_00, at, stride);
    _tile_stored(TILE_SUM_01, at + TILE_BYTES, stride);
    if (!below) return;
    _tile_stored(TILE_SUM_10, next, stride);
    _tile_stored(TILE_SUM_11, next + TILE_BYTES, stride);
}

/* Adds the products of 64 bytes of the rows of both blocks, `of_left` bytes apart, with
 * as many of 32 columns, whose lines lie `of_right` bytes apart, by the instruction
 * `multiply`. Tiles of the second block are loaded late: the first products wait for
 * less. */
#define TILES_ADD(multiply, below, left, of_left, right_0, right_1, of_right)            \
    do {                                                                                 \
        _tile_loadd(TILE_RIGHT_0, right_0, of_right);                                    \
        _tile_loadd(TILE_RIGHT_1, right_1, of_right);                                    \
        _tile_loadd(TILE_LEFT_0, left, of_left);                                         \
        multiply(TILE_SUM_00, TILE_LEFT_0, TILE_RIGHT_0);                                \
        multiply(TILE_SUM_01, TILE_LEFT_0, TILE_RIGHT_1);                                \
        if (!(below)) break;                                                             \
        _tile_loadd(TILE_LEFT_1, (left) + TILE_LINES * (of_left), of_left);              \
        multiply(TILE_SUM_10, TILE_LEFT_1, TILE_RIGHT_0);                                \
        multiply(TILE_SUM_11, TILE_LEFT_1, TILE_RIGHT_1);                                \
    } while (0)

#endif
#endif
