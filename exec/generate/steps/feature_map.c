/* feature_map: heads are units; the weights [G, f, d] are G * f rows of one matrix. */
#include "exec/generate/step.h"
#include "exec/ops/kernel_math.h"

enum { X, WEIGHT, BIAS };

typedef struct FeatureSizes {
    int64_t heads, share; /* share: heads of one weight */
    int64_t d, f;
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
    if (s->fn == FEATURE_RELU) {
        for (int64_t i = 0; i < s->f; i++) y[i] = y[i] < 0 ? 0 : y[i];
    } else if (s->fn == FEATURE_ELU1) {
        for (int64_t i = 0; i < s->f; i++) {
            const float low = exp_real(y[i] < 0 ? y[i] : 0);
            y[i] = y[i] > 0 ? y[i] + 1 : low;
        }
    } else {
        const float shift = s->scale * s->scale / 2 * row_dot(x, x, s->d);
        const float factor = (float)(1 / sqrt((double)s->f));
        for (int64_t i = 0; i < s->f; i++) y[i] = factor * exp_real(y[i] - shift);
    }
}

/* y = scale * u + b, u = W x in place of x when there is a weight. */
static void put_head(const FeatureSizes *s, const float *restrict u,
                     const float *restrict bias, float *restrict y) {
    for (int64_t i = 0; i < s->f; i++) y[i] = s->scale * u[i] + (bias ? bias[i] : 0);
}

static void run(const StepCall *call, int64_t first, int64_t last) {
    const Node *node = call->node, *matrix = step_operand(node, WEIGHT);
    const FeatureMapAttrs *attrs = node->attrs;
    const FeatureSizes s = {.heads = attrs->heads,
                            .share = matrix ? attrs->heads / matrix->type.dim[0] : 1,
                            .d = node->in[X]->type.dim[2] / attrs->heads,
                            .f = node->type.dim[2] / attrs->heads,
                            .scale = (float)attrs->scale,
                            .fn = attrs->fn};
    const Matrix *weight = matrix ? call->in[WEIGHT] : NULL;
    const float *bias = step_operand(call->node, BIAS) ? call->in[BIAS] : NULL;
    for (int64_t h = first; h < last; h++) {
        const float *x = (const float *)call->in[X] + h * s.d;
        const int64_t row = h / s.share * s.f;
        if (weight) REAL_FN(matrix_times)
        (weight, row, row + s.f, NULL, x, s.heads * s.d, call->scratch, weight->rows,
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
