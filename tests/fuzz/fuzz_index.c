/* The index of a checkpoint in several files: any index beside two good shards. What it
 * accepts has the tensors of both. */
#include "io/formats/safetensors.h"
#include "io/formats/shards.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* The folder with its shards a.safetensors (tensor "a") and b.safetensors ("b"), made
 * once and removed at the end of the program. */
static char folder[64];
enum { PATH_BYTES = 128 };

static void remove_folder(void) {
    static const char *const FILES[] = {"a.safetensors", "b.safetensors",
                                        "model.safetensors.index.json"};
    char path[PATH_BYTES];
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, FILES[i]);
        unlink(path);
    }
    rmdir(folder);
}

static void make_shard(const char *name, Diag *diag) {
    char path[PATH_BYTES];
    NamedTensor tensor = {.name = name};
    snprintf(path, sizeof path, "%s/%s.safetensors", folder, name);
    fuzz_expect(tensor_create(&tensor.tensor, DTYPE_F32, 1, (int64_t[]){4}, diag) ==
                        STATUS_OK &&
                    safetensors_write(path, &tensor, 1, diag) == STATUS_OK,
                "the shard was written");
    tensor_release(&tensor.tensor);
}

static void make_folder(Diag *diag) {
    if (folder[0]) return;
    snprintf(folder, sizeof folder, "%s/compress-fuzz-%ld-shards", fuzz_folder(),
             (long)getpid());
    fuzz_expect(mkdir(folder, 0700) == 0, "the folder was made");
    atexit(remove_folder);
    make_shard("a", diag);
    make_shard("b", diag);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[PATH_BYTES];
    Diag *diag = diag_create();
    Checkpoint *checkpoint = NULL;
    make_folder(diag);
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    fuzz_put(path, data, size);
    const Status status = checkpoint_read(&checkpoint, folder, diag);
    fuzz_told(status, diag);
    if (status == STATUS_OK) {
        fuzz_expect(checkpoint->count > 0 && checkpoint->count <= 2, "tensors of shards");
        fuzz_checkpoint(checkpoint);
        checkpoint_destroy(checkpoint);
    }
    diag_destroy(diag);
    return 0;
}
