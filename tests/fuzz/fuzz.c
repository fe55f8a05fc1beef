/* What fuzz targets share: see fuzz.h. */
#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

const char *fuzz_folder(void) {
    static const char *chosen;
    if (!chosen) chosen = access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp";
    return chosen;
}

void fuzz_put(const char *path, const void *data, size_t size) {
    const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    fuzz_expect(file >= 0 && write(file, data, size) == (ssize_t)size && close(file) == 0,
                "the input's file was written");
}

void fuzz_file(FuzzPath *out, const char *ending, const uint8_t *data, size_t size) {
    snprintf(out->path, sizeof out->path, "%s/compress-fuzz-%ld%s", fuzz_folder(),
             (long)getpid(), ending);
    fuzz_put(out->path, data, size);
}

void fuzz_remove(const FuzzPath *file) {
    unlink(file->path);
}

void fuzz_expect(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "expected: %s\n", what);
    abort();
}

void fuzz_told(Status status, const Diag *diag) {
    fuzz_expect(diag_errors(diag) == (status != STATUS_OK) && diag_status(diag) == status,
                "one error tells why the reader failed");
}

enum { PIECE = 1024 };

void fuzz_checkpoint(const Checkpoint *checkpoint) {
    float piece[PIECE];
    for (int i = 0; i < checkpoint->count; i++) {
        const Tensor *tensor = &checkpoint->tensors[i].tensor;
        const int64_t count = tensor_count(tensor);
        fuzz_expect(checkpoint_find(checkpoint, checkpoint->tensors[i].name) == tensor,
                    "a tensor is found by its name");
        if (!dtype_is_real(tensor->dtype)) continue;
        for (int64_t first = 0; first < count; first += PIECE)
            tensor_read_f32(tensor, first, count - first < PIECE ? count - first : PIECE,
                            piece);
    }
}
