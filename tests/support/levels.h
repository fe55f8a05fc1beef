/* Levels: tests of loops that are compiled once for every level of processor. */
#ifndef COMPRESS_TESTS_SUPPORT_LEVELS_H
#define COMPRESS_TESTS_SUPPORT_LEVELS_H

#include "exec/loops/loops.h"

/* Calls `check` with the loops that are used here and with those of every level that this
 * processor has. */
static inline void for_levels(void (*check)(const Loops *loops)) {
    check(loops_here());
    for (Processor level = PROCESSOR_V2; level < PROCESSOR_COUNT; level++)
        if (processor_has(level)) check(loops_at(level));
}

#endif
