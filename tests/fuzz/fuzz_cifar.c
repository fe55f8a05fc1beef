/* CIFAR's binary records: which labels they have says the first byte; every image of what
 * was accepted. */
#include "io/datasets/dataset.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

static void fetch_some(const Batches *batches, Diag *diag) {
    const Type *type = &batches->columns[0].type;
    size_t values = 1;
    for (int i = 0; i < type->rank; i++) values *= (size_t)type->dim[i];
    float *image = malloc(values * sizeof *image);
    int32_t label = 0;
    fuzz_expect(batches->column_count == 2 && image, "pixels and a label");
    for (int64_t i = 0; i < batches->count && i < 16; i++) {
        const Fetch what = {.index = &i, .n = 1};
        void *const to[] = {image, &label};
        fuzz_expect(batches->fetch(batches, &what, to, diag) == STATUS_OK && label >= 0,
                    "every image is there");
    }
    free(image);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const LABELS[] = {"cifar10", "fine", "coarse"};
    if (size == 0) return 0;
    FuzzPath file;
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    const DataFormat *format = NULL;
    void *options = NULL;
    Batches *batches = NULL;
    Tree *spec = tree_new(arena, TREE_MAP, LOC_NONE);
    fuzz_file(&file, ".bin", data + 1, size - 1);
    tree_put_string(arena, spec, "format", "cifar");
    tree_put_string(arena, spec, "labels", LABELS[data[0] % 3]);
    tree_add_string(arena, tree_put_list(arena, spec, "files"), file.path);
    fuzz_expect(dataset_bind(&format, &options, arena, spec, "/", diag) == STATUS_OK,
                "the entry binds");
    const Status status = dataset_open(&batches, format, options, LOC_NONE, diag);
    fuzz_told(status, diag);
    if (status == STATUS_OK) {
        fetch_some(batches, diag);
        batches_destroy(batches);
    }
    fuzz_remove(&file);
    diag_destroy(diag);
    arena_destroy(arena);
    return 0;
}
