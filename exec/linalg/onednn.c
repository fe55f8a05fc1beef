/* The one file that includes oneDNN's header: see exec/linalg/onednn.h.
 *
 * A product is oneDNN's matmul primitive with its memory objects. A primitive may be
 * executed by many threads at once, memory objects may not: they hold the addresses of
 * one execution. So a shape has a list of runs, each a set of memory objects with a
 * scratchpad; a thread takes one, or makes one where all are taken, and puts it back. */
#include "exec/linalg/onednn.h"

#ifdef COMPRESS_HAVE_ONEDNN

#include "exec/processor.h"
#include "exec/run/parallel.h"
#include "ir/arena.h"

#include <dnnl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rows for which weights are laid out; other numbers of rows take the same layout. */
#define USUAL_ROWS 128

/* One execution at a time. */
typedef struct Run {
    dnnl_memory_t x, weights, bias, y, scratchpad;
    struct Run *next;
} Run;

typedef struct Shape {
    OnednnType type;
    bool bias;
    int64_t m, k, rows, ldx;
} Shape;

typedef struct Product {
    Shape shape;
    dnnl_primitive_t primitive;
    Run *idle;
    int busy;      /* runs that are taken */
    uint64_t used; /* clock of the last use */
} Product;

struct OnednnMatrix {
    OnednnType type;
    int64_t m, k;
    dnnl_memory_t packed;
};

/* All of the program's: the library's own state is one for the process, too. */
static struct {
    pthread_once_t once;
    pthread_mutex_t lock;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    char name[64];
    bool has[ONEDNN_TYPES];
    Product *products[ONEDNN_SHAPES];
    int count;
    uint64_t clock;
} library = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};

static const struct {
    dnnl_data_type_t x, weights, y;
} TYPES[ONEDNN_TYPES] = {
    [ONEDNN_F32] = {dnnl_f32, dnnl_f32, dnnl_f32},
    [ONEDNN_BF16] = {dnnl_bf16, dnnl_bf16, dnnl_f32},
    [ONEDNN_S8] = {dnnl_s8, dnnl_s8, dnnl_s32},
    [ONEDNN_U8] = {dnnl_u8, dnnl_s8, dnnl_s32},
};

/* ---- the library ---- */

static const char *isa_name(dnnl_cpu_isa_t isa) {
    switch (isa) {
    case dnnl_cpu_isa_sse41: return "sse41";
    case dnnl_cpu_isa_avx: return "avx";
    case dnnl_cpu_isa_avx2: return "avx2";
    case dnnl_cpu_isa_avx2_vnni: return "avx2_vnni";
    case dnnl_cpu_isa_avx512_core: return "avx512_core";
    case dnnl_cpu_isa_avx512_core_vnni: return "avx512_core_vnni";
    case dnnl_cpu_isa_avx512_core_bf16: return "avx512_core_bf16";
    case dnnl_cpu_isa_avx512_core_amx: return "avx512_core_amx";
    default: return "other instructions";
    }
}

/* Instructions of a fixed level, so that they are the same on every processor. */
static dnnl_cpu_isa_t isa_of_level(Processor level) {
    return level == PROCESSOR_V2   ? dnnl_cpu_isa_sse41
           : level == PROCESSOR_V3 ? dnnl_cpu_isa_avx2
                                   : dnnl_cpu_isa_avx512_core;
}

static void open_library(void) {
    if (processor_fixed()) dnnl_set_max_cpu_isa(isa_of_level(processor_level()));
    const dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    const dnnl_version_t *version = dnnl_version();
    snprintf(library.name, sizeof library.name, "oneDNN %d.%d.%d, %s", version->major,
             version->minor, version->patch, isa_name(isa));
    if (dnnl_engine_create(&library.engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&library.stream, library.engine, dnnl_stream_default_flags) !=
            dnnl_success)
        return;
    const bool amx = isa == dnnl_cpu_isa_avx512_core_amx,
               bf16 = isa == dnnl_cpu_isa_avx512_core_bf16;
    library.has[ONEDNN_F32] = amx || bf16 || isa == dnnl_cpu_isa_avx512_core ||
                              isa == dnnl_cpu_isa_avx512_core_vnni;
    /* How tiles of AMX cut a sum depends on the number of rows. */
    library.has[ONEDNN_BF16] = bf16;
    /* Without VNNI sums of two products are cut off at 16 bits. */
    library.has[ONEDNN_S8] = library.has[ONEDNN_U8] =
        amx || bf16 || isa == dnnl_cpu_isa_avx512_core_vnni ||
        isa == dnnl_cpu_isa_avx2_vnni;
}

bool onednn_has(OnednnType type) {
    pthread_once(&library.once, open_library);
    return library.has[type];
}

const char *onednn_library(void) {
    pthread_once(&library.once, open_library);
    return library.name;
}

/* ---- shapes ---- */

/* A matrix of [rows, columns] whose elements are so far apart; 0 and 0: as the library
 * likes it. What it refuses stays empty, of which there is no product. */
static dnnl_memory_desc_t describe(dnnl_data_type_t type, int64_t rows, int64_t columns,
                                   int64_t row_step, int64_t column_step) {
    dnnl_memory_desc_t desc = {0};
    const dnnl_dims_t dims = {rows, columns}, steps = {row_step, column_step};
    if (row_step == 0)
        dnnl_memory_desc_init_by_tag(&desc, 2, dims, type, dnnl_format_tag_any);
    else
        dnnl_memory_desc_init_by_strides(&desc, 2, dims, type, steps);
    return desc;
}

/* The product of a shape, with weights laid out as `layout` says or, where that is NULL,
 * as the library likes it; NULL when there is no such product. */
static dnnl_primitive_desc_t describe_product(const Shape *shape,
                                              const dnnl_memory_desc_t *layout) {
    const dnnl_memory_desc_t x = describe(TYPES[shape->type].x, shape->rows, shape->k,
                                          shape->ldx, 1),
                             y = describe(TYPES[shape->type].y, shape->rows, shape->m,
                                          shape->m, 1),
                             bias = describe(dnnl_f32, 1, shape->m, shape->m, 1),
                             any = describe(TYPES[shape->type].weights, shape->k,
                                            shape->m, 0, 0);
    dnnl_matmul_desc_t product;
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_primitive_desc_t desc = NULL;
    parallel_alone();
    if (dnnl_matmul_desc_init(&product, &x, layout ? layout : &any,
                              shape->bias ? &bias : NULL, &y) != dnnl_success ||
        dnnl_primitive_attr_create(&attributes) != dnnl_success)
        return NULL;
    dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user);
    if (dnnl_primitive_desc_create(&desc, &product, attributes, library.engine, NULL) !=
        dnnl_success)
        desc = NULL;
    dnnl_primitive_attr_destroy(attributes);
    return desc;
}

/* A memory object; NULL when it cannot be had. */
static dnnl_memory_t new_memory(const dnnl_memory_desc_t *desc, void *handle) {
    dnnl_memory_t memory = NULL;
    return dnnl_memory_create(&memory, desc, library.engine, handle) == dnnl_success
               ? memory
               : NULL;
}

static void free_memory(dnnl_memory_t memory) {
    if (memory) dnnl_memory_destroy(memory);
}

static void free_run(Run *run) {
    free_memory(run->x);
    free_memory(run->weights);
    free_memory(run->bias);
    free_memory(run->y);
    free_memory(run->scratchpad);
    free(run);
}

/* A run of a product; NULL when there is no memory for it. */
static Run *new_run(const Product *product) {
    const_dnnl_primitive_desc_t desc = NULL;
    if (dnnl_primitive_get_primitive_desc(product->primitive, &desc) != dnnl_success)
        return NULL;
    Run *run = memory_alloc(1, sizeof *run);
    const dnnl_memory_desc_t *const
        x = dnnl_primitive_desc_query_md(desc, dnnl_query_src_md, 0),
        *const weights = dnnl_primitive_desc_query_md(desc, dnnl_query_weights_md, 0),
        *const bias = dnnl_primitive_desc_query_md(desc, dnnl_query_weights_md, 1),
        *const y = dnnl_primitive_desc_query_md(desc, dnnl_query_dst_md, 0),
        *const scratchpad =
            dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    run->x = new_memory(x, DNNL_MEMORY_NONE);
    run->weights = new_memory(weights, DNNL_MEMORY_NONE);
    if (product->shape.bias) run->bias = new_memory(bias, DNNL_MEMORY_NONE);
    run->y = new_memory(y, DNNL_MEMORY_NONE);
    run->scratchpad = new_memory(scratchpad, DNNL_MEMORY_ALLOCATE);
    if (run->x && run->weights && run->y && run->scratchpad &&
        (run->bias || !product->shape.bias))
        return run;
    free_run(run);
    return NULL;
}

static void free_product(Product *product) {
    for (Run *run = product->idle, *next; run; run = next) {
        next = run->next;
        free_run(run);
    }
    dnnl_primitive_destroy(product->primitive);
    free(product);
}

static bool same_shape(const Shape *a, const Shape *b) {
    return a->type == b->type && a->bias == b->bias && a->m == b->m && a->k == b->k &&
           a->rows == b->rows && a->ldx == b->ldx;
}

/* A place for a new product: an empty one, or that of the idle one which was used the
 * longest time ago; -1 when none is idle. The lock is held. */
static int find_place(void) {
    int oldest = -1;
    if (library.count < ONEDNN_SHAPES) return library.count++;
    for (int i = 0; i < library.count; i++)
        if (library.products[i]->busy == 0 &&
            (oldest < 0 || library.products[i]->used < library.products[oldest]->used))
            oldest = i;
    if (oldest >= 0) free_product(library.products[oldest]);
    return oldest;
}

/* The product of a shape; NULL when it cannot be had. */
static Product *new_product(const Shape *shape, const OnednnMatrix *matrix) {
    const dnnl_memory_desc_t *layout = NULL;
    dnnl_primitive_t primitive = NULL;
    if (dnnl_memory_get_memory_desc(matrix->packed, &layout) != dnnl_success) return NULL;
    dnnl_primitive_desc_t desc = describe_product(shape, layout);
    if (!desc) return NULL;
    const bool made = dnnl_primitive_create(&primitive, desc) == dnnl_success;
    dnnl_primitive_desc_destroy(desc);
    if (!made) return NULL;
    Product *product = memory_alloc(1, sizeof *product);
    *product = (Product){.shape = *shape, .primitive = primitive};
    return product;
}

/* The product of a shape, which is kept where there is a place for it; NULL when it
 * cannot be had. The lock is held. */
static Product *find_product(const Shape *shape, const OnednnMatrix *matrix) {
    for (int i = 0; i < library.count; i++)
        if (same_shape(&library.products[i]->shape, shape)) return library.products[i];
    Product *product = new_product(shape, matrix);
    if (!product) return NULL;
    const int place = find_place();
    if (place >= 0) library.products[place] = product;
    product->used = place >= 0 ? 0 : UINT64_MAX;
    return product;
}

/* Takes a run of the product of a shape; what it made beyond the places that are kept is
 * kept nowhere, and freed when it is put back. NULL when there is no memory for it. */
static Run *take_run(Product **out, const Shape *shape, const OnednnMatrix *matrix) {
    pthread_mutex_lock(&library.lock);
    Product *product = find_product(shape, matrix);
    Run *run = product ? product->idle : NULL;
    if (run)
        product->idle = run->next;
    else if (product)
        run = new_run(product);
    if (run) {
        if (product->used != UINT64_MAX) product->used = ++library.clock;
        product->busy++;
    } else if (product && product->used == UINT64_MAX)
        free_product(product);
    pthread_mutex_unlock(&library.lock);
    *out = product;
    return run;
}

static void put_run(Product *product, Run *run) {
    pthread_mutex_lock(&library.lock);
    run->next = product->idle;
    product->idle = run;
    product->busy--;
    if (product->used == UINT64_MAX) free_product(product);
    pthread_mutex_unlock(&library.lock);
}

/* ---- products ---- */

Status onednn_pack(OnednnMatrix **out, OnednnType type, bool transposed, int64_t m,
                   int64_t k, const void *weights, Diag *diag) {
    if (!onednn_has(type))
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         "this program or processor has no such products by oneDNN");
    const Shape shape = {.type = type, .m = m, .k = k, .rows = USUAL_ROWS, .ldx = k};
    dnnl_primitive_desc_t product = describe_product(&shape, NULL);
    OnednnMatrix *matrix = memory_alloc(1, sizeof *matrix);
    *matrix = (OnednnMatrix){.type = type, .m = m, .k = k};
    const bool made =
        product && dnnl_memory_create(
                       &matrix->packed,
                       dnnl_primitive_desc_query_md(product, dnnl_query_weights_md, 0),
                       library.engine, DNNL_MEMORY_ALLOCATE) == dnnl_success;
    if (product) dnnl_primitive_desc_destroy(product);
    if (!made) {
        free(matrix);
        return diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL,
                         "cannot allocate %lld x %lld packed weights", (long long)m,
                         (long long)k);
    }
    const Status status = onednn_pack_again(matrix, transposed, weights, diag);
    if (status != STATUS_OK) {
        onednn_free(matrix);
        return status;
    }
    *out = matrix;
    return STATUS_OK;
}

/* Copies values into the layout of a matrix; false when there is no memory for it. */
static bool reorder(dnnl_memory_t from, const dnnl_memory_desc_t *plain,
                    dnnl_memory_t to) {
    dnnl_primitive_desc_t desc = NULL;
    dnnl_primitive_t primitive = NULL;
    const dnnl_memory_desc_t *layout = NULL;
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    const bool done =
        dnnl_memory_get_memory_desc(to, &layout) == dnnl_success &&
        dnnl_reorder_primitive_desc_create(&desc, plain, library.engine, layout,
                                           library.engine, NULL) == dnnl_success &&
        dnnl_primitive_create(&primitive, desc) == dnnl_success &&
        dnnl_primitive_execute(primitive, library.stream, 2, args) == dnnl_success;
    if (primitive) dnnl_primitive_destroy(primitive);
    if (desc) dnnl_primitive_desc_destroy(desc);
    return done;
}

Status onednn_pack_again(OnednnMatrix *matrix, bool transposed, const void *weights,
                         Diag *diag) {
    const int64_t m = matrix->m, k = matrix->k;
    const dnnl_memory_desc_t plain = describe(TYPES[matrix->type].weights, k, m,
                                              transposed ? m : 1, transposed ? 1 : k);
    dnnl_memory_t from = new_memory(&plain, (void *)(uintptr_t)weights);
    parallel_alone();
    const bool done = from && reorder(from, &plain, matrix->packed);
    free_memory(from);
    if (done) return STATUS_OK;
    return diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL,
                     "cannot pack %lld x %lld weights", (long long)m, (long long)k);
}

void onednn_free(OnednnMatrix *matrix) {
    if (!matrix) return;
    dnnl_memory_destroy(matrix->packed);
    free(matrix);
}

size_t onednn_bytes(const OnednnMatrix *matrix) {
    const dnnl_memory_desc_t *layout = NULL;
    return dnnl_memory_get_memory_desc(matrix->packed, &layout) == dnnl_success
               ? dnnl_memory_desc_get_size(layout)
               : 0;
}

bool onednn_times(const OnednnMatrix *matrix, int64_t rows, const void *x, int64_t ldx,
                  const float *bias, void *y) {
    const Shape shape = {.type = matrix->type,
                         .bias = bias != NULL,
                         .m = matrix->m,
                         .k = matrix->k,
                         .rows = rows,
                         .ldx = ldx};
    Product *product;
    void *weights = NULL;
    parallel_alone();
    Run *run = take_run(&product, &shape, matrix);
    if (!run) return false;
    dnnl_memory_get_data_handle(matrix->packed, &weights);
    dnnl_memory_set_data_handle(run->x, (void *)(uintptr_t)x);
    dnnl_memory_set_data_handle(run->weights, weights);
    dnnl_memory_set_data_handle(run->y, y);
    if (bias) dnnl_memory_set_data_handle(run->bias, (void *)(uintptr_t)bias);
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, run->x},
                                    {DNNL_ARG_WEIGHTS, run->weights},
                                    {DNNL_ARG_DST, run->y},
                                    {DNNL_ARG_SCRATCHPAD, run->scratchpad},
                                    {DNNL_ARG_BIAS, run->bias}};
    const bool done = dnnl_primitive_execute(product->primitive, library.stream,
                                             bias ? 5 : 4, args) == dnnl_success;
    put_run(product, run);
    return done;
}

bool onednn_gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha,
                 const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
                 float *c, int64_t ldc) {
    if (m <= 0 || n <= 0 || k <= 0) return false;
    parallel_alone();
    return dnnl_sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k, alpha, a, lda, b,
                      ldb, beta, c, ldc) == dnnl_success;
}

#else

bool onednn_has(OnednnType type) {
    (void)type;
    return false;
}

const char *onednn_library(void) {
    return "";
}

Status onednn_pack(OnednnMatrix **out, OnednnType type, bool transposed, int64_t m,
                   int64_t k, const void *weights, Diag *diag) {
    (void)out, (void)type, (void)transposed, (void)m, (void)k, (void)weights;
    return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                     "this program was built without oneDNN");
}

/* There is no matrix to call these with. */
Status onednn_pack_again(OnednnMatrix *matrix, bool transposed, const void *weights,
                         Diag *diag) {
    return onednn_pack(&matrix, ONEDNN_F32, transposed, 0, 0, weights, diag);
}

void onednn_free(OnednnMatrix *matrix) {
    (void)matrix;
}

size_t onednn_bytes(const OnednnMatrix *matrix) {
    (void)matrix;
    return 0;
}

bool onednn_times(const OnednnMatrix *matrix, int64_t rows, const void *x, int64_t ldx,
                  const float *bias, void *y) {
    (void)matrix, (void)rows, (void)x, (void)ldx, (void)bias, (void)y;
    return false;
}

bool onednn_gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha,
                 const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
                 float *c, int64_t ldc) {
    (void)trans_a, (void)trans_b, (void)m, (void)n, (void)k, (void)alpha, (void)a;
    (void)lda, (void)b, (void)ldb, (void)beta, (void)c, (void)ldc;
    return false;
}

#endif
