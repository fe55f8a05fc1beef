/* GGUF: the container, every row and number of what was accepted, and the model in it. */
#include "exec/ops.h"
#include "io/gguf/gguf.h"
#include "io/gguf/gguf_model.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

static void read_rows(const GgufFile *file, const GgufTensor *tensor) {
    const int64_t width = tensor->dim[tensor->rank - 1];
    int64_t rows = 1;
    for (int i = 0; i < tensor->rank - 1; i++) rows *= tensor->dim[i];
    float *row = malloc((size_t)width * sizeof *row + 1);
    fuzz_expect(row != NULL, "memory for a row");
    for (int64_t i = 0; tensor->type->decode && i < rows && width > 0; i++)
        gguf_rows(file, tensor, i, 1, row);
    free(row);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    FuzzPath path;
    Diag *diag = diag_create();
    GgufFile *file = NULL;
    fuzz_file(&path, ".gguf", data, size);
    if (gguf_read(&file, path.path, diag) == STATUS_OK) {
        for (int64_t i = 0; i < file->pair_count; i++) {
            int64_t integer;
            double real;
            for (int64_t k = 0; k < file->pairs[i].count; k++)
                gguf_integer(&file->pairs[i], k, &integer),
                    gguf_real(&file->pairs[i], k, &real);
        }
        for (int64_t i = 0; i < file->tensor_count; i++)
            read_rows(file, &file->tensors[i]);
        gguf_destroy(file);
    }
    diag_clear(diag);
    Model *model = NULL;
    if (gguf_read_model(&model, path.path, NULL, ops_table(), true, diag) == STATUS_OK)
        model_destroy(model);
    fuzz_remove(&path);
    diag_destroy(diag);
    return 0;
}
