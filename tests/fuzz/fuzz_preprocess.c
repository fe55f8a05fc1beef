/* What stands beside a model: a preprocessor_config.json, which is written and read back,
 * and prepares an image where it asks for no large one; and the names of classes in a
 * config.json. */
#include "io/datasets/class_names.h"
#include "io/datasets/preprocess.h"
#include "io/files/json.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include <string.h>

enum { SIDE = 5, SIDE_MOST = 512 };

static void prepare(const Preprocess *preprocess, Diag *diag) {
    unsigned char pixels[SIDE * SIDE * 3];
    int64_t rows = SIDE, cols = SIDE;
    for (int i = 0; i < SIDE * SIDE * 3; i++) pixels[i] = (unsigned char)(i * 7);
    if (!preprocess_size(preprocess, &rows, &cols)) return;
    fuzz_expect(rows > 0 && cols > 0, "an image keeps its pixels");
    if (rows > SIDE_MOST || cols > SIDE_MOST) return;
    const Image image = {.rows = SIDE, .cols = SIDE, .channels = 3, .pixels = pixels};
    Image out = {0};
    if (preprocess_image(&out, &image, preprocess, "image", diag) != STATUS_OK) return;
    fuzz_expect(isfinite(preprocess_value(preprocess, 2, out.pixels[0])),
                "a value is a number");
    image_free(&out);
}

static void read_preprocess(const char *text, size_t length, Arena *arena) {
    Diag *diag = diag_create();
    Preprocess first, again;
    const Status status = preprocess_parse(&first, "input", text, length, arena, diag);
    fuzz_told(status, diag);
    if (status == STATUS_OK) {
        const char *written = preprocess_text(arena, &first, length % 2 ? 1 : 3);
        fuzz_expect(preprocess_parse(&again, "written", written, strlen(written), arena,
                                     diag) == STATUS_OK,
                    "what is written is read");
        prepare(&first, diag);
    }
    diag_destroy(diag);
}

static void read_names(const char *text, size_t length, Arena *arena) {
    Diag *diag = diag_create();
    Tree *config = NULL;
    StringList names;
    if (json_parse(&config, arena, "input", text, length, diag) == STATUS_OK) {
        const Status status = class_names_of(&names, config, "input", arena, diag);
        fuzz_told(status, diag);
        class_names_given(config);
        for (int i = 0; status == STATUS_OK && i < names.count; i++)
            fuzz_expect(class_names_find(&names, names.items[i]) <= i &&
                            class_names_find(&names, names.items[i]) >= 0,
                        "a name is found");
    }
    diag_destroy(diag);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Arena *arena = arena_create();
    read_preprocess((const char *)data, size, arena);
    read_names((const char *)data, size, arena);
    arena_destroy(arena);
    return 0;
}
