/* Step time: how long the steps of a recipe would take on a machine, from the work in
 * its plan and the measurements of the machine. A roofline without overlap (Williams,
 * Waterman and Patterson, Roofline, CACM 2009): products at their rate, and everything
 * else by the bytes it moves.
 *
 * Not counted are reading, drawing and augmenting samples, starting, the fixed cost of
 * calls of small ops, and steps that neither train nor evaluate. */
#ifndef COMPRESS_SESSION_BENCH_STEP_TIME_H
#define COMPRESS_SESSION_BENCH_STEP_TIME_H

#include "session/bench/machine.h"
#include "session/session.h"

typedef enum StepBound { BOUND_PRODUCTS, BOUND_MEMORY, BOUND_UPDATE } StepBound;

/* Seconds of one optimiser step, or of one sample of an evaluation, and how many there
 * are. */
typedef struct StepTime {
    int64_t times;   /* 0 = the step neither trains nor evaluates, or its data set is not
                        known */
    bool trains;     /* optimiser steps, else samples */
    int threads;     /* that it keeps busy */
    double products; /* of products */
    double memory;   /* of all other ops */
    double update;   /* for adding gradients and for the optimiser */
} StepTime;

/* For step `index` of a session that was planned. */
StepTime step_time(const Machine *machine, const Session *session, int index);

/* Seconds of the whole step, and what takes the largest part of them: "products",
 * "memory", "update". */
double step_time_seconds(const StepTime *time);
StepBound step_time_bound(const StepTime *time);
const char *step_bound_name(StepBound bound);

/* Seconds on `threads` threads for `work`, by the machine's rates, which are
 * interpolated linearly between one thread and all. */
double work_products_seconds(const Machine *machine, const PlanWork *work, int threads);
double work_memory_seconds(const Machine *machine, const PlanWork *work, int threads);

/* Bytes that an optimiser step moves in addition to forward and backward runs: AdamW
 * reads and writes 7 floats per weight, and each shard's gradient is zeroed, written and
 * added. */
double update_bytes(const TrainWork *work, int64_t shards);

#endif
