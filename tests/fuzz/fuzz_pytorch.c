/* PyTorch's files: the archive, its pickle, and every value of what was accepted. */
#include "io/pytorch/pytorch.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    FuzzPath file;
    Diag *diag = diag_create();
    Checkpoint *checkpoint = NULL;
    fuzz_file(&file, ".pt", data, size);
    const Status status = pytorch_read(&checkpoint, file.path, diag);
    fuzz_told(status, diag);
    if (status == STATUS_OK) {
        fuzz_checkpoint(checkpoint);
        checkpoint_destroy(checkpoint);
    }
    fuzz_remove(&file);
    diag_destroy(diag);
    return 0;
}
