/* Rank parts: arrays of numbers whose elements are owned by ranks.
 *
 * An array as long as the weights is cut into whole blocks (GRADIENT_BLOCK), a contiguous
 * part for each rank, in order. The owner of elements adds up their gradients, updates
 * them and has their moments; what all need is handed round. With one rank it owns all,
 * and nothing is done. */
#ifndef COMPRESS_EXEC_TRAIN_RANK_PARTS_H
#define COMPRESS_EXEC_TRAIN_RANK_PARTS_H

#include "ir/status.h"

#include <stdint.h>

/* Elements [*first, *last), of `count`, that a rank owns; none where there are fewer
 * blocks than ranks. No part is longer than that of rank 0. */
void rank_part(int64_t count, int rank, int64_t *first, int64_t *last);

/* Collective. all[count], of which each rank has its part, comes to all ranks. */
Status rank_parts_gather(float *all, int64_t count, Diag *diag);

/* Collective. The parts of all ranks come to rank 0: part[last - first] is a rank's own,
 * all[count] has room for all of them there, and is not looked at in other ranks. */
Status rank_parts_collect(float *all, const float *part, int64_t count, Diag *diag);

#endif
