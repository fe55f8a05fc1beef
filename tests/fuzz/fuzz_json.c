/* JSON: what was accepted prints so that it reads back as the same. */
#include "io/files/json.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Tree *tree = NULL, *again = NULL;
    if (json_parse(&tree, arena, "input", (const char *)data, size, diag) == STATUS_OK) {
        Text one = {0}, two = {0};
        tree_print_json(&one, tree, 2);
        fuzz_expect(json_parse(&again, arena, "printed", one.data, one.length, diag) ==
                        STATUS_OK,
                    "what was printed parses");
        tree_print_json(&two, again, 2);
        fuzz_expect(strcmp(one.data, two.data) == 0, "it prints the same again");
        text_free(&one);
        text_free(&two);
    }
    diag_destroy(diag);
    arena_destroy(arena);
    return 0;
}
