/* Rank parts: arrays of numbers whose elements are owned by ranks.
 *
 * An array as long as the weights is cut into buckets, contiguous ranges of whole blocks
 * (GRADIENT_BLOCK), and each bucket into one part per rank, in order, with equal numbers
 * of blocks; the last bucket is the rest, in which a rank may have one block more than
 * another. So whichever range of a gradient is complete first, every rank owns some of
 * it, and traffic to the owners is spread over all of them at any time.
 *
 * The owner of elements adds up their gradients, updates them and holds their moments;
 * what all need is distributed. A single rank owns everything, and nothing is done. */
#ifndef COMPRESS_EXEC_TRAIN_RANK_PARTS_H
#define COMPRESS_EXEC_TRAIN_RANK_PARTS_H

#include "ir/status.h"

#include <stddef.h>
#include <stdint.h>

/* Number of buckets of an array of `count` elements, and the elements of each except the
 * last, which may have fewer. */
int64_t rank_bucket_count(int64_t count);
int64_t rank_bucket_elements(int64_t count);

/* Elements [*first, *last) of bucket `bucket` that rank `rank` owns; none if the last
 * bucket has fewer blocks than there are ranks. */
void rank_bucket_part(int64_t count, int64_t bucket, int rank, int64_t *first,
                      int64_t *last);

/* Most elements of a bucket that a rank owns. */
int64_t rank_bucket_part_most(int64_t count);

/* Number of blocks, over all buckets, that this rank owns; and the index in the array of
 * the i-th of them, in order. */
int64_t rank_part_blocks(int64_t count);
int64_t rank_part_block(int64_t count, int64_t i);

/* Number of elements that this rank owns: those of its blocks, one after another. */
int64_t rank_part_count(int64_t count);

/* Collective. Completes all[count], of which each rank has what it owns, in all
 * ranks. */
Status rank_parts_gather(float *all, int64_t count, Diag *diag);

/* Collective. The same for an array with `bytes` for each block of the elements. */
Status rank_parts_gather_blocks(void *all, int64_t count, size_t bytes, Diag *diag);

/* Collective. Collects in rank 0 what all ranks own: part[rank_part_count] is a rank's
 * own; all[count] has room for everything in rank 0 and is ignored in other ranks.
 * Elements have `size` bytes. */
Status rank_parts_collect(void *all, const void *part, int64_t count, size_t size,
                          Diag *diag);

#endif
