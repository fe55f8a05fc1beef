/* Onnx build: a graph of ONNX operators, put together value by value.
 *
 * A value is known by its name, a string in the build's arena; "" stands for an optional
 * input that is left out. Operators are appended in order of computation, so that every
 * name is defined before it is used:
 *
 *     const char *heads = ONNX_RESHAPE(b, x, 0, 0, 12, 64);
 *     heads = ONNX_TRANSPOSE(b, heads, 0, 2, 1, 3);
 *     const char *scores = ONNX_NODE(b, "MatMul", heads, keys);
 *
 * Constants and weights are initialisers of the outermost graph, each kept once. Bodies
 * of If and Scan are separate graphs, which see the names of the enclosing ones. */
#ifndef COMPRESS_IO_ONNX_WRITE_ONNX_BUILD_H
#define COMPRESS_IO_ONNX_WRITE_ONNX_BUILD_H

#include "io/onnx/proto.h"
#include "ir/graph.h"

/* A growing list of pointers in an arena. */
typedef struct OnnxList {
    void **items;
    int count, capacity;
} OnnxList;

/* How the elements of a weight are laid out in the file. Numbers, scales and zero points
 * of a quantised one are separate initialisers: io/onnx/onnx_form.h. */
typedef enum OnnxForm {
    ONNX_AS_IT_IS,   /* q8: its numbers, int8 */
    ONNX_TRANSPOSED, /* [M, K...] as [K, M]; not of q4 */
    ONNX_GATES,  /* blocks i, f, g, o of the first axis as i, o, f, g; not quantised */
    ONNX_BLOCKS, /* q4: its numbers, two to a byte, [M, groups, bytes of a group] */
    ONNX_SCALES, /* q8, q4: f32 [M], or [M groups] */
    ONNX_ZEROS,  /* q4 with zero points: two to a byte, each row in whole bytes */
    ONNX_FORMS
} OnnxForm;

/* A weight among the initialisers; its bytes are made when the file is written. */
typedef struct OnnxWeight {
    const Storage *storage;
    OnnxForm form;
    OnnxTensor *tensor;
} OnnxWeight;

typedef struct OnnxBuild OnnxBuild;
struct OnnxBuild {
    Arena *arena;
    OnnxBuild *outer;  /* for a body: the enclosing graph */
    const char *scope; /* names of nodes begin with it: "/encoder.3/attention" */
    int32_t real;      /* element type of real values: ONNX_F32 or ONNX_F16 */
    int numbered;      /* nodes named so far; of the outermost graph */
    bool microsoft;    /* operators of com.microsoft are used; of the outermost graph */
    OnnxList nodes, inputs, outputs;
    OnnxList constants, weights; /* of the outermost graph */
    OnnxList kept;               /* see onnx_keep */
};

/* A new outermost graph; and a new body inside one. In the arena. */
OnnxBuild *onnx_build_create(Arena *arena, int32_t real);
OnnxBuild *onnx_build_inside(OnnxBuild *outer);

/* The outermost graph that contains a body. */
OnnxBuild *onnx_build_root(OnnxBuild *b);

/* Appends an operator of the standard domain, or of com.microsoft if its name begins with
 * that and a dot, and returns the name of its first output. */
const char *onnx_node(OnnxBuild *b, const char *op, const char *const *in, int count);
#define ONNX_NODE(b, op, ...)                                                            \
    onnx_node((b), (op), (const char *const[]){__VA_ARGS__},                             \
              (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)))

/* One more output of the operator appended last; its name. */
const char *onnx_more(OnnxBuild *b);

/* Attributes of the operator appended last. */
void onnx_set_int(OnnxBuild *b, const char *name, int64_t value);
void onnx_set_ints(OnnxBuild *b, const char *name, const int64_t *values, int count);
void onnx_set_real(OnnxBuild *b, const char *name, double value);
void onnx_set_text(OnnxBuild *b, const char *name, const char *value);
void onnx_set_body(OnnxBuild *b, const char *name, OnnxBuild *body);

/* Gives the value `name` another name, if the operator appended last computes it;
 * returns its resulting name. */
const char *onnx_rename(OnnxBuild *b, const char *name, const char *to);

/* Operators with their parameters as constants or attributes. Shapes may hold 0 (as in
 * the operand) and -1 (the rest). */
const char *onnx_reshape(OnnxBuild *b, const char *x, const int64_t *shape, int rank);
const char *onnx_transpose(OnnxBuild *b, const char *x, const int64_t *order, int rank);
#define ONNX_I64S(...)                                                                   \
    (const int64_t[]) {                                                                  \
        __VA_ARGS__                                                                      \
    }
#define ONNX_I64S_COUNT(...) (int)(sizeof(ONNX_I64S(__VA_ARGS__)) / sizeof(int64_t))
#define ONNX_RESHAPE(b, x, ...)                                                          \
    onnx_reshape((b), (x), ONNX_I64S(__VA_ARGS__), ONNX_I64S_COUNT(__VA_ARGS__))
#define ONNX_TRANSPOSE(b, x, ...)                                                        \
    onnx_transpose((b), (x), ONNX_I64S(__VA_ARGS__), ONNX_I64S_COUNT(__VA_ARGS__))
const char *onnx_unsqueeze(OnnxBuild *b, const char *x, int64_t axis);
const char *onnx_squeeze(OnnxBuild *b, const char *x, int64_t axis);
const char *onnx_gather(OnnxBuild *b, const char *x, const char *at, int64_t axis);
const char *onnx_concat(OnnxBuild *b, int64_t axis, const char *x, const char *y);
const char *onnx_cast(OnnxBuild *b, const char *x, int32_t to);
const char *onnx_softmax(OnnxBuild *b, const char *x, int64_t axis);

/* x[from .. to) along an axis; the ends are vectors of one element. */
const char *onnx_slice(OnnxBuild *b, const char *x, const char *from, const char *to,
                       int64_t axis);

/* Size of x along an axis, a vector of one element. */
const char *onnx_dim(OnnxBuild *b, const char *x, int64_t axis);

/* 0, 1, ... below `to`, or `from` and on; the ends are vectors of one element. */
const char *onnx_range(OnnxBuild *b, const char *from, const char *to);

/* Constants: a scalar and a vector of integers, a scalar and a tensor of real numbers, a
 * tensor of integers. Equal ones are shared. */
const char *onnx_i64(OnnxBuild *b, int64_t value);
const char *onnx_i32(OnnxBuild *b, int32_t value);
const char *onnx_u8(OnnxBuild *b, uint8_t value);
const char *onnx_i64s(OnnxBuild *b, const int64_t *values, int count);
#define ONNX_VECTOR(b, ...)                                                              \
    onnx_i64s((b), ONNX_I64S(__VA_ARGS__), ONNX_I64S_COUNT(__VA_ARGS__))
const char *onnx_real(OnnxBuild *b, double value);
const char *onnx_f32s(OnnxBuild *b, const float *values, const int64_t *dim, int rank);
const char *onnx_indices(OnnxBuild *b, const int64_t *values, const int64_t *dim,
                         int rank);

/* A storage's weights in the type of real values; with `dim`, in another shape with the
 * same number of elements. onnx_stored is the initialiser itself, in the storage's own
 * type; for a quantised one, the part that the form selects. */
const char *onnx_stored(OnnxBuild *b, const Storage *storage, OnnxForm form,
                        const int64_t *dim, int rank);
const char *onnx_weight(OnnxBuild *b, const Storage *storage, OnnxForm form,
                        const int64_t *dim, int rank);

/* Values that several operators need, by a key: onnx_kept finds one in this graph or an
 * enclosing one, NULL when there is none; onnx_keep keeps one and returns it. */
const char *onnx_kept(OnnxBuild *b, const char *key);
const char *onnx_keep(OnnxBuild *b, const char *key, const char *value);

/* Declares an input or output of a graph. A dimension is a number, or a name where
 * names[i] is not NULL. Outputs of bodies may leave out their shape with rank -1. */
void onnx_input(OnnxBuild *b, const char *name, int32_t type, const int64_t *dim,
                const char *const *names, int rank);
void onnx_output(OnnxBuild *b, const char *name, int32_t type, const int64_t *dim,
                 const char *const *names, int rank);

/* The messages of a graph: nodes, inputs, outputs, and for the outermost one its
 * initialisers. In the arena. */
OnnxGraph *onnx_build_graph(OnnxBuild *b, const char *name);

#endif
