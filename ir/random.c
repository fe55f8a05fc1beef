/* Random: Philox4x32-10 (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3,
 * SC 2011) and what is drawn from it.
 *
 * Counter words 0 and 1 hold the position. Word 2 counts redraws. Word 3 is 0 for numbers
 * and a tag for keys, so that derived keys never meet the numbers of a stream. */
#include "ir/random.h"

#include <math.h>
#include <string.h>

#define ROUNDS       10
#define MULTIPLIER_0 0xD2511F53u
#define MULTIPLIER_1 0xCD9E8D57u
#define WEYL_0       0x9E3779B9u
#define WEYL_1       0xBB67AE85u

#define TAG_NUMBER 0x6E756D62u
#define TAG_NAME   0x6E616D65u
#define TWO_PI     6.28318530717958647693

void random_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t p0 = (uint64_t)MULTIPLIER_0 * c0;
        uint64_t p1 = (uint64_t)MULTIPLIER_1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += WEYL_0;
        k1 += WEYL_1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

static void draw(uint64_t key, uint64_t index, uint32_t redraw, uint32_t tag,
                 uint32_t out[4]) {
    const uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), redraw, tag};
    const uint32_t words[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
    random_philox(counter, words, out);
}

static uint64_t join_words(uint32_t low, uint32_t high) {
    return (uint64_t)high << 32 | low;
}

uint64_t random_key(uint64_t key, uint64_t number) {
    uint32_t out[4];
    draw(key, number, 0, TAG_NUMBER, out);
    return join_words(out[0], out[1]);
}

/* The name enters eight bytes at a time, its length last. */
uint64_t random_key_name(uint64_t key, const char *name) {
    size_t length = strlen(name);
    uint32_t out[4];
    for (size_t at = 0; at < length; at += 8) {
        uint64_t piece = 0;
        for (size_t i = 0; i < 8 && at + i < length; i++) {
            piece |= (uint64_t)(unsigned char)name[at + i] << (8 * i);
        }
        draw(key, piece, 0, TAG_NAME, out);
        key = join_words(out[0], out[1]);
    }
    draw(key, length, 1, TAG_NAME, out);
    return join_words(out[0], out[1]);
}

void random_block(uint64_t key, uint64_t counter, uint32_t out[4]) {
    draw(key, counter, 0, 0, out);
}

uint64_t random_u64(uint64_t key, uint64_t index) {
    uint32_t out[4];
    random_block(key, index, out);
    return join_words(out[0], out[1]);
}

/* The upper 53 bits as a multiple of 2^-53 in [0, 1). */
static double unit_real(uint64_t bits) {
    return (double)(bits >> 11) * 0x1p-53;
}

double random_uniform(uint64_t key, uint64_t index) {
    return unit_real(random_u64(key, index));
}

static double draw_normal(uint64_t key, uint64_t index, uint32_t redraw) {
    uint32_t out[4];
    draw(key, index, redraw, 0, out);
    double radius = 1.0 - unit_real(join_words(out[0], out[1])); /* in (0, 1] */
    double angle = unit_real(join_words(out[2], out[3]));
    return sqrt(-2.0 * log(radius)) * cos(TWO_PI * angle);
}

double random_normal(uint64_t key, uint64_t index) {
    return draw_normal(key, index, 0);
}

double random_trunc_normal(uint64_t key, uint64_t index) {
    double value = draw_normal(key, index, 0);
    for (uint32_t redraw = 1; fabs(value) > 2.0; redraw++) {
        value = draw_normal(key, index, redraw);
    }
    return value;
}

void random_permutation(uint64_t key, int64_t *order, int64_t count) {
    for (int64_t i = 0; i < count; i++) order[i] = i;
    for (int64_t i = count - 1; i > 0; i--) {
        /* A number up to i from 64 random bits: the upper half of a 128-bit product,
         * whose bias is below (i + 1) / 2^64. */
        const unsigned __int128 bits = random_u64(key, (uint64_t)i);
        const int64_t j = (int64_t)(bits * (uint64_t)(i + 1) >> 64);
        int64_t swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
}
