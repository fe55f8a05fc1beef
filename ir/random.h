/* Random: counter-based random numbers (Philox4x32-10, Salmon et al., SC 2011).
 *
 * A number depends only on its key and its position, never on call order or thread, so
 * the same seed gives the same bytes at any number of threads. */
#ifndef COMPRESS_IR_RANDOM_H
#define COMPRESS_IR_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* Derives an independent key from a key and a number or a name. */
uint64_t random_key(uint64_t key, uint64_t number);
uint64_t random_key_name(uint64_t key, const char *name);

/* Four 32-bit words of block `counter` of the stream `key`. */
void random_block(uint64_t key, uint64_t counter, uint32_t out[4]);

/* Philox4x32-10 itself, on all four counter words; the other functions are built on
 * it. */
void random_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* Number `index` of the stream: uniform 64 bits; uniform in [0, 1); standard normal
 * (Box-Muller); standard normal truncated at +-2 by redrawing. */
uint64_t random_u64(uint64_t key, uint64_t index);
double random_uniform(uint64_t key, uint64_t index);
double random_normal(uint64_t key, uint64_t index);
double random_trunc_normal(uint64_t key, uint64_t index);

/* Fills `order` with a permutation of 0..count-1 (Fisher-Yates over the stream). */
void random_permutation(uint64_t key, int64_t *order, int64_t count);

#endif
