/* Text mask: see text_mask.h. */
#include "io/datasets/text_mask.h"

#include "ir/op.h"
#include "ir/random.h"

#include <math.h>

int64_t text_mask_count(const TextMask *mask, int64_t candidates) {
    const int64_t count = llround(mask->share * (double)candidates);
    return count < 1 && candidates > 0 ? 1 : count;
}

int64_t text_mask_most(const TextMask *mask, int64_t tokens) {
    const int64_t candidates = tokens - mask->reserved;
    return text_mask_count(mask, candidates < 1 ? 1 : candidates);
}

/* The first token is none: consumers take position 0 for a filler. */
static bool is_candidate(const TextMask *mask, const int32_t *ids, int64_t i) {
    const SpecialIds *special = &mask->specials;
    const int32_t id = ids[i];
    return i > 0 && id != special->pad && id != special->unk && id != special->cls &&
           id != special->sep && id != special->mask && id != special->bos &&
           id != special->eos;
}

/* Selection sampling (Knuth, The Art of Computer Programming 2, 3.4.2, algorithm S): each
 * candidate in turn is chosen with the probability that those still wanted have among
 * those left, which gives every set of `wanted` the same one. Token i draws numbers 2 i
 * and 2 i + 1. */
void text_mask_apply(const TextMask *mask, uint64_t key, int32_t *ids, int64_t length,
                     int32_t *positions, int32_t *labels, int64_t most) {
    int64_t left = 0, count = 0;
    for (int64_t i = 0; i < length; i++) left += is_candidate(mask, ids, i);
    const int64_t wanted = text_mask_count(mask, left);
    for (int64_t i = 0; count < wanted; i++) {
        if (!is_candidate(mask, ids, i)) continue;
        const uint64_t draw = 2 * (uint64_t)i;
        const double at = random_uniform(key, draw) * (double)left--;
        if (at >= (double)(wanted - count)) continue;
        positions[count] = (int32_t)i;
        labels[count++] = ids[i];
        uint32_t word[4];
        random_block(key, draw + 1, word);
        const double kind = word[0] * 0x1p-32;
        if (kind < mask->replace)
            ids[i] = mask->specials.mask;
        else if (kind < mask->replace + mask->random)
            ids[i] = (int32_t)((uint64_t)word[1] * (uint64_t)mask->vocabulary >> 32);
    }
    for (; count < most; count++) {
        positions[count] = 0;
        labels[count] = INDEX_SKIP;
    }
}
