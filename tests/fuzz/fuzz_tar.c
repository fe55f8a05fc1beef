/* Tar archives: files lie inside; images of what was accepted are decoded. */
#include "io/datasets/image_shards.h"
#include "io/datasets/tar.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

typedef struct Seen {
    size_t bytes, last, files;
} Seen;

static Status see(void *self, const TarFile *file, Diag *diag) {
    Seen *seen = self;
    (void)diag;
    fuzz_expect(file->offset <= seen->bytes && file->bytes <= seen->bytes - file->offset,
                "a file lies in the archive");
    fuzz_expect(file->offset > seen->last, "files follow one another");
    fuzz_expect(strlen(file->name) <= 4096, "a name has an end");
    seen->last = file->offset;
    seen->files++;
    return STATUS_OK;
}

static void decode_all(const ImageShards *shards, Diag *diag) {
    const ImageOptions options = {.color = IMAGE_RGB, .pixels = (int64_t)1 << 16};
    for (int64_t i = 0; i < shards->count && i < 64; i++) {
        Image image;
        fuzz_expect(shards->images[i].label >= 0, "every image has a label");
        if (image_shards_load(shards, i, &options, false, &image, diag) == STATUS_OK)
            image_free(&image);
        diag_clear(diag);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    FuzzPath file;
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Buf *archive = buf_wrap(data, size, NULL);
    Seen seen = {.bytes = size};
    fuzz_file(&file, ".tar", data, size);
    const Status visited = tar_visit(archive, file.path, see, &seen, diag);
    fuzz_told(visited, diag);
    diag_clear(diag);
    const char *path = file.path;
    StringList paths = {&path, 1}, classes = {0};
    ImageShards shards;
    const Status status = image_shards_open(&shards, arena, &paths, &classes, diag);
    fuzz_told(status, diag);
    fuzz_expect(visited == STATUS_OK || status != STATUS_OK,
                "a damaged archive is refused");
    if (status == STATUS_OK) {
        decode_all(&shards, diag);
        image_shards_close(&shards);
    }
    buf_release(archive);
    fuzz_remove(&file);
    diag_destroy(diag);
    arena_destroy(arena);
    return 0;
}
