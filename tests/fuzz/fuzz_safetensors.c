/* safetensors: the header, and every value of what was accepted. */
#include "io/formats/safetensors.h"
#include "tests/fuzz/fuzz.h"

enum { PIECE = 1024 };

static void read_values(const Tensor *tensor) {
    float piece[PIECE];
    const int64_t count = tensor_count(tensor);
    for (int64_t first = 0; dtype_is_real(tensor->dtype) && first < count; first += PIECE)
        tensor_read_f32(tensor, first, count - first < PIECE ? count - first : PIECE,
                        piece);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    FuzzPath file;
    Diag *diag = diag_create();
    Checkpoint *checkpoint = NULL;
    fuzz_file(&file, ".safetensors", data, size);
    if (safetensors_read(&checkpoint, file.path, diag) == STATUS_OK) {
        for (int i = 0; i < checkpoint->count; i++) {
            const NamedTensor *one = &checkpoint->tensors[i];
            fuzz_expect(checkpoint_find(checkpoint, one->name) == &one->tensor,
                        "a tensor is found by its name");
            read_values(&one->tensor);
        }
        checkpoint_destroy(checkpoint);
    }
    fuzz_remove(&file);
    diag_destroy(diag);
    return 0;
}
