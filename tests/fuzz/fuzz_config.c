/* config.json of a Hugging Face folder: the graph that is built from it verifies. */
#include "exec/ops.h"
#include "io/files/json.h"
#include "io/formats/hf.h"
#include "ir/verify.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Tree *config = NULL;
    Model *model = NULL;
    if (json_parse(&config, arena, "config.json", (const char *)data, size, diag) ==
            STATUS_OK &&
        hf_build(&model, config, ops_table(), diag) == STATUS_OK) {
        fuzz_expect(graph_verify(model->graph, STATUS_MODEL, diag) == STATUS_OK,
                    "what was built verifies");
        model_destroy(model);
    }
    diag_destroy(diag);
    arena_destroy(arena);
    return 0;
}
