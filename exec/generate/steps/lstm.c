/* lstm: hidden units are units. State: h of tokens at even and at odd positions, then c;
 * each token reads all of the h that the token before wrote. */
#include "exec/generate/step.h"
#include "exec/ops/lstm_cell.h"

enum { X, WEIGHT_IN, WEIGHT_STATE, BIAS, GATES = LSTM_GATES };

static int64_t units(const Node *node) {
    return node->type.dim[2];
}

static size_t state_bytes(const Node *node, int64_t capacity) {
    (void)capacity;
    return (size_t)(3 * node->type.dim[2]) * sizeof(float);
}

/* One h and c. */
static size_t filled_bytes(const Node *node, int64_t position) {
    (void)position;
    return (size_t)(2 * node->type.dim[2]) * sizeof(float);
}

/* Gates from x and from h, [4 H] each. */
static int64_t scratch_floats(const Node *node, int64_t capacity, int64_t count) {
    (void)capacity, (void)count;
    return 2 * GATES * node->type.dim[2];
}

/* One token's units; `before` is h of the token before, NULL at the first. */
static void run_token(const StepCall *call, const float *x, const float *before,
                      float *restrict c, float *restrict h, int64_t first, int64_t last) {
    const Matrix *in = call->in[WEIGHT_IN], *state = call->in[WEIGHT_STATE];
    const int64_t H = state->columns;
    float *restrict gates = call->scratch, *restrict sums = gates + GATES * H;
    for (int64_t g = 0; g < GATES * H; g += H) {
        REAL_FN(matrix_times)(in, g + first, g + last, call->in[BIAS], x, 0, gates, 0, 1);
        if (!before) continue;
        REAL_FN(matrix_times)(state, g + first, g + last, NULL, before, 0, sums, 0, 1);
        for (int64_t j = g + first; j < g + last; j++) gates[j] += sums[j];
    }
    lstm_cell_next(gates, before, first, last, c, h, H);
}

static void run(const StepCall *call, int64_t first, int64_t last) {
    const int64_t H = call->node->type.dim[2], D = call->node->in[X]->type.dim[2];
    float *state = call->state;
    for (int64_t t = 0; t < call->count; t++) {
        const int64_t position = call->position + t;
        float *h = state + position % 2 * H;
        const float *before = position > 0 ? state + (position + 1) % 2 * H : NULL;
        run_token(call, (const float *)call->in[X] + t * D, before, state + 2 * H, h,
                  first, last);
        if (call->out) put_row(call->out + t * H + first, h + first, last - first, false);
    }
}

STEP_KERNEL(lstm) = {
    .share = STEP_SERIAL,
    .matrices = READS_IN(WEIGHT_IN) | READS_IN(WEIGHT_STATE),
    .units = units,
    .state_bytes = state_bytes,
    .filled_bytes = filled_bytes,
    .scratch_floats = scratch_floats,
    .run = run,
};
