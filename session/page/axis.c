/* Ranges, ticks and labels of axes: see axis.h. */
#include "session/page/axis.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define LOG_LINEAR                                                                       \
    1.2 /* decades below which ticks of a log axis are as of a linear one */

/* A value with an exponent and `decimals` digits behind the point, without needless
 * zeros: "1.5e-4". */
static void label_power(char out[LABEL_BYTES], double value, int decimals) {
    snprintf(out, LABEL_BYTES, "%.*e", decimals, value);
    char *e = strchr(out, 'e'), *to = e;
    if (!e) return;
    if (strchr(out, '.'))
        while (to[-1] == '0') to--;
    if (to[-1] == '.') to--;
    const char *from = e + 1;
    *to++ = 'e';
    if (*from == '-') *to++ = '-';
    from += *from == '-' || *from == '+';
    while (*from == '0' && from[1]) from++;
    memmove(to, from, strlen(from) + 1);
}

/* Digits behind the point that tell steps apart in values of a size. */
static int power_decimals(double size, double step) {
    const double digits = ceil(log10(size / step) - 1e-9);
    return digits < 0 ? 0 : digits > 12 ? 12 : (int)digits;
}

/* A value of an axis whose values differ by multiples of `step`, in thousands, millions,
 * ... as `largest` is. */
static void label_tick(char out[LABEL_BYTES], double value, double step, double largest) {
    static const char *const units[] = {"", "k", "M", "G", "T"};
    int unit = 0;
    double scale = 1;
    while (unit < 4 && largest >= 9999.5 && largest >= scale * 1000) {
        scale *= 1000;
        unit++;
    }
    const double least = step / scale;
    if (fabs(value) < step * 1e-6) value = 0; /* and not -0 */
    if (value != 0 && (largest < 1e-3 || largest >= 1e16)) {
        label_power(out, value, power_decimals(largest, step));
        return;
    }
    int decimals = (int)ceil(-log10(least) - 1e-9);
    if (decimals < 0) decimals = 0;
    if (decimals > 12 || value == 0) decimals = value == 0 ? 0 : 12;
    snprintf(out, LABEL_BYTES, "%.*f%s", decimals, value / scale,
             value == 0 ? "" : units[unit]);
}

void axis_label(char out[LABEL_BYTES], double value) {
    static const char *const units[] = {"", "k", "M", "G", "T"};
    const double size = fabs(value);
    int unit = 0;
    double shown = value;
    if (size > 0 && (size < 1e-3 || size >= 1e15)) {
        label_power(out, value, 2);
        return;
    }
    while (unit < 4 && fabs(shown) >= 9999.5) {
        shown /= 1000;
        unit++;
    }
    const int digits = fabs(shown) >= 999.5 ? 4 : 3;
    snprintf(out, LABEL_BYTES, "%.*g%s", digits, shown, units[unit]);
}

/* The round number, 1, 2 or 5 times a power of ten, that cuts a range into about `wanted`
 * parts. */
static double round_step(double range, int wanted) {
    const double rough = range / (double)wanted;
    const double power = pow(10, floor(log10(rough)));
    const double share = rough / power;
    return power * (share < 1.41 ? 1 : share < 3.16 ? 2 : share < 7.07 ? 5 : 10);
}

/* Ticks at the multiples of a step within the range. */
static void add_ticks(Axis *axis, double step) {
    const double largest = fmax(fabs(axis->low), fabs(axis->high));
    const double from = ceil(axis->low / step - 1e-9);
    for (int i = 0; axis->ticks < AXIS_TICKS; i++) {
        const double value = (from + i) * step;
        if (!(value <= axis->high + step * 1e-9)) break;
        axis->tick[axis->ticks] = value;
        label_tick(axis->label[axis->ticks++], value, step, largest);
    }
}

static void make_linear(Axis *axis, AxisWish wish) {
    double step = round_step(axis->high - axis->low, wish.ticks);
    if (wish.whole && step < 1) step = 1;
    if (!wish.tight) {
        axis->low = floor(axis->low / step + 1e-9) * step;
        axis->high = ceil(axis->high / step - 1e-9) * step;
    }
    add_ticks(axis, step);
}

/* Ticks at powers of ten, every one or every few of them. */
static void make_log(Axis *axis, AxisWish wish) {
    const double span = log10(axis->high) - log10(axis->low);
    const double room = wish.tight ? 0 : 0.04 * span;
    axis->low = fmax(axis->low / pow(10, room), DBL_TRUE_MIN);
    axis->high = fmin(axis->high * pow(10, room), DBL_MAX);
    const double first = log10(axis->low), last = log10(axis->high);
    if (last - first < LOG_LINEAR) {
        add_ticks(axis, round_step(axis->high - axis->low, wish.ticks));
        return;
    }
    const int stride = (int)ceil((last - first) / (double)wish.ticks);
    for (double d = ceil(first - 1e-9); d <= last + 1e-9; d += stride) {
        if (axis->ticks == AXIS_TICKS) break;
        axis->tick[axis->ticks] = pow(10, d);
        axis_label(axis->label[axis->ticks], axis->tick[axis->ticks]);
        axis->ticks++;
    }
}

void axis_make(Axis *axis, double least, double most, AxisWish wish) {
    *axis = (Axis){.low = least, .high = most, .log = wish.log && least > 0};
    if (wish.zero && least > 0 && !axis->log) axis->low = 0;
    const double size = fmax(fabs(axis->low), fabs(axis->high));
    if (axis->high - axis->low <= size * 1e-9) { /* one value: room around it */
        const double room = wish.whole && size < 1e6 ? 1 : size > 0 ? size * 0.1 : 1;
        axis->low = axis->log ? least / 2 : least - room;
        axis->high = axis->log ? most * 2 : most + room;
    }
    if (axis->log)
        make_log(axis, wish);
    else
        make_linear(axis, wish);
}

double axis_place(const Axis *axis, double value) {
    if (axis->log)
        return (log(value) - log(axis->low)) / (log(axis->high) - log(axis->low));
    return (value - axis->low) / (axis->high - axis->low);
}
