/* Features: the embeddings of a data set, as unit rows, and its classes. */
#ifndef COMPRESS_PASSES_EVALUATE_FEATURES_H
#define COMPRESS_PASSES_EVALUATE_FEATURES_H

#include "passes/evaluate/evaluation.h"

typedef struct Features {
    const Evaluation *e;
    const Batches *data;
    int64_t count, width;
    Buf *rows;   /* [count, width] f32; see features_row */
    Buf *labels; /* [count] i32; NULL if the data set has no classes */
} Features;

/* Room for the embeddings `node` of the first `count` samples; none when planning. Fails
 * with STATUS_MEMORY. */
Status features_open(Features *features, const Evaluation *e, const Node *node,
                     const Batches *data, int64_t count, Diag *diag);
void features_close(Features *features);

/* Adds the samples of one run: Judge.add. Rows of zeros stay zero. Fails at the step if
 * one is not finite. */
Status features_add(Features *features, const Fetch *what, const float *predictions,
                    const void *const *columns, Diag *diag);

/* Runs a graph over the data set for its embeddings `node`. */
Status features_run(Features *features, Graph *graph, Node *node, Diag *diag);

/* The unit row of a sample, and the cosine between those of two. */
float *features_row(const Features *features, int64_t sample);
double features_cosine(const Features *a, int64_t i, const Features *b, int64_t j);

/* The classes of all samples. */
int32_t *features_labels(const Features *features);

#endif
