/* Processor: which of the compiled kernels suit the one that the program runs on.
 *
 * On x86-64 the kernels in float (exec/ops/, exec/generate/steps/, exec/loops/) are
 * compiled for the levels v2, v3 and v4 of the x86-64 ABI: SSE 4.2; AVX2 and FMA;
 * AVX-512. All else is compiled for v2. Elsewhere, and with COMPRESS_NATIVE, there is one
 * set. Results differ in the last bits between levels, not between processors of a level.
 */
#ifndef COMPRESS_EXEC_PROCESSOR_H
#define COMPRESS_EXEC_PROCESSOR_H

#include "ir/arena.h"
#include "ir/status.h"

/* Names of levels as in --processor; auto is the best that the processor has. */
#define PROCESSOR_NAMES "auto|v2|v3|v4"
typedef enum Processor {
    PROCESSOR_AUTO,
    PROCESSOR_V2,
    PROCESSOR_V3,
    PROCESSOR_V4,
    PROCESSOR_COUNT
} Processor;

/* The level whose kernels are used: the best that this processor has, or the one that the
 * environment variable COMPRESS_PROCESSOR names, if it has that. PROCESSOR_AUTO where
 * there is one set of kernels. Chosen once, before main. */
Processor processor_level(void);

/* Whether the level was named, and not chosen for the processor that it is: then only
 * what the level has is used, and instructions beyond it are not. */
bool processor_fixed(void);

/* Whether tiles of the processor's (AMX: exec/linalg/tiles.h) multiply bytes and
 * bfloat16: it has them, and the system lets the program use them. No level has them.
 * Asked when it is first wanted, since it binds the whole process: stacks for signals
 * (sigaltstack) must then hold the tiles, 12 KiB. */
bool processor_tiles(void);

/* Whether this processor can run the kernels of a level, and the program has them. */
bool processor_has(Processor level);

/* Name of a level; "native" for PROCESSOR_AUTO. */
const char *processor_name(Processor level);

/* Ends the program with one message where the processor is below what all of it is
 * compiled for. Call first in main. */
void processor_require(void);

/* Fixes the level (unless PROCESSOR_AUTO, when COMPRESS_PROCESSOR may name one) for the
 * whole program: our kernels, and those of the linear-algebra library and of libm, which
 * look at the environment before main; so the program is started anew with the same
 * arguments, once, and this returns STATUS_OK in the new one. Then results are the same
 * bytes on every processor that has the level. Fails with STATUS_USAGE where that is not
 * possible. Call before anything is computed, with standard input where it was when the
 * program was started. */
Status processor_fix(Processor level, Diag *diag);

/* The same for who cannot start the program anew: whether it was started with what fixes
 * a level other than PROCESSOR_AUTO, and the variables of the environment that do, as the
 * shell writes them ("A=b C=d"). */
bool processor_is_fixed_to(Processor level);
const char *processor_environment(Arena *arena, Processor level);

#endif
