/* feature_map: heads are units; the weights [G, r, d] are G * r rows of one matrix. */
#include "exec/generate/step.h"
#include "exec/ops/kernel_math.h"

enum { X, WEIGHT, BIAS };

typedef struct FeatureSizes {
    int64_t heads, share; /* share: heads of one weight */
    int64_t d, r, f;      /* r: rows of a head's weight, f features of them */
    float scale;
    int fn;
} FeatureSizes;

static int64_t units(const Node *node) {
    return ((const FeatureMapAttrs *)node->attrs)->heads;
}

/* W x of one head: rows of a weight may start within a panel. */
static int64_t scratch_floats(const Node *node, int64_t capacity, int64_t count) {
    (void)capacity;
    const Node *weight = step_operand(node, WEIGHT);
    return weight ? count * weight->type.dim[0] * weight->type.dim[1] : 1;
}

/* y = fn(y), where x is the head that y comes from. */
static void apply(const FeatureSizes *s, const float *x, float *restrict y) {
    switch ((FeatureFn)s->fn) {
    case FEATURE_RELU:
        for (int64_t i = 0; i < s->r; i++) y[i] = y[i] < 0 ? 0 : y[i];
        break;
    case FEATURE_ELU1:
        for (int64_t i = 0; i < s->r; i++) {
            const float low = exp_real(y[i] < 0 ? y[i] : 0);
            y[i] = y[i] > 0 ? y[i] + 1 : low;
        }
        break;
    case FEATURE_POSITIVE: {
        const float shift = s->scale * s->scale / 2 * row_dot(x, x, s->d);
        const float factor = (float)(1 / sqrt((double)s->f));
        for (int64_t i = 0; i < s->r; i++) y[i] = factor * exp_real(y[i] - shift);
        break;
    }
    case FEATURE_HEDGEHOG:
        for (int64_t i = 0; i < s->r; i++) y[s->r + i] = -y[i];
        softmax_row(y, s->r);
        softmax_row(y + s->r, s->r);
        break;
    case FEATURE_EXP: exp_row(y, s->r, row_max(y, s->r)); break;
    }
}

/* y = scale * u + b, u = W x in place of x when there is a weight. */
static void put_head(const FeatureSizes *s, const float *restrict u,
                     const float *restrict bias, float *restrict y) {
    for (int64_t i = 0; i < s->r; i++) y[i] = s->scale * u[i] + (bias ? bias[i] : 0);
}

static void run(const StepCall *call, int64_t first, int64_t last) {
    const Node *node = call->node, *matrix = step_operand(node, WEIGHT);
    const FeatureMapAttrs *attrs = node->attrs;
    const FeatureSizes s = {.heads = attrs->heads,
                            .share = matrix ? attrs->heads / matrix->type.dim[0] : 1,
                            .d = node->in[X]->type.dim[2] / attrs->heads,
                            .r = node->type.dim[2] / attrs->heads /
                                 feature_halves(attrs->fn),
                            .f = node->type.dim[2] / attrs->heads,
                            .scale = (float)attrs->scale,
                            .fn = attrs->fn};
    const Matrix *weight = matrix ? call->in[WEIGHT] : NULL;
    const float *bias = step_operand(call->node, BIAS) ? call->in[BIAS] : NULL;
    for (int64_t h = first; h < last; h++) {
        const float *x = (const float *)call->in[X] + h * s.d;
        const int64_t row = h / s.share * s.r;
        if (weight) REAL_FN(matrix_times)
        (weight, row, row + s.r, NULL, x, s.heads * s.d, call->scratch, weight->rows,
         call->count);
        for (int64_t t = 0; t < call->count; t++) {
            const float *head = x + t * s.heads * s.d;
            float *y = call->out + (t * s.heads + h) * s.f;
            put_head(&s, weight ? call->scratch + t * weight->rows + row : head,
                     bias ? bias + row : NULL, y);
            apply(&s, head, y);
        }
    }
}

STEP_KERNEL(feature_map) = {
    .share = STEP_UNITS,
    .matrices = READS_IN(WEIGHT),
    .local = READS_IN(X),
    .units = units,
    .scratch_floats = scratch_floats,
    .run = run,
};
