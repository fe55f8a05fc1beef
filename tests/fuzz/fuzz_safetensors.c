/* safetensors: the header, every value of what was accepted, and the model in it. */
#include "exec/ops.h"
#include "io/formats/format.h"
#include "io/formats/safetensors.h"
#include "ir/verify.h"
#include "tests/fuzz/fuzz.h"

extern const ModelFormat model_format_safetensors;

/* Reads the model, with hashes compared or without; what comes out is sound. */
static void read_model(const char *path, bool check, Diag *diag) {
    Model *model = NULL;
    if (!model_format_safetensors.probe(path) ||
        model_format_safetensors.read(&model, path, NULL, ops_table(), check, diag) !=
            STATUS_OK)
        return;
    fuzz_expect(graph_verify(model->graph, STATUS_INTERNAL, diag) == STATUS_OK,
                "the graph of a model that was read verifies");
    graph_verify_weights(model->graph, diag);
    model_destroy(model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    FuzzPath file;
    Diag *diag = diag_create();
    Checkpoint *checkpoint = NULL;
    fuzz_file(&file, ".safetensors", data, size);
    if (safetensors_read(&checkpoint, file.path, diag) == STATUS_OK) {
        fuzz_checkpoint(checkpoint);
        checkpoint_destroy(checkpoint);
    }
    diag_clear(diag);
    read_model(file.path, true, diag);
    diag_clear(diag);
    read_model(file.path, false, diag);
    fuzz_remove(&file);
    diag_destroy(diag);
    return 0;
}
