/* Tables of all that goes with all, under sanitizers: every fifth cell of each row and
 * column is tried, for what it does to memory; what the whole table says is compared
 * without them. */
#ifndef COMPRESS_TESTS_SUPPORT_THINNED_H
#define COMPRESS_TESTS_SUPPORT_THINNED_H

#include "ir/sanitized.h"

#include <stdbool.h>

enum { THINNED_TO = SANITIZED ? 5 : 1 };

/* So far apart are the rounds of drawn problems that a slow formula is the measure of. */
enum { ROUND_STEP = SANITIZED ? 3 : 1 };

/* Whether a cell is left out. */
static inline bool thinned_out(int row, int column) {
    return (row + column) % THINNED_TO != 0;
}

#endif
