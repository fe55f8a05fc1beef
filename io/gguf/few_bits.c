/* Rows of quantised tensors as blocks: see few_bits.h. */
#include "io/gguf/few_bits.h"

#include "ir/half.h"
#include "ir/quantised.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 32, HALF = BLOCK / 2 };

const BlockType *few_bits_type(const Tensor *tensor) {
    if (!dtype_is_quantised(tensor->dtype) || quantised_width(tensor) % BLOCK != 0)
        return NULL;
    if (tensor->dtype == DTYPE_Q8) return block_type_by_name("q8_0");
    return block_type_by_name(tensor->zeros ? "q4_1" : "q4_0");
}

bool few_bits_fit(const Tensor *tensor) {
    const float most = f16_to_float(0x7bff);
    if (tensor->dtype == DTYPE_Q4 && !tensor->zeros) return true; /* they are halves */
    for (int64_t m = 0; m < quantised_rows(tensor); m++)
        for (int64_t g = 0; g < quantised_groups(tensor); g++) {
            const Grid grid = quantised_read_grid(tensor, m, g);
            const float lowest = tensor->zeros ? grid.scale * (float)grid.zero : 0;
            if (!(fabsf(grid.scale) <= most && fabsf(lowest) <= most)) return false;
        }
    return true;
}

static void put_f16(unsigned char *bytes, float value) {
    const uint16_t half = f16_from_float(value);
    bytes[0] = (unsigned char)half;
    bytes[1] = (unsigned char)(half >> 8);
}

/* A block's 16 bytes: number i in the low half of byte i, number i + 16 in the high one.
 */
static void put_halves(unsigned char *bytes, const uint8_t *row, int64_t first) {
    for (int64_t i = 0; i < HALF; i++) {
        const int64_t a = first + i, b = a + HALF;
        const int low = row[a / 2] >> (a % 2 ? 4 : 0) & 15;
        const int high = row[b / 2] >> (b % 2 ? 4 : 0) & 15;
        bytes[i] = (unsigned char)(low | high << 4);
    }
}

void few_bits_row(const Tensor *tensor, int64_t row, unsigned char *blocks) {
    const BlockType *type = few_bits_type(tensor);
    const size_t bytes = quantised_parts(tensor).row_values;
    const uint8_t *values =
        (const uint8_t *)tensor_q_values(tensor) + (size_t)row * bytes;
    const int64_t width = quantised_width(tensor);
    for (int64_t at = 0; at < width; at += BLOCK, blocks += type->bytes) {
        const Grid grid = quantised_read_grid(tensor, row, at / tensor->group);
        unsigned char *numbers = blocks + 2;
        put_f16(blocks, grid.scale);
        if (tensor->zeros) {
            put_f16(numbers, -grid.scale * (float)grid.zero);
            numbers += 2;
        }
        if (tensor->dtype == DTYPE_Q8)
            memcpy(numbers, values + at, BLOCK);
        else
            put_halves(numbers, values, at);
    }
}
