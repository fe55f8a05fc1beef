/* Palette: the colours, lines and letters of pages and pictures, light and dark.
 *
 * The six colours are distinguishable for colour-blind readers (after Okabe and Ito),
 * with a contrast of at least 3 to 1 on either background. */
#ifndef COMPRESS_SESSION_PAGE_PALETTE_H
#define COMPRESS_SESSION_PAGE_PALETTE_H

#include "ir/text.h"

#define PALETTE_COLORS 6
#define HEAT_SHADES    9

/* Class of a line's dashes: "d0" to "d5". */
const char *palette_dash(int color);

/* Declarations of the colours, as custom properties. */
extern const char palette_light[], palette_dark[];

/* Rules of the classes that pictures use. */
extern const char palette_rules[];

#endif
