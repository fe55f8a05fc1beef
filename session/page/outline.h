/* Outline: a model's layers as rows of boxes, small: a box for each attention head, a bar
 * for the feed-forward units. Layers that share weights with one above are hollow and
 * joined to it; of layers that were taken out the empty track is left. */
#ifndef COMPRESS_SESSION_PAGE_OUTLINE_H
#define COMPRESS_SESSION_PAGE_OUTLINE_H

#include "ir/tree.h"

#define OUTLINE_WIDTH 160 /* of the view box */

typedef struct OutlineLayer {
    int original; /* number in the model that layers were first taken from */
    int shares;   /* index of the first layer that it shares a matrix with; -1 = none */
    double heads, cross_heads, units; /* units: feed-forward, or of a recurrence */
    bool exit;
} OutlineLayer;

typedef struct OutlineStack {
    const char *name;
    OutlineLayer *layers;
    int count;
} OutlineStack;

typedef struct Outline {
    OutlineStack *stacks;
    int count;
} Outline;

/* Room that outlines which are compared need: the largest of each number. */
typedef struct OutlineScale {
    double heads, cross_heads, units;
    int rows[16], stacks; /* rows by stack */
} OutlineScale;

/* Reads what structure_tree (session/structure.h) wrote, or anything else. Returns
 * whether it has layers. */
bool outline_read(Outline *out, Arena *arena, const Tree *structure);

/* Whether two outlines would be drawn alike. */
bool outline_equal(const Outline *a, const Outline *b);

/* Widens a scale, zero at first, so that the outline fits. */
void outline_widen(OutlineScale *scale, const Outline *outline);

/* Height that outlines of a scale take. */
double outline_height(const OutlineScale *scale);

/* Appends an outline with its left upper corner at (x, 0). */
void outline_draw(Text *text, const Outline *outline, const OutlineScale *scale,
                  double x);

/* Appends what it shows in words: "encoder: 12 layers, 48 heads, 1,536 units". */
void outline_describe(Text *text, const Outline *outline);

#endif
