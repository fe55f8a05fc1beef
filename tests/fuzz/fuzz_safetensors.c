/* safetensors: the header, and every value of what was accepted. */
#include "io/formats/safetensors.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    FuzzPath file;
    Diag *diag = diag_create();
    Checkpoint *checkpoint = NULL;
    fuzz_file(&file, ".safetensors", data, size);
    if (safetensors_read(&checkpoint, file.path, diag) == STATUS_OK) {
        fuzz_checkpoint(checkpoint);
        checkpoint_destroy(checkpoint);
    }
    fuzz_remove(&file);
    diag_destroy(diag);
    return 0;
}
