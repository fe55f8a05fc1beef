/* Step time: how long the steps of a recipe would take on a machine, by what its plan
 * says they compute and by what was measured of the machine. A roofline without overlap
 * (Williams, Waterman and Patterson, Roofline, CACM 2009): products at their rate, and
 * all else by the bytes it moves.
 *
 * What is not counted: reading, drawing and augmenting samples, starting, the fixed cost
 * of a call of a small op, and what steps do that neither train nor evaluate. */
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
    double update;   /* of adding gradients and of the optimiser */
} StepTime;

/* Of step `index` of a session that was planned. */
StepTime step_time(const Machine *machine, const Session *session, int index);

/* Seconds of the whole step, and what takes the largest part of them: "products",
 * "memory", "update". */
double step_time_seconds(const StepTime *time);
StepBound step_time_bound(const StepTime *time);
const char *step_bound_name(StepBound bound);

/* Seconds on `threads` threads for `work`, by the machine's rates; between one thread and
 * all a rate grows evenly from that of one to that of all. */
double work_products_seconds(const Machine *machine, const PlanWork *work, int threads);
double work_memory_seconds(const Machine *machine, const PlanWork *work, int threads);

/* Bytes that an optimiser step moves beside forward and backward runs: AdamW reads and
 * writes 7 floats of a weight, and each shard's gradient is zeroed, written and added. */
double update_bytes(const TrainWork *work, int64_t shards);

#endif
