/* docs/ops.md against the table of ops: under the heading of every op stands what
 * `compress ops NAME` prints. COMPRESS_REWRITE=1 writes it, and appends the sections that
 * are missing; only the text between them is written by hand. */
#include "exec/ops.h"
#include "io/files/file.h"
#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>

#define PAGE  "docs/ops.md"
#define BEGIN "```text\n"
#define END   "```\n"
enum { PAGE_BYTES = 1 << 20 };

/* What the program prints about an op. */
static const char *manual_of(Arena *arena, const char *name) {
    Text text = {0};
    char chunk[4096];
    FILE *pipe =
        popen(arena_printf(arena, "'%s' ops %s", getenv("COMPRESS_BIN"), name), "r");
    assert_non_null(pipe);
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, pipe)) > 0;)
        text_bytes(&text, chunk, n);
    assert_int_equal(pclose(pipe), 0);
    const char *copy = arena_strdup(arena, text.data);
    text_free(&text);
    return copy;
}

/* The page with the block of one op as it should be. A section that is missing comes
 * behind that of the op before it in the table. */
static char *page_with(Arena *arena, const char *page, const Op *op, const Op *before) {
    const char *heading = arena_printf(arena, "### `%s`\n", op->name);
    const char *block = arena_printf(arena, BEGIN "%s" END, manual_of(arena, op->name));
    const char *at = strstr(page, heading);
    if (!at) {
        at = strstr(page, arena_printf(arena, "### `%s`\n", before ? before->name : ""));
        at = at ? strstr(at + 1, "\n##") : NULL;
        if (!at) at = page + strlen(page);
        return arena_printf(arena, "%.*s\n%s%s%s", (int)(at - page), page, heading, block,
                            at);
    }
    at += strlen(heading);
    const char *rest = at;
    if (strncmp(rest, BEGIN, strlen(BEGIN)) == 0)
        rest = strstr(rest + strlen(BEGIN), END) + strlen(END);
    return arena_printf(arena, "%.*s%s%s", (int)(at - page), page, block, rest);
}

static void test_page(void **state) {
    (void)state;
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    char *page = NULL;
    size_t length = 0;
    assert_ok(file_read(&page, &length, arena, PAGE, PAGE_BYTES, diag), diag);
    const char *made = page;
    for (int i = 0; i < ops_table()->count; i++) {
        const char *next = page_with(arena, made, ops_table()->ops[i],
                                     i ? ops_table()->ops[i - 1] : NULL);
        if (strcmp(next, made) != 0 && !getenv("COMPRESS_REWRITE"))
            print_error(PAGE ": the section of op %s is not what the table says\n",
                        ops_table()->ops[i]->name);
        made = next;
    }
    if (getenv("COMPRESS_REWRITE")) {
        FILE *file = fopen(PAGE, "wb");
        assert_non_null(file);
        fputs(made, file);
        assert_int_equal(fclose(file), 0);
    } else {
        assert_string_equal(made, page);
    }
    diag_destroy(diag);
    arena_destroy(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_page)};
    return cmocka_run_group_tests_name("ops page", tests, NULL, NULL);
}
