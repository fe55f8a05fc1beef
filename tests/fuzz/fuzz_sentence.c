/* Files of sentence-transformers: the input is modules.json, or with a first byte of `p`
 * the configuration of its pooling (which JSON never begins with). */
#include "io/files/file.h"
#include "io/formats/sentence_files.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char MODULES[] =
    "[{\"type\": \"a.Transformer\", \"path\": \"\"}, {\"type\": \"a.Pooling\", \"path\": "
    "\"1_Pooling\"}]";
static const char POOLING[] = "{\"pooling_mode_mean_tokens\": true}";

static void put(const char *folder, const char *name, const void *data, size_t size) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    fuzz_expect(file && fwrite(data, 1, size, file) == size && fclose(file) == 0,
                "a file to be written");
}

static void empty(const char *folder) {
    static const char *const NAMES[] = {"modules.json", "1_Pooling/config.json",
                                        "1_Pooling", ""};
    char path[128];
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, NAMES[i]);
        remove(path);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char folder[64] = "/tmp/fuzz-sentence-XXXXXX", inner[96];
    const bool pooling = size > 0 && data[0] == 'p';
    fuzz_expect(mkdtemp(folder) != NULL, "a folder");
    snprintf(inner, sizeof inner, "%s/1_Pooling", folder);
    fuzz_expect(mkdir(inner, 0700) == 0, "a folder in it");
    if (pooling) {
        put(folder, "modules.json", MODULES, strlen(MODULES));
        put(inner, "config.json", data + 1, size - 1);
    } else {
        put(folder, "modules.json", data, size);
        put(inner, "config.json", POOLING, strlen(POOLING));
    }
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Tree *config = tree_new(arena, TREE_MAP, LOC_NONE);
    const Status status = sentence_files_read(config, folder, arena, diag);
    const Tree *found = tree_get(config, "pooling");
    fuzz_expect(status != STATUS_OK || !found || found->kind == TREE_STRING,
                "a way to pool");
    fuzz_expect(status == STATUS_OK || !found, "no way to pool where it is refused");
    diag_destroy(diag);
    arena_destroy(arena);
    empty(folder);
    return 0;
}
