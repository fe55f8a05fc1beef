/* Recipes: YAML, and the binding of all passes and data sets. Of what a recipe names only
 * the recipes that it extends are opened. */
#include "session/session.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    FuzzPath file;
    Diag *diag = diag_create();
    Session session;
    fuzz_file(&file, ".yaml", data, size);
    const SessionOptions options = {.recipe = file.path};
    session_open(&session, &options, diag);
    session_close(&session);
    fuzz_remove(&file);
    diag_destroy(diag);
    return 0;
}
