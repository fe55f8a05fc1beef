/* Weights with Gaussians, for tests of training under priors. */
#ifndef COMPRESS_TESTS_EXEC_PRIOR_FIXTURE_H
#define COMPRESS_TESTS_EXEC_PRIOR_FIXTURE_H

#include "ir/storage.h"
#include "tests/exec/train_fixture.h"

/* Puts a diagonal Gaussian on a storage. */
static inline void put_gaussian(Fixture *f, const char *name, uint64_t seed,
                                double variance) {
    Storage *storage = graph_storage(f->graph, name);
    Gaussian *gaussian = gaussian_create(f->arena, GAUSSIAN_DIAGONAL, DTYPE_F64,
                                         &storage->tensor, 0, "teacher");
    assert_ok(gaussian_allocate(gaussian, f->diag), f->diag);
    void *mean = NULL, *diagonal = NULL;
    assert_ok(tensor_writable(&gaussian->mean, &mean, f->diag), f->diag);
    assert_ok(tensor_writable(&gaussian->diagonal, &diagonal, f->diag), f->diag);
    for (int64_t i = 0; i < tensor_count(&storage->tensor); i++) {
        ((double *)mean)[i] = 0.3 * random_normal(seed, (uint64_t)i);
        ((double *)diagonal)[i] =
            variance * (0.5 + random_uniform(seed + 1, (uint64_t)i));
    }
    storage_set_gaussian(storage, gaussian);
}

#endif
