/* What a plan foretells: see foretold.h. */
#include "tests/support/foretold.h"

#include "io/files/json.h"
#include "ir/sanitized.h"
#include "tests/support/check.h"
#include "tests/support/program.h"

#include <stdlib.h>

#define MB ((size_t)1000000)

void check_foretold(const char *recipe, const char *scratch, size_t peak) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Tree *plan;
    double bytes = 0;
    program_run((const char *[]){getenv("COMPRESS_BIN"), "plan", "--recipe", recipe,
                                 "--threads", "2", "--json", NULL},
                scratch);
    assert_ok(json_read(&plan, arena, scratch, 1 << 24, diag), diag);
    assert_true(tree_number(tree_get(plan, "memory_bytes"), &bytes));
    const size_t foretold = (size_t)bytes;
    print_message("%s: foretold %zu MB, took %zu MB\n", recipe, foretold / MB, peak / MB);
    if (SANITIZED) print_message("AddressSanitizer: memory is not compared\n");
    if (!SANITIZED && (foretold < peak || foretold > peak + peak / 2 + 100 * MB))
        fail_msg("%s: %zu MB were foretold, and the run took %zu MB", recipe,
                 foretold / MB, peak / MB);
    diag_destroy(diag);
    arena_destroy(arena);
}
