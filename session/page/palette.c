/* Colours and classes: see palette.h.
 *
 * Classes: t text, m muted, e ends at its place, c centred, b bold; g grid, a axis;
 * l line, s0-s5 its colour, d0-d5 its dashes, dt dotted, th thin; p mark, f0-f5 its
 * colour; h0-h8 shades of heat; k track, o hollow, n bracket. */
#include "session/page/palette.h"

const char palette_light[] =
    "--paper:#fff;--ink:#1b2130;--muted:#5b6474;--grid:#e7eaf0;--axis:#98a1b0;"
    "--track:#eceff4;--c0:#0a6ebd;--c1:#cf5208;--c2:#0a8a64;--c3:#b0539a;--c4:#a97900;"
    "--c5:#2f8fd0;--heat:#0b5fa5";

const char palette_dark[] =
    "--paper:#14171d;--ink:#e7eaf0;--muted:#9ba5b5;--grid:#272c36;--axis:#5c6677;"
    "--track:#232833;--c0:#5aaef2;--c1:#ff9150;--c2:#3ecf9e;--c3:#e792cb;--c4:#efbf49;"
    "--c5:#9bd6ff;--heat:#7cc4ff";

const char palette_rules[] =
    ".t{font:11px system-ui,-apple-system,\"Segoe UI\",Roboto,\"Helvetica "
    "Neue\",Arial,sans-serif;fill:var(--ink);font-variant-numeric:tabular-nums}"
    ".m{fill:var(--muted)}.e{text-anchor:end}.c{text-anchor:middle}.b{font-weight:600}"
    ".g,.a,.l,.n{fill:none}.g{stroke:var(--grid)}.a{stroke:var(--axis)}"
    ".l{stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}"
    ".s0{stroke:var(--c0)}.s1{stroke:var(--c1)}.s2{stroke:var(--c2)}"
    ".s3{stroke:var(--c3)}.s4{stroke:var(--c4)}.s5{stroke:var(--c5)}"
    ".f0{fill:var(--c0)}.f1{fill:var(--c1)}.f2{fill:var(--c2)}"
    ".f3{fill:var(--c3)}.f4{fill:var(--c4)}.f5{fill:var(--c5)}"
    ".d1{stroke-dasharray:7 4}.d2{stroke-dasharray:2 3.6}.d3{stroke-dasharray:9 4 2 4}"
    ".d4{stroke-dasharray:14 5}.d5{stroke-dasharray:5 3 1 3}"
    ".dt{stroke-dasharray:.1 4.2}.th{stroke-width:1.2;stroke-opacity:.65}"
    ".p{stroke:var(--paper);stroke-width:1.2}"
    ".h0,.h1,.h2,.h3,.h4,.h5,.h6,.h7,.h8{fill:var(--heat)}"
    ".h0{fill-opacity:.06}.h1{fill-opacity:.16}.h2{fill-opacity:.27}"
    ".h3{fill-opacity:.38}.h4{fill-opacity:.5}.h5{fill-opacity:.62}"
    ".h6{fill-opacity:.74}.h7{fill-opacity:.87}.h8{fill-opacity:1}"
    ".k{fill:var(--track)}.o{fill:var(--paper);stroke-width:1}.n{stroke:var(--axis)}";

const char *palette_dash(int color) {
    static const char *const classes[PALETTE_COLORS] = {"d0", "d1", "d2",
                                                        "d3", "d4", "d5"};
    return classes[color % PALETTE_COLORS];
}
