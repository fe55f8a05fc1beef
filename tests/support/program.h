/* Programs that tests start. */
#ifndef COMPRESS_TESTS_SUPPORT_PROGRAM_H
#define COMPRESS_TESTS_SUPPORT_PROGRAM_H

#include <stddef.h>

/* Runs a program to its end, which must be a good one; what it prints goes to the file
 * `output`, NULL = nowhere. `words` end with NULL. Returns its largest resident memory in
 * bytes: that of the caller counts where it is larger, so a test that measures keeps
 * little itself. */
size_t program_run(const char *const *words, const char *output);

#endif
