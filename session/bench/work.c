/* Work: see session/bench/work.h. */
#include "session/bench/work.h"

#include "exec/linalg/bf16.h"
#include "exec/linalg/blas.h"
#include "exec/linalg/gemm.h"
#include "exec/loops/loops.h"
#include "exec/plan/plan_build.h"
#include "exec/run/run.h"
#include "ir/irtext.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* y[rows, outputs] = x[rows, inputs] W^T. */
typedef struct Product {
    int64_t rows, outputs, inputs;
} Product;

static const Product PRODUCTS[RATE_KINDS] = {
    [RATE_SQUARE] = {1024, 1024, 1024}, [RATE_BERT] = {1024, 768, 768},
    [RATE_WIDE] = {256, 3072, 768},     [RATE_NARROW] = {16384, 64, 64},
    [RATE_BF16] = {1024, 768, 768},     [RATE_INT8] = {1024, 768, 768},
};

/* Elements of the largest x and y, and of the largest W. */
enum { PLACE_COUNT = 1 << 20, WEIGHT_COUNT = 3072 * 768 };

/* What elementwise ops are timed with: 4 samples of 128 tokens. */
static const char ROWS_GRAPH[] = "ir 1\n"
                                 "input x : f32[N, 128, 768]\n"
                                 "%1 = add($x, $x) : f32[N, 128, 768]\n"
                                 "%2 = activation(%1) : f32[N, 128, 768]\n"
                                 "%3 = add(%2, %1) : f32[N, 128, 768]\n"
                                 "output y = %3\n";
enum { ROWS_SAMPLES = 4, ROWS_COUNT = ROWS_SAMPLES * 128 * 768, ROWS_PASSES = 8 };

/* Meetings that are timed at once. */
enum { MEETINGS = 200 };

/* One thread's. */
typedef struct Place {
    Buf *memory;
    float *x, *y;
    void *scratch;
    Workspace *workspace;
} Place;

struct Work {
    int threads, places;
    Place *place;
    Buf *weights, *rounded, *whole, *shared;
    float *w;
    Bf16Matrix bf16;
    Matrix int8;
    float *a, *b; /* of the stream */
    int64_t stream;
    Arena *arena;
    Graph *graph;
    Plan *plan;
    Params *params;

    /* of work_do */
    RateKind kind;
    Team *team;
    int using;
    int64_t times;
};

static void *bytes_of(Buf *buf) {
    return (void *)(uintptr_t)buf_data(buf);
}

/* ---- making ready ---- */

static Status open_weights(Work *work, Diag *diag) {
    const Product *size = &PRODUCTS[RATE_INT8];
    const size_t zeros = 4096 * sizeof(float);
    TRY(buf_create(&work->weights, WEIGHT_COUNT * sizeof(float), diag));
    work->w = bytes_of(work->weights);
    for (int64_t i = 0; i < WEIGHT_COUNT; i++) work->w[i] = (float)(i % 17 - 8) / 64;
    work->bf16 = (Bf16Matrix){size->outputs, size->inputs, BF16_ROWS, NULL};
    TRY(buf_create(&work->rounded, bf16_bytes(&work->bf16), diag));
    work->bf16.data = bytes_of(work->rounded);
    bf16_round(&work->bf16, work->w);
    work->int8 =
        (Matrix){.rows = size->outputs, .columns = size->inputs, .kind = STEP_INT8};
    TRY(buf_create(&work->whole, matrix_bytes(&work->int8) + zeros, diag));
    work->int8.data = bytes_of(work->whole);
    int8_t *q = memory_alloc((size_t)(size->outputs * size->inputs), 1);
    for (int64_t i = 0; i < size->outputs * size->inputs; i++)
        q[i] = (int8_t)(i % 17 - 8);
    matrix_pack_int8(&work->int8, q, work->w + 9, bytes_of(work->whole));
    free(q);
    return STATUS_OK;
}

static Status open_place(Work *work, Place *place, Diag *diag) {
    const size_t values = PLACE_COUNT * sizeof(float);
    const Product *size = &PRODUCTS[RATE_BF16];
    TRY(buf_create(&place->memory, 2 * values + bf16_scratch(size->rows, size->inputs),
                   diag));
    place->x = bytes_of(place->memory);
    place->y = place->x + PLACE_COUNT;
    place->scratch = place->y + PLACE_COUNT;
    for (int64_t i = 0; i < PLACE_COUNT; i++) place->x[i] = (float)(i % 13 - 6) / 16;
    TRY(workspace_create(&place->workspace, diag));
    TRY(workspace_bind(place->workspace, work->plan, work->params, diag));
    memcpy(workspace_input(place->workspace, "x"), place->x, ROWS_COUNT * sizeof(float));
    return STATUS_OK;
}

static Status open_rows(Work *work, Diag *diag) {
    work->arena = arena_create();
    TRY(graph_parse(&work->graph, work->arena, ops_table(), "bench", ROWS_GRAPH,
                    strlen(ROWS_GRAPH), diag));
    Node *const results[] = {work->graph->outputs[0].node};
    PlanOptions options = {.results = results, .result_count = 1};
    options.sizes[DIM_INDEX(DIM_N)] = ROWS_SAMPLES;
    TRY(plan_create(&work->plan, work->graph, &options, diag));
    return params_create(&work->params, work->graph, PRECISION_F32, false, diag);
}

/* Two arrays that are together four times as large as the last cache, at least 128 MB, so
 * that little of them is found there, and at most 1 GB. */
static Status open_stream(Work *work, Diag *diag) {
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    const int64_t wanted = 2 * (cache > 0 ? (int64_t)cache : 0);
    const int64_t least = (int64_t)64 << 20, most = (int64_t)512 << 20;
    const int64_t bytes = wanted < least ? least : wanted > most ? most : wanted;
    work->stream = bytes / (int64_t)sizeof(float);
    TRY(buf_create(&work->shared, 2 * (size_t)bytes, diag));
    work->a = bytes_of(work->shared);
    work->b = work->a + work->stream;
    for (int64_t i = 0; i < work->stream; i++) work->b[i] = 1e-3f; /* no zero pages */
    return STATUS_OK;
}

static Status work_open(Work *work, Diag *diag) {
    blas_init();
    TRY(open_weights(work, diag));
    TRY(open_rows(work, diag));
    work->place = memory_alloc((size_t)work->threads, sizeof *work->place);
    for (; work->places < work->threads; work->places++)
        TRY(open_place(work, &work->place[work->places], diag));
    return open_stream(work, diag);
}

Status work_create(Work **out, int threads, Diag *diag) {
    Work *work = memory_alloc(1, sizeof *work);
    work->threads = threads;
    const Status status = work_open(work, diag);
    if (status == STATUS_OK)
        *out = work;
    else
        work_destroy(work);
    return status;
}

void work_destroy(Work *work) {
    if (!work) return;
    for (int i = 0; work->place && i < work->threads; i++) {
        workspace_destroy(work->place[i].workspace);
        buf_release(work->place[i].memory);
    }
    free(work->place);
    params_destroy(work->params);
    plan_destroy(work->plan);
    graph_release(work->graph);
    arena_destroy(work->arena);
    buf_release(work->weights);
    buf_release(work->rounded);
    buf_release(work->whole);
    buf_release(work->shared);
    free(work);
}

/* ---- doing ---- */

static void multiply(const Work *work, const Place *place) {
    const Product *p = &PRODUCTS[work->kind];
    gemm_f32(false, true, p->rows, p->outputs, p->inputs, 1, place->x, p->inputs, work->w,
             p->inputs, 0, place->y, p->outputs);
}

static void multiply_whole(const Work *work, const Place *place) {
    const Product *p = &PRODUCTS[RATE_INT8];
    const float *bias =
        (const float *)((const char *)work->int8.data + matrix_bytes(&work->int8));
    loops_here()->integer_times(&work->int8, 0, p->outputs, bias, place->x, p->inputs,
                                place->y, p->outputs, p->rows);
}

/* This thread's part of a += b. */
static void add_part(const Work *work, int me) {
    const int64_t first = work->stream * me / work->using;
    const int64_t last = work->stream * (me + 1) / work->using;
    loops_here()->add_floats(work->a + first, work->b + first, last - first);
}

static void do_once(const Work *work, int me) {
    const Place *place = &work->place[me];
    switch (work->kind) {
    case RATE_BF16:
        bf16_times(&work->bf16, BF16_ROWS, PRODUCTS[RATE_BF16].rows, place->x, false,
                   place->y, place->scratch);
        break;
    case RATE_INT8: multiply_whole(work, place); break;
    case RATE_STREAM: add_part(work, me); break;
    case RATE_ROWS: run_forward(place->workspace, (RunMode){0}); break;
    case RATE_MEETING:
        for (int i = 0; i < MEETINGS; i++) team_meet(work->team);
        break;
    default: multiply(work, place);
    }
}

static void do_times(void *self, int me) {
    const Work *work = self;
    for (int64_t i = 0; i < work->times; i++) do_once(work, me);
}

bool work_has(const Work *work, RateKind kind, int threads) {
    (void)work;
    if (kind == RATE_BF16) return bf16_native();
    if (kind == RATE_MEETING) return threads > 1;
    return kind < RATE_AGREE;
}

double work_do(Work *work, RateKind kind, Team *team, int threads, int64_t times) {
    work->kind = kind;
    work->team = team;
    work->using = threads;
    work->times = times;
    const double start = ticker_seconds();
    team_run(team, do_times, work);
    return ticker_seconds() - start;
}

double work_units(const Work *work, RateKind kind, int threads) {
    const Product *p = &PRODUCTS[kind];
    switch (kind) {
    case RATE_STREAM: return 3.0 * (double)work->stream * sizeof(float);
    case RATE_ROWS: return (double)threads * ROWS_PASSES * ROWS_COUNT * sizeof(float);
    case RATE_MEETING: return MEETINGS;
    default:
        return 2.0 * (double)threads * (double)p->rows * (double)p->outputs *
               (double)p->inputs;
    }
}
