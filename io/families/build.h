/* Builder: how families construct graphs without checking every step.
 *
 * The first failure is kept and later calls only return a dummy node, so a family checks
 * once, at the end. Attributes are given as IR text ("heads=4"). */
#ifndef COMPRESS_IO_FAMILIES_BUILD_H
#define COMPRESS_IO_FAMILIES_BUILD_H

#include "ir/model.h"

typedef struct Builder {
    Model *model;
    Diag *diag;
    Status status;     /* of the first failure */
    const char *stack; /* place given to new nodes */
    int layer;
    double std;         /* of new weights' truncated normal */
    const char *prefix; /* put in front of every storage name; "" = none */
} Builder;

/* Names of the keys that a family read from its configuration, without repetitions. */
typedef struct ConfigKeys {
    Arena *arena;
    const char **names;
    int count, capacity;
} ConfigKeys;

/* Records in `keys` what families built on this thread read; NULL ends it. */
void build_watch_config(ConfigKeys *keys);

/* Value of a key of the model's config, NULL when absent or null. */
const Tree *build_config_value(const Builder *b, const char *key);

/* Whether a key is present and null, if that differs in meaning from no key. */
bool build_config_is_null(const Builder *b, const char *key);

/* Where the value of a key stands, or the configuration if the key is missing. */
Loc build_config_loc(const Builder *b, const char *key);

/* Integer, real or string of the model's config; `fallback` NULL = required. Checks kind
 * and range and reports with the config's file and the key. */
int64_t build_config_int(Builder *b, const char *key, const int64_t *fallback,
                         int64_t min, int64_t max);
double build_config_real(Builder *b, const char *key, const double *fallback, double min,
                         double max);
bool build_config_bool(Builder *b, const char *key, bool fallback);
const char *build_config_string(Builder *b, const char *key, const char *fallback);

/* The index of a key's value in `names`, ended by NULL; `usual` if there is no key. */
int build_config_choice(Builder *b, const char *key, const char *const *names, int usual);

/* Fails unless a key has the only value that the family knows. */
void build_config_require(Builder *b, const char *key, bool fallback, bool value);

/* layer_types: notes which of the layers see only near tokens; false, doing nothing, if
 * there is no such key. `needed` says what such layers need that the configuration
 * lacks; NULL = nothing. */
bool build_config_layer_types(Builder *b, bool *near, int64_t layers, const char *needed);

/* Number of labels: num_labels, or the size of id2label, or 2 (transformers' default). */
int64_t build_config_labels(Builder *b);

/* What a classifier of samples with `labels` outputs is for, by problem_type: one of
 * several classes, independent labels, or numbers. If the configuration does not say,
 * one output is a number and several are classes, as in transformers. */
Task build_config_problem(Builder *b, int64_t labels);

/* The activation op's name of the function that transformers calls `name`, or that `key`
 * names; a failure is reported at the key. */
const char *build_activation(Builder *b, const char *key, const char *name);
const char *build_config_activation(Builder *b, const char *key, const char *fallback);

/* A dropout rate. */
double build_config_dropout(Builder *b, const char *key, double fallback);

/* A rate of something that no op does: accepted; when the model is trained, a warning
 * says that `what`, or dropout of attention probabilities, is left out
 * (model_warn_left_out). */
void build_config_left_out(Builder *b, const char *key, const char *what);
void build_config_attention_dropout(Builder *b, const char *key);

/* Checks that the number of heads divides the width; both given with their keys. */
void build_config_heads(Builder *b, const char *key, int64_t heads, const char *width_key,
                        int64_t width);

/* Class of the checkpoint: the first of `architectures`, which must be one of `known`
 * (ended by NULL); known[0] when the configuration names none. */
const char *build_config_architecture(Builder *b, const char *const *known);

/* Bounds on dimensions that keep all their products far from overflow. */
enum { BUILD_WIDTH_MAX = 1 << 20, BUILD_LAYERS_MAX = 512, BUILD_FFN_MAX = 1 << 22 };

/* Input leaf; dims may be DIM_ symbols. */
Node *build_input(Builder *b, const char *name, DType dtype, int rank,
                  const int64_t *dim);

/* Parameter leaf `prefix` + name with the given shape and initial distribution. A name
 * used again with the same shape returns the same leaf: that is how layers share
 * weights. */
Node *build_param(Builder *b, const char *name, InitKind init, int rank,
                  const int64_t *dim);

/* Node by op name with up to four operands (NULL ends them), placed with `role`. `attrs`
 * is printf-formatted IR text or NULL. Types are inferred at once. */
Node *build_op(Builder *b, const char *op, Role role, Node *const in[4],
               const char *attrs, ...) __attribute__((format(printf, 5, 6)));

/* Adds an operand beyond those of build_op to a node, by its declared name. */
void build_operand(Builder *b, Node *node, const char *name, Node *value);
/* build_op with any number of operands, NULL for absent optional ones, and attributes at
 * their defaults. */
Node *build_op_list(Builder *b, const char *op, Role role, Node *const *in, int count);

/* x W^T + b with storages name.weight [out, in...] and name.bias [out] (when bias). */
Node *build_linear(Builder *b, Role role, const char *name, Node *x, int64_t out,
                   bool bias);

/* Layer norm with storages name.weight, name.bias. */
Node *build_layer_norm(Builder *b, Role role, const char *name, Node *x, double eps);

/* a + b. */
Node *build_add(Builder *b, Role role, Node *x, Node *y);

/* Dropout of x; x itself when the rate is 0. */
Node *build_dropout(Builder *b, double rate, Node *x);

/* Names a result. */
void build_output(Builder *b, const char *name, Node *x);

/* Names the predictions, and says what they are. A model without predictions has
 * TASK_EMBED. */
void build_logits(Builder *b, Task task, Node *x);

#endif
