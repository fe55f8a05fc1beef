/* A folder for each test, with the file that it writes or reads. */
#ifndef COMPRESS_TESTS_ONNX_SCRATCH_H
#define COMPRESS_TESTS_ONNX_SCRATCH_H

#include "tests/io/io_test.h"

static char folder[256], path[300];

static int enter(void **state) {
    (void)state;
    scratch_make(folder);
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    return 0;
}

static int leave(void **state) {
    (void)state;
    scratch_remove(folder);
    return 0;
}

#endif
