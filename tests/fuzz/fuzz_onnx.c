/* ONNX: the graph of a file, lifted where that can be, and the model verified. */
#include "exec/ops.h"
#include "io/onnx/onnx_read.h"
#include "ir/verify.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    FuzzPath path;
    Diag *diag = diag_create();
    Model *model = NULL;
    fuzz_file(&path, ".onnx", data, size);
    if (onnx_read(&model, path.path, ops_table(), diag) == STATUS_OK) {
        fuzz_expect(graph_verify(model->graph, STATUS_MODEL, diag) == STATUS_OK,
                    "a model that verifies");
        model_destroy(model);
    }
    fuzz_remove(&path);
    diag_destroy(diag);
    return 0;
}
