/* Block types: see blocks.h. */
#include "io/gguf/blocks.h"

#include "ir/half.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- 16 and 32 bits ---- */

static uint32_t take_u16(const unsigned char *bytes) {
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8;
}

static uint32_t take_u32(const unsigned char *bytes) {
    return take_u16(bytes) | take_u16(bytes + 2) << 16;
}

static void put_u16(unsigned char *bytes, uint32_t value) {
    bytes[0] = (unsigned char)value;
    bytes[1] = (unsigned char)(value >> 8);
}

static float take_f16(const unsigned char *bytes) {
    return f16_to_float((uint16_t)take_u16(bytes));
}

static void put_f16(unsigned char *bytes, float value) {
    put_u16(bytes, f16_from_float(value));
}

static void decode_f32(const unsigned char *block, float *values) {
    values[0] = float_of_bits(take_u32(block));
}

static void encode_f32(const float *values, unsigned char *block) {
    const uint32_t bits = float_bits(values[0]);
    put_u16(block, bits);
    put_u16(block + 2, bits >> 16);
}

static void decode_f16(const unsigned char *block, float *values) {
    values[0] = take_f16(block);
}

static void encode_f16(const float *values, unsigned char *block) {
    put_f16(block, values[0]);
}

static void decode_bf16(const unsigned char *block, float *values) {
    values[0] = bf16_to_float((uint16_t)take_u16(block));
}

static void encode_bf16(const float *values, unsigned char *block) {
    put_u16(block, bf16_from_float(values[0]));
}

/* ---- blocks of 32 ---- */

enum { SMALL = 32, HALF = SMALL / 2 };

/* f16 scale d, 32 signed bytes: x = d q. */
static void decode_q8_0(const unsigned char *block, float *values) {
    const float d = take_f16(block);
    for (int i = 0; i < SMALL; i++) values[i] = (float)(int8_t)block[2 + i] * d;
}

static void encode_q8_0(const float *values, unsigned char *block) {
    float most = 0;
    for (int i = 0; i < SMALL; i++) most = fmaxf(most, fabsf(values[i]));
    const float d = most / 127, inverse = d != 0 ? 1 / d : 0;
    put_f16(block, d);
    for (int i = 0; i < SMALL; i++)
        block[2 + i] = (unsigned char)(int8_t)roundf(values[i] * inverse);
}

/* f16 scale d, 16 bytes whose low halves are the first 16 numbers: x = d (q - 8). */
static void decode_q4_0(const unsigned char *block, float *values) {
    const float d = take_f16(block);
    for (int i = 0; i < HALF; i++) {
        values[i] = (float)((block[2 + i] & 15) - 8) * d;
        values[i + HALF] = (float)((block[2 + i] >> 4) - 8) * d;
    }
}

/* The number of the largest size becomes -8, of its own sign by that of d. */
static void encode_q4_0(const float *values, unsigned char *block) {
    float extreme = 0;
    for (int i = 0; i < SMALL; i++)
        if (fabsf(values[i]) > fabsf(extreme)) extreme = values[i];
    const float d = extreme / -8, inverse = d != 0 ? 1 / d : 0;
    put_f16(block, d);
    for (int i = 0; i < HALF; i++) {
        const int low = (int)(values[i] * inverse + 8.5f);
        const int high = (int)(values[i + HALF] * inverse + 8.5f);
        block[2 + i] =
            (unsigned char)((low > 15 ? 15 : low) | (high > 15 ? 15 : high) << 4);
    }
}

/* The same with an f16 offset m: x = d q + m. */
static void decode_q4_1(const unsigned char *block, float *values) {
    const float d = take_f16(block), m = take_f16(block + 2);
    for (int i = 0; i < HALF; i++) {
        values[i] = (float)(block[4 + i] & 15) * d + m;
        values[i + HALF] = (float)(block[4 + i] >> 4) * d + m;
    }
}

/* A fifth bit of every number, 32 of them before the 16 bytes: x = d (q - base) + m. */
static void decode_fifth(const unsigned char *block, int base, float *values, float d,
                         float m) {
    const uint32_t bits = take_u32(block);
    for (int i = 0; i < HALF; i++) {
        const int low = (block[4 + i] & 15) | (int)(bits >> i & 1) << 4;
        const int high = block[4 + i] >> 4 | (int)(bits >> (i + HALF) & 1) << 4;
        values[i] = (float)(low - base) * d + m;
        values[i + HALF] = (float)(high - base) * d + m;
    }
}

static void decode_q5_0(const unsigned char *block, float *values) {
    decode_fifth(block + 2, 16, values, take_f16(block), -0.0f); /* keeps a -0 */
}

static void decode_q5_1(const unsigned char *block, float *values) {
    decode_fifth(block + 4, 0, values, take_f16(block), take_f16(block + 2));
}

/* ---- blocks of 256 ---- */

/* Eight scales and eight offsets of six bits each in twelve bytes: the first four of each
 * in the low bits of bytes 0 to 7, the others in bytes 8 to 11 and the spare high bits.
 */
static void take_scales(const unsigned char *in, int i, float *scale, float *offset) {
    if (i < 4) {
        *scale = (float)(in[i] & 63);
        *offset = (float)(in[i + 4] & 63);
    } else {
        *scale = (float)((in[i + 4] & 15) | in[i - 4] >> 6 << 4);
        *offset = (float)(in[i + 4] >> 4 | in[i] >> 6 << 4);
    }
}

/* Groups of 32 with a scale and an offset each: x = d s q - m o. `low` holds four bits of
 * every number, 64 numbers in 32 bytes; `fifth`, if any, one bit of each of 8 groups. */
static void decode_groups(const unsigned char *block, const unsigned char *low,
                          const unsigned char *fifth, float *values) {
    const float d = take_f16(block), m = take_f16(block + 2);
    for (int group = 0; group < 8; group++) {
        const unsigned char *in = low + group / 2 * 32;
        float scale, offset;
        take_scales(block + 4, group, &scale, &offset);
        const float step = d * scale, shift = m * offset;
        for (int i = 0; i < 32; i++) {
            int q = group % 2 ? in[i] >> 4 : in[i] & 15;
            if (fifth) q |= (fifth[i] >> group & 1) << 4;
            values[group * 32 + i] = step * (float)q - shift;
        }
    }
}

static void decode_q4_k(const unsigned char *block, float *values) {
    decode_groups(block, block + 16, NULL, values);
}

static void decode_q5_k(const unsigned char *block, float *values) {
    decode_groups(block, block + 48, block + 16, values);
}

/* 128 bytes of four low bits, 64 of two high ones, 16 signed scales, f16 d: groups of 16,
 * x = d s (q - 32). Each half of the block interleaves its four quarters. */
static void decode_q6_k(const unsigned char *block, float *values) {
    const float d = take_f16(block + 208);
    for (int i = 0; i < 256; i++) {
        const int half = i / 128, quarter = i % 128 / 32, at = i % 32;
        const unsigned char low = block[half * 64 + quarter % 2 * 32 + at];
        const unsigned char high = block[128 + half * 32 + at];
        const int q = (quarter < 2 ? low & 15 : low >> 4) | (high >> (2 * quarter) & 3)
                                                                << 4;
        const float scale = d * (float)(int8_t)block[192 + i / 16];
        values[i] = scale * (float)(q - 32);
    }
}

/* ---- the table ---- */

#define F16_MOST 65504.0

static const BlockType TYPES[] = {
    {"f32", 0, 0, 1, 4, FLT_MAX, decode_f32, encode_f32},
    {"f16", 1, 1, 1, 2, F16_MOST, decode_f16, encode_f16},
    {"q4_0", 2, 2, SMALL, 18, 8 * F16_MOST, decode_q4_0, encode_q4_0},
    {"q4_1", 3, 3, SMALL, 20, 0, decode_q4_1, NULL},
    {"q5_0", 6, -1, SMALL, 22, 0, decode_q5_0, NULL},
    {"q5_1", 7, -1, SMALL, 24, 0, decode_q5_1, NULL},
    {"q8_0", 8, 7, SMALL, 34, 127 * F16_MOST, decode_q8_0, encode_q8_0},
    {"q8_1", 9, -1, SMALL, 36, 0, NULL, NULL},
    {"q2_k", 10, -1, 256, 84, 0, NULL, NULL},
    {"q3_k", 11, -1, 256, 110, 0, NULL, NULL},
    {"q4_k", 12, -1, 256, 144, 0, decode_q4_k, NULL},
    {"q5_k", 13, -1, 256, 176, 0, decode_q5_k, NULL},
    {"q6_k", 14, -1, 256, 210, 0, decode_q6_k, NULL},
    {"q8_k", 15, -1, 256, 292, 0, NULL, NULL},
    {"iq2_xxs", 16, -1, 256, 66, 0, NULL, NULL},
    {"iq2_xs", 17, -1, 256, 74, 0, NULL, NULL},
    {"iq3_xxs", 18, -1, 256, 98, 0, NULL, NULL},
    {"iq1_s", 19, -1, 256, 50, 0, NULL, NULL},
    {"iq4_nl", 20, -1, SMALL, 18, 0, NULL, NULL},
    {"iq3_s", 21, -1, 256, 110, 0, NULL, NULL},
    {"iq2_s", 22, -1, 256, 82, 0, NULL, NULL},
    {"iq4_xs", 23, -1, 256, 136, 0, NULL, NULL},
    {"i8", 24, -1, 1, 1, 0, NULL, NULL},
    {"i16", 25, -1, 1, 2, 0, NULL, NULL},
    {"i32", 26, -1, 1, 4, 0, NULL, NULL},
    {"i64", 27, -1, 1, 8, 0, NULL, NULL},
    {"f64", 28, -1, 1, 8, 0, NULL, NULL},
    {"iq1_m", 29, -1, 256, 56, 0, NULL, NULL},
    {"bf16", 30, 32, 1, 2, 0x1.fep127, decode_bf16, encode_bf16},
    {"tq1_0", 34, -1, 256, 54, 0, NULL, NULL},
    {"tq2_0", 35, -1, 256, 66, 0, NULL, NULL},
    {"mxfp4", 39, -1, SMALL, 17, 0, NULL, NULL},
};
enum { TYPE_COUNT = sizeof TYPES / sizeof *TYPES };

const BlockType *block_type_by_id(uint32_t id) {
    for (int i = 0; i < TYPE_COUNT; i++)
        if (TYPES[i].id == id) return &TYPES[i];
    return NULL;
}

const BlockType *block_type_by_name(const char *name) {
    for (int i = 0; i < TYPE_COUNT; i++)
        if (strcmp(TYPES[i].name, name) == 0) return &TYPES[i];
    return NULL;
}

void blocks_decode(const BlockType *type, const unsigned char *blocks, float *values,
                   int64_t count) {
    for (int64_t i = 0; i < count; i += type->values, blocks += type->bytes)
        type->decode(blocks, values + i);
}

void blocks_encode(const BlockType *type, const float *values, unsigned char *blocks,
                   int64_t count) {
    for (int64_t i = 0; i < count; i += type->values, blocks += type->bytes)
        type->encode(values + i, blocks);
}
