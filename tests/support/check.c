/* What was said, as text: see check.h. */
#include "tests/support/check.h"

#include <stdio.h>

char *diag_text(const Diag *diag) {
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    diag_print(diag, out);
    fclose(out);
    return text;
}
