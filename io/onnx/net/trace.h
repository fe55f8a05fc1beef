/* Traces and cones: what a part of a net does, found by evaluating it.
 *
 * Exporters write the same thing in many ways: heads are split by a view, by a reshape
 * with computed sizes or by slices of one matrix; a norm is one node or nine. So a part
 * is recognised by what it does, not by its nodes: where a chain of reshapes, transposes
 * and slices moves the indices of its source, and what a few element-wise nodes do to
 * numbers. */
#ifndef COMPRESS_IO_ONNX_NET_TRACE_H
#define COMPRESS_IO_ONNX_NET_TRACE_H

#include "io/onnx/net/array.h"

/* Where the elements of a value come from. */
typedef struct Trace {
    Arena *arena;      /* owned: the arrays below */
    NetValue *source;  /* all elements are of it */
    double scale;      /* and were multiplied by this on the way */
    int turned;        /* largest rank of a transpose on the way, 0 = none */
    bool tokens_first; /* of the value */
    /* In the value's shape: 1 + the index in the source; negative if the sign was
     * changed, 0 for a zero. A source with tokens before samples is counted as if
     * samples came first. */
    Array *index[NET_PROBES];
} Trace;

/* Follows a value back through nodes that only move elements, change their sign or
 * multiply all of them by one number, to the single value that all come from. With
 * `stored`, that is a stored tensor; without it, known numbers end the trace. False,
 * with nothing to free, when elements come from several values or are too many. */
bool trace_value(Trace *out, const Net *net, NetValue *value, bool stored);

/* Frees a trace. */
void trace_free(Trace *trace);

/* Place of element `i` of the traced value as if samples came first. */
int64_t trace_place(const Trace *trace, int probe, int64_t i);

/* Whether a value has its source's elements in the same order, in any shape. */
bool trace_is_plain(const Trace *trace);

/* The value that the number of an operand comes from: through nodes that leave numbers
 * unchanged (Identity, Cast, Dropout). */
NetValue *value_behind(NetValue *value);

/* Whether a value is one known number for both probes. */
bool value_scalar(const NetValue *value, double *number);

/* Whether a value's numbers follow only from constants and sizes. */
bool value_is_constant(const NetValue *value);

/* Whether a value has the same numbers for all sizes and inputs. */
bool value_is_fixed(const NetValue *value);

/* Whether they are known, possibly from masks and positions. */
bool value_is_known(const NetValue *value);

/* Part of a net between a value and the only unknown value that it is computed from. */
typedef struct Cone {
    const Net *net;
    NetValue *root, *source;
    int nodes; /* in it */
    NetNode *node[24];
} Cone;

/* Which nodes a cone may have. */
typedef enum ConeKind {
    CONE_ELEMENTS, /* element by element, with single numbers */
    CONE_ROWS,     /* and means over the last dimension, with stored vectors */
    CONE_COUNTS    /* element by element, and running sums */
} ConeKind;

/* The next larger cone at a value: begin with one that has only `root` set. False when
 * there is no further one. */
bool cone_grow(Cone *cone, ConeKind kind);

/* The result of a cone for given numbers in place of its source's, in `pool`; NULL when
 * it does not accept their shape. */
Array *cone_apply(const Cone *cone, ArrayPool *pool, Array *numbers);

#endif
