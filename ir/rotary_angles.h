/* Angles of rotary positions, and ways to stretch them over texts longer than those on
 * which a model was trained. */
#ifndef COMPRESS_IR_ROTARY_ANGLES_H
#define COMPRESS_IR_ROTARY_ANGLES_H

#include <stdbool.h>
#include <stdint.h>

/* How angles are stretched by a factor s. With r = original / wavelength, the turns that
 * a pair makes within the original length:
 *
 * linear: every angle over s (Chen et al., 2023).
 * llama3: over s where r < slow, as it is where r > fast, and between those mixed by
 *   (r - slow) / (fast - slow) (Llama 3.1, 2024).
 * yarn: over s from the pair on whose r is `slow`, as it is up to the one whose r is
 *   `fast`, between those mixed by the number of the pair (Peng et al., 2023). */
#define ROTARY_SCALING_NAMES "none|linear|llama3|yarn"
typedef enum RotaryScaling {
    ROTARY_PLAIN,
    ROTARY_LINEAR,
    ROTARY_LLAMA3,
    ROTARY_YARN
} RotaryScaling;

typedef struct RotaryAngles {
    double theta; /* base */
    RotaryScaling scaling;
    double factor;     /* s, above 0 */
    double original;   /* tokens of the texts that the model was trained on */
    double slow, fast; /* turns within them */
    bool whole; /* yarn: the bounds between pairs are rounded outwards to whole pairs */
} RotaryAngles;

/* The angle by which a pair of numbers turns from one token to the next, [pairs]:
 * theta^(-j / pairs), stretched. */
void rotary_angles(double *turns, int64_t pairs, const RotaryAngles *angles);

#endif
