/* Tall: see exec/linalg/tall.h.
 *
 * The Gram matrix is made in waves: one block of rows per thread into a matrix of its
 * own, then the matrices of the wave are added to the sum, element by element in the
 * order of the blocks. */
#include "exec/linalg/tall.h"

#include "exec/linalg/blas.h"
#include "exec/linalg/gemm.h"
#include "exec/run/parallel.h"

#include <string.h>

/* Rows are cut into BLOCKS blocks, fewer when a block would have under BLOCK_ROWS rows,
 * and a block into chunks of CHUNK_ROWS, which fit the second-level cache. */
enum { BLOCKS = 16, BLOCK_ROWS = 64, CHUNK_ROWS = 256 };

/* Waves are as long as WAVE_BYTES allow, one block per worker at least; workers that
 * would need more than PRIVATE_BYTES, and than PRIVATE_MATRICES of f64, are left out. */
#define WAVE_BYTES    ((int64_t)24 << 20)
#define PRIVATE_BYTES ((int64_t)48 << 20)
enum { PRIVATE_MATRICES = 8 };

typedef struct Tall {
    const Tensor *e;
    bool wide;
    int64_t blocks;
    int workers;
    int64_t wave;      /* first block of the wave */
    int64_t wave_size; /* blocks in it */
    int64_t wave_most; /* blocks in the longest, a multiple of the workers */
    int64_t chunk_bytes, partial_bytes; /* 0: none needed */
    Buf *chunks;                        /* converted rows, by worker */
    Buf *partials;                      /* Gram matrices, by place in the wave */
    double *sum;
    const float *right;
    int64_t rank;
    float *out;
} Tall;

static int64_t min_of(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t max_of(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* First row of a block. */
static int64_t block_row(const Tall *tall, int64_t block) {
    const int64_t rows = tall->e->dim[0], each = rows / tall->blocks;
    return block * each + min_of(block, rows % tall->blocks);
}

/* Rows [first, first + count) as f64 or f32: E's own or converted into the chunk. */
static const void *read_rows(const Tall *tall, int64_t first, int64_t count, int worker) {
    const Tensor *e = tall->e;
    const int64_t width = e->dim[1];
    if (!tall->chunks)
        return (const char *)tensor_data(e) +
               (size_t)(first * width) * dtype_bytes(e->dtype);
    void *chunk = (char *)buf_data(tall->chunks) + worker * tall->chunk_bytes;
    if (tall->wide)
        tensor_read_f64(e, first * width, count * width, chunk);
    else
        tensor_read_f32(e, first * width, count * width, chunk);
    return chunk;
}

/* Sets what is common to both products, and how many workers share them. */
static void tall_init(Tall *tall, const Tensor *e, bool wide, bool gram, int threads) {
    const int64_t bytes = wide ? sizeof(double) : sizeof(float), width = e->dim[1];
    const int64_t blocks = (e->dim[0] + BLOCK_ROWS - 1) / BLOCK_ROWS;
    const bool direct = e->dtype == (wide ? DTYPE_F64 : DTYPE_F32) &&
                        (uintptr_t)tensor_data(e) % dtype_bytes(e->dtype) == 0;
    *tall = (Tall){.e = e, .wide = wide, .blocks = min_of(blocks, BLOCKS)};
    tall->partial_bytes = gram ? width * width * bytes : 0;
    tall->chunk_bytes = direct ? 0 : CHUNK_ROWS * width * bytes;
    const int64_t one = tall->partial_bytes + tall->chunk_bytes;
    const int64_t matrices = PRIVATE_MATRICES * width * width * (int64_t)sizeof(double);
    const int64_t most = max_of(PRIVATE_BYTES, matrices) / max_of(one, 1);
    tall->workers = (int)max_of(min_of(min_of(threads, tall->blocks), most), 1);
    if (!gram) return;
    const int64_t share = WAVE_BYTES / tall->workers - tall->chunk_bytes;
    const int64_t each =
        min_of(share / tall->partial_bytes, tall->blocks / tall->workers);
    tall->wave_most = tall->workers * max_of(each, 1);
}

static Status tall_alloc(Tall *tall, Diag *diag) {
    if (tall->chunk_bytes > 0)
        TRY(buf_create(&tall->chunks, (size_t)(tall->workers * tall->chunk_bytes), diag));
    if (tall->partial_bytes > 0)
        TRY(buf_create(&tall->partials, (size_t)(tall->wave_most * tall->partial_bytes),
                       diag));
    return STATUS_OK;
}

static void tall_release(Tall *tall) {
    buf_release(tall->chunks);
    buf_release(tall->partials);
}

static void *partial_at(const Tall *tall, int64_t place) {
    return (char *)buf_data(tall->partials) + place * tall->partial_bytes;
}

/* Gram matrix of block `place` of the wave. */
static void gram_block(void *self, int64_t place, int worker) {
    const Tall *tall = self;
    const int64_t width = tall->e->dim[1];
    const int64_t first = block_row(tall, tall->wave + place);
    const int64_t end = block_row(tall, tall->wave + place + 1);
    for (int64_t row = first; row < end; row += CHUNK_ROWS) {
        const int64_t count = min_of(CHUNK_ROWS, end - row);
        const void *rows = read_rows(tall, row, count, worker);
        const int keep = row > first;
        if (tall->wide)
            syrk_f64(width, count, rows, width, keep, partial_at(tall, place));
        else
            syrk_f32(width, count, rows, width, (float)keep, partial_at(tall, place));
    }
}

static void add_row(const Tall *tall, int64_t row) {
    const int64_t width = tall->e->dim[1];
    double *sum = tall->sum + row * width;
    for (int64_t place = 0; place < tall->wave_size; place++) {
        const void *partial = partial_at(tall, place);
        const double *f64 = (const double *)partial + row * width;
        const float *f32 = (const float *)partial + row * width;
        if (tall->wide)
            for (int64_t c = 0; c <= row; c++) sum[c] += f64[c];
        else
            for (int64_t c = 0; c <= row; c++) sum[c] += f32[c];
    }
}

/* Adds the wave to rows i and width - 1 - i of the sum: equal work for every i. */
static void add_rows(void *self, int64_t i, int worker) {
    (void)worker;
    const Tall *tall = self;
    const int64_t mirror = tall->e->dim[1] - 1 - i;
    add_row(tall, i);
    if (mirror != i) add_row(tall, mirror);
}

Status tall_gram(double *sum, const Tensor *e, bool wide, int threads, Diag *diag) {
    Tall tall;
    tall_init(&tall, e, wide, true, threads);
    const int64_t width = e->dim[1];
    Status status = tall_alloc(&tall, diag);
    tall.sum = sum;
    memset(sum, 0, (size_t)(width * width) * sizeof *sum);
    while (tall.wave < tall.blocks && status == STATUS_OK) {
        tall.wave_size = min_of(tall.wave_most, tall.blocks - tall.wave);
        parallel_for(tall.wave_size, tall.workers, gram_block, &tall);
        parallel_for((width + 1) / 2, tall.workers, add_rows, &tall);
        tall.wave += tall.wave_size;
    }
    tall_release(&tall);
    return status;
}

static void project_block(void *self, int64_t block, int worker) {
    const Tall *tall = self;
    const int64_t width = tall->e->dim[1], rank = tall->rank;
    const int64_t end = block_row(tall, block + 1);
    for (int64_t row = block_row(tall, block); row < end; row += CHUNK_ROWS) {
        const int64_t count = min_of(CHUNK_ROWS, end - row);
        const float *rows = read_rows(tall, row, count, worker);
        gemm_f32(false, true, count, rank, width, 1, rows, width, tall->right, width, 0,
                 tall->out + row * rank, rank);
    }
}

Status tall_project(float *out, const Tensor *e, const float *right, int64_t rank,
                    int threads, Diag *diag) {
    Tall tall;
    tall_init(&tall, e, false, false, threads);
    tall.right = right;
    tall.rank = rank;
    tall.out = out;
    Status status = tall_alloc(&tall, diag);
    if (status == STATUS_OK)
        parallel_for(tall.blocks, tall.workers, project_block, &tall);
    tall_release(&tall);
    return status;
}
