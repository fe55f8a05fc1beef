/* HDF5 files of samples and labels: the first byte says what the labels are and whether
 * the samples are images that are augmented; samples of what was accepted. */
#include "tests/fuzz/fuzz.h"

#include <stdio.h>

static const char *const ENTRIES[] = {
    "x: x",
    "y: null, offset: 1, limit: 2",
    "targets: values",
    "classes: 9, scale: 0.5, augment: {flip: true, crop: 2}",
    "targets: values, augment: {flip: true}",
};
enum { ENTRY_COUNT = sizeof ENTRIES / sizeof *ENTRIES };

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    fuzz_share_coverage();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    FuzzPath file;
    char text[256];
    fuzz_file(&file, ".h5", data + 1, size - 1);
    snprintf(text, sizeof text, "{format: hdf5, path: %s, %s}", file.path,
             ENTRIES[data[0] % ENTRY_COUNT]);
    fuzz_data_set(text, 0);
    fuzz_remove(&file);
    return 0;
}
