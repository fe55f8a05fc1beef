/* Influence: how much layers change what they read. See removal.h. */
#include "passes/fault.h"
#include "passes/removal/removal.h"

#include <math.h>
#include <stdlib.h>

Status removal_check_data(const CalibrationOptions *options, bool used,
                          const StepSource *source, Diag *diag) {
    static const CalibrationOptions defaults = CALIBRATION_DEFAULTS;
    if (used && !options->data)
        return option_fail(source, "order|bridge", STATUS_RECIPE, diag,
                           "expected data with it, a data set to calibrate with");
    if (!used && options->data)
        return option_fail(source, "data", STATUS_RECIPE, diag,
                           "needs order: influence or bridge: true");
    if (!options->data && options->samples != defaults.samples)
        return option_fail(source, "samples", STATUS_RECIPE, diag, "needs data");
    if (!options->data && options->damp != defaults.damp)
        return option_fail(source, "damp", STATUS_RECIPE, diag, "needs data");
    return STATUS_OK;
}

Status removal_ends(LayerEnds *ends, const Removal *r, int layer, Diag *diag) {
    LayerBlocks blocks;
    *ends = (LayerEnds){0};
    if (r->part == BLOCK_ALL)
        return layer_ends(ends, r->ctx, r->graph, r->stack, layer, diag);
    TRY(layer_blocks(&blocks, r->ctx, r->graph, r->stack, layer, diag));
    for (int i = 0; i < blocks.count; i++) {
        if (!block_is_part(&blocks.items[i], r->part)) continue;
        if (!ends->input) ends->input = blocks.items[i].input;
        ends->output = blocks.items[i].output;
    }
    return STATUS_OK;
}

/* Sums over the rows of a layer. */
typedef struct Cosines {
    double sum;
    int64_t count;
} Cosines;

static double cosine(const float *x, const float *y, int64_t width) {
    double xy = 0, xx = 0, yy = 0;
    for (int64_t i = 0; i < width; i++) {
        xy += (double)x[i] * (double)y[i];
        xx += (double)x[i] * (double)x[i];
        yy += (double)y[i] * (double)y[i];
    }
    return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : 1;
}

/* CalibrationSink of what goes in and what comes out. */
static Status add_cosines(void *self, const CalibrationRows *rows, Diag *diag) {
    Cosines *c = self;
    const CalibrationRows *x = &rows[0], *y = &rows[1];
    double sum = 0;
    (void)diag;
    for (int64_t r = 0; r < x->count; r++)
        sum += cosine(x->x + r * x->width, y->x + r * y->width, x->width);
    c->sum += sum;
    c->count += x->count;
    return STATUS_OK;
}

static void record(const Removal *r, IntList layers, const double *influence) {
    Arena *arena = r->ctx->arena;
    Tree *list = tree_put_list(arena, r->ctx->record, "influence");
    for (int i = 0; i < layers.count; i++) {
        Tree *row = tree_add_map(arena, list);
        tree_put_int(arena, row, "layer", layers.items[i]);
        tree_put_real(arena, row, "influence", influence[layers.items[i]]);
    }
}

Status removal_influence(Removal *r, IntList layers, Calibration *calibration,
                         Diag *diag) {
    Arena *arena = r->ctx->arena;
    if (!calibration) return STATUS_OK;
    double *influence =
        ARENA_ARRAY(arena, double, (size_t)graph_layer_count(r->graph, r->stack));
    calibration_expect(calibration, layers.count, true);
    for (int i = 0; i < layers.count; i++) { /* one by one: a model may be large */
        LayerEnds ends;
        Cosines c = {0};
        TRY(removal_ends(&ends, r, (int)layers.items[i], diag));
        TRY(calibration_rows(calibration, (Node *[]){ends.input, ends.output}, 2,
                             add_cosines, &c, diag));
        influence[layers.items[i]] = c.count > 0 ? 1 - c.sum / (double)c.count : 0;
    }
    calibration_restart(calibration);
    record(r, layers, influence);
    r->influence = influence;
    return STATUS_OK;
}

Status removal_calibrate(Calibration **out, const Removal *r, IntList layers,
                         const CalibrationOptions *options, bool bridge, Diag *diag) {
    Node **values = ARENA_ARRAY(r->ctx->arena, Node *, 2 * (size_t)layers.count);
    *out = NULL;
    if (!options->data) return STATUS_OK;
    for (int i = 0; i < layers.count; i++) {
        LayerEnds ends;
        TRY(removal_ends(&ends, r, (int)layers.items[i], diag));
        values[2 * i] = ends.input;
        values[2 * i + 1] = ends.output;
    }
    TRY((bridge ? calibration_open : calibration_open_rows)(
        out, r->ctx, r->graph, values, 2 * layers.count, options, diag));
    if (*out) calibration_record(*out, r->ctx->record);
    return STATUS_OK;
}
