/* Convert: reading tensors of any element type as float or double, and finding what is
 * not finite.
 *
 * One loop per element type without branches, so that the compiler makes vector code of
 * it. Elements are loaded with memcpy: data in a mapped file may stand anywhere. */
#include "ir/tensor.h"

#include <string.h>

/* Elements looked at together when searching. */
#define BLOCK 2048

static float bits_to_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Half precision: 1 sign, 5 exponent (bias 15) and 10 fraction bits. Normal numbers get
 * the exponent of bias 127, infinities and NaN the largest one. Subnormals read as
 * 2^-14 (1 + fraction) first, which the subtraction takes back exactly; it happens to all
 * numbers (0 taken from most), as floating point under a condition stays scalar code. */
static float f16_to_float(uint16_t code) {
    uint32_t sign = (uint32_t)(code & 0x8000) << 16, magnitude = code & 0x7fff;
    bool subnormal = magnitude < 0x400, special = magnitude >= 0x7c00;
    uint32_t shift = subnormal ? 113u << 23 : special ? 224u << 23 : 112u << 23;
    uint32_t excess = subnormal ? 113u << 23 : 0; /* 2^-14 or 0 */
    float value = bits_to_float((magnitude << 13) + shift) - bits_to_float(excess);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits_to_float(bits | sign);
}

/* The upper half of a float. */
static float bf16_to_float(uint16_t code) {
    return bits_to_float((uint32_t)code << 16);
}

#define PLAIN(x) (x)

/* Defines `name`, which converts `count` elements of type S at `in` to type T. */
#define READER(name, S, T, convert)                                                      \
    static void name(const char *restrict in, int64_t count, T *restrict out) {          \
        for (int64_t i = 0; i < count; i++) {                                            \
            S element;                                                                   \
            memcpy(&element, in + (size_t)i * sizeof element, sizeof element);           \
            out[i] = (T)convert(element);                                                \
        }                                                                                \
    }

#define READERS(T)                                                                       \
    READER(T##_from_f32, float, T, PLAIN)                                                \
    READER(T##_from_f64, double, T, PLAIN)                                               \
    READER(T##_from_f16, uint16_t, T, f16_to_float)                                      \
    READER(T##_from_bf16, uint16_t, T, bf16_to_float)                                    \
    READER(T##_from_i64, int64_t, T, PLAIN)                                              \
    READER(T##_from_i32, int32_t, T, PLAIN)                                              \
    READER(T##_from_i8, int8_t, T, PLAIN)                                                \
    READER(T##_from_u8, uint8_t, T, PLAIN)

#define READER_TABLE(T)                                                                  \
    {                                                                                    \
        [DTYPE_F32] = T##_from_f32, [DTYPE_F64] = T##_from_f64,                          \
        [DTYPE_F16] = T##_from_f16, [DTYPE_BF16] = T##_from_bf16,                        \
        [DTYPE_I64] = T##_from_i64, [DTYPE_I32] = T##_from_i32,                          \
        [DTYPE_I8] = T##_from_i8, [DTYPE_U8] = T##_from_u8, [DTYPE_BOOL] = T##_from_u8,  \
    }

/* clang-format off */
READERS(float)
READERS(double)
/* clang-format on */

typedef void ReadFloat(const char *restrict in, int64_t count, float *restrict out);
typedef void ReadDouble(const char *restrict in, int64_t count, double *restrict out);

static ReadFloat *const READ_FLOAT[DTYPE_COUNT] = READER_TABLE(float);
static ReadDouble *const READ_DOUBLE[DTYPE_COUNT] = READER_TABLE(double);

static const char *element_at(const Tensor *tensor, int64_t index) {
    const char *data = tensor_data(tensor);
    return data + (size_t)index * dtype_bytes(tensor->dtype);
}

void tensor_read_f32(const Tensor *tensor, int64_t first, int64_t count, float *out) {
    if (count > 0) READ_FLOAT[tensor->dtype](element_at(tensor, first), count, out);
}

void tensor_read_f64(const Tensor *tensor, int64_t first, int64_t count, double *out) {
    if (count > 0) READ_DOUBLE[tensor->dtype](element_at(tensor, first), count, out);
}

/* Defines `name`: whether one of `count` elements has all bits of the exponent set. */
#define FINDER(name, U, exponent)                                                        \
    static bool name(const char *in, int64_t count) {                                    \
        U found = 0;                                                                     \
        for (int64_t i = 0; i < count; i++) {                                            \
            U bits;                                                                      \
            memcpy(&bits, in + (size_t)i * sizeof bits, sizeof bits);                    \
            found |= (U)((bits & (exponent)) == (exponent));                             \
        }                                                                                \
        return found != 0;                                                               \
    }

/* clang-format off */
FINDER(nonfinite_f32, uint32_t, 0x7f800000u)
FINDER(nonfinite_f64, uint64_t, 0x7ff0000000000000u)
FINDER(nonfinite_f16, uint16_t, 0x7c00)
FINDER(nonfinite_bf16, uint16_t, 0x7f80)
/* clang-format on */

static bool (*const FIND_NONFINITE[DTYPE_COUNT])(const char *in, int64_t count) = {
    [DTYPE_F32] = nonfinite_f32,
    [DTYPE_F64] = nonfinite_f64,
    [DTYPE_F16] = nonfinite_f16,
    [DTYPE_BF16] = nonfinite_bf16,
};

int64_t tensor_find_nonfinite(const Tensor *tensor) {
    if (!tensor->buf || !FIND_NONFINITE[tensor->dtype]) return -1;
    bool (*find)(const char *, int64_t) = FIND_NONFINITE[tensor->dtype];
    int64_t count = tensor_count(tensor);
    for (int64_t first = 0; first < count; first += BLOCK) {
        int64_t length = count - first < BLOCK ? count - first : BLOCK;
        if (!find(element_at(tensor, first), length)) continue;
        while (!find(element_at(tensor, first), 1)) first++;
        return first;
    }
    return -1;
}
