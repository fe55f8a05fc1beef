/* Half: numbers of 16 bits.
 *
 *     f16    IEEE 754 binary16: 1 sign, 5 exponent (bias 15) and 10 fraction bits
 *     bf16   the upper half of a float: 1 sign, 8 exponent and 7 fraction bits
 *
 * All functions work only on bits, without branches, so that loops over them become
 * vector code and give the same results on every processor. */
#ifndef COMPRESS_IR_HALF_H
#define COMPRESS_IR_HALF_H

#include <stdint.h>
#include <string.h>

/* A float of these bits, and the bits of a float. */
static inline float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
static inline uint32_t float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* The value, exactly. Normal numbers get the exponent of bias 127, infinities and NaN the
 * largest one. Subnormals first read as 2^-14 (1 + fraction), which the subtraction
 * corrects exactly; it is done for all numbers (subtracting 0 from most), since
 * conditional floating-point code would stay scalar. */
static inline float f16_to_float(uint16_t code) {
    const uint32_t sign = (uint32_t)(code & 0x8000) << 16, magnitude = code & 0x7fff;
    const uint32_t subnormal = magnitude < 0x400, special = magnitude >= 0x7c00;
    const uint32_t shift = subnormal ? 113u << 23 : special ? 224u << 23 : 112u << 23;
    const uint32_t excess = subnormal ? 113u << 23 : 0; /* 2^-14 or 0 */
    const float value = float_of_bits((magnitude << 13) + shift) - float_of_bits(excess);
    return float_of_bits(float_bits(value) | sign);
}
static inline float bf16_to_float(uint16_t code) {
    return float_of_bits((uint32_t)code << 16);
}

/* The nearest 16-bit number, ties to even. Beyond the largest one it is infinite; NaN
 * stays NaN.
 *
 * f16: adding 1/2 to less than 2^-14 rounds it to multiples of 2^-24, as subnormals are;
 * the fraction bits of the sum are the code. */
static inline uint16_t f16_from_float(float value) {
    const uint32_t bits = float_bits(value), magnitude = bits & 0x7fffffff;
    const uint32_t odd = magnitude >> 13 & 1;
    const uint32_t normal = (magnitude - (112u << 23) + 0xfff + odd) >> 13;
    const uint32_t small = float_bits(float_of_bits(magnitude) + 0.5f) - float_bits(0.5f);
    uint32_t code = magnitude < 113u << 23 ? small : normal;
    code = magnitude >= 143u << 23 ? 0x7c00 : code; /* from 2^16 on */
    code = magnitude > 255u << 23 ? 0x7e00 : code;
    return (uint16_t)(code | (bits >> 16 & 0x8000));
}
static inline uint16_t bf16_from_float(float value) {
    const uint32_t bits = float_bits(value);
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    const uint32_t quiet = bits >> 16 | 0x40;
    return (uint16_t)((bits & 0x7fffffff) > 255u << 23 ? quiet : rounded);
}

#endif
