/* ONNX files as protocol buffers: what onnx.proto declares, under short names, read and
 * written without separate memory for the weights.
 *
 * The structs are those that protoc-c makes of Debian's onnx.proto when the program is
 * built; onnx.proto says what each field means. Names of types begin with Onnx, their
 * initial values are ONNX__..._INIT, and their enums' values are named here if more than
 * one file needs them. */
#ifndef COMPRESS_IO_ONNX_PROTO_H
#define COMPRESS_IO_ONNX_PROTO_H

#include "io/files/outfile.h"
#include "ir/tensor.h"
#include "onnx.pb-c.h"

typedef Onnx__ModelProto OnnxModel;
typedef Onnx__GraphProto OnnxGraph;
typedef Onnx__NodeProto OnnxNode;
typedef Onnx__AttributeProto OnnxAttribute;
typedef Onnx__TensorProto OnnxTensor;
typedef Onnx__ValueInfoProto OnnxValue;
typedef Onnx__TypeProto OnnxType;
typedef Onnx__TypeProto__Tensor OnnxTensorType;
typedef Onnx__TensorShapeProto OnnxShape;
typedef Onnx__TensorShapeProto__Dimension OnnxDim;
typedef Onnx__StringStringEntryProto OnnxEntry;
typedef Onnx__OperatorSetIdProto OnnxOpset;

/* Element types of tensors (TensorProto.DataType). */
enum {
    ONNX_F32 = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT,
    ONNX_U8 = ONNX__TENSOR_PROTO__DATA_TYPE__UINT8,
    ONNX_I8 = ONNX__TENSOR_PROTO__DATA_TYPE__INT8,
    ONNX_I32 = ONNX__TENSOR_PROTO__DATA_TYPE__INT32,
    ONNX_I64 = ONNX__TENSOR_PROTO__DATA_TYPE__INT64,
    ONNX_BOOL = ONNX__TENSOR_PROTO__DATA_TYPE__BOOL,
    ONNX_F16 = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT16,
    ONNX_F64 = ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE,
    ONNX_BF16 = ONNX__TENSOR_PROTO__DATA_TYPE__BFLOAT16
};

/* Kinds of attributes (AttributeProto.AttributeType). */
enum {
    ONNX_ATTRIBUTE_FLOAT = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT,
    ONNX_ATTRIBUTE_INT = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT,
    ONNX_ATTRIBUTE_STRING = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING,
    ONNX_ATTRIBUTE_TENSOR = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR,
    ONNX_ATTRIBUTE_GRAPH = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH,
    ONNX_ATTRIBUTE_FLOATS = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS,
    ONNX_ATTRIBUTE_INTS = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS,
    ONNX_ATTRIBUTE_STRINGS = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS
};

/* The name that exporters of sentence-transformers use for the output
 * OUTPUT_EMBEDDING. */
#define ONNX_EMBEDDING "sentence_embedding"

/* The dtype of an element type, and the reverse; false and 0 when there is none. */
bool onnx_dtype(int32_t data_type, DType *out);
int32_t onnx_data_type(DType dtype);

/* The content of a file: a tree of messages in its own memory. Absent strings and
 * messages are NULL. The raw_data of every tensor points into the bytes that were read,
 * at any alignment, so those must live as long. */
typedef struct OnnxFile {
    OnnxModel *model;
    struct OnnxMemory *memory;
} OnnxFile;

/* Reads a file's bytes. Checks that they are messages of onnx.proto, nested at most 100
 * deep, with a graph, and that everything besides raw_data has a size plausible for
 * graphs. Names, shapes and everything else must be checked by the caller. Fields that
 * onnx.proto does not know are left out. `at` is the file's name for messages. Fails
 * with STATUS_FORMAT. */
Status onnx_parse(OnnxFile *out, const void *data, size_t length, Loc at, Diag *diag);

/* Frees what onnx_parse made. */
void onnx_release(OnnxFile *file);

/* Bytes of a model in a file. No program reads a file of 2 GB or more: weights must then
 * go into a separate file (external_data). */
size_t onnx_bytes(const OnnxModel *model);

/* Appends a model to a file, raw_data straight from where it points to. Fails with
 * STATUS_IO. */
Status onnx_write(const OnnxModel *model, OutFile *file, Diag *diag);

#endif
