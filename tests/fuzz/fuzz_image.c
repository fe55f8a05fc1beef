/* PNG and JPEG: sizes from the header alone are those of the decoded picture. */
#include "io/datasets/image.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    FuzzPath file;
    Diag *diag = diag_create();
    const ImageOptions options = {.color = IMAGE_ANY, .pixels = (int64_t)1 << 20};
    Image image = {0}, measured = {0};
    fuzz_file(&file, ".png", data, size);
    const Status status = image_measure(&measured, file.path, &options, diag);
    if (image_read(&image, file.path, &options, diag) == STATUS_OK) {
        fuzz_expect(status == STATUS_OK && image.rows == measured.rows &&
                        image.cols == measured.cols,
                    "the header's size is the picture's");
        if (image_convert(&image, IMAGE_GRAY, diag) == STATUS_OK) image_free(&image);
    }
    fuzz_remove(&file);
    diag_destroy(diag);
    return 0;
}
