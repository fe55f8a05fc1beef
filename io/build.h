/* Builder: how families write graphs down, without checking every step.
 *
 * The first failure is kept and later calls do nothing but return a dummy node, so a
 * family checks once, at the end. Attributes are given as IR text ("heads=4"). */
#ifndef COMPRESS_IO_BUILD_H
#define COMPRESS_IO_BUILD_H

#include "ir/model.h"

typedef struct Builder {
    Model *model;
    Diag *diag;
    Status status;     /* of the first failure */
    const char *stack; /* place given to new nodes */
    int layer;
    double std;        /* of new weights' truncated normal */
    const char *prefix; /* put in front of every storage name; "" = none */
} Builder;

/* Integer, real or string of the model's config; `fallback` NULL = required. Checks kind
 * and range and reports with the config's file and the key. */
int64_t build_config_int(Builder *b, const char *key, const int64_t *fallback, int64_t min,
                         int64_t max);
double build_config_real(Builder *b, const char *key, const double *fallback, double min,
                         double max);
bool build_config_bool(Builder *b, const char *key, bool fallback);
const char *build_config_string(Builder *b, const char *key, const char *fallback);

/* Number of labels: num_labels, or the size of id2label, or 2 (transformers' default). */
int64_t build_config_labels(Builder *b);

/* Input leaf; dims may be DIM_ symbols. */
Node *build_input(Builder *b, const char *name, DType dtype, int rank, const int64_t *dim);

/* Parameter leaf `prefix` + name with the given shape and initial distribution. A name
 * used again with the same shape gives the same leaf: that is how layers share. */
Node *build_param(Builder *b, const char *name, InitKind init, int rank,
                  const int64_t *dim);

/* Node by op name with up to four operands (NULL ends them), placed with `role`. `attrs`
 * is printf-formatted IR text or NULL. Types are inferred at once. */
Node *build_op(Builder *b, const char *op, Role role, Node *const in[4], const char *attrs,
               ...) __attribute__((format(printf, 5, 6)));

/* x W^T + b with storages name.weight [out, in...] and name.bias [out] (when bias). */
Node *build_linear(Builder *b, Role role, const char *name, Node *x, int64_t out,
                   bool bias);

/* Layer norm with storages name.weight, name.bias. */
Node *build_layer_norm(Builder *b, Role role, const char *name, Node *x, double eps);

/* a + b. */
Node *build_add(Builder *b, Role role, Node *x, Node *y);

#endif
