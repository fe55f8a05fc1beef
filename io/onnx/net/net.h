/* Net: the graph of an ONNX file with its names resolved, checked so that code that uses
 * it can rely on it.
 *
 * Every name is defined once, every operand exists and comes before its use (nodes are
 * put into topological order; a cycle is refused), stored tensors have the bytes that
 * their shapes require. What an operator does with its operands is not checked here. */
#ifndef COMPRESS_IO_ONNX_NET_NET_H
#define COMPRESS_IO_ONNX_NET_NET_H

#include "io/onnx/proto.h"
#include "ir/arena.h"

/* Largest rank in a file; that of weights is RANK_MAX. */
enum { NET_RANK_MAX = 8, NET_PROBES = 2 };

typedef struct NetNode NetNode;
typedef struct NetValue NetValue;
struct Array; /* io/onnx/net/array.h */

/* A value: an input, a stored tensor, or a result of a node. */
struct NetValue {
    const char *name;
    NetNode *producer;        /* NULL: an input or a stored tensor */
    int slot;                 /* which of the producer's results */
    const OnnxTensor *stored; /* an initialiser or a constant, else NULL */
    const OnnxValue *input;   /* an input that is not stored, else NULL */
    int position;             /* among the inputs */
    bool is_output;
    NetNode **users; /* each once per use of the value */
    int user_count;
    struct Array *probe[NET_PROBES]; /* what probing found: io/onnx/net/probe.h */
    struct Array *fixed; /* with the sizes that the file fixes: io/onnx/net/reopen.h */
    struct Node *lifted; /* what lifting made of it: io/onnx/lift/lift.h */
    struct Node *plain;  /* the same in its own shape: io/onnx/lift/lift_plain.h */
    bool failed;         /* lifting it was tried, and failed: */
    const NetNode *stop; /* at this node, for this reason */
    const char *why;
    bool tokens_first; /* its rows are [T, N], not [N, T]: probe.h */
    bool real; /* quantised in the file; real numbers here: io/onnx/net/net_quantised.h */
    struct NetReal *became; /* of a stored one of few bits: what it became, or NULL */
};

struct NetNode {
    const char *op;   /* "MatMul"; with a domain "com.microsoft.Attention" */
    const char *name; /* its own, or that of its first result */
    NetValue **in;    /* absent optional operands are NULL */
    int in_count;
    NetValue **out; /* likewise */
    int out_count;
    const OnnxNode *proto;
    int order; /* in topological order, from 0 */
};

typedef struct Net {
    Arena *arena; /* holds this struct */
    const char *path;
    const OnnxModel *model;
    const OnnxModel *encoder; /* of an encoder-decoder model in two files, else NULL */
    bool translates;          /* it has a source and a target (decoder_input_ids) */
    int64_t opset;            /* of the standard operators */
    NetNode **nodes;          /* in topological order */
    int node_count;
    NetValue **values;
    int value_count;
    NetValue **inputs;
    int input_count;
    NetValue **outputs;
    int output_count;
    int dequantised;  /* weights of few bits that became f32 */
    int64_t fixed[3]; /* sizes that the file fixes, 0 = open: io/onnx/net/reopen.h */
    struct NetFiles *files; /* the mapped files */
} Net;

/* Reads and checks a file. For an encoder-decoder model in two files, `encoder` is the
 * other one, otherwise NULL: both become one graph, whose inputs have the names of a
 * model in one file (the decoder's input_ids are decoder_input_ids) and whose outputs
 * are the decoder's and encoder_last_hidden_state. An If by use_cache_branch, or by a
 * constant, is replaced by the branch taken without earlier tokens. Nodes that no output
 * needs are left out.
 *
 * Fails with STATUS_FORMAT, naming the node or tensor: a name defined twice or never, a
 * cycle, a shape whose size overflows, data whose length differs from the shape's,
 * external data outside the file's folder or beyond its end; with STATUS_MODEL for an If
 * by anything else; or with STATUS_IO. */
Status net_read(Net **out, const char *path, const char *encoder, Diag *diag);

/* net_read in two steps: stored tensors are available after the first; the second
 * converts weights of few bits to real numbers and puts the nodes into order. */
Status net_open(Net **out, const char *path, const char *encoder, Diag *diag);
Status net_settle(Net *net, Diag *diag);

/* Frees the net; tensors retained elsewhere keep the mappings alive. NULL is allowed. */
void net_destroy(Net *net);

/* The bytes of a stored tensor's raw or external data, and the mapping they lie in
 * (borrowed, NULL = none); NULL when the tensor holds its numbers in a list. */
const void *net_bytes(const Net *net, const OnnxTensor *tensor, Buf **map);

/* Makes a tensor, whose type and shape are set, a view of a stored tensor's bytes.
 * False, with nothing changed, if they lie in no mapping or are not aligned for its
 * type. */
bool net_view(Tensor *out, const Net *net, const OnnxTensor *tensor);

/* Bytes of all files that the net was read from. */
int64_t net_file_bytes(const Net *net);

/* Whether tensors of a file may have this shape; `count` (may be NULL) receives the
 * number of elements. */
bool net_shape_count(const int64_t *dim, size_t rank, int64_t *count);

/* Bytes of an element of a type (TensorProto.DataType), 0 = not a number. */
size_t net_element_bytes(int32_t type);

/* Number of a tensor's numbers in its list, not in bytes. */
size_t net_list_length(const OnnxTensor *tensor);

/* Operand `i` of a node, NULL when it is absent. */
NetValue *net_operand(const NetNode *node, int i);

/* ---- attributes ---- */

/* Attribute by name, NULL when there is none. */
const OnnxAttribute *net_attribute(const NetNode *node, const char *name);
/* Integer or real attribute; `fallback` if absent. */
int64_t net_int(const NetNode *node, const char *name, int64_t fallback);
double net_real(const NetNode *node, const char *name, double fallback);
/* Whether a text attribute has a value; if absent, `fallback` is compared. */
bool net_string_is(const NetNode *node, const char *name, const char *value,
                   const char *fallback);
/* NULL when there is none. */
const int64_t *net_ints(const NetNode *node, const char *name, int *count);

/* Whether a node has this operator; false for NULL. */
bool net_is(const NetNode *node, const char *op);

/* Records a fault at a node, "node 'x' (Slice): ...", and returns `status`. */
Status net_fail(const Net *net, const NetNode *node, Status status, Diag *diag,
                const char *fmt, ...) __attribute__((format(printf, 5, 6)));

#endif
