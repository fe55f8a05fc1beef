/* Tables of the manual: see page.h. */
#include "tests/support/page.h"

#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>

#define END "<!-- end of table -->\n"

static char *page_read(const char *path) {
    Text text = {0};
    char block[4096];
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("cannot read %s", path);
    for (size_t n; (n = fread(block, 1, sizeof block, file)) > 0;)
        text_bytes(&text, block, n);
    fclose(file);
    return text.data;
}

void page_check_table(const char *page, const char *name, const Text *table) {
    Text mark = {0};
    text_add(&mark, "<!-- table: %s -->\n", name);
    char *text = page_read(page), *begin = strstr(text, mark.data);
    char *end = begin ? strstr(begin, END) : NULL;
    if (!end) fail_msg("%s: no place for the table %s", page, name);
    begin += mark.length;
    const size_t length = (size_t)(end - begin);
    if (getenv("COMPRESS_REWRITE")) {
        FILE *file = fopen(page, "wb");
        if (!file) fail_msg("cannot write %s", page);
        fprintf(file, "%.*s%s%s", (int)(begin - text), text, table->data, end);
        assert_int_equal(fclose(file), 0);
    } else if (length != table->length || memcmp(begin, table->data, length) != 0) {
        fprintf(stderr, "%s\n", table->data);
        fail_msg("%s has another table %s", page, name);
    }
    free(text);
    text_free(&mark);
}
