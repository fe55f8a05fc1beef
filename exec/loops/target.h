/* Where products of a packed matrix go (gemv.c, integer.c, integer4.c). */
#ifndef COMPRESS_EXEC_LOOPS_TARGET_H
#define COMPRESS_EXEC_LOOPS_TARGET_H

#include <stdint.h>

/* What goes to y: columns first .. last - 1; times scales of columns, plus bias, if
 * there are any. */
typedef struct Target {
    int64_t first, last;
    const float *scale, *bias;
    float *y;
    int64_t ldy;
} Target;

#endif
