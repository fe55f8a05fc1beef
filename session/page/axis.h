/* Axis: the range of a chart's axis, its ticks at round numbers, and their labels. */
#ifndef COMPRESS_SESSION_PAGE_AXIS_H
#define COMPRESS_SESSION_PAGE_AXIS_H

#include <stdbool.h>

#define AXIS_TICKS  16
#define LABEL_BYTES 24

typedef struct Axis {
    double low, high; /* low < high; both finite; above 0 on a log axis */
    bool log;
    double tick[AXIS_TICKS]; /* ascending, within the range */
    char label[AXIS_TICKS][LABEL_BYTES];
    int ticks;
} Axis;

/* Wanted properties of an axis. */
typedef struct AxisWish {
    bool log;   /* logarithmic, if all values are above 0 */
    bool tight; /* ends at the smallest and the largest value, not at ticks */
    bool whole; /* values are whole numbers, and so are ticks */
    bool zero;  /* begins at 0, if all values are above it; not on a log axis */
    int ticks;  /* approximate number of ticks, 2 to 8 */
} AxisWish;

/* Makes the axis for values from `least` to `most`, which are finite. A single value
 * gets room on both sides. */
void axis_make(Axis *axis, double least, double most, AxisWish wish);

/* Place of a value: 0 at the axis's low end, 1 at the high one. */
double axis_place(const Axis *axis, double value);

/* A value in few characters: "0.25", "1.5k", "3e-5". */
void axis_label(char out[LABEL_BYTES], double value);

#endif
