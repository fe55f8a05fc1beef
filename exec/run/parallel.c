/* Parallel: see exec/run/parallel.h. The only file that includes OpenMP's header. */
#include "exec/run/parallel.h"

#include <omp.h>

void parallel_for(int64_t count, int threads,
                  void (*body)(void *self, int64_t i, int worker), void *self) {
    if (threads > count) threads = (int)count;
    if (threads <= 1) {
        for (int64_t i = 0; i < count; i++) body(self, i, 0);
        return;
    }
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < count; i++) body(self, i, omp_get_thread_num());
}
