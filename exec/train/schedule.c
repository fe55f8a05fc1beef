/* Schedule: see exec/train/schedule.h. */
#include "exec/train/schedule.h"

#include <math.h>

/* Indices into SCHEDULE_NAMES. */
enum { SCHEDULE_COSINE, SCHEDULE_LINEAR, SCHEDULE_CONSTANT };

double schedule_factor(const TrainOptions *options, int64_t step, int64_t total) {
    const int64_t warmup = (int64_t)llround(options->warmup * (double)total);
    if (step < warmup) return (double)(step + 1) / (double)warmup;
    if (options->schedule == SCHEDULE_CONSTANT || total <= warmup) return 1;
    double done = (double)(step - warmup) / (double)(total - warmup);
    if (done > 1) done = 1;
    const double left =
        options->schedule == SCHEDULE_LINEAR ? 1 - done : 0.5 * (1 + cos(M_PI * done));
    return options->final_lr + (1 - options->final_lr) * left;
}
