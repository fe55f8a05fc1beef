/* Files of sentence-transformers: the input is modules.json, or with a first byte of `p`
 * the configuration of its pooling (which JSON never begins with). */
#include "io/files/file.h"
#include "io/formats/sentence_files.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char MODULES[] =
    "[{\"type\": \"a.Transformer\", \"path\": \"\"}, {\"type\": \"a.Pooling\", \"path\": "
    "\"1_Pooling\"}]";
static const char POOLING[] = "{\"pooling_mode_mean_tokens\": true}";

/* The folder, made once and removed at the end of the program. */
static char folder[64];
enum { PATH_BYTES = 128 };

static void put(const char *name, const void *data, size_t size) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    fuzz_put(path, data, size);
}

static void remove_folder(void) {
    static const char *const NAMES[] = {"modules.json", "1_Pooling/config.json",
                                        "1_Pooling", ""};
    char path[PATH_BYTES];
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, NAMES[i]);
        remove(path);
    }
}

static void make_folder(void) {
    char inner[PATH_BYTES];
    if (folder[0]) return;
    snprintf(folder, sizeof folder, "%s/compress-fuzz-%ld-sentence", fuzz_folder(),
             (long)getpid());
    snprintf(inner, sizeof inner, "%s/1_Pooling", folder);
    fuzz_expect(mkdir(folder, 0700) == 0 && mkdir(inner, 0700) == 0, "folders");
    atexit(remove_folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const bool pooling = size > 0 && data[0] == 'p';
    make_folder();
    if (pooling) {
        put("modules.json", MODULES, strlen(MODULES));
        put("1_Pooling/config.json", data + 1, size - 1);
    } else {
        put("modules.json", data, size);
        put("1_Pooling/config.json", POOLING, strlen(POOLING));
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
    return 0;
}
