/* Kept steps: an entry as its file has it. What is accepted can be put away again, its
 * warnings told, and its parts compared. */
#include "io/files/json.h"
#include "passes/pipeline/step_entry.h"
#include "session/reuse/step_key.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Tree *file = NULL;
    StepEntry entry;
    if (json_parse(&file, arena, "entry.json", (const char *)data, size, diag) ==
        STATUS_OK) {
        Text text = {0};
        Tree *wanted = tree_new(arena, TREE_MAP, LOC_NONE);
        tree_put_list(arena, wanted, "uses");
        tree_put_map(arena, wanted, "options");
        tree_put_int(arena, tree_put_map(arena, wanted, "pass"), "keep", 1);
        step_parts_differ(&text, 0, tree_get(file, "parts"), wanted);
        text_free(&text);
        if (step_entry_read(&entry, tree_get(file, "entry"), diag) == STATUS_OK) {
            StepEntry again;
            const StepSource source = {.at = {"r.yaml", 1, 1}, .key = "passes[0]"};
            step_entry_warn(entry.warnings, &source, diag);
            fuzz_expect(step_entry_read(&again, step_entry_tree(arena, &entry), diag) ==
                            STATUS_OK,
                        "an entry that was read can be read again");
        }
    }
    diag_destroy(diag);
    arena_destroy(arena);
    return 0;
}
