/* ONNX files of tests: models to write, and what must hold of every file. */
#ifndef COMPRESS_TESTS_ONNX_FILE_H
#define COMPRESS_TESTS_ONNX_FILE_H

#include "tests/io/io_test.h"

#include "exec/ops.h"
#include "io/files/file.h"
#include "io/formats/load.h"
#include "io/onnx/proto.h"
#include "io/onnx/write/onnx_file.h"

static inline Model *load_model(const char *from) {
    Diag *diag = diag_create();
    Model *model;
    expect_ok(diag, model_load(&model, from, ops_table(), true, diag));
    diag_destroy(diag);
    return model;
}

/* A model of tests/data/reference. */
static inline Model *load_reference(const char *name) {
    char from[100];
    snprintf(from, sizeof from, "tests/data/reference/%s", name);
    return load_model(from);
}

/* Writes messages as they are. */
static inline void put_messages(const OnnxModel *model, const char *to) {
    Diag *diag = diag_create();
    OutFile *file;
    expect_ok(diag, outfile_open(&file, NULL, to, diag));
    expect_ok(diag, onnx_write(model, file, diag));
    expect_ok(diag, outfile_commit(file, diag));
    diag_destroy(diag);
}

/* A file that was written and read again. */
typedef struct ReadBack {
    Buf *buf;
    OnnxFile file;
} ReadBack;

static inline void read_back(ReadBack *out, const char *path) {
    Diag *diag = diag_create();
    expect_ok(diag, file_map(&out->buf, path, diag));
    expect_ok(diag, onnx_parse(&out->file, buf_data(out->buf), buf_bytes(out->buf),
                               LOC_FILE(path), diag));
    diag_destroy(diag);
}

static inline void read_back_end(ReadBack *file) {
    onnx_release(&file->file);
    buf_release(file->buf);
}

/* Names that are defined, those of the graphs around first. */
typedef struct Names {
    const char *items[20000];
    int count;
} Names;

static inline bool names_hold(const Names *names, const char *name) {
    for (int i = 0; i < names->count; i++)
        if (strcmp(names->items[i], name) == 0) return true;
    return false;
}

/* A name is defined once. */
static inline void names_add(Names *names, const char *name) {
    if (names_hold(names, name)) fail_msg("%s is defined twice", name);
    assert_true(names->count < 20000);
    names->items[names->count++] = name;
}

/* What the standard asks of a graph: every name is defined once and before it is used,
 * names of nodes are unique, types are known, initialisers have as many bytes as their
 * shape says. */
static inline void check_graph(const OnnxGraph *graph, Names *names) {
    const int around = names->count;
    for (size_t i = 0; i < graph->n_input; i++) {
        names_add(names, graph->input[i]->name);
        assert_true(graph->input[i]->type->tensor_type->elem_type > 0);
    }
    for (size_t i = 0; i < graph->n_initializer; i++) {
        const OnnxTensor *tensor = graph->initializer[i];
        DType dtype;
        int64_t count = 1;
        names_add(names, tensor->name);
        assert_true(onnx_dtype(tensor->data_type, &dtype));
        for (size_t j = 0; j < tensor->n_dims; j++) count *= tensor->dims[j];
        if (!tensor->has_data_location)
            assert_int_equal(tensor->raw_data.len, (size_t)count * dtype_bytes(dtype));
    }
    for (size_t i = 0; i < graph->n_node; i++) {
        const OnnxNode *node = graph->node[i];
        assert_true(node->op_type && node->name && node->n_output > 0);
        for (size_t j = 0; j < node->n_input; j++)
            if (*node->input[j] && !names_hold(names, node->input[j]))
                fail_msg("%s reads %s, which is not defined", node->name, node->input[j]);
        for (size_t j = 0; j < node->n_attribute; j++)
            if (node->attribute[j]->g) check_graph(node->attribute[j]->g, names);
        for (size_t j = 0; j < node->n_output; j++) names_add(names, node->output[j]);
    }
    for (size_t i = 0; i < graph->n_output; i++)
        if (!names_hold(names, graph->output[i]->name))
            fail_msg("output %s is not defined", graph->output[i]->name);
    names->count = around;
}

static inline void check_file(const OnnxModel *model) {
    Names *names = calloc(1, sizeof *names);
    assert_int_equal(model->ir_version, 8);
    assert_int_equal(model->opset_import[0]->version, 17);
    check_graph(model->graph, names);
    free(names);
}

/* How many nodes of an operator a graph has, bodies included. */
static inline int count_ops(const OnnxGraph *graph, const char *op) {
    int count = 0;
    for (size_t i = 0; i < graph->n_node; i++) {
        count += strcmp(graph->node[i]->op_type, op) == 0;
        for (size_t j = 0; j < graph->node[i]->n_attribute; j++)
            if (graph->node[i]->attribute[j]->g)
                count += count_ops(graph->node[i]->attribute[j]->g, op);
    }
    return count;
}

/* The names of inputs or outputs with their types, "input_ids:7[batch_size,..]". */
static inline void list_values(Text *text, OnnxValue *const *values, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const OnnxTensorType *type = values[i]->type->tensor_type;
        text_add(text, "%s%s:%d[", i ? " " : "", values[i]->name, (int)type->elem_type);
        for (size_t j = 0; j < type->shape->n_dim; j++) {
            const OnnxDim *dim = type->shape->dim[j];
            if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM)
                text_add(text, "%s%s", j ? "," : "", dim->dim_param);
            else
                text_add(text, "%s%lld", j ? "," : "", (long long)dim->dim_value);
        }
        text_add(text, "]");
    }
}

/* IR text with every op on tensors of any shape, with symbols in shapes. */
#define TENSORS_TEXT                                                                     \
    "ir 1\n"                                                                             \
    "input attention_mask : i32[N, T]\n"                                                 \
    "input x : f32[N, T, 6]\n"                                                           \
    "param @w : f32[2, 3] init normal(0.5)\n"                                            \
    "param @i : f32[2] init normal(3.0)\n"                                               \
    "%1 = to_real($attention_mask) : f32[N, T]\n"                                        \
    "%2 = reshape(%1) {shape=\"N, 1, 1, T\"} : f32[N, 1, 1, T]\n"                        \
    "%3 = binary(%2) {fn=subtract number=1.0} : f32[N, 1, 1, T]\n"                       \
    "%4 = binary(%3) {fn=multiply number=10000.0} : f32[N, 1, 1, T]\n"                   \
    "%5 = reshape($x) {shape=\"N, T, 2, 3\"} : f32[N, T, 2, 3]\n"                        \
    "%6 = transpose(%5) {axes=[0, 2, 1, 3]} : f32[N, 2, T, 3]\n"                         \
    "%7 = transpose(%6) {axes=[0, 1, 3, 2]} : f32[N, 2, 3, T]\n"                         \
    "%8 = matmul(%6, %7) : f32[N, 2, T, T]\n"                                            \
    "%9 = binary(%8, b=%4) {fn=add} : f32[N, 2, T, T]\n"                                 \
    "%10 = softmax(%9) : f32[N, 2, T, T]\n"                                              \
    "%11 = matmul(%10, %6) : f32[N, 2, T, 3]\n"                                          \
    "%12 = reshape(%11) {shape=\"2*N, T, 3\"} : f32[2*N, T, 3]\n"                        \
    "%13 = cumsum(%12) {axis=1 exclusive=true} : f32[2*N, T, 3]\n"                       \
    "%14 = slice(%13) {axis=1 start=-1 step=-1 size=\"T\"} : f32[2*N, T, 3]\n"           \
    "%15 = reshape(%14) {shape=\"N, 2, T, 3\"} : f32[N, 2, T, 3]\n"                      \
    "%16 = reshape(@w) {shape=\"2, 1, 3\"} : f32[2, 1, 3]\n"                             \
    "%17 = binary(%15, b=%16) {fn=maximum} : f32[N, 2, T, 3]\n"                          \
    "%18 = unary(%17) {fn=trunc} : f32[N, 2, T, 3]\n"                                    \
    "%19 = concat(%17, %18, %11) {axis=3} : f32[N, 2, T, 9]\n"                           \
    "%20 = reduce(%19) {fn=mean axes=[3] keep=true} : f32[N, 2, T, 1]\n"                 \
    "%21 = expand(%20) {shape=\"N, 2, T, 4\"} : f32[N, 2, T, 4]\n"                       \
    "%22 = binary(%21) {fn=greater number=0.1} : f32[N, 2, T, 4]\n"                      \
    "%23 = where(%22, a=%21) {b_number=-1.0} : f32[N, 2, T, 4]\n"                        \
    "%24 = reduce(%23) {fn=sum axes=[1]} : f32[N, T, 4]\n"                               \
    "%25 = slice(%24) {axis=2 start=3 step=-2 size=\"2\"} : f32[N, T, 2]\n"              \
    "%26 = slice(%19) {axis=1 start=-1 size=\"1\"} : f32[N, 1, T, 9]\n"                  \
    "%27 = reduce(%26) {fn=max axes=[1]} : f32[N, T, 9]\n"                               \
    "%28 = unary(%27) {fn=exp} : f32[N, T, 9]\n"                                         \
    "%29 = slice(%28) {axis=2 size=\"1\"} : f32[N, T, 1]\n"                              \
    "%30 = binary(%29) {fn=minimum number=2.4} : f32[N, T, 1]\n"                         \
    "%32 = reduce(%25) {fn=min axes=[1]} : f32[N, 2]\n"                                  \
    "%33 = gather(%19, @i) {axis=3} : f32[N, 2, T, 2]\n"                                 \
    "output a = %24\n"                                                                   \
    "output b = %25\n"                                                                   \
    "output c = %28\n"                                                                   \
    "output d = %32\n"                                                                   \
    "output e = %33\n"                                                                   \
    "output f = %30\n"

#endif
