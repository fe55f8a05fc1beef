/* Harness for kernels: builds one node from a line of text, gives it random values and
 * calls its op's forward and backward directly, in either precision.
 *
 * Buffers are separate allocations of the exact size, filled with NaN where a kernel must
 * write all of it, so that AddressSanitizer and the comparisons find stray accesses. */
#ifndef COMPRESS_TESTS_EXEC_GRAD_HARNESS_H
#define COMPRESS_TESTS_EXEC_GRAD_HARNESS_H

#include "exec/ops/kernel.h"
#include "ir/random.h"
#include "tests/support/check.h"
#include "tests/support/rounding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { OPERANDS_MAX = 12, LINE_MAX_BYTES = 256 };

static const int64_t SIZES[DIM_SYMBOLS] = {3, 5, 7, 2}; /* N, T, S, M */

/* One line of grad_cases.def. */
typedef struct Case {
    const char *op, *attrs, *operands;
} Case;

/* A node with bound types and values. A repeated operand shares its first one's value. */
typedef struct Problem {
    Arena *arena;
    Diag *diag;
    Node *node;
    int count;
    Type type[OPERANDS_MAX], out;
    int first[OPERANDS_MAX];     /* operand with the same node; itself when alone */
    bool wanted[OPERANDS_MAX];   /* gets a gradient */
    double *value[OPERANDS_MAX]; /* real operands; all are exact in float */
    int32_t *integer[OPERANDS_MAX];
    double *weight; /* R of L = <out, R>, exact in float */
} Problem;

/* What a call gave, as double whatever it was computed in. */
typedef struct Result {
    double *out, *d_in[OPERANDS_MAX];
} Result;

/* Whether calls are cut into the parts that kernels say, and in which order they run. */
typedef enum CutOrder { CUT_NOT, CUT_UP, CUT_DOWN } CutOrder;

/* How to call. */
typedef struct Mode {
    bool single; /* float, else double */
    bool training;
    bool backward;
    bool in_place;            /* d_in[0] lies where d_out is */
    int64_t first;            /* Call.first */
    double rows;              /* Call.rows; 0 = those of the call */
    unsigned skip;            /* operands whose gradient is not asked for */
    const double *const *old; /* accumulate onto these, NULL = overwrite */
    unsigned hide; /* operands (READS_) whose values are NaN or NULL in backward */
    CutOrder cut;
    int64_t *parts; /* [2]: receives how many forward and backward have; NULL = not */
} Mode;

static int64_t parse_dim(const char **at) {
    static const char SYMBOLS[] = "NTSM";
    const char *symbol = **at ? strchr(SYMBOLS, **at) : NULL;
    if (!symbol) return strtoll(*at, (char **)at, 10);
    (*at)++;
    return -1 - (symbol - SYMBOLS);
}

static Type parse_type(const char *at) {
    Type type = {.dtype = DTYPE_F32};
    if (strcmp(at, "scalar") == 0) return type;
    for (;; at++) {
        type.dim[type.rank++] = parse_dim(&at);
        if (*at != 'x') return type;
    }
}

/* Integers of a mask (limit 0) or below a limit, with `skip` every third INDEX_SKIP. */
static void fill_integers(Problem *p, int i, int64_t limit, bool skip, uint64_t key) {
    const int64_t count = type_count(&p->type[i]), last = p->type[i].dim[1];
    p->integer[i] = calloc((size_t)count, sizeof(int32_t));
    for (int64_t j = 0; j < count; j++) {
        const double u = random_uniform(key, (uint64_t)j);
        p->integer[i][j] =
            limit ? (int32_t)(u * (double)limit) : j % last == 0 || u < 0.6;
        if (skip && j % 3 == 0) p->integer[i][j] = INDEX_SKIP;
    }
}

static double *random_values(int64_t count, uint64_t key) {
    double *values = calloc((size_t)count, sizeof *values);
    for (int64_t j = 0; j < count; j++)
        values[j] = (float)random_normal(key, (uint64_t)j);
    return values;
}

/* Parses operand `i`, makes its leaf and its values. NULL for an absent one. */
static Node *make_operand(Problem *p, Graph *graph, int i, const char *text, Node **in) {
    p->first[i] = i;
    if (strcmp(text, "-") == 0) return NULL;
    if (*text == '=') {
        p->first[i] = text[1] - '0';
        p->type[i] = p->type[p->first[i]];
        p->value[i] = p->value[p->first[i]];
        p->wanted[i] = p->wanted[p->first[i]];
        return in[p->first[i]];
    }
    const bool skip = *text == 'l', integer = skip || *text == 'm' || *text == 'i';
    const bool positive = *text == '+';
    const char *limit = strchr(text, '<');
    Type type = parse_type(text + (integer || positive || *text == '!'));
    type.dtype = integer ? DTYPE_I32 : DTYPE_F32;
    assert_true(type_bind(&type, SIZES, &p->type[i]));
    const uint64_t key = random_key(7, (uint64_t)i);
    if (integer)
        fill_integers(p, i, limit ? atoll(limit + 1) : 0, skip, key);
    else
        p->value[i] = random_values(type_count(&p->type[i]), key);
    for (int64_t j = 0; positive && j < type_count(&p->type[i]); j++)
        p->value[i][j] = fabs(p->value[i][j]);
    p->wanted[i] = !integer && *text != '!';
    return graph_input(graph, (char[]){'x', (char)('0' + i), 0}, &type);
}

/* Builds the node of a case. Fails with the status of what was wrong with it. */
static Status problem_create(Problem *p, const Case *c) {
    *p = (Problem){.arena = arena_create(), .diag = diag_create()};
    Graph *graph = graph_create(p->arena, ops_table());
    Node *in[OPERANDS_MAX] = {0};
    char line[LINE_MAX_BYTES], *rest = NULL;
    assert_true(strlen(c->operands) < sizeof line);
    strcpy(line, c->operands);
    for (char *s = strtok_r(line, " ", &rest); s;
         s = strtok_r(NULL, " ", &rest), p->count++)
        in[p->count] = make_operand(p, graph, p->count, s, in);
    p->node = graph_insert(graph, NULL, op_find(graph->ops, c->op), in, p->count);
    if (c->attrs[0]) TRY(node_set(graph, p->node, p->diag, "%s", c->attrs));
    TRY(node_infer(p->node, p->diag));
    assert_true(type_bind(&p->node->type, SIZES, &p->out));
    p->weight = random_values(type_count(&p->out), 99);
    for (; p->count < p->node->in_count; p->count++) p->first[p->count] = p->count;
    return STATUS_OK;
}

static void problem_destroy(Problem *p) {
    for (int i = 0; i < OPERANDS_MAX; i++) {
        if (p->first[i] == i) free(p->value[i]);
        free(p->integer[i]);
    }
    free(p->weight);
    diag_destroy(p->diag);
    arena_destroy(p->arena);
}

/* A case that is refused with STATUS_MODEL and a message that holds `part`. */
static inline void expect_invalid(const Case *c, const char *part) {
    Problem p;
    const Status status = problem_create(&p, c);
    char *text = diag_text(p.diag);
    if (status != STATUS_MODEL || !strstr(text, part))
        fail_msg("%s [%s] (%s): status %d, said \"%s\", expected \"%s\"", c->op, c->attrs,
                 c->operands, status, text, part);
    free(text);
    problem_destroy(&p);
}

/* `count` reals of a precision from doubles; NaN for NULL. */
static void *to_reals(const double *from, int64_t count, bool single) {
    void *data = malloc((size_t)count * (single ? sizeof(float) : sizeof(double)));
    for (int64_t j = 0; j < count; j++) {
        const double v = from ? from[j] : (double)NAN;
        if (single)
            ((float *)data)[j] = (float)v;
        else
            ((double *)data)[j] = v;
    }
    return data;
}

static double *from_reals(const void *from, int64_t count, bool single) {
    double *data = malloc((size_t)count * sizeof *data);
    for (int64_t j = 0; j < count; j++)
        data[j] = single ? (double)((const float *)from)[j] : ((const double *)from)[j];
    return data;
}

static View view_of(const Type *type, void *data) {
    View view = {.data = data, .rank = type->rank, .count = type_count(type)};
    memcpy(view.dim, type->dim, sizeof view.dim);
    return view;
}

/* Memory of `bytes` bytes aligned to 64, all NaN in either precision. */
static void *nan_bytes(size_t bytes) {
    void *data = NULL;
    assert_int_equal(posix_memalign(&data, 64, bytes ? bytes : 1), 0);
    memset(data, 0xff, bytes);
    return data;
}

/* Views of operands or their gradients; repeated ones share memory. */
static void make_inputs(const Problem *p, const Mode *mode, View *in) {
    for (int i = 0; i < p->count; i++) {
        in[i] = view_of(&p->type[i], NULL);
        if (p->first[i] != i)
            in[i].data = in[p->first[i]].data;
        else if (p->value[i])
            in[i].data = to_reals(p->value[i], in[i].count, mode->single);
        else
            in[i].data = p->integer[i];
    }
}

static void make_gradients(const Problem *p, const Mode *mode, View *d_in, void *d_out) {
    for (int i = 0; i < p->count; i++) {
        d_in[i] = view_of(&p->type[i], NULL);
        if (!p->wanted[i] || (mode->skip >> i & 1)) continue;
        d_in[i].accumulate = p->first[i] != i || mode->old;
        if (p->first[i] != i)
            d_in[i].data = d_in[p->first[i]].data;
        else if (i == 0 && mode->in_place)
            d_in[i].data = d_out;
        else
            d_in[i].data =
                to_reals(mode->old ? mode->old[i] : NULL, d_in[i].count, mode->single);
    }
}

/* Takes away what backward does not declare to read. */
static void hide_values(const Problem *p, const Mode *mode, Call *call, View *in) {
    const size_t bytes = mode->single ? sizeof(float) : sizeof(double);
    for (int i = 0; i < p->count; i++) {
        if (!(mode->hide >> i & 1)) continue;
        if (p->value[i])
            memset(in[i].data, 0xff, (size_t)in[i].count * bytes);
        else
            in[i].data = NULL;
    }
    if (mode->hide & READS_OUT)
        memset(call->out.data, 0xff, (size_t)call->out.count * bytes);
}

/* Runs a call, or its parts with scratch of NaN each; returns their number. */
static int64_t run_parts(const Mode *mode, void (*run)(const Call *),
                         int64_t (*tiles)(const Call *), Call *call, size_t scratch) {
    const int64_t count = mode->cut != CUT_NOT && tiles ? tiles(call) : 1;
    if (count < 2) run(call);
    for (int64_t i = 0; count > 1 && i < count; i++) {
        memset(call->scratch, 0xff, scratch);
        call->tiles = count;
        call->tile = mode->cut == CUT_UP ? i : count - 1 - i;
        run(call);
    }
    call->tiles = call->tile = 0;
    return count;
}

static void run_backward_kernel(const Problem *p, const Mode *mode, const Kernel *kernel,
                                Call *call, size_t scratch, View *in, Result *result) {
    View d_in[OPERANDS_MAX];
    void *d_out = to_reals(p->weight, call->out.count, mode->single);
    make_gradients(p, mode, d_in, d_out);
    hide_values(p, mode, call, in);
    call->d_in = d_in;
    call->d_out = view_of(&p->out, d_out);
    const int64_t parts =
        run_parts(mode, kernel->backward, kernel->backward_tiles, call, scratch);
    if (mode->parts) mode->parts[1] = parts;
    for (int i = 0; i < p->count; i++) {
        if (p->first[i] != i || !d_in[i].data) continue;
        result->d_in[i] = from_reals(d_in[i].data, d_in[i].count, mode->single);
        if (d_in[i].data != d_out) free(d_in[i].data);
    }
    free(d_out);
}

/* Gives a call what its kernel asks for, as the planner does: without data. Returns the
 * bytes of scratch. */
static size_t make_work_areas(const Kernel *kernel, Call *call) {
    View bare[OPERANDS_MAX];
    Call plan = *call;
    for (int i = 0; i < call->in_count; i++) {
        bare[i] = call->in[i];
        bare[i].data = NULL;
    }
    plan.in = bare;
    call->aux = nan_bytes(kernel->aux_bytes ? kernel->aux_bytes(&plan) : 0);
    const size_t scratch = kernel->scratch_bytes ? kernel->scratch_bytes(&plan) : 0;
    call->scratch = nan_bytes(scratch);
    return scratch;
}

/* Calls forward and, if asked for, backward with d_out = p->weight. */
static inline Result execute(const Problem *p, Mode mode) {
    const Op *op = p->node->op;
    const Kernel *kernel =
        kernel_of(kernels_for(mode.single ? PRECISION_F32 : PRECISION_F64), op);
    View in[OPERANDS_MAX];
    make_inputs(p, &mode, in);
    void *inputs[OPERANDS_MAX];
    for (int i = 0; i < p->count; i++) inputs[i] = p->value[i] ? in[i].data : NULL;
    Call call = {.node = p->node,
                 .attrs = p->node->attrs,
                 .in_count = p->count,
                 .in = in,
                 .out = view_of(&p->out, NULL),
                 .key = 12345,
                 .first = mode.first,
                 .training = mode.training};
    const size_t scratch = make_work_areas(kernel, &call);
    call.out.data = to_reals(NULL, call.out.count, mode.single);
    if (op->count_rows) call.rows = mode.rows > 0 ? mode.rows : op->count_rows(&call);
    const int64_t parts =
        run_parts(&mode, kernel->forward, kernel->forward_tiles, &call, scratch);
    if (mode.parts) mode.parts[0] = parts;
    Result result = {.out = from_reals(call.out.data, call.out.count, mode.single)};
    if (mode.backward) run_backward_kernel(p, &mode, kernel, &call, scratch, in, &result);
    for (int i = 0; i < p->count; i++)
        if (p->first[i] == i) free(inputs[i]);
    free(call.out.data);
    free(call.aux);
    free(call.scratch);
    return result;
}

/* Largest of the values that a call reads. */
static inline double operand_size(const Problem *p) {
    double size = 0;
    for (int i = 0; i < p->count; i++)
        if (p->value[i])
            size = fmax(size, largest_value(p->value[i], type_count(&p->type[i])));
    return size;
}

/* How far one element of a call's value may be off, for values of a magnitude. */
static inline double value_tolerance(const Problem *p, bool single, double magnitude) {
    return rounding_tolerance(single ? PRECISION_F32 : PRECISION_F64,
                              rounding_node_terms(p->node, SIZES), magnitude);
}

/* Fails unless a call's value is `want`, or its gradient of operand i is, within what a
 * chain of the node's terms (tests/support/rounding.h) rounds. The magnitude is the
 * largest |want|, or `least` when that is larger. */
static inline void compare_value(const Problem *p, const char *what, bool single,
                                 const double *got, const double *want, double least) {
    rounding_compare(what, got, want, type_count(&p->out),
                     single ? PRECISION_F32 : PRECISION_F64,
                     rounding_node_terms(p->node, SIZES), least);
}

static inline void compare_gradient(const Problem *p, const char *what, int i,
                                    bool single, const double *got, const double *want,
                                    double least) {
    rounding_compare(what, got, want, type_count(&p->type[i]),
                     single ? PRECISION_F32 : PRECISION_F64,
                     rounding_operand_terms(p->node, i, SIZES), least);
}

static inline void result_free(Result *result) {
    free(result->out);
    for (int i = 0; i < OPERANDS_MAX; i++) free(result->d_in[i]);
}

#endif
