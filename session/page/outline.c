/* A model's layers as rows of boxes: see outline.h. */
#include "session/page/outline.h"

#include "session/page/markup.h"
#include "session/page/svg.h"

#include <math.h>
#include <string.h>

#define STACKS_MAX  16
#define LAYERS_MAX  512
#define NUMBER_MOST 1e9 /* of heads and units; more is nonsense */
#define ROWS_HEIGHT 156.0
#define ROW_MOST    13.0
#define ROW_LEAST   3.0
#define HEADING     18.0 /* of a stack */
#define LEFT        22.0
#define HEADS_WIDTH 54.0
#define HEADS_BOXES 16 /* of more heads a bar */
#define ZONE_GAP    5.0
#define RIGHT       8.0 /* for the marks of exits */

/* ---- reading ---- */

static double read_number(const Tree *map, const char *key) {
    double value;
    if (!tree_number(tree_get(map, key), &value)) return 0;
    return value > 0 && value < NUMBER_MOST ? value : 0;
}

/* An index below `end`, else `none`. */
static int read_index(const Tree *map, const char *key, int end, int none) {
    const Tree *value = tree_get(map, key);
    if (!value || value->kind != TREE_INT) return none;
    return value->integer >= 0 && value->integer < end ? (int)value->integer : none;
}

static void read_layer(OutlineLayer *layer, const Tree *map, int index) {
    const Tree *exit = tree_get(map, "exit");
    *layer = (OutlineLayer){.original = read_index(map, "original", LAYERS_MAX, index),
                            .shares = read_index(map, "shares", index, -1),
                            .heads = read_number(map, "heads"),
                            .cross_heads = read_number(map, "cross_heads"),
                            .units = read_number(map, "ffn"),
                            .exit = exit && exit->kind == TREE_BOOL && exit->boolean};
    if (layer->units == 0) layer->units = read_number(map, "recurrence");
}

static void read_stack(OutlineStack *stack, Arena *arena, const Tree *map) {
    const Tree *name = tree_get(map, "name"), *layers = tree_get(map, "layers");
    stack->name = name && name->kind == TREE_STRING ? name->string : "layers";
    if (!layers || layers->kind != TREE_LIST) return;
    stack->layers = ARENA_ARRAY(arena, OutlineLayer, (size_t)layers->count + 1);
    for (const Tree *layer = layers->first; layer && stack->count < LAYERS_MAX;
         layer = layer->next, stack->count++)
        read_layer(&stack->layers[stack->count], layer, stack->count);
}

bool outline_read(Outline *out, Arena *arena, const Tree *structure) {
    const Tree *stacks = tree_get(structure, "stacks");
    int layers = 0;
    *out = (Outline){.stacks = ARENA_ARRAY(arena, OutlineStack, STACKS_MAX)};
    if (!stacks || stacks->kind != TREE_LIST) return false;
    for (const Tree *stack = stacks->first; stack && out->count < STACKS_MAX;
         stack = stack->next) {
        read_stack(&out->stacks[out->count], arena, stack);
        layers += out->stacks[out->count++].count;
    }
    return layers > 0;
}

static bool layer_equal(const OutlineLayer *a, const OutlineLayer *b) {
    return a->original == b->original && a->shares == b->shares && a->heads == b->heads &&
           a->cross_heads == b->cross_heads && a->units == b->units && a->exit == b->exit;
}

bool outline_equal(const Outline *a, const Outline *b) {
    if (a->count != b->count) return false;
    for (int s = 0; s < a->count; s++) {
        if (a->stacks[s].count != b->stacks[s].count) return false;
        for (int i = 0; i < a->stacks[s].count; i++)
            if (!layer_equal(&a->stacks[s].layers[i], &b->stacks[s].layers[i]))
                return false;
    }
    return true;
}

/* ---- drawing ---- */

void outline_widen(OutlineScale *scale, const Outline *outline) {
    if (outline->count > scale->stacks) scale->stacks = outline->count;
    for (int s = 0; s < outline->count; s++)
        for (int i = 0; i < outline->stacks[s].count; i++) {
            const OutlineLayer *layer = &outline->stacks[s].layers[i];
            scale->heads = fmax(scale->heads, layer->heads);
            scale->cross_heads = fmax(scale->cross_heads, layer->cross_heads);
            scale->units = fmax(scale->units, layer->units);
            if (layer->original >= scale->rows[s]) scale->rows[s] = layer->original + 1;
        }
}

static double row_height(const OutlineScale *scale) {
    int rows = 0;
    for (int s = 0; s < scale->stacks; s++) rows += scale->rows[s];
    return fmax(ROW_LEAST, fmin(ROW_MOST, ROWS_HEIGHT / (rows ? rows : 1)));
}

double outline_height(const OutlineScale *scale) {
    int rows = 0;
    for (int s = 0; s < scale->stacks; s++) rows += scale->rows[s];
    return rows * row_height(scale) + scale->stacks * HEADING + 4;
}

/* Appends a track of full width and what of it a layer has, in boxes or as a bar. */
static void draw_share(Text *text, double share, int boxes, const char *classes, double x,
                       double y, double width, double height) {
    if (share <= 0) return;
    if (boxes < 2) {
        svg_rect(text, classes, x, y, fmax(1, width * share), height);
        text_add(text, "/>");
        return;
    }
    const double step = width * share / boxes;
    for (int i = 0; i < boxes; i++) {
        svg_rect(text, classes, x + i * step, y, step - 1, height);
        text_add(text, "/>");
    }
}

/* Where the parts of a row stand. */
typedef struct Zones {
    double heads, heads_width, cross, cross_width, units, units_width;
} Zones;

static Zones zones_of(const OutlineScale *scale) {
    Zones zones = {.heads = LEFT};
    const bool both = scale->heads > 0 && scale->cross_heads > 0;
    const double wide = both ? (HEADS_WIDTH - ZONE_GAP) / 2 : HEADS_WIDTH;
    zones.heads_width = scale->heads > 0 ? wide : 0;
    zones.cross = LEFT + (both ? wide + ZONE_GAP : 0);
    zones.cross_width = scale->cross_heads > 0 ? wide : 0;
    zones.units =
        scale->heads + scale->cross_heads > 0 ? LEFT + HEADS_WIDTH + ZONE_GAP : LEFT;
    zones.units_width = scale->units > 0 ? OUTLINE_WIDTH - RIGHT - zones.units : 0;
    return zones;
}

static void draw_track(Text *text, const Zones *zones, double x, double y,
                       double height) {
    draw_share(text, zones->heads_width > 0, 1, "k", x + zones->heads, y,
               zones->heads_width - 1, height);
    draw_share(text, zones->cross_width > 0, 1, "k", x + zones->cross, y,
               zones->cross_width - 1, height);
    draw_share(text, zones->units_width > 0, 1, "k", x + zones->units, y,
               zones->units_width - 1, height);
}

static int boxes_of(double heads) {
    return heads <= HEADS_BOXES ? (int)heads : 1;
}

static void draw_layer(Text *text, const OutlineLayer *layer, const OutlineScale *scale,
                       double x, double y, double height) {
    const Zones zones = zones_of(scale);
    const bool hollow = layer->shares >= 0;
    if (scale->heads > 0)
        draw_share(text, layer->heads / scale->heads, boxes_of(layer->heads),
                   hollow ? "o s0" : "f0", x + zones.heads, y, zones.heads_width, height);
    if (scale->cross_heads > 0)
        draw_share(text, layer->cross_heads / scale->cross_heads,
                   boxes_of(layer->cross_heads), hollow ? "o s3" : "f3", x + zones.cross,
                   y, zones.cross_width, height);
    if (scale->units > 0)
        draw_share(text, layer->units / scale->units, 1, hollow ? "o s1" : "f1",
                   x + zones.units, y, zones.units_width - 1, height);
    if (!layer->exit) return;
    text_add(text, "<circle class=\"f2\" r=\"2.4\"");
    svg_attribute(text, "cx", x + OUTLINE_WIDTH - 4);
    svg_attribute(text, "cy", y + height / 2);
    text_add(text, "/>");
}

/* Appends the bracket from a layer to the one above whose weights it has. */
static void draw_bracket(Text *text, const OutlineStack *stack, int layer, double x,
                         double top, double row) {
    const int owner = stack->layers[layer].shares;
    const double from = top + (stack->layers[owner].original + 0.5) * row - 0.5;
    const double to = top + (stack->layers[layer].original + 0.5) * row - 0.5;
    text_add(text, "<path class=\"n\" d=\"M");
    svg_number(text, x + LEFT - 2);
    text_add(text, " ");
    svg_number(text, from);
    text_add(text, "h-4V");
    svg_number(text, to);
    text_add(text, "h4\"/>");
}

static void draw_stack(Text *text, const OutlineStack *stack, const OutlineScale *scale,
                       int index, double x, double top) {
    const double row = row_height(scale), height = row - (row > 5 ? 2 : 1);
    const Zones zones = zones_of(scale);
    const int every = row >= 10 ? 1 : row >= 5 ? 4 : 8;
    svg_text(text, "t m", x, top - 5, stack->name, 24);
    for (int i = 0; i < scale->rows[index]; i++) {
        char number[16];
        draw_track(text, &zones, x, top + i * row, height);
        if (i % every) continue;
        snprintf(number, sizeof number, "%d", i);
        svg_text(text, "t m e", x + LEFT - 9, top + i * row + height / 2 + 3.8, number,
                 8);
    }
    for (int i = 0; i < stack->count; i++) {
        draw_layer(text, &stack->layers[i], scale, x,
                   top + stack->layers[i].original * row, height);
        if (stack->layers[i].shares >= 0) draw_bracket(text, stack, i, x, top, row);
    }
    text_add(text, "\n");
}

void outline_draw(Text *text, const Outline *outline, const OutlineScale *scale,
                  double x) {
    double top = HEADING;
    for (int s = 0; s < outline->count; s++) {
        draw_stack(text, &outline->stacks[s], scale, s, x, top);
        top += scale->rows[s] * row_height(scale) + HEADING;
    }
}

void outline_describe(Text *text, const Outline *outline) {
    for (int s = 0; s < outline->count; s++) {
        const OutlineStack *stack = &outline->stacks[s];
        double heads = 0, units = 0;
        int shared = 0, exits = 0;
        for (int i = 0; i < stack->count; i++) {
            heads += stack->layers[i].heads + stack->layers[i].cross_heads;
            units += stack->layers[i].units;
            shared += stack->layers[i].shares >= 0;
            exits += stack->layers[i].exit;
        }
        text_add(text, "%s", s ? "; " : "");
        markup_clip(text, stack->name, 40);
        text_add(text, ": %d layer%s", stack->count, stack->count == 1 ? "" : "s");
        if (heads > 0) text_add(text, ", %.0f heads", heads);
        if (units > 0) text_add(text, ", %.0f units", units);
        if (shared > 0) text_add(text, ", %d of them sharing weights", shared);
        if (exits > 0) text_add(text, ", %d exits", exits);
    }
}
