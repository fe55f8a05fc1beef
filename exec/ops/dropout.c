/* dropout(x): in training y = x * keep / (1 - rate), keep = 0 with probability `rate`,
 * else 1; dx = dy * keep / (1 - rate). Outside training y = x.
 *
 * Element i of the whole mini-batch always draws the same word of the stream `key`, so
 * masks do not depend on how samples are spread over calls, and backward draws again
 * instead of keeping them. In groups of 64 elements, element 16 w + l of group g is word
 * w of block 16 g + l (ir/random.h): the words of 16 blocks are computed side by side. */
#include "exec/generate/step.h"
#include "exec/infer.h"
#include "exec/ops/kernel_math.h"
#include "exec/ops/tiles.h"

#include <string.h>

enum { BLOCKS = 16, GROUP = 4 * BLOCKS, ROUNDS = 10 };

static const Operand OPERANDS[] = {
    {"x", OPERAND_REQUIRED, "any shape; the first dimension counts samples"},
    {NULL, 0, NULL}};

static const Field FIELDS[] = {
    F_REAL(DropoutAttrs, rate, 0, 1, "probability of zero, below 1"), F_END};

static const DropoutAttrs DEFAULTS = {.rate = 0.1};

static Status infer(const Node *node, Type *out, Diag *diag) {
    const double rate = ((const DropoutAttrs *)node->attrs)->rate;
    if (!(rate >= 0 && rate < 1))
        return infer_fail_attr(node, "rate", diag, "a number from 0 to below 1, found %g",
                               rate);
    TRY(infer_rank(node, 0, 1, RANK_MAX, diag));
    *out = node->in[0]->type;
    return STATUS_OK;
}

/* 16 words of 32 bits; and the same in 64-bit lanes, where their products fit. */
typedef uint32_t Words __attribute__((vector_size(4 * BLOCKS)));
typedef uint64_t Lanes __attribute__((vector_size(8 * BLOCKS)));

/* Philox4x32-10 of counters first .. first + 15: random_block, 16 at a time; word w of
 * block l goes to words[16 w + l]. */
static inline void draw_words(uint64_t key, uint64_t first, uint32_t words[GROUP]) {
    const uint64_t low = 0xffffffffu;
    const Lanes counter =
        first + (Lanes){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    Lanes c0 = counter & low, c1 = counter >> 32, c2 = {0}, c3 = {0};
    uint64_t k0 = key & low, k1 = key >> 32;
    for (int round = 0; round < ROUNDS; round++) {
        const Lanes p0 = c0 * 0xD2511F53u, p1 = c2 * 0xCD9E8D57u;
        c0 = (p1 >> 32) ^ c1 ^ k0;
        c1 = p1 & low;
        c2 = (p0 >> 32) ^ c3 ^ k1;
        c3 = p0 & low;
        k0 = (k0 + 0x9E3779B9u) & low;
        k1 = (k1 + 0xBB67AE85u) & low;
    }
    const Words out[4] = {
        __builtin_convertvector(c0, Words), __builtin_convertvector(c1, Words),
        __builtin_convertvector(c2, Words), __builtin_convertvector(c3, Words)};
    memcpy(words, out, sizeof out);
}

/* to[i] (+)= from[i] * keep / (1 - rate) for the elements of a range; keep is drawn for
 * the place in the mini-batch. */
static void drop(const Call *call, REAL *restrict to, const REAL *restrict from, Range r,
                 bool accumulate) {
    const double rate = ((const DropoutAttrs *)call->attrs)->rate;
    const uint32_t limit = (uint32_t)(rate * 4294967296.0);
    const REAL keep = (REAL)(1 / (1 - rate));
    const int64_t first = call->first * (call->out.count / call->out.dim[0]);
    uint32_t words[GROUP];
    for (int64_t i = r.first, n; i < r.end; i += n) {
        const int64_t group = (first + i) / GROUP, skip = (first + i) % GROUP;
        n = GROUP - skip < r.end - i ? GROUP - skip : r.end - i;
        draw_words(call->key, (uint64_t)group * BLOCKS, words);
        if (accumulate)
            for (int64_t j = 0; j < n; j++)
                to[i + j] += from[i + j] * (words[skip + j] < limit ? 0 : keep);
        else
            for (int64_t j = 0; j < n; j++)
                to[i + j] = from[i + j] * (words[skip + j] < limit ? 0 : keep);
    }
}

static bool is_active(const Call *call) {
    return call->training && ((const DropoutAttrs *)call->attrs)->rate > 0;
}

/* A range of a copy, or of what is dropped of it. */
static void pass(const Call *call, REAL *to, const REAL *from, bool accumulate) {
    const Range r = call_range(call, call->out.count, GROUP);
    if (is_active(call))
        drop(call, to, from, r, accumulate);
    else
        put_row(to + r.first, from + r.first, r.end - r.first, accumulate);
}

static void forward(const Call *call) {
    pass(call, call->out.data, call->in[0].data, false);
}

static void backward(const Call *call) {
    const View *dx = &call->d_in[0];
    if (dx->data) pass(call, dx->data, call->d_out.data, dx->accumulate);
}

OP_RECORD(dropout) = {
    OP_ID(dropout),
    .summary = "in training zero with probability rate, else x / (1 - rate)",
    .operands = OPERANDS,
    .fields = FIELDS,
    .attrs_size = sizeof(DropoutAttrs),
    .defaults = &DEFAULTS,
    .traits = OP_STOCHASTIC | OP_PASS_VALUE | OP_ELEMENTWISE | OP_PROPORTIONAL |
              OP_ROWWISE,
    .infer = infer,
};

KERNEL(dropout) = {
    .step = STEP(alias),
    .forward = forward,
    .backward = backward,
    .forward_tiles = element_tiles,
    .backward_tiles = element_tiles,
};
