/* Ops: the table and the attributes of every op.
 *
 * Shapes below: N samples, T tokens, D width, H heads, d = D/H. Real values unless said
 * otherwise. Each op's formula is in its file under exec/ops/ and in docs/ops.md. */
#ifndef COMPRESS_EXEC_OPS_H
#define COMPRESS_EXEC_OPS_H

#include "ir/op.h"
#include "ir/rotary_angles.h"

/* The ops: op_linear, op_add, ... An op is compared by its address. */
#define OP_ROW(id) extern const Op op_##id;
#include "exec/ops.def"
#undef OP_ROW

/* All of them: for readers, parsers and graphs. */
const OpTable *ops_table(void);

/* What computes them (exec/ops/kernel.h): the set for a precision that suits this
 * processor. The only place that chooses one. */
typedef enum Precision { PRECISION_F32, PRECISION_F64 } Precision;
typedef struct KernelTable KernelTable;
const KernelTable *kernels_for(Precision precision);

/* patches(x[N, C, H, W]) -> [N, H/p * W/p, C*p*p]: non-overlapping patches in row-major
 * order, each flattened channel by channel, so that linear with a convolution weight
 * [D, C, p, p] is that convolution with stride p. */
typedef struct PatchesAttrs {
    int64_t size;
} PatchesAttrs;

/* embedding(ids[N, T...] integer, weight[V, D]) -> [N, T..., D]: row ids[...] of the
 * weight. No attributes. */

/* add_position(x[N, T, D], table[P, D], ids[N, T]?) -> [N, T, D]: x + table[offset + t];
 * P >= offset + T. With ids, tokens offset - 1 are padding: they take row offset - 1, and
 * t counts the others. */
typedef struct AddPositionAttrs {
    int64_t offset;
} AddPositionAttrs;

/* add_sinusoid(x[N, T, D]) -> same: x + p[offset + t], p[t] being sin(t theta^(-2j/D)) in
 * its first half, cos of the same in its second, j < D/2 (Vaswani et al., 2017). */
typedef struct AddSinusoidAttrs {
    double theta;
    int64_t offset;
} AddSinusoidAttrs;

/* linear(x[..., K], weight[M, K...], bias[M]?) -> [..., M]: x W^T + b; weight dimensions
 * after the first are flattened to K. With `transposed` the weight is [K, M] and the
 * result x W + b: a second user of a factor that is stored the other way round. */
/* With `act` i8 the rows of x are rounded to whole numbers of 8 bits before the product,
 * symmetric, with the scale max|x| / 127 of each row. With weights of type q8 [M, K],
 * the float kernel then sums whole numbers; other weights are multiplied as real
 * numbers. Gradients are those without rounding (straight-through), with the rounded x
 * for the weight.
 *
 * With `round`, the rows of real weights are rounded in every product as passes/quantize
 * would do permanently, to the numbers of a type of ir/quantised.h; gradients are those
 * of the rounded ones (straight-through), in float. Only training graphs have it. */
#define LINEAR_ACT_NAMES "float|i8"
typedef enum LinearAct { LINEAR_ACT_FLOAT, LINEAR_ACT_I8 } LinearAct;
#define LINEAR_ROUND_NAMES "none|q8|q4_32|q4_64|q4_128"
typedef struct LinearAttrs {
    bool transposed;
    int act;   /* LinearAct */
    int round; /* index into LINEAR_ROUND_NAMES; 0 = none */
} LinearAttrs;

/* add(a[...], b): a + b; b has a's rank and each dimension equal to a's or 1. No
 * attributes. */

/* scale(x): by * x. */
typedef struct ScaleAttrs {
    double by;
} ScaleAttrs;

/* layer_norm(x[..., D], weight[D], bias[D]?): (x - mean) / sqrt(var + eps) * w + b. */
typedef struct LayerNormAttrs {
    double eps;
} LayerNormAttrs;

/* activation(x): elementwise function. */
#define ACTIVATION_NAMES "gelu|gelu_tanh|relu|tanh|sigmoid|silu"
typedef enum Activation {
    ACTIVATION_GELU,
    ACTIVATION_GELU_TANH,
    ACTIVATION_RELU,
    ACTIVATION_TANH,
    ACTIVATION_SIGMOID,
    ACTIVATION_SILU
} Activation;
typedef struct ActivationAttrs {
    int fn; /* Activation */
} ActivationAttrs;

/* dropout(x): zero with probability `rate`, else divided by 1 - rate; identity outside
 * training. */
typedef struct DropoutAttrs {
    double rate;
} DropoutAttrs;

/* attention(q[N, T, D], k[N, S, D], v[N, S, E], mask[N, S]? integer, bias[H, T, S]?,
 *           rel_key[d, 49]?, mix_before[H, H]?, mix_after[H, H]?,
 *           rel_bias[(2 h - 1) (2 w - 1), H] or [B, H]?, mix_before_bias[H]?,
 *           mix_after_bias[H]?)
 *           -> [N, T, E]
 * per head: A = scale * q k^T + bias + relative position; A'_a = sum_b mix_before[a, b]
 * A_b; P = softmax over keys of A' where mask != 0 and, if causal, key <= query; P'_a =
 * sum_b mix_after[a, b] P_b; out = P' v, heads concatenated. Relative position of keys
 * (Wu et al., iRPE, as in MiniViT): scale * q . rel_key[:, b(i, j)] with b the 7 x 7
 * bucket of the offset between patches i and j of a grid_h x grid_w grid; the first
 * `skip` tokens take no part. rel_bias is a table of biases by that offset, di rows and
 * dj columns (i minus j), for a grid of h x w: row (di + h - 1) (2 w - 1) + dj + w - 1 is
 * added to the scores of all heads, before mix_before.
 *
 * Mixing may have a bias (MiniViT's Swin form): mix_after_bias[a] is added to P'_a of
 * every key that may be attended to, so that rows gain a multiple of the sum of the
 * values. mix_before_bias[a] would be added to A'_a; equal for all keys, it leaves the
 * softmax as it is, so nothing is computed with it and its gradient is 0. */
/* With `window` w > 0 (Swin, Liu et al., 2021) the tokens are those that window_partition
 * made with the same grid_h, grid_w, window and shift: every window of w x w tokens
 * attends only to itself. Bias [H, w w, w w], rel_key and rel_bias ((2 w - 1)^2 rows)
 * are then over one window and shared by all. With `shift` > 0 the windows in the last
 * row or column hold tokens from opposite ends of the grid: -100 is added between them,
 * after mix_before. Neither `causal` nor `skip` can be combined with it. */
/* With `buckets` B > 0 rel_bias is a table by the distance of key and query along the
 * tokens (ir/buckets.h): sequences may have any length, and T and S need not be equal.
 * From `distance` on, all are in the last bucket, and with `bidirectional` later keys
 * have their own buckets. */
/* With kv_heads G < heads (grouped queries) k and v have G heads; query head h reads head
 * h / (heads / G). */
/* With `reach` W > 0, a query i sees only the keys j with |i - j| < W: a window that
 * slides along the tokens (Beltagy et al., 2020), of the last W tokens if causal (Jiang
 * et al., 2023). With `cap` c > 0 the scores, all terms added, are c tanh(A / c) before
 * the heads are mixed (Gemma 2, 2024). */
typedef struct AttentionAttrs {
    int64_t heads;
    int64_t kv_heads; /* 0 = heads */
    double scale;     /* 0 = 1 / sqrt(d) */
    bool causal;
    int64_t grid_h, grid_w, skip;
    int64_t window, shift;     /* 0 = every token attends to all */
    int64_t buckets, distance; /* 0 = rel_bias is by offsets in a grid */
    bool bidirectional;
    int64_t reach; /* 0 = keys at any distance */
    double cap;    /* 0 = scores of any size */
} AttentionAttrs;

/* Heads of keys and values, G, from the attributes of the ops that group queries. */
static inline int64_t heads_of_keys(int64_t heads, int64_t kv_heads) {
    return kv_heads > 0 ? kv_heads : heads;
}

/* window_partition(x[N, T, D]) -> [N, P, D]: the tokens of a grid_h x grid_w grid, row by
 * row, come out window by window, each window x window tokens row by row; windows follow
 * each other row by row. First the grid is padded with zeros at the bottom and on the
 * right to whole windows (P tokens), then shifted cyclically, so that the first token
 * comes from row `shift` and column `shift`. window_reverse(x[N, P, D]) -> [N, T, D]
 * undoes this and leaves out the padding. */
typedef struct WindowAttrs {
    int64_t grid_h, grid_w, window, shift;
} WindowAttrs;

/* patch_merging(x[N, T, D]) -> [N, T', 4 D]: every 2 x 2 tokens of a grid_h x grid_w grid
 * side by side, in the order (row, column) = (0, 0), (1, 0), (0, 1), (1, 1), as one token
 * of a grid half as high and wide; odd grids are padded with zeros. */
typedef struct PatchMergingAttrs {
    int64_t grid_h, grid_w;
} PatchMergingAttrs;

/* depthwise_conv(x[N, T, D], weight[D, 1, K, K], bias[D]?) -> [N, T, D]: 2-D convolution
 * of each channel over the grid, zero padding K/2, cross-correlation as in PyTorch; the
 * first `skip` tokens give zero. T = skip + grid_h * grid_w, K odd. */
typedef struct DepthwiseConvAttrs {
    int64_t grid_h, grid_w, skip;
} DepthwiseConvAttrs;

/* prepend_token(x[N, T, D], token[1, 1, D]) -> [N, T + 1, D]: adds the token before x.
 * mean_tokens(x[N, T, D], mask[N, T]?) -> [N, D]: mean over the tokens whose mask is not
 * 0; 0 where there is none. last_token(x[N, T, D], mask[N, T]?) -> [N, D]: the last one
 * whose mask is not 0; the first where there is none. No attributes. */

/* slice_tokens(x[N, T, D]) -> [N, T - from, D]: without the first `from` tokens. */
typedef struct SliceTokensAttrs {
    int64_t from;
} SliceTokensAttrs;

/* select_token(x[N, T, D]) -> [N, D]: token `index`. */
typedef struct SelectTokenAttrs {
    int64_t index;
} SelectTokenAttrs;

/* gather_tokens(x[N, T, D], positions[N, M] integer) -> [N, M, D]: token positions[n, m]
 * of sample n; 0 <= position < T. No attributes. */

/* softmax(x[..., C]): exp(x / t) / sum over the last dimension. */
typedef struct SoftmaxAttrs {
    double temperature;
} SoftmaxAttrs;

/* scale_gradient(x): x; its gradient is multiplied by `by`. */
typedef ScaleAttrs ScaleGradientAttrs;

/* normalize(x[..., D]): x / max(|x|, eps), |x| the L2 norm of a row. */
typedef struct NormalizeAttrs {
    double eps;
} NormalizeAttrs;

/* multiply(a[...], b[...]): a * b, of equal shapes. No attributes. */

/* rms_norm(x[..., D], weight[D / heads]): x / sqrt(mean(x^2) + eps) * weight (Zhang and
 * Sennrich, 2019), every head of a row by itself. With `unit_offset` the factor is 1 +
 * weight. */
typedef struct RmsNormAttrs {
    double eps;
    int64_t heads;
    bool unit_offset;
} RmsNormAttrs;

/* layer_scale(x[..., D], factors[D]): x * factors, by columns (Touvron et al., 2021). No
 * attributes. */

/* rotary(x[N, T, D]) -> same: each head of width d = D / heads turns its pairs (j, j +
 * d/2), j < d/2, of token t by the angle (offset + t) theta^(-2j/d) (Su et al., 2021, in
 * the half-split order of Hugging Face checkpoints). With `turned` r > 0 only the first r
 * numbers of a head are, as a head of width r. `scaling` stretches the angles by `factor`
 * (ir/rotary_angles.h); the turned numbers are multiplied by `amplitude`. */
typedef struct RotaryAttrs {
    int64_t heads;
    double theta;
    int64_t offset;
    int64_t turned; /* 0 = whole heads */
    int scaling;    /* RotaryScaling */
    double factor, original, slow, fast;
    bool whole;
    double amplitude;
} RotaryAttrs;

/* rnn(x[N, T, D], weight_in[H, D], weight_state[H, H], bias[H]?) -> [N, T, H]: h_t =
 * fn(weight_in x_t + weight_state h_{t-1} + bias) from h_0 = 0 (Elman, 1990). */
#define RNN_FN_NAMES "tanh|sigmoid|relu"
typedef enum RnnFn { RNN_TANH, RNN_SIGMOID, RNN_RELU } RnnFn;
typedef struct RnnAttrs {
    int fn; /* RnnFn */
} RnnAttrs;

/* lstm(x[N, T, D], weight_in[4 H, D], weight_state[4 H, H], bias[4 H]) -> [N, T, H]: h_t
 * from h_0 = c_0 = 0, gates in the order input, forget, candidate, output as in PyTorch.
 * No attributes. */

/* attention_lstm(memory[N, S, R], weight_in[4M, K], weight_context[4M, R], bias[4M], x[N,
 * T, K]?, steps[N, T]? integer, mask[N, S]? integer, align_memory[L, R]?, align_state[L,
 * M]?, align_score[1, L]?) -> [N, T, M]: decoder of a recurrent translation model
 * (Bahdanau et al., 2015). The gates, in lstm's order, see x_t (without x: the last
 * result, and `steps` has T columns) and a context: the memory weighted by softmax of
 * align_score tanh(align_memory memory_j + align_state s_{t-1}), s being the cell, or
 * without alignment its mean; over the source tokens where mask is not 0. In training,
 * with embedding[V, K]? and head[V, M]?, words that head chooses by the last result
 * replace a share 1 - teacher_forcing of the rows of x. */
typedef struct AttentionLstmAttrs {
    double teacher_forcing;
} AttentionLstmAttrs;

/* feature_map(x[N, T, H d], weight[G, r, d]?, bias[G, r]?) -> [N, T, H k]: per head h,
 * fn(W_g (scale x_h) + b_g) with g = h / (H / G) (T2R, Kasai et al., 2021). Without a
 * weight fn(scale x_h), r = d; k = r except for hedgehog. elu1: elu + 1 (Katharopoulos
 * et al., 2020); positive: exp(W x - |x|^2 / 2) / sqrt(k) (Choromanski et al., 2021);
 * hedgehog: [softmax(u), softmax(-u)] over the r numbers u of a head, so k = 2 r, and
 * exp: exp(u - max u) (Zhang et al., 2024). */
#define FEATURE_FN_NAMES "relu|elu1|positive|hedgehog|exp"
typedef enum FeatureFn {
    FEATURE_RELU,
    FEATURE_ELU1,
    FEATURE_POSITIVE,
    FEATURE_HEDGEHOG,
    FEATURE_EXP
} FeatureFn;
typedef struct FeatureMapAttrs {
    int64_t heads;
    double scale; /* of x, before everything; 1 = none */
    int fn;       /* FeatureFn */
} FeatureMapAttrs;

/* Features that a map gives for each number u. */
static inline int64_t feature_halves(int fn) {
    return fn == FEATURE_HEDGEHOG ? 2 : 1;
}

/* linear_attention(q[N, T, H k], k[N, S, G k], v[N, S, G e], mask[N, S]? integer,
 * near_q[N, T, H d]?, near_k[N, S, G d]?, gate[H]?, slope[H]?) -> [N, T, H e]: per head,
 * S = sum k_j v_j^T and z = sum k_j over the source tokens that count (causal: j <= t),
 * out_t = q_t^T S / max(q_t . z, eps). G = kv_heads as in attention. Computed in chunks
 * of tokens: cost linear in T.
 *
 * With a `window` w > 0 (causal, S = T) the keys t - w < j <= t are near and take no part
 * in S and z; with s_j = scale near_q_t . near_k_j, m their largest, g = sigmoid(gate) or
 * with a slope e^(gate + slope m), out_t = (g sum e^(s_j - m) v_j + q_t^T S) / (g sum
 * e^(s_j - m) + q_t . z), sums over near keys; eps is for rows without any. */
typedef struct LinearAttentionAttrs {
    int64_t heads;
    int64_t kv_heads; /* 0 = heads */
    bool causal;
    double eps;
    int64_t chunk;  /* tokens of a chunk; 0 = chosen from the widths */
    int64_t window; /* near keys; 0 = none */
    double scale;   /* of near scores; 0 = 1 / sqrt(d) */
} LinearAttentionAttrs;

/* Losses give a scalar (rank 0), the mean over the samples of the call, or over the rows
 * that count: see Op.count_rows. A `mask` operand leaves out the rows where it is 0. */

/* cross_entropy(logits[N..., C], labels[N...] integer): -log softmax(logits)[label]; with
 * label smoothing e the target is (1 - e) one-hot + e / C. Rows with label INDEX_SKIP are
 * left out: mean over the others, 0 when there are none. */
typedef struct CrossEntropyAttrs {
    double smoothing;
} CrossEntropyAttrs;

/* soft_cross_entropy(logits[N..., C], teacher[N..., C], mask[N...]? integer): -sum
 * softmax(teacher / t) log softmax(logits / t), mean over rows, times t^2. The teacher
 * gets no gradient. With `kl` the teacher's entropy is subtracted (same gradient). */
typedef struct SoftCrossEntropyAttrs {
    double temperature;
    bool kl;
} SoftCrossEntropyAttrs;

/* binary_cross_entropy(logits[N..., C], targets[N..., C], mask[N...]? integer): every
 * label by itself, mean over labels and rows. Targets lie in [0, 1]; smoothing e makes
 * them (1 - e) y + e / 2. `positive` weights the term of y: empty = 1, one number = that
 * of all labels, or one for each. The targets get no gradient. */
typedef struct BinaryCrossEntropyAttrs {
    double smoothing;
    RealList positive;
} BinaryCrossEntropyAttrs;

/* soft_binary_cross_entropy(logits[N..., C], teacher[N..., C], mask[N...]? integer): the
 * same against sigmoid(teacher / t), of logits / t, times t^2. The teacher gets no
 * gradient. With `kl` the teacher's entropy is subtracted (same gradient). */
typedef SoftCrossEntropyAttrs SoftBinaryCrossEntropyAttrs;

/* span_cross_entropy(logits[N, T, 2], first[N] integer, last[N] integer, mask[N, T]?
 * integer): half the sum of the cross-entropies, over the tokens that count, of the first
 * and of the last token of a span; mean over samples. No attributes. */

/* choice_cross_entropy(scores[N, 1], labels[N] integer, place[N] integer): of every group
 * of consecutive samples, which begins where `place` is 0, the one with label 1: -log
 * softmax(scores); mean over groups. No attributes. */

/* soft_span_cross_entropy(logits[N, T, 2], teacher[N, T, 2], mask[N, T]? integer) and
 * soft_choice_cross_entropy(scores[N, 1], teacher[N, 1], place[N] integer): the same two
 * against softmax(teacher / t), of logits / t, times t^2. The teacher gets no gradient.
 * With `kl` the teacher's entropy is subtracted (same gradient). */
typedef SoftCrossEntropyAttrs SoftSpanCrossEntropyAttrs, SoftChoiceCrossEntropyAttrs;

/* relation_cross_entropy(x[N, T, D], y[N, T, D], teacher_x[N, T, E], teacher_y[N, T, E],
 * mask[N, T]? integer): R = softmax(x y^T / sqrt(D)) by rows, the same for the teacher
 * over sqrt(E), both over the tokens that count; cross-entropy of the student's rows
 * against the teacher's, mean over a sample's rows that count, then over samples.
 * x and y may be the same node (hidden relation). The teacher gets no gradient. With
 * `window` w > 0, each group of w consecutive tokens relates only to itself; w divides
 * T.
 */
typedef struct RelationAttrs {
    int64_t window; /* 0 = all tokens */
} RelationAttrs;

/* gram_mse(x[N, T, D], teacher[N, T, E], mask[N, T]? integer): rows L2-normalised, Gram
 * matrices x x^T of each sample, mean squared difference over the entries of tokens that
 * count (all T*T without a mask), then over samples, times `weight`. With
 * `window` as above, w*w entries of every window. */
typedef struct GramMseAttrs {
    double weight;
    int64_t window; /* 0 = all tokens */
} GramMseAttrs;

/* similarity_mse(x[N, D], teacher[N, E]) -> scalar: mean over all pairs of rows of the
 * squared difference of their cosines. No attributes. */

/* contrastive(x[N, D]) -> scalar: rows come in groups of an anchor, the row that belongs
 * to it, and rows that do not. Cross-entropy of finding the former among the non-anchor
 * rows of all groups, by cosines times `scale`; see exec/ops/contrastive.c. */
typedef struct ContrastiveAttrs {
    int64_t group;
    double scale;
    bool symmetric;
} ContrastiveAttrs;

/* pair_cosine_mse(x[N, D], target[N, 1]) -> scalar: mean over groups of the squared
 * difference between the cosine of their first two rows and the target of the first. */
typedef struct PairCosineMseAttrs {
    int64_t group;
} PairCosineMseAttrs;

/* mean_squared_error(x[N..., D], teacher[N..., D], mask[N...]? integer): mean of (x -
 * teacher)^2 over the elements of the rows that count. The teacher gets no gradient. No
 * attributes.
 *
 * relative_squared_error(x[N..., D], teacher[N..., D], mask[N...]? integer): mean over
 * the N samples of sum (x - teacher)^2 / sum teacher^2 over a sample's rows that count.
 * The teacher gets no gradient. No attributes.
 *
 * cosine_distance(x[N..., D], teacher[N..., D], mask[N...]? integer): mean over rows of 1
 * - x . teacher / (|x| |teacher|); 1 for a row of zeros. The teacher gets no gradient. No
 * attributes. */

/* attention_map_mse(q[N, T, D], k[N, T, D], teacher_q[N, T, E], teacher_k[N, T, E],
 * mask[N, T]? integer): scores A = q k^T / sqrt(d) of `heads` heads, the teacher's with
 * widths E / heads; mean squared difference over heads and pairs of tokens that count
 * (TinyBERT, Jiao et al. 2020, equation 7); mean over samples. The teacher gets no
 * gradient. */
typedef struct AttentionMapMseAttrs {
    int64_t heads;
} AttentionMapMseAttrs;

/* attention_match(q[N, T, H k], k[N, S, G k], teacher_q[N, T, H d], teacher_k[N, S, G d],
 * mask[N, S]? integer, rows[N, T]? integer): rows P of softmax attention of the teacher,
 * with `scale` (0 = 1 / sqrt(d)), and rows A_tj = q_t . k_j / max(sum_j q_t . k_j, eps)
 * of linear attention; mean over samples of their means over heads and the rows that
 * count of -sum P log max(A, 1e-6) (Hedgehog, Zhang et al., 2024). The teacher gets no
 * gradient. */
typedef struct AttentionMatchAttrs {
    int64_t heads, kv_heads;
    bool causal;
    double scale, eps;
} AttentionMatchAttrs;

/* ---- any tensors ----
 *
 * What graphs beyond the other ops consist of. Values are real; integers and booleans
 * are represented as real numbers, exact up to 2^24. Shapes are broadcast as in NumPy.
 * Attributes that spell a shape hold numbers, symbols and products: "N, T, 12, 64".
 *
 * reshape(x): the same elements in `shape`. expand(x): x repeated to `shape`. */
typedef struct ShapeAttrs {
    const char *shape;
} ShapeAttrs;

/* transpose(x): dimension i of the result is dimension axes[i] of x. */
typedef struct AxesAttrs {
    IntList axes;
} AxesAttrs;

/* slice(x): x[start + i step], i < size, along `axis`; a negative start counts from the
 * end. */
typedef struct SliceAttrs {
    int64_t axis, start, step;
    const char *size;
} SliceAttrs;

/* gather(x, indices): x[..., indices, ...] along `axis`, indices being real numbers;
 * those beyond the ends are clamped. concat(x...): joined along `axis`. */
typedef struct AxisAttrs {
    int64_t axis;
} AxisAttrs;

/* matmul(a[..., M, K], b[..., K, L]) -> [..., M, L]: a b for each pair of matrices; the
 * dimensions before the last two are broadcast. No attributes. to_real(x integer): the
 * same numbers. No attributes. */

/* unary(x): fn(x). */
#define UNARY_NAMES "abs|exp|log|sqrt|reciprocal|erf|sin|cos|floor|ceil|round|trunc|sign"
typedef enum UnaryFn {
    UNARY_ABS,
    UNARY_EXP,
    UNARY_LOG,
    UNARY_SQRT,
    UNARY_RECIPROCAL,
    UNARY_ERF,
    UNARY_SIN,
    UNARY_COS,
    UNARY_FLOOR,
    UNARY_CEIL,
    UNARY_ROUND,
    UNARY_TRUNC,
    UNARY_SIGN
} UnaryFn;
typedef struct UnaryAttrs {
    int fn; /* UnaryFn */
} UnaryAttrs;

/* binary(a, b?): fn(a, b); without b fn(a, number). */
#define BINARY_NAMES                                                                     \
    "add|subtract|multiply|divide|power|minimum|maximum|equal|less|greater"
typedef enum BinaryFn {
    BINARY_ADD,
    BINARY_SUBTRACT,
    BINARY_MULTIPLY,
    BINARY_DIVIDE,
    BINARY_POWER,
    BINARY_MINIMUM,
    BINARY_MAXIMUM,
    BINARY_EQUAL,
    BINARY_LESS,
    BINARY_GREATER
} BinaryFn;
typedef struct BinaryAttrs {
    int fn; /* BinaryFn */
    double number;
} BinaryAttrs;

/* where(condition, a?, b?): a where condition > 0, else b; numbers if they are
 * absent. */
typedef struct WhereAttrs {
    double a_number, b_number;
} WhereAttrs;

/* reduce(x): fn over the dimensions in `axes`, which become 1 (`keep`) or are left out.
 */
typedef enum ReduceFn { REDUCE_SUM, REDUCE_MEAN, REDUCE_MAX, REDUCE_MIN } ReduceFn;
typedef struct ReduceAttrs {
    int fn; /* ReduceFn */
    IntList axes;
    bool keep;
} ReduceAttrs;

/* cumsum(x): sums along `axis` up to each index, without its own element if `exclusive`,
 * from the end if `reverse`. */
typedef struct CumsumAttrs {
    int64_t axis;
    bool exclusive, reverse;
} CumsumAttrs;

/* weighted_sum(x...): sum of weights[i] * x[i] over scalars. */
typedef struct WeightedSumAttrs {
    RealList weights;
} WeightedSumAttrs;

#endif
