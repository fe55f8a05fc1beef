/* Rope: what configurations say about rotary positions. Private to the families.
 *
 * transformers 4 has the keys rope_theta, rope_scaling and partial_rotary_factor; from
 * version 5 on they are in one map, rope_parameters. */
#ifndef COMPRESS_IO_FAMILIES_ROPE_H
#define COMPRESS_IO_FAMILIES_ROPE_H

#include "io/families/build.h"
#include "ir/rotary_angles.h"

/* What a family supports of it. */
typedef struct RopeKind {
    bool scales;  /* kinds linear, llama3 and yarn besides the default one */
    bool partial; /* partial_rotary_factor may be below 1 */
} RopeKind;

typedef struct Rope {
    RotaryAngles angles;
    double amplitude; /* factor applied to the turned numbers */
    int64_t turned;   /* numbers of a head; 0 = all */
} Rope;

/* Reads the keys, for heads of `width` numbers in a model made for `positions` tokens.
 * Refuses other kinds, naming them. */
Rope rope_read(Builder *b, RopeKind kind, int64_t width, int64_t positions);

/* Rotates `heads` heads by it. */
Node *rope_turn(Builder *b, const Rope *rope, Role role, Node *x, int64_t heads);

#endif
