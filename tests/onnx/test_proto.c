/* Messages of ONNX files: what is written is read again with the weights left where they
 * are, and damaged files are told. */
#include "onnx_scratch.h"

#include "io/files/file.h"
#include "io/onnx/proto.h"

/* A graph of one node with a tensor in an attribute and an initializer of `count` bytes.
 */
static void write_model(uint8_t *weights, size_t count, Diag *diag) {
    OnnxTensor weight = ONNX__TENSOR_PROTO__INIT, value = ONNX__TENSOR_PROTO__INIT;
    weight.name = "w", weight.has_raw_data = true;
    weight.raw_data = (ProtobufCBinaryData){count, weights};
    value.has_raw_data = true, value.raw_data = (ProtobufCBinaryData){3, weights};
    OnnxAttribute attribute = ONNX__ATTRIBUTE_PROTO__INIT;
    attribute.name = "value", attribute.t = &value;
    OnnxNode node = ONNX__NODE_PROTO__INIT;
    OnnxAttribute *attributes[] = {&attribute};
    node.op_type = "Constant", node.n_attribute = 1, node.attribute = attributes;
    OnnxGraph graph = ONNX__GRAPH_PROTO__INIT;
    OnnxNode *nodes[] = {&node};
    OnnxTensor *weights_of[] = {&weight};
    graph.n_node = 1, graph.node = nodes, graph.n_initializer = 1;
    graph.initializer = weights_of;
    OnnxModel model = ONNX__MODEL_PROTO__INIT;
    model.graph = &graph, model.has_ir_version = true, model.ir_version = 8;
    OutFile *file;
    expect_ok(diag, outfile_open(&file, NULL, path, diag));
    expect_ok(diag, onnx_write(&model, file, diag));
    expect_ok(diag, outfile_commit(file, diag));
}

static void test_round_trip(void **state) {
    (void)state;
    Diag *diag = diag_create();
    const size_t count = 200000;
    uint8_t *weights = malloc(count);
    for (size_t i = 0; i < count; i++) weights[i] = (uint8_t)(i * 7 + i / 256);
    write_model(weights, count, diag);
    Buf *buf;
    expect_ok(diag, file_map(&buf, path, diag));
    OnnxFile file;
    expect_ok(diag,
              onnx_parse(&file, buf_data(buf), buf_bytes(buf), LOC_FILE(path), diag));
    const uint8_t *start = buf_data(buf);
    const OnnxGraph *graph = file.model->graph;
    assert_int_equal(onnx_bytes(file.model), buf_bytes(buf));
    assert_int_equal(file.model->ir_version, 8);
    const ProtobufCBinaryData raw = graph->initializer[0]->raw_data;
    assert_int_equal(raw.len, count);
    assert_memory_equal(raw.data, weights, count);
    assert_true(raw.data >= start && raw.data + count <= start + buf_bytes(buf));
    const ProtobufCBinaryData value = graph->node[0]->attribute[0]->t->raw_data;
    assert_true(value.len == 3 && value.data > start &&
                memcmp(value.data, weights, 3) == 0);
    onnx_release(&file);
    buf_release(buf);
    free(weights);
    diag_destroy(diag);
}

static void expect_damaged(const void *data, size_t length, const char *part) {
    Diag *diag = diag_create();
    OnnxFile file;
    expect_error(diag, onnx_parse(&file, data, length, LOC_FILE("x.onnx"), diag),
                 STATUS_FORMAT, part);
    diag_destroy(diag);
}

static void test_damaged(void **state) {
    (void)state;
    expect_damaged("", 0, "no graph");
    expect_damaged("\x08", 1, "a number without an end at byte 1");
    expect_damaged("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12,
                   "a number without an end");
    expect_damaged("\x3a\x05\x0a", 3, "a length that goes beyond its end at byte 1");
    expect_damaged("\x3b", 1, "a kind of value that there is not");
    expect_damaged("\x38\x00", 2, "fields of other kinds than theirs");
}

/* Graphs in attributes of nodes of graphs, 40 of them: 121 messages. */
static void test_depth(void **state) {
    (void)state;
    static const uint8_t TAGS[] = {0x0a, 0x2a, 0x32}; /* node, attribute, g */
    uint8_t bytes[1024], *at = bytes + sizeof bytes;
    for (int i = 120; i >= 0; i--) {
        const size_t length = (size_t)(bytes + sizeof bytes - at);
        *--at = (uint8_t)(length >> 7);
        *--at = (uint8_t)(length & 0x7f) | 0x80;
        *--at = i == 0 ? 0x3a : TAGS[(i - 1) % 3];
    }
    expect_damaged(at, (size_t)(bytes + sizeof bytes - at), "nested too deep");
}

/* Bytes changed or cut off never do more than fail. */
static void test_mutations(void **state) {
    (void)state;
    Diag *diag = diag_create();
    uint8_t weights[300] = {1, 2, 3};
    write_model(weights, sizeof weights, diag);
    Buf *buf;
    expect_ok(diag, file_map(&buf, path, diag));
    const size_t length = buf_bytes(buf);
    for (uint64_t round = 0; round < 3000; round++) {
        const size_t left = round < length ? (size_t)round : length;
        uint8_t *copy = malloc(left + 1);
        memcpy(copy, buf_data(buf), left);
        for (uint64_t i = 0; round >= length && i < 1 + round % 3; i++)
            copy[(round * 2654435761u + i * 40503u) % 90] = (uint8_t)(round * 31 + i * 7);
        OnnxFile file;
        if (onnx_parse(&file, copy, left, LOC_NONE, diag) == STATUS_OK) {
            assert_true(onnx_bytes(file.model) > 0);
            onnx_release(&file);
        }
        diag_clear(diag);
        free(copy);
    }
    buf_release(buf);
    diag_destroy(diag);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, enter, leave),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_depth),
        cmocka_unit_test_setup_teardown(test_mutations, enter, leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
