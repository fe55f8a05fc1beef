/* Model files: what was accepted verifies, and its weights can be read and packed. */
#include "exec/ops.h"
#include "exec/run/params.h"
#include "io/formats/modelfile.h"
#include "ir/verify.h"
#include "tests/fuzz/fuzz.h"

enum { PIECE = 1024 };

static void read_storages(const Graph *graph) {
    float piece[PIECE];
    for (int i = 0; i < graph->storage_count; i++) {
        const Tensor *tensor = &graph->storages[i]->tensor;
        const int64_t count = tensor_count(tensor);
        tensor_find_nonfinite(tensor);
        for (int64_t at = 0; dtype_is_real(tensor->dtype) && at < count; at += PIECE)
            tensor_read_f32(tensor, at, count - at < PIECE ? count - at : PIECE, piece);
    }
}

/* Whether it is accepted. */
static bool read_model(const char *path, bool check_hashes, Diag *diag) {
    Params *params = NULL;
    Model *model = NULL;
    if (modelfile_read(&model, path, ops_table(), check_hashes, diag) != STATUS_OK)
        return false;
    fuzz_expect(graph_verify(model->graph, STATUS_MODEL, diag) == STATUS_OK,
                "a model that verifies");
    read_storages(model->graph);
    if (params_create_packed(&params, model->graph, PARAMS_OFTEN, diag) == STATUS_OK)
        params_destroy(params);
    model_destroy(model);
    return true;
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    fuzz_share_coverage();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    FuzzPath path;
    Diag *diag = diag_create();
    fuzz_file(&path, ".h5", data, size);
    /* Each time a child process walks the file. */
    if (read_model(path.path, false, diag)) read_model(path.path, true, diag);
    fuzz_no_exit(diag);
    fuzz_remove(&path);
    diag_destroy(diag);
    return 0;
}
