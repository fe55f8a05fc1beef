/* Quantised weights in ONNX: see onnx_few_bits.h. */
#include "io/onnx/write/onnx_few_bits.h"

#include "io/onnx/write/onnx_export.h"
#include "ir/quantised.h"

enum { Q4_MIDDLE = 8, U8_MIDDLE = 128, I8_MOST = 127 };

/* ---- q4, by divisions ---- */

/* The numbers of 4 bits in the bytes of the last dimension, [..., n] to [..., 2 n] of
 * `count` each, as real numbers; `lead` dimensions stand before the last one. */
static const char *halves(OnnxBuild *b, const char *bytes, int lead, int64_t count) {
    int64_t shape[RANK_MAX + 2] = {0};
    const char *wide = onnx_cast(b, bytes, ONNX_I32), *sixteen = onnx_i32(b, 16);
    const char *low = onnx_unsqueeze(b, ONNX_NODE(b, "Mod", wide, sixteen), -1);
    const char *high = onnx_unsqueeze(b, ONNX_NODE(b, "Div", wide, sixteen), -1);
    const char *both = onnx_concat(b, -1, low, high);
    shape[lead] = count;
    return onnx_cast(b, onnx_reshape(b, both, shape, lead + 1), b->real);
}

/* Real numbers [..., K] of blocks [..., groups, bytes of one], scales [..., groups] and
 * zero points [..., bytes] (NULL = none), `lead` dimensions before each. */
static const char *unpack(OnnxBuild *b, const Tensor *of, const char *blocks,
                          const char *scales, const char *zeros, int lead) {
    const int64_t groups = quantised_groups(of), K = quantised_width(of);
    int64_t shape[RANK_MAX + 2] = {0};
    const char *middle = zeros ? NULL : onnx_real(b, Q4_MIDDLE);
    if (zeros) {
        const int64_t room = (groups + 1) / 2 * 2;
        middle = halves(b, zeros, lead, room);
        if (room > groups)
            middle =
                onnx_slice(b, middle, ONNX_VECTOR(b, 0), ONNX_VECTOR(b, groups), lead);
        middle = onnx_unsqueeze(b, middle, -1);
    }
    const char *y = halves(b, blocks, lead + 1, of->group);
    y = ONNX_NODE(b, "Sub", y, middle);
    y = ONNX_NODE(b, "Mul", y, onnx_unsqueeze(b, scales, -1));
    shape[lead] = groups * of->group;
    y = onnx_reshape(b, y, shape, lead + 1);
    if (K == shape[lead]) return y;
    return onnx_slice(b, y, ONNX_VECTOR(b, 0), ONNX_VECTOR(b, K), lead);
}

/* The initialisers of a q4: scales [M, groups] and zero points [M, bytes], NULL = none.
 */
static void parts_of(OnnxBuild *b, const Storage *storage, const char **scales,
                     const char **zeros) {
    const Tensor *q = &storage->tensor;
    const int64_t groups = quantised_groups(q);
    *scales =
        ONNX_RESHAPE(b, onnx_stored(b, storage, ONNX_SCALES, NULL, 0), q->dim[0], groups);
    *scales = b->real == ONNX_F32 ? *scales : onnx_cast(b, *scales, b->real);
    *zeros = NULL;
    if (q->zeros)
        *zeros = ONNX_RESHAPE(b, onnx_stored(b, storage, ONNX_ZEROS, NULL, 0), q->dim[0],
                              (groups + 1) / 2);
}

/* ---- weights anywhere ---- */

/* The real numbers of a q8 in the storage's own shape. */
static const char *scaled(OnnxBuild *b, const Storage *storage) {
    const char *numbers = onnx_stored(b, storage, ONNX_AS_IT_IS, NULL, 0);
    const char *scales = onnx_stored(b, storage, ONNX_SCALES, NULL, 0);
    const char *y = ONNX_NODE(b, "DequantizeLinear", numbers, scales);
    onnx_set_int(b, "axis", 0);
    return b->real == ONNX_F32 ? y : onnx_cast(b, y, b->real);
}

const char *onnx_few_bits_weight(OnnxBuild *b, const Storage *storage, const int64_t *dim,
                                 int rank) {
    const Tensor *q = &storage->tensor;
    const char *key = arena_printf(b->arena, "real %s", storage->name);
    const char *y = onnx_kept(b, key), *scales, *zeros;
    if (!y && q->dtype == DTYPE_Q8) y = scaled(b, storage);
    if (!y) {
        const char *blocks = onnx_stored(b, storage, ONNX_BLOCKS, NULL, 0);
        parts_of(b, storage, &scales, &zeros);
        y = unpack(b, q, blocks, scales, zeros, 1);
        if (q->rank > 2) y = onnx_reshape(b, y, q->dim, q->rank);
    }
    onnx_keep(b, key, y);
    return dim ? onnx_reshape(b, y, dim, rank) : y;
}

const char *onnx_few_bits_rows(OnnxBuild *b, const Storage *storage, const char *ids,
                               int lead) {
    const Tensor *q = &storage->tensor;
    if (q->dtype == DTYPE_Q8) {
        const char *numbers = onnx_stored(b, storage, ONNX_AS_IT_IS, NULL, 0);
        const char *rows = onnx_cast(b, onnx_gather(b, numbers, ids, 0), b->real);
        const char *scales = onnx_stored(b, storage, ONNX_SCALES, NULL, 0);
        scales = onnx_gather(b, ONNX_RESHAPE(b, scales, q->dim[0], 1), ids, 0);
        if (b->real != ONNX_F32) scales = onnx_cast(b, scales, b->real);
        return ONNX_NODE(b, "Mul", rows, scales);
    }
    const char *blocks = onnx_stored(b, storage, ONNX_BLOCKS, NULL, 0), *scales, *zeros;
    parts_of(b, storage, &scales, &zeros);
    blocks = onnx_gather(b, blocks, ids, 0);
    scales = onnx_gather(b, scales, ids, 0);
    if (zeros) zeros = onnx_gather(b, zeros, ids, 0);
    return unpack(b, q, blocks, scales, zeros, lead);
}

/* ---- products ---- */

/* x rounded to 8 bits: numbers u8, the number that stands for 0, and scales by which
 * their difference is x again. */
typedef struct Rounded {
    const char *numbers, *middle, *scale;
} Rounded;

/* Row by row, by |x| alone, as this program rounds: q = rint(x * (127 / max |x|)). A row
 * of zeros has the scale 0. */
static Rounded round_rows(OnnxBuild *b, const char *x) {
    const char *most = ONNX_NODE(b, "ReduceMax", ONNX_NODE(b, "Abs", x));
    onnx_set_ints(b, "axes", ONNX_I64S(-1), 1);
    onnx_set_int(b, "keepdims", 1);
    const char *limit = onnx_real(b, I8_MOST);
    const char *safe = ONNX_NODE(b, "Max", most, onnx_real(b, 1e-30));
    const char *q = ONNX_NODE(b, "Mul", x, ONNX_NODE(b, "Div", limit, safe));
    q = ONNX_NODE(b, "Add", ONNX_NODE(b, "Round", q), onnx_real(b, U8_MIDDLE));
    return (Rounded){onnx_cast(b, q, ONNX_U8), onnx_u8(b, U8_MIDDLE),
                     ONNX_NODE(b, "Div", most, limit)};
}

static Rounded round_all(OnnxBuild *b, const char *x) {
    Rounded r;
    r.numbers = ONNX_NODE(b, "DynamicQuantizeLinear", x);
    r.scale = onnx_more(b);
    r.middle = onnx_more(b);
    return r;
}

/* x of a linear, rounded once for all products that read it. */
static Rounded round_operand(OnnxExport *x, const Node *node) {
    static const char *const PARTS[] = {"numbers", "middle", "scale"};
    OnnxBuild *b = x->b;
    const char *value = onnx_operand(x, node, 0), *found[3], *keys[3];
    for (int i = 0; i < 3; i++) {
        keys[i] = arena_printf(b->arena, "rounded %s %s", PARTS[i], value);
        found[i] = onnx_kept(b, keys[i]);
    }
    if (found[0]) return (Rounded){found[0], found[1], found[2]};
    const int32_t real = b->real;
    if (real != ONNX_F32) value = onnx_cast(b, value, ONNX_F32);
    b->real = ONNX_F32;
    const Rounded r = x->by_rows ? round_rows(b, value) : round_all(b, value);
    b->real = real;
    onnx_keep(b, keys[0], r.numbers);
    onnx_keep(b, keys[1], r.middle);
    onnx_keep(b, keys[2], r.scale);
    return r;
}

/* What x is once it is rounded, as real numbers. */
static const char *rounded_real(OnnxExport *x, const Node *node) {
    OnnxBuild *b = x->b;
    const int32_t real = b->real;
    const Rounded r = round_operand(x, node);
    const char *y;
    if (x->by_rows) {
        y = onnx_cast(b, r.numbers, ONNX_F32);
        y = ONNX_NODE(b, "Sub", y, onnx_cast(b, r.middle, ONNX_F32));
        y = ONNX_NODE(b, "Mul", y, r.scale);
    } else {
        y = ONNX_NODE(b, "DequantizeLinear", r.numbers, r.scale, r.middle);
    }
    return real == ONNX_F32 ? y : onnx_cast(b, y, real);
}

/* Whether every user of a storage wants its transpose. */
static bool is_whole(const OnnxExport *x, const Storage *storage) {
    int index = 0;
    while (x->graph->storages[index] != storage) index++;
    return x->whole[index];
}

/* The numbers of a q8, [K, M]; onnxruntime transposes when it loads. */
static const char *turned_numbers(OnnxExport *x, const Storage *storage) {
    OnnxBuild *b = x->b;
    const Tensor *q = &storage->tensor;
    if (is_whole(x, storage)) return onnx_stored(b, storage, ONNX_TRANSPOSED, NULL, 0);
    const char *key = arena_printf(b->arena, "numbers %s", storage->name);
    const char *y = onnx_kept(b, key);
    if (y) return y;
    y = onnx_stored(b, storage, ONNX_AS_IT_IS, NULL, 0);
    if (q->rank > 2) y = ONNX_RESHAPE(b, y, q->dim[0], quantised_width(q));
    return onnx_keep(b, key, ONNX_TRANSPOSE(b, y, 1, 0));
}

/* The same without a sign, 128 more. On processors without VNNI onnxruntime adds up pairs
 * of products in 16 bits, which products of bytes without and with a sign go beyond; of
 * two without it does not. It computes these when it loads. */
static const char *unsigned_numbers(OnnxExport *x, const Storage *storage) {
    OnnxBuild *b = x->b;
    const char *key = arena_printf(b->arena, "bytes %s", storage->name);
    const char *y = onnx_kept(b, key);
    if (y) return y;
    y = onnx_cast(b, turned_numbers(x, storage), ONNX_I32);
    y = ONNX_NODE(b, "Add", y, onnx_i32(b, U8_MIDDLE));
    return onnx_keep(b, key, onnx_cast(b, y, ONNX_U8));
}

/* Sums of whole numbers, and what they stand for. */
static const char *multiply_numbers(OnnxExport *x, const Node *node,
                                    const Storage *storage) {
    OnnxBuild *b = x->b;
    const int32_t real = b->real;
    const Rounded r = round_operand(x, node);
    const char *y = x->with_sign ? ONNX_NODE(b, "MatMulInteger", r.numbers,
                                             turned_numbers(x, storage), r.middle)
                                 : ONNX_NODE(b, "MatMulInteger", r.numbers,
                                             unsigned_numbers(x, storage), r.middle,
                                             onnx_u8(b, U8_MIDDLE));
    y = onnx_cast(b, y, ONNX_F32);
    const char *scales = onnx_stored(b, storage, ONNX_SCALES, NULL, 0), *both;
    if (x->by_rows) /* not a Mul: onnxruntime would take it for one scale of all rows */
        both = ONNX_NODE(b, "MatMul", r.scale,
                         ONNX_RESHAPE(b, scales, 1, storage->tensor.dim[0]));
    else
        both = ONNX_NODE(b, "Mul", r.scale, scales);
    y = ONNX_NODE(b, "Mul", y, both);
    return real == ONNX_F32 ? y : onnx_cast(b, y, real);
}

static const char *multiply_blocks(OnnxExport *x, const Storage *storage, const char *y) {
    OnnxBuild *b = x->b;
    const Tensor *q = &storage->tensor;
    const char *blocks = onnx_stored(b, storage, ONNX_BLOCKS, NULL, 0);
    const char *scales = onnx_stored(b, storage, ONNX_SCALES, NULL, 0);
    if (b->real != ONNX_F32) scales = onnx_cast(b, scales, b->real);
    if (q->zeros)
        y = ONNX_NODE(b, "com.microsoft.MatMulNBits", y, blocks, scales,
                      onnx_stored(b, storage, ONNX_ZEROS, NULL, 0));
    else
        y = ONNX_NODE(b, "com.microsoft.MatMulNBits", y, blocks, scales);
    onnx_set_int(b, "K", quantised_width(q));
    onnx_set_int(b, "N", q->dim[0]);
    onnx_set_int(b, "bits", 4);
    onnx_set_int(b, "block_size", q->group);
    return y;
}

const char *onnx_few_bits_product(OnnxExport *x, const Node *node) {
    const Storage *storage = onnx_storage(node, 1);
    const bool rounds = node_chooses(node, "act", "i8");
    const bool turned = node_flag(node, "transposed");
    const DType dtype = storage ? storage->tensor.dtype : DTYPE_F32;
    if (rounds && dtype == DTYPE_Q8 && !turned) return multiply_numbers(x, node, storage);
    if (!rounds && !dtype_is_quantised(dtype)) return NULL;
    const char *y = rounds ? rounded_real(x, node) : onnx_operand(x, node, 0);
    if (dtype == DTYPE_Q4 && !turned) return multiply_blocks(x, storage, y);
    return ONNX_NODE(x->b, "MatMul", y,
                     storage ? onnx_linear_matrix(x, node) : onnx_operand(x, node, 1));
}
