/* What benchmarks measure with. Each is a program of one file. */
#ifndef COMPRESS_BENCH_TIMING_H
#define COMPRESS_BENCH_TIMING_H

#include <stdlib.h>
#include <time.h>

/* Seconds of a clock that only runs forward. */
static inline double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds that processors worked for this process. */
static inline double processor_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline int compare_numbers(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Puts measurements in order, the least first: the median is in the middle. */
static inline void sort_numbers(double *numbers, size_t count) {
    qsort(numbers, count, sizeof *numbers, compare_numbers);
}

#endif
