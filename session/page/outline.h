/* Outline: a model's layers as small rows of boxes: a box for each attention head, a bar
 * for the feed-forward units. Layers that share weights with one above are hollow and
 * joined to it; removed layers leave an empty track. */
#ifndef COMPRESS_SESSION_PAGE_OUTLINE_H
#define COMPRESS_SESSION_PAGE_OUTLINE_H

#include "ir/tree.h"

#define OUTLINE_WIDTH 160 /* of the view box */

typedef struct OutlineLayer {
    int original; /* number in the model from which layers were first removed */
    int shares;   /* index of the first layer that it shares a matrix with; -1 = none */
    double heads, cross_heads,
        units; /* units: of the feed-forward block, or of a recurrence */
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

/* Room needed by outlines that are compared: the largest of each number. */
typedef struct OutlineScale {
    double heads, cross_heads, units;
    int rows[16], stacks; /* rows by stack */
} OutlineScale;

/* Reads the output of structure_tree (session/structure.h), or anything else. Returns
 * whether it has layers. */
bool outline_read(Outline *out, Arena *arena, const Tree *structure);

/* Whether two outlines would be drawn alike. */
bool outline_equal(const Outline *a, const Outline *b);

/* Widens a scale, zero at first, so that the outline fits. */
void outline_widen(OutlineScale *scale, const Outline *outline);

/* Height of outlines of a scale. */
double outline_height(const OutlineScale *scale);

/* Appends an outline with its upper left corner at (x, 0). */
void outline_draw(Text *text, const Outline *outline, const OutlineScale *scale,
                  double x);

/* Appends what it shows in words: "encoder: 12 layers, 48 heads, 1,536 units". */
void outline_describe(Text *text, const Outline *outline);

#endif
