/* Toy models with posteriors that the pass estimates. */
#ifndef COMPRESS_TESTS_PASSES_POSTERIOR_FIXTURE_H
#define COMPRESS_TESTS_PASSES_POSTERIOR_FIXTURE_H

#include "tests/passes/gaussian_fixture.h"
#include "tests/support/passes.h"

#define TRAIN                                                                            \
    "data: toy, optimizer: sgd, lr: 0.05, batch_size: 20, schedule: constant, "          \
    "warmup: 0"

/* Storage by name, which must be there. */
static inline Storage *storage_of(const Model *model, const char *name) {
    Storage *storage = graph_storage(model->graph, name);
    assert_non_null(storage);
    return storage;
}

#define FFN_IN  "vit.encoder.layer.1.intermediate.dense.weight"
#define FFN_OUT "vit.encoder.layer.1.output.dense.weight"

#endif
