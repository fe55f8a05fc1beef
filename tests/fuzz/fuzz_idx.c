/* IDX: images, plain or gzip-compressed, and every sample of what was accepted. */
#include "io/datasets/dataset.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

static void fetch_all(const Batches *batches, Diag *diag) {
    const Type *type = &batches->columns[0].type;
    size_t values = 1;
    for (int i = 0; i < type->rank; i++) values *= (size_t)type->dim[i];
    float *sample = malloc(values * sizeof *sample);
    fuzz_expect(batches->column_count == 1 && sample, "one column of pixels");
    for (int64_t i = 0; i < batches->count && i < 64; i++) {
        const Fetch what = {.index = &i, .n = 1};
        void *const to[] = {sample};
        fuzz_expect(batches->fetch(batches, &what, to, diag) == STATUS_OK,
                    "every sample is there");
    }
    free(sample);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    FuzzPath file;
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    const DataFormat *format = NULL;
    void *options = NULL;
    Batches *batches = NULL;
    Tree *spec = tree_new(arena, TREE_MAP, LOC_NONE);
    fuzz_file(&file, ".idx", data, size);
    tree_put_string(arena, spec, "format", "idx");
    tree_put_string(arena, spec, "images", file.path);
    fuzz_expect(dataset_bind(&format, &options, arena, spec, "/", diag) == STATUS_OK,
                "the entry binds");
    const Status status = dataset_open(&batches, format, options, LOC_NONE, diag);
    fuzz_told(status, diag);
    if (status == STATUS_OK) {
        fetch_all(batches, diag);
        batches_destroy(batches);
    }
    fuzz_remove(&file);
    diag_destroy(diag);
    arena_destroy(arena);
    return 0;
}
