/* IR text: what was accepted verifies, and prints so that it parses back as the same. */
#include "exec/ops.h"
#include "ir/irtext.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Graph *graph = NULL, *again = NULL;
    if (graph_parse(&graph, arena, ops_table(), "input", (const char *)data, size,
                    diag) == STATUS_OK) {
        Text one = {0}, two = {0};
        graph_print(&one, graph);
        fuzz_expect(graph_parse(&again, arena, ops_table(), "printed", one.data,
                                one.length, diag) == STATUS_OK,
                    "what was printed parses");
        graph_print(&two, again);
        fuzz_expect(strcmp(one.data, two.data) == 0, "it prints the same again");
        text_free(&one);
        graph_print_named(&one, graph, false);
        fuzz_expect(graph_parse(&again, arena, ops_table(), "named", one.data, one.length,
                                diag) == STATUS_OK,
                    "what was printed with names parses");
        text_free(&one);
        graph_print(&one, again);
        fuzz_expect(strcmp(one.data, two.data) == 0, "it is the same graph");
        text_free(&one);
        text_free(&two);
    }
    diag_destroy(diag);
    arena_destroy(arena);
    return 0;
}
