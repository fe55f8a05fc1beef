/* Schedule: the learning rate over a training run. */
#ifndef COMPRESS_EXEC_TRAIN_SCHEDULE_H
#define COMPRESS_EXEC_TRAIN_SCHEDULE_H

#include "exec/train/train.h"

/* Factor of the peak rate at step `step` (from 0) of `total`: rises linearly over the
 * first warmup * total steps, the last of which has 1; then falls from 1 towards
 * final_lr, which it would reach at step `total`. */
double schedule_factor(const TrainOptions *options, int64_t step, int64_t total);

#endif
