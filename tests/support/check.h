/* cmocka with what it needs, checks of a Status, and what was said. */
#ifndef COMPRESS_TESTS_SUPPORT_CHECK_H
#define COMPRESS_TESTS_SUPPORT_CHECK_H

#include "ir/status.h"

/* cmocka.h needs the four headers before it. */
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

/* Fails the test, with the diagnostics printed, unless `status` is STATUS_OK. */
#define assert_ok(status, diag)                                                          \
    do {                                                                                 \
        if ((status) != STATUS_OK) {                                                     \
            diag_print(diag, stderr);                                                    \
            fail_msg("%s failed", #status);                                              \
        }                                                                                \
    } while (0)

/* Everything recorded, as printed; the caller frees it. */
char *diag_text(const Diag *diag);

#endif
