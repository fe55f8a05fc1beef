/* Rotary positions by stored tables: see lift_rotary.h.
 *
 * What each pair turns by is measured first: from row 1, then more exactly from rows 2,
 * 4, 8, ..., where the angle is known well enough to say how often it went round. A base
 * is found from what the pairs turn by, and believed when the tables hold its cosines and
 * sines. */
#include "io/onnx/lift/lift_rotary.h"

#include "io/onnx/lift/lift_rows.h"
#include "io/onnx/lift/lift_weights.h"
#include "ir/rotary_angles.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double TURN = 6.283185307179586477;

enum { PAIRS_MAX = 1024, DIGITS_MAX = 7, ROWS_CHECKED = 256 };

/* Two tables, and the rows that were read last. */
typedef struct Tables {
    const Net *net;
    const OnnxTensor *cosine, *sine;
    int64_t rows, pairs;
    double cosines[PAIRS_MAX], sines[PAIRS_MAX];
    double turns[PAIRS_MAX]; /* measured: from one position to the next */
    double rounding;         /* of the tables' numbers */
} Tables;

static bool open_tables(Tables *t, const Net *net, NetValue *cosine, NetValue *sine) {
    *t = (Tables){.net = net,
                  .cosine = value_behind(cosine)->stored,
                  .sine = value_behind(sine)->stored};
    if (!t->cosine || !t->sine || t->cosine->n_dims != 2 || t->sine->n_dims != 2 ||
        t->cosine->dims[0] != t->sine->dims[0] || t->cosine->dims[1] != t->sine->dims[1])
        return false;
    t->rows = t->cosine->dims[0];
    t->pairs = t->cosine->dims[1];
    t->rounding = t->cosine->data_type == ONNX_F16    ? 1e-3
                  : t->cosine->data_type == ONNX_BF16 ? 8e-3
                                                      : 2e-6;
    return t->rows > 1 && t->pairs > 0 && t->pairs <= PAIRS_MAX;
}

static void read_row(Tables *t, int64_t row) {
    array_read(t->cosines, t->net, t->cosine, row * t->pairs, t->pairs);
    array_read(t->sines, t->net, t->sine, row * t->pairs, t->pairs);
}

/* Fills `turns`. */
static void measure_turns(Tables *t) {
    for (int64_t row = 1; row < t->rows; row *= 2) {
        read_row(t, row);
        for (int64_t j = 0; j < t->pairs; j++) {
            const double angle = atan2(t->sines[j], t->cosines[j]);
            const double round = nearbyint(((double)row * t->turns[j] - angle) / TURN);
            t->turns[j] = (angle + TURN * round) / (double)row;
        }
    }
}

/* Whether the tables have the cosines and sines of some angles: in their first rows, and
 * in those far behind. */
static bool hold_angles(Tables *t, const RotaryAngles *angles) {
    double turns[PAIRS_MAX];
    rotary_angles(turns, t->pairs, angles);
    int64_t step = 1;
    for (int64_t row = 0; row < t->rows; row += step) {
        read_row(t, row);
        for (int64_t j = 0; j < t->pairs; j++) {
            const double angle = (double)row * turns[j];
            const double most = t->rounding + 1e-6 * angle;
            if (!(fabs(t->cosines[j] - cos(angle)) <= most &&
                  fabs(t->sines[j] - sin(angle)) <= most))
                return false;
        }
        if (row >= ROWS_CHECKED) step = row;
        if (row + step >= t->rows && row < t->rows - 1) step = t->rows - 1 - row;
    }
    return true;
}

/* A number with so many digits. */
static double with_digits(double x, int digits) {
    char text[32];
    snprintf(text, sizeof text, "%.*g", digits, x);
    return strtod(text, NULL);
}

/* Angles as they are, or all over a factor. */
static bool match_plain(Tables *t, RotaryAngles *angles) {
    const int64_t last = t->pairs - 1;
    const double factor = 1 / t->turns[0];
    double theta = 10000; /* of one pair: any */
    if (last > 0)
        theta = pow(t->turns[last] / t->turns[0], -(double)t->pairs / (double)last);
    if (!(theta > 1 && theta < 1e12 && factor > 0)) return false;
    for (int digits = 1; digits <= DIGITS_MAX; digits++) {
        const double stretched = with_digits(factor, digits);
        *angles =
            (RotaryAngles){.theta = with_digits(theta, digits), .factor = stretched};
        if (stretched != 1) angles->scaling = ROTARY_LINEAR;
        if (angles->theta > 1 && hold_angles(t, angles)) return true;
    }
    return false;
}

/* The line through the first and the last pair that are stretched in part: which share of
 * an angle stays is slope * angle + offset. Only two of `original`, `slow` and `fast` can
 * be told from it: `slow` is 1; and where one pair is stretched in part, `fast` is 4, as
 * published. */
static bool fit_llama3(const Tables *t, RotaryAngles *a) {
    double angle[2] = {0}, share[2] = {0};
    int count = 0;
    for (int64_t j = 0; j < t->pairs; j++) {
        const double plain = pow(a->theta, -(double)j / (double)t->pairs);
        const double kept = (t->turns[j] / plain - 1 / a->factor) / (1 - 1 / a->factor);
        if (kept < 0.005 || kept > 0.995) continue;
        angle[count > 0] = plain;
        share[count > 0] = kept;
        count++;
    }
    a->slow = 1;
    if (count == 1) {
        a->fast = 4;
        a->original = with_digits((1 + 3 * share[0]) * TURN / angle[0], 4);
    }
    if (count < 2) return count == 1;
    const double slope = (share[0] - share[1]) / (angle[0] - angle[1]);
    const double offset = share[0] - slope * angle[0];
    if (!(slope > 0 && offset < 0)) return false;
    a->fast = with_digits(1 - 1 / offset, 3);
    a->original = with_digits(slope * TURN * (a->fast - 1), 4);
    return true;
}

static bool match_llama3(Tables *t, RotaryAngles *angles) {
    const double pairs = (double)t->pairs;
    if (t->pairs < 4 || !(t->turns[1] > 0)) return false;
    const double theta = pow(t->turns[1], -pairs);
    for (int digits = 1; digits <= DIGITS_MAX; digits++) {
        *angles =
            (RotaryAngles){.theta = with_digits(theta, digits), .scaling = ROTARY_LLAMA3};
        const double slowest = pow(angles->theta, -(pairs - 1) / pairs);
        angles->factor = with_digits(slowest / t->turns[t->pairs - 1], 3);
        if (angles->theta > 1 && angles->factor > 1 && fit_llama3(t, angles) &&
            hold_angles(t, angles))
            return true;
    }
    return false;
}

static bool match_tables(Lift *lift, NetValue *cosine, NetValue *sine, int64_t *pairs,
                         RotaryAngles *angles) {
    Arena *scratch = arena_create();
    Tables *t = ARENA_NEW(scratch, Tables);
    bool good = open_tables(t, lift->net, cosine, sine);
    if (good) measure_turns(t);
    good = good && t->turns[0] > 0 && (match_plain(t, angles) || match_llama3(t, angles));
    *pairs = t->pairs;
    arena_destroy(scratch);
    return good;
}

Node *lift_turned(Lift *lift, const NetNode *node, Node *x, int64_t heads,
                  NetValue *cosine, NetValue *sine) {
    RotaryAngles a;
    int64_t pairs;
    const char *stretch = "";
    if (!x) return NULL;
    if (heads < 1 || x->type.rank != 3 || x->type.dim[2] % heads)
        return lift_stop(lift, node, "its heads do not make up its rows");
    if (!match_tables(lift, cosine, sine, &pairs, &a))
        return lift_stop(lift, node, "its tables are not angles that are known");
    if (a.scaling == ROTARY_LINEAR)
        stretch = arena_printf(lift->arena, " scaling=linear factor=%s",
                               short_decimal(lift, a.factor));
    if (a.scaling == ROTARY_LLAMA3)
        stretch = arena_printf(
            lift->arena, " scaling=llama3 factor=%s original=%s slow=%s fast=%s",
            short_decimal(lift, a.factor), short_decimal(lift, a.original),
            short_decimal(lift, a.slow), short_decimal(lift, a.fast));
    const int64_t width = x->type.dim[2] / heads;
    return lift_op(lift, node, "rotary", &x, 1, "heads=%lld theta=%s turned=%lld%s",
                   (long long)heads, short_decimal(lift, a.theta),
                   (long long)(2 * pairs == width ? 0 : 2 * pairs), stretch);
}
