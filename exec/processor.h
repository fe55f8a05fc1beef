/* Processor: which of the compiled kernels suit the one the program runs on.
 *
 * On x86-64 the kernels in float (exec/ops/, exec/generate/steps/, exec/loops/) are
 * compiled for the levels v2, v3 and v4 of the x86-64 ABI: SSE 4.2; AVX2 and FMA;
 * AVX-512. Everything else is compiled for v2. Elsewhere, and with COMPRESS_NATIVE,
 * there is one set. Results differ in the last bits between levels, not between
 * processors of a level.
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

/* The level whose kernels are used: the best that this processor has, or the one that
 * the environment variable COMPRESS_PROCESSOR names, if the processor has it.
 * PROCESSOR_AUTO if there is only one set of kernels. Chosen once, before main. */
Processor processor_level(void);

/* Whether the level was named rather than chosen for the processor: then only the
 * level's instructions are used. */
bool processor_fixed(void);

/* Whether the processor's tiles (AMX: exec/linalg/tiles.h) multiply bytes and bfloat16:
 * it has them, and the system lets the program use them. No level has them. Requested
 * from the system on first use, since that binds the whole process: signal stacks
 * (sigaltstack) must then hold the tiles, 12 KiB. */
bool processor_tiles(void);

/* Whether this processor can run the kernels of a level, and the program has them. */
bool processor_has(Processor level);

/* Name of a level; "native" for PROCESSOR_AUTO. */
const char *processor_name(Processor level);

/* Ends the program with one message if the processor is below what the whole program is
 * compiled for. Call first in main. */
void processor_require(void);

/* Fixes the level (for PROCESSOR_AUTO, COMPRESS_PROCESSOR may name one) for the whole
 * program: our kernels, and those of the linear-algebra library and of libm, which read
 * the environment before main; so the program is restarted once with the same arguments,
 * and this returns STATUS_OK in the new one. Results then have the same bytes on every
 * processor that has the level. Fails with STATUS_USAGE if that is not possible. Call
 * before anything is computed, with standard input at the position it had when the
 * program was started. */
Status processor_fix(Processor level, Diag *diag);

/* The same for callers that cannot restart the program: whether it was started with what
 * fixes a level other than PROCESSOR_AUTO, and the environment variables that do so, as
 * the shell writes them ("A=b C=d"). */
bool processor_is_fixed_to(Processor level);
const char *processor_environment(Arena *arena, Processor level);

#endif
