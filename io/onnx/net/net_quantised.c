/* Quantised nets: see net_quantised.h. */
#include "io/onnx/net/net_quantised.h"

#include "io/onnx/net/array.h"
#include "ir/text.h"

#include <string.h>

/* How the numbers of a weight are scaled: one scale, or one for each index of an axis, or
 * for each block of a row. */
typedef struct Scaling {
    NetValue *scale, *zero; /* stored; zero may be NULL */
    int64_t axis;           /* counted from the end when negative */
    int64_t block, bits;    /* of blocks of few bits, else 0 */
} Scaling;

/* What a stored weight became: one f32 tensor for all nodes that read it. */
struct NetReal {
    Scaling scaling;
    NetValue *value;
};

/* Whether the number of values in a stored tensor is 1 or `many`. */
static bool is_stored(const NetValue *value, int64_t many) {
    int64_t count;
    return value && value->stored &&
           net_shape_count(value->stored->dims, value->stored->n_dims, &count) &&
           (count == 1 || count == many);
}

/* ---- weights ---- */

/* A new stored value with room for its numbers, which are f32. */
static NetValue *add_real(Net *net, const NetValue *like, const int64_t *dim, size_t rank,
                          float **data) {
    static const char *const SUFFIXES[] = {"_quantized", ".blocks"};
    Arena *arena = net->arena;
    OnnxTensor *tensor = ARENA_NEW(arena, OnnxTensor);
    NetValue *value = ARENA_NEW(arena, NetValue);
    int64_t count = 0;
    *tensor = (OnnxTensor)ONNX__TENSOR_PROTO__INIT;
    net_shape_count(dim, rank, &count);
    tensor->has_data_type = tensor->has_raw_data = true;
    tensor->data_type = ONNX_F32;
    tensor->n_dims = rank;
    tensor->dims = ARENA_ARRAY(arena, int64_t, rank);
    for (size_t i = 0; i < rank; i++) tensor->dims[i] = dim[i];
    tensor->raw_data.len = (size_t)count * sizeof **data;
    *data = ARENA_ARRAY(arena, float, (size_t)count + 1);
    tensor->raw_data.data = (uint8_t *)*data;
    value->name = like->name;
    for (int i = 0; i < 2; i++) {
        const int stem = (int)(strlen(like->name) - strlen(SUFFIXES[i]));
        if (text_ends_with(like->name, SUFFIXES[i]))
            value->name = arena_printf(arena, "%.*s", stem, like->name);
    }
    value->stored = tensor;
    net->values[net->value_count++] = value;
    net->dequantised++;
    return value;
}

static void keep_real(Net *net, NetValue *from, const Scaling *scaling, NetValue *real) {
    from->became = ARENA_NEW(net->arena, struct NetReal);
    *from->became = (struct NetReal){*scaling, real};
}

/* The stored integers of a tensor: raw bytes, or the list that stands for them. */
typedef struct Integers {
    const uint8_t *bytes;
    const OnnxTensor *tensor;
} Integers;

static bool open_integers(Integers *out, const Net *net, const NetValue *value) {
    Buf *map;
    const OnnxTensor *tensor = value ? value->stored : NULL;
    if (!tensor || (tensor->data_type != ONNX_I8 && tensor->data_type != ONNX_U8 &&
                    tensor->data_type != ONNX_I32))
        return false;
    *out = (Integers){net_bytes(net, tensor, &map), tensor};
    return true;
}

static int32_t integer_at(const Integers *from, int64_t i) {
    int32_t wide;
    if (!from->bytes) return from->tensor->int32_data[i];
    switch (from->tensor->data_type) {
    case ONNX_I8: return (int8_t)from->bytes[i];
    case ONNX_U8: return from->bytes[i];
    default: memcpy(&wide, from->bytes + 4 * i, sizeof wide); return wide;
    }
}

/* Numbers of a stored tensor; NULL when there are too many. */
static const Array *numbers_of(Arena *scratch, const Net *net, const NetValue *value) {
    ArrayPool pool = {scratch, ARRAY_COUNT_MAX};
    const Array *array = value ? array_stored(&pool, net, value->stored) : NULL;
    return array && array->data ? array : NULL;
}

/* Whether two stored values, or none, have the same numbers. */
static bool has_same_numbers(const Net *net, const NetValue *a, const NetValue *b) {
    if (a == b || !a || !b) return a == b;
    Arena *scratch = arena_create();
    const Array *x = numbers_of(scratch, net, a), *y = numbers_of(scratch, net, b);
    const bool same = x && y && x->count == y->count &&
                      memcmp(x->data, y->data, (size_t)x->count * sizeof *x->data) == 0;
    arena_destroy(scratch);
    return same;
}

/* Whether a weight became real numbers before; `real` is NULL where it was scaled in
 * another way, as no quantiser does: a file might ask for any number of copies. */
static bool find_real(const Net *net, const NetValue *value, const Scaling *scaling,
                      NetValue **real) {
    const Scaling *had = value->became ? &value->became->scaling : NULL;
    if (!had) return false;
    const bool same = had->axis == scaling->axis && had->block == scaling->block &&
                      had->bits == scaling->bits &&
                      has_same_numbers(net, had->scale, scaling->scale) &&
                      has_same_numbers(net, had->zero, scaling->zero);
    *real = same ? value->became->value : NULL;
    return true;
}

/* Fills the real numbers of a weight along whose `axis` (rank = none) it is scaled. */
static bool fill_real(Net *net, NetValue *value, const Scaling *scaling,
                      const Integers *from, Arena *scratch) {
    const OnnxTensor *tensor = value->stored;
    const int64_t rank = (int64_t)tensor->n_dims, axis = scaling->axis;
    const int64_t along = axis < rank ? tensor->dims[axis] : 1;
    const Array *scale = numbers_of(scratch, net, scaling->scale);
    const Array *zero = numbers_of(scratch, net, scaling->zero);
    if (!scale || (scaling->zero && !zero)) return false;
    int64_t count, inner = 1;
    net_shape_count(tensor->dims, tensor->n_dims, &count);
    if (axis < rank &&
        !net_shape_count(tensor->dims + axis + 1, (size_t)(rank - axis - 1), &inner))
        return false; /* dimensions beyond all bounds behind one of 0 */
    float *data;
    keep_real(net, value, scaling,
              add_real(net, value, tensor->dims, tensor->n_dims, &data));
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = inner > 0 ? i / inner % along : 0;
        const double middle = zero ? zero->data[zero->count > 1 ? at : 0] : 0;
        data[i] = (float)((integer_at(from, i) - middle) *
                          scale->data[scale->count > 1 ? at : 0]);
    }
    return true;
}

/* The real numbers of a stored weight; NULL when it is none, or its scaling does not fit.
 */
static NetValue *real_weight(Net *net, NetValue *value, const Scaling *given) {
    Integers from;
    Scaling scaling = *given;
    NetValue *real = NULL;
    if (!open_integers(&from, net, value)) return NULL;
    const int64_t rank = (int64_t)value->stored->n_dims;
    if (scaling.axis < 0) scaling.axis += rank;
    if (scaling.axis < 0 || scaling.axis > rank) scaling.axis = rank;
    const int64_t along = scaling.axis < rank ? value->stored->dims[scaling.axis] : 1;
    if (!is_stored(scaling.scale, along) ||
        (scaling.zero && !is_stored(scaling.zero, along)))
        return NULL;
    if (is_stored(scaling.scale, 1) && (!scaling.zero || is_stored(scaling.zero, 1)))
        scaling.axis = rank;
    if (find_real(net, value, &scaling, &real)) return real;
    Arena *scratch = arena_create();
    const bool good = fill_real(net, value, &scaling, &from, scratch);
    arena_destroy(scratch);
    return good ? value->became->value : NULL;
}

/* Makes a node another one with these operands. */
static void become(Net *net, NetNode *node, const char *op, NetValue *const *in,
                   int count) {
    NetValue **operands = ARENA_ARRAY(net->arena, NetValue *, (size_t)count);
    for (int i = 0; i < count; i++) operands[i] = in[i];
    node->op = op;
    node->in = operands;
    node->in_count = count;
}

/* ---- products ---- */

/* The node of an operator that gives a value, through a Cast. */
static NetNode *node_behind(const NetValue *value, const char *op) {
    NetNode *node = value ? value->producer : NULL;
    if (net_is(node, "Cast")) node = node->in[0] ? node->in[0]->producer : NULL;
    return net_is(node, op) ? node : NULL;
}

/* Whether a stored value is the one number that another one is, too. */
static bool is_same_number(const Net *net, const NetValue *a, const NetValue *b) {
    return is_stored(a, 1) && is_stored(b, 1) && has_same_numbers(net, a, b);
}

/* What whole numbers were before their zero point was added to them, as this program
 * writes them: Cast(Add(Cast(w), zero)); the same value where nothing was. */
static NetValue *without_zero(const Net *net, NetValue *value, Scaling *scaling) {
    const NetNode *sum = node_behind(value, "Add");
    for (int i = 0; sum && i < 2; i++) {
        const NetValue *wide = net_operand(sum, i), *zero = net_operand(sum, 1 - i);
        if (!wide || !net_is(wide->producer, "Cast") ||
            !is_same_number(net, zero, scaling->zero))
            continue;
        scaling->zero = NULL;
        return net_operand(wide->producer, 0);
    }
    return value;
}

/* The real numbers of the weight of a product, which may be the transpose of a stored
 * one, with a scale for each column; NULL when it is none. */
static NetValue *real_factor(Net *net, NetValue *value, const Scaling *given) {
    Scaling own = *given, *const scaling = &own;
    value = without_zero(net, value, &own);
    NetNode *turn = value ? value->producer : NULL;
    if (!net_is(turn, "Transpose") || !net_operand(turn, 0))
        return real_weight(net, value, scaling);
    const Scaling rows = {scaling->scale, scaling->zero, 0};
    const OnnxTensor *stored = turn->in[0]->stored;
    if (!stored || stored->n_dims != 2) return NULL;
    NetValue *real = real_weight(net, turn->in[0], &rows);
    if (!real) return NULL;
    turn->in[0] = real;
    return value;
}

/* Rows of a table times scales that were picked like them. */
static void mend_rows(Net *net, NetNode *node) {
    for (int i = 0; i < 2; i++) {
        const NetNode *rows = node_behind(net_operand(node, i), "Gather");
        const NetNode *scales = node_behind(net_operand(node, 1 - i), "Gather");
        if (!rows || !scales || !net_operand(rows, 0) || !net_operand(scales, 0) ||
            net_operand(rows, 1) != net_operand(scales, 1) ||
            net_int(rows, "axis", 0) != 0 || net_int(scales, "axis", 0) != 0)
            continue;
        NetValue *scale = scales->in[0];
        if (net_is(scale->producer, "Reshape")) scale = net_operand(scale->producer, 0);
        const OnnxTensor *table = rows->in[0]->stored;
        if (!table || table->n_dims != 2 || !is_stored(scale, table->dims[0])) continue;
        NetValue *real = real_weight(net, rows->in[0], &(Scaling){scale, NULL, 0});
        if (!real) continue;
        become(net, node, "Gather", (NetValue *[]){real, rows->in[1]}, 2);
        return;
    }
}

/* Cast(MatMulInteger(x, w)) * (scale of x * scale of w), where x was quantised. */
static void mend_product(Net *net, NetNode *node) {
    static const char *const OPS[][2] = {{"MatMulInteger", "MatMul"},
                                         {"ConvInteger", "Conv"}};
    for (int i = 0; i < 4; i++) {
        const NetNode *product = node_behind(net_operand(node, i & 1), OPS[i >> 1][0]);
        const NetNode *scales = node_behind(net_operand(node, 1 - (i & 1)), "Mul");
        if (!product || !scales || !net_operand(product, 0) || !product->in[0]->real)
            continue;
        const NetNode *rounded = product->in[0]->producer;
        for (int k = 0; k < 2; k++) {
            NetValue *own = net_operand(scales, k), *scale = net_operand(scales, 1 - k);
            if (!own || own->producer != rounded || own->slot != 1) continue;
            const Scaling scaling = {scale, net_operand(product, 3), i < 2 ? -1 : 0};
            NetValue *weight = i < 2
                                   ? real_factor(net, net_operand(product, 1), &scaling)
                                   : real_weight(net, net_operand(product, 1), &scaling);
            if (!weight) continue;
            node->proto = product->proto; /* strides and the like of a Conv */
            become(net, node, OPS[i >> 1][1], (NetValue *[]){product->in[0], weight}, 2);
            return;
        }
    }
}

/* Makes a node x times a weight, plus a bias where there is one. */
static void multiply(Net *net, NetNode *node, NetValue *weight, NetValue *bias) {
    Arena *arena = net->arena;
    if (!bias) {
        become(net, node, "MatMul", (NetValue *[]){node->in[0], weight}, 2);
        return;
    }
    NetNode *product = ARENA_NEW(arena, NetNode);
    NetValue *sum = ARENA_NEW(arena, NetValue);
    *sum = (NetValue){.name = arena_printf(arena, "%s.product", node->name),
                      .producer = product};
    *product = *node;
    become(net, product, "MatMul", (NetValue *[]){node->in[0], weight}, 2);
    product->out = ARENA_NEW(arena, NetValue *);
    product->out[0] = sum;
    product->out_count = 1;
    net->values[net->value_count++] = sum;
    net->nodes[net->node_count++] = product;
    become(net, node, "Add", (NetValue *[]){sum, bias}, 2);
}

static void mend_scaled(Net *net, NetNode *node, const Scaling *scaling, NetValue *bias) {
    NetValue *weight = real_weight(net, net_operand(node, 1), scaling);
    if (weight) multiply(net, node, weight, bias);
}

static void mend_attention(Net *net, NetNode *node) {
    const Scaling scaling = {net_operand(node, 4), net_operand(node, 7), -1};
    if (!net_operand(node, 0) || !node->in[0]->real || net_operand(node, 8)) return;
    NetValue *weight = real_weight(net, net_operand(node, 1), &scaling);
    if (!weight) return;
    become(
        net, node, "com.microsoft.Attention",
        (NetValue *[]){node->in[0], weight, net_operand(node, 2), net_operand(node, 5)},
        4);
}

/* ---- blocks of few bits ---- */

/* What MatMulNBits says of its matrix [N, K]: each row in blocks with a scale. */
typedef struct BitBlocks {
    int64_t K, N, bits, size, blocks;
} BitBlocks;

/* Whether a value is stored, of a type, and has so many numbers. */
static bool has_numbers(const NetValue *value, int32_t type, int64_t many) {
    int64_t count;
    return value && value->stored && value->stored->data_type == type &&
           net_shape_count(value->stored->dims, value->stored->n_dims, &count) &&
           count == many;
}

static bool has_reals(const NetValue *value, int64_t many) {
    return has_numbers(value, ONNX_F32, many) || has_numbers(value, ONNX_F16, many) ||
           has_numbers(value, ONNX_BF16, many);
}

static bool find_blocks(BitBlocks *b, const NetNode *node) {
    *b = (BitBlocks){.K = net_int(node, "K", 0),
                     .N = net_int(node, "N", 0),
                     .bits = net_int(node, "bits", 4),
                     .size = net_int(node, "block_size", 0)};
    const int64_t most = (int64_t)1 << 24;
    if (b->K < 1 || b->N < 1 || b->K > most || b->N > most || b->size < 8 ||
        b->size > most || b->size % 8 != 0 || (b->bits != 4 && b->bits != 8))
        return false;
    b->blocks = (b->K + b->size - 1) / b->size;
    const NetValue *zero = net_operand(node, 3);
    const int64_t row = b->size * b->bits / 8, zero_row = (b->blocks * b->bits + 7) / 8;
    return has_numbers(net_operand(node, 1), ONNX_U8, b->N * b->blocks * row) &&
           has_reals(net_operand(node, 2), b->N * b->blocks) &&
           (!zero || has_numbers(zero, ONNX_U8, b->N * zero_row) ||
            has_reals(zero, b->N * b->blocks));
}

static int32_t bits_at(const Integers *from, int64_t row, int64_t i, int64_t bits) {
    const int32_t byte = integer_at(from, row + i * bits / 8);
    return bits == 8 ? byte : i % 2 ? byte >> 4 : byte & 15;
}

/* The zero points of a row of blocks: halfway where there are none, real numbers, or
 * integers of as many bits as the matrix has. */
static void read_middles(double *out, const Net *net, const NetValue *zero,
                         const BitBlocks *b, int64_t row) {
    Integers packed = {NULL, NULL};
    const int64_t bytes = (b->blocks * b->bits + 7) / 8;
    if (zero && !open_integers(&packed, net, zero)) {
        array_read(out, net, zero->stored, row * b->blocks, b->blocks);
        return;
    }
    for (int64_t i = 0; i < b->blocks; i++)
        out[i] = zero ? bits_at(&packed, row * bytes, i, b->bits) : 1 << (b->bits - 1);
}

/* The matrix [K, N] whose transpose stands in blocks. */
static void fill_blocks(Net *net, NetValue *value, const Scaling *scaling,
                        const BitBlocks *b) {
    float *data;
    Integers from = {NULL, NULL};
    const int64_t dim[2] = {b->K, b->N}, row = b->blocks * (b->size * b->bits / 8);
    Arena *scratch = arena_create();
    double *scale = ARENA_ARRAY(scratch, double, (size_t)b->blocks),
           *middle = ARENA_ARRAY(scratch, double, (size_t)b->blocks);
    open_integers(&from, net, value);
    keep_real(net, value, scaling, add_real(net, value, dim, 2, &data));
    for (int64_t n = 0; n < b->N; n++) {
        array_read(scale, net, scaling->scale->stored, n * b->blocks, b->blocks);
        read_middles(middle, net, scaling->zero, b, n);
        for (int64_t k = 0; k < b->K; k++) {
            const int64_t block = k / b->size;
            data[k * b->N + n] =
                (float)((bits_at(&from, n * row, k, b->bits) - middle[block]) *
                        scale[block]);
        }
    }
    arena_destroy(scratch);
}

static bool has_dims(const NetValue *real, int64_t rows, int64_t columns) {
    return real && real->stored->dims[0] == rows && real->stored->dims[1] == columns;
}

/* x times the transpose of a matrix in blocks, plus a bias where there is one. */
static void mend_blocks(Net *net, NetNode *node) {
    BitBlocks b;
    NetValue *real = NULL;
    if (!find_blocks(&b, node) || !net_operand(node, 0) || net_operand(node, 4)) return;
    const Scaling scaling = {node->in[2], net_operand(node, 3), 0, b.size, b.bits};
    if (!find_real(net, node->in[1], &scaling, &real)) {
        fill_blocks(net, node->in[1], &scaling, &b);
        real = node->in[1]->became->value;
    }
    if (has_dims(real, b.K, b.N)) multiply(net, node, real, net_operand(node, 5));
}

/* ---- all nodes ---- */

/* DequantizeLinear of a weight, of rows of one, or of what was quantised before. */
static void mend_dequantised(Net *net, NetNode *node) {
    NetValue *x = net_operand(node, 0);
    if (!x || net_int(node, "block_size", 0)) return;
    Scaling scaling = {net_operand(node, 1), net_operand(node, 2),
                       net_int(node, "axis", 1)};
    if (x->real) {
        become(net, node, "Identity", &x, 1);
        return;
    }
    if (x->stored) {
        NetValue *real = real_weight(net, x, &scaling);
        if (real) become(net, node, "Identity", &real, 1);
        return;
    }
    NetNode *rows = x->producer;
    if (!net_is(rows, "Gather") || !net_operand(rows, 0) || net_int(rows, "axis", 0) != 0)
        return;
    scaling.axis = -2; /* rows may not have scales of their own, whose order is lost */
    if (!is_stored(scaling.scale, 1)) return;
    NetValue *real = real_weight(net, rows->in[0], &scaling);
    if (!real) return;
    rows->in[0] = real;
    become(net, node, "Identity", &x, 1);
}

/* What is quantised on the way: its operand as it is. */
static void mend_rounded(Net *net, NetNode *node) {
    const bool dynamic = node->in_count == 1;
    if (!net_operand(node, 0) || node->in[0]->stored || !node->out[0] ||
        node->out[0]->is_output || (!dynamic && !is_stored(net_operand(node, 1), 1)))
        return;
    become(net, node, "Identity", node->in, 1);
    node->out[0]->real = true;
}

static void mend_multiplied(Net *net, NetNode *node) {
    mend_product(net, node);
    if (net_is(node, "Mul")) mend_rows(net, node);
}

static void mend_node(Net *net, NetNode *node) {
    if (node->out_count < 1) return;
    if (net_is(node, "QuantizeLinear") || net_is(node, "DynamicQuantizeLinear"))
        mend_rounded(net, node);
    else if (net_is(node, "DequantizeLinear"))
        mend_dequantised(net, node);
    else if (net_is(node, "Mul"))
        mend_multiplied(net, node);
    else if (net_is(node, "com.microsoft.QAttention"))
        mend_attention(net, node);
    else if (net_is(node, "com.microsoft.MatMulNBits"))
        mend_blocks(net, node);
    else if (net_is(node, "com.microsoft.DynamicQuantizeMatMul") && net_operand(node, 0))
        mend_scaled(net, node, &(Scaling){net_operand(node, 2), net_operand(node, 3), -1},
                    net_operand(node, 4));
    else if (net_is(node, "com.microsoft.MatMulIntegerToFloat") && net_operand(node, 0) &&
             node->in[0]->real)
        mend_scaled(net, node, &(Scaling){net_operand(node, 3), net_operand(node, 5), -1},
                    net_operand(node, 6));
    else if (net_is(node, "QLinearMatMul") && net_operand(node, 0) && node->in[0]->real) {
        const Scaling scaling = {net_operand(node, 4), net_operand(node, 5), -1};
        NetValue *weight = real_weight(net, net_operand(node, 3), &scaling);
        if (!weight || !node->out[0]) return;
        become(net, node, "MatMul", (NetValue *[]){node->in[0], weight}, 2);
        node->out[0]->real = true;
    }
}

void net_dequantise(Net *net) {
    const int count = net->node_count; /* further ones are products that were made */
    for (int i = 0; i < count; i++) mend_node(net, net->nodes[i]);
}
