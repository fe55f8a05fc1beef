/* Features: see features.h. */
#include "passes/evaluate/features.h"

#include "exec/run/forward.h"

#include <math.h>

Status features_open(Features *f, const Evaluation *e, const Node *node,
                     const Batches *data, int64_t count, Diag *diag) {
    const Type *type = evaluation_label_type(data);
    *f = (Features){.e = e, .data = data, .count = count, .width = node_width(node)};
    if (e->ctx->plan) return STATUS_OK;
    TRY(buf_create(&f->rows, (size_t)(f->count * f->width) * sizeof(float), diag));
    if (!type || type->dtype != DTYPE_I32 || type->rank != 0) return STATUS_OK;
    return buf_create(&f->labels, (size_t)f->count * sizeof(int32_t), diag);
}

void features_close(Features *f) {
    buf_release(f->rows);
    buf_release(f->labels);
}

float *features_row(const Features *f, int64_t sample) {
    return (float *)(uintptr_t)buf_data(f->rows) + sample * f->width;
}

int32_t *features_labels(const Features *f) {
    return (int32_t *)(uintptr_t)buf_data(f->labels);
}

double features_cosine(const Features *a, int64_t i, const Features *b, int64_t j) {
    const float *x = features_row(a, i), *y = features_row(b, j);
    double sum = 0;
    for (int64_t c = 0; c < a->width; c++) sum += (double)x[c] * (double)y[c];
    return sum;
}

Status features_add(Features *f, const Fetch *what, const float *predictions,
                    const void *const *columns, Diag *diag) {
    for (int64_t i = 0; i < what->n; i++) {
        const int64_t sample = what->index[i];
        const float *from = predictions + i * f->width;
        float *to = features_row(f, sample);
        double square = 0;
        TRY(evaluation_check_finite(f->e, sample, from, f->width, diag));
        for (int64_t c = 0; c < f->width; c++)
            square += (double)from[c] * (double)from[c];
        const double by = square > 0 ? 1 / sqrt(square) : 0;
        for (int64_t c = 0; c < f->width; c++) to[c] = (float)((double)from[c] * by);
        if (f->labels)
            features_labels(f)[sample] =
                ((const int32_t *)columns[batches_column(f->data, DATA_LABELS)])[i];
    }
    return STATUS_OK;
}

/* ForwardSink. */
static Status take_run(void *self, const Fetch *what, const float *const *values,
                       const void *const *columns, Diag *diag) {
    return features_add(self, what, values[0], columns, diag);
}

Status features_run(Features *f, Graph *graph, Node *node, Diag *diag) {
    const PassContext *ctx = f->e->ctx;
    return forward_batches(graph, &node, 1, f->data, f->count, f->e->options->batch_size,
                           ctx->threads, ctx->watch, take_run, f, diag);
}
