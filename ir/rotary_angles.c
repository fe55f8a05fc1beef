/* Angles of rotary positions: see rotary_angles.h. */
#include "ir/rotary_angles.h"

#include <math.h>

static const double TURN = 6.283185307179586477;

static double clamp(double x, double low, double high) {
    return x < low ? low : x > high ? high : x;
}

/* Which share of an angle stays as it is; the other is that over the factor. */
static double llama3_share(const RotaryAngles *a, double angle) {
    const double turns = a->original * angle / TURN;
    if (turns < a->slow) return 0;
    if (turns > a->fast) return 1;
    return (turns - a->slow) / (a->fast - a->slow);
}

/* The pair, a fraction, that makes so many turns within the original length. */
static double pair_of_turns(const RotaryAngles *a, int64_t pairs, double turns) {
    return (double)pairs * log(a->original / (turns * TURN)) / log(a->theta);
}

static double yarn_share(const RotaryAngles *a, int64_t pairs, int64_t j) {
    double first = pair_of_turns(a, pairs, a->fast);
    double last = pair_of_turns(a, pairs, a->slow);
    if (a->whole) {
        first = floor(first);
        last = ceil(last);
    }
    first = fmax(first, 0);
    last = fmin(last, (double)(2 * pairs - 1));
    if (first == last) last += 0.001; /* as published, against a division by 0 */
    return 1 - clamp(((double)j - first) / (last - first), 0, 1);
}

void rotary_angles(double *turns, int64_t pairs, const RotaryAngles *a) {
    for (int64_t j = 0; j < pairs; j++) {
        const double angle = pow(a->theta, -(double)j / (double)pairs);
        double share = 1;
        if (a->scaling == ROTARY_LINEAR) share = 0;
        if (a->scaling == ROTARY_LLAMA3) share = llama3_share(a, angle);
        if (a->scaling == ROTARY_YARN) share = yarn_share(a, pairs, j);
        turns[j] = share == 1 ? angle : angle * share + angle / a->factor * (1 - share);
    }
}
