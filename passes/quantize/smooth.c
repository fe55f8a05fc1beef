/* Smoothing: see smooth.h. */
#include "passes/quantize/smooth.h"

#include "ir/storage.h"
#include "passes/fault.h"
#include "passes/nodes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Norms that can be made smooth, and the largest of what they give, by column. */
typedef struct Smooth {
    PassContext *ctx;
    Graph *graph;
    Node *const *leaves;
    int leaf_count;
    double part;
    Node **norms;
    double **largest;
    int count;
} Smooth;

static bool is_chosen(const Smooth *s, const Node *leaf) {
    for (int i = 0; i < s->leaf_count; i++)
        if (s->leaves[i] == leaf) return true;
    return false;
}

/* Whether a norm's reader is a linear layer whose columns may be multiplied. */
static bool takes_factors(const Smooth *s, const Node *reader, const Node *norm) {
    const int uses = graph_use_count(s->graph, reader->in[1]);
    return node_is(reader, &op_linear) && reader->in[0] == norm &&
           reader->in[1] != norm && is_chosen(s, reader->in[1]) && uses == 1 &&
           reader->in[1]->type.rank == 2 &&
           !((const LinearAttrs *)reader->attrs)->transposed;
}

/* A stored vector that nobody else reads. */
static bool is_own(const Smooth *s, const Node *leaf) {
    return leaf && leaf->storage && graph_use_count(s->graph, leaf) == 1;
}

static bool can_smooth(const Smooth *s, Node *norm) {
    const bool layer = node_is(norm, &op_layer_norm);
    if (!layer &&
        !(node_is(norm, &op_rms_norm) && ((const RmsNormAttrs *)norm->attrs)->heads <= 1))
        return false;
    if (!is_own(s, norm->in[1]) || (layer && norm->in[2] && !is_own(s, norm->in[2])))
        return false;
    for (int i = 0; i < s->graph->output_count; i++)
        if (s->graph->outputs[i].node == norm) return false;
    bool any = false;
    for (const Node *node = s->graph->first; node; node = node->next)
        for (int i = 0; i < node->in_count; i++) {
            if (node->in[i] != norm) continue;
            if (i != 0 || !takes_factors(s, node, norm)) return false;
            any = true;
        }
    return any;
}

/* ---- ranges ---- */

static Status take_rows(void *self, const CalibrationRows *rows, Diag *diag) {
    Smooth *s = self;
    (void)diag;
    for (int n = 0; n < s->count; n++)
        for (int64_t i = 0; i < rows[n].count * rows[n].width; i++) {
            double *largest = &s->largest[n][i % rows[n].width];
            *largest = fmax(*largest, fabs((double)rows[n].x[i]));
        }
    return STATUS_OK;
}

/* The largest weight of each column of the readers. */
static void weight_ranges(const Smooth *s, const Node *norm, int64_t width, double *out) {
    float *row = memory_alloc((size_t)width + 1, sizeof *row);
    memset(out, 0, (size_t)width * sizeof *out);
    for (const Node *node = s->graph->first; node; node = node->next) {
        if (!node_is(node, &op_linear) || node->in[0] != norm) continue;
        const Tensor *weight = storage_tensor(node->in[1]->storage);
        if (!storage_has_data(node->in[1]->storage)) continue; /* planning */
        for (int64_t r = 0; r < weight->dim[0]; r++) {
            tensor_read_f32(weight, r * width, width, row);
            for (int64_t k = 0; k < width; k++)
                out[k] = fmax(out[k], fabs((double)row[k]));
        }
    }
    free(row);
}

/* ---- factors ---- */

/* Multiplies element i of a storage by factor[i % width], or divides; with `offset` the
 * number that is divided is offset + w. */
static Status multiply(Graph *graph, Node *leaf, const double *factor, int64_t width,
                       bool divide, double offset, Diag *diag) {
    const Tensor *from = storage_tensor(leaf->storage);
    const int64_t count = tensor_count(from);
    Tensor values;
    void *data;
    TRY(storage_blank(&values, &data, leaf->storage, DTYPE_F32, from->rank, from->dim,
                      diag));
    float *w = data;
    if (w) tensor_read_f32(from, 0, count, w);
    for (int64_t i = 0; w && i < count; i++) {
        const double f = factor[i % width], x = (double)w[i] + offset;
        w[i] = (float)((divide ? x / f : x * f) - offset);
    }
    return storage_replace(graph, leaf, STORAGE_ALL_USERS, values, -1, diag);
}

static Status smooth_norm(Smooth *s, int n, Diag *diag) {
    Node *norm = s->norms[n];
    const int64_t width = norm->type.dim[norm->type.rank - 1];
    const bool unit =
        node_is(norm, &op_rms_norm) && ((const RmsNormAttrs *)norm->attrs)->unit_offset;
    double *factor = memory_alloc((size_t)width + 1, sizeof *factor);
    weight_ranges(s, norm, width, factor);
    for (int64_t k = 0; k < width; k++) {
        const double x = s->largest[n][k], w = factor[k];
        const double f = pow(x, s->part) / pow(w, 1 - s->part);
        factor[k] = x > 0 && w > 0 && isfinite(f) && f > 1e-5 && f < 1e5 ? f : 1;
    }
    Status status = multiply(s->graph, norm->in[1], factor, width, true, unit, diag);
    if (status == STATUS_OK && node_is(norm, &op_layer_norm) && norm->in[2])
        status = multiply(s->graph, norm->in[2], factor, width, true, 0, diag);
    for (Node *node = s->graph->first; node && status == STATUS_OK; node = node->next)
        if (node_is(node, &op_linear) && node->in[0] == norm)
            status = multiply(s->graph, node->in[1], factor, width, false, 0, diag);
    free(factor);
    return status;
}

Status smooth_activations(SmoothReport *report, PassContext *ctx, Graph *graph,
                          Calibration *calibration, Node *const *leaves, int count,
                          double part, Diag *diag) {
    const size_t most = (size_t)graph->node_count + 1;
    Smooth s = {
        .ctx = ctx, .graph = graph, .leaves = leaves, .leaf_count = count, .part = part};
    s.norms = ARENA_ARRAY(ctx->arena, Node *, most);
    s.largest = ARENA_ARRAY(ctx->arena, double *, most);
    for (Node *node = graph->first; node; node = node->next)
        if (can_smooth(&s, node)) s.norms[s.count++] = node;
    report->norms = s.count;
    if (s.count == 0)
        return step_fail_option(ctx, "smooth", diag,
                                "no norm is read by quantised linear layers alone, so "
                                "that its gain could take up factors");
    for (int n = 0; n < s.count; n++)
        s.largest[n] = ARENA_ARRAY(
            ctx->arena, double, (size_t)s.norms[n]->type.dim[s.norms[n]->type.rank - 1]);
    if (calibration)
        TRY(calibration_rows(calibration, s.norms, s.count, take_rows, &s, diag));
    for (int n = 0; n < s.count; n++) TRY(smooth_norm(&s, n, diag));
    if (calibration) calibration_restart(calibration);
    return STATUS_OK;
}
