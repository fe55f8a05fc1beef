/* ONNX's own node tests, a folder each: Debian's libonnx-testdata. */
#ifndef COMPRESS_TESTS_ONNX_NODE_TESTS_H
#define COMPRESS_TESTS_ONNX_NODE_TESTS_H

#include "io/onnx/net/eval.h"

#include <stdio.h>

static const char NODE_TESTS[] = "/usr/share/libonnx-testdata/data/node";

/* Value `i` of a test's inputs or outputs ("input", "output"), which are numbered tensors
 * beside the model; NULL when it is no tensor of numbers. */
static inline Array *node_test_array(ArrayPool *pool, const Net *net, const char *test,
                                     const char *what, int i) {
    static unsigned char bytes[1 << 22];
    char path[600];
    snprintf(path, sizeof path, "%s/%s/test_data_set_0/%s_%d.pb", NODE_TESTS, test, what,
             i);
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    const size_t length = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    OnnxTensor *tensor = onnx__tensor_proto__unpack(NULL, length, bytes);
    Array *array = tensor && net_element_bytes(tensor->data_type)
                       ? array_stored(pool, net, tensor)
                       : NULL;
    if (tensor) onnx__tensor_proto__free_unpacked(tensor, NULL);
    return array;
}

/* Evaluates all nodes once the inputs' first probes are there. */
static inline bool node_test_evaluate(Net *net, ArrayPool *pool, Diag *diag) {
    for (int i = 0; i < net->value_count; i++)
        if (net->values[i]->stored)
            net->values[i]->probe[0] = array_stored(pool, net, net->values[i]->stored);
    for (int i = 0; i < net->node_count; i++) {
        NetNode *node = net->nodes[i];
        Array *in[32] = {0}, *out[32] = {0};
        for (int k = 0; k < node->in_count; k++)
            in[k] = node->in[k] ? node->in[k]->probe[0] : NULL;
        if (eval_node(net, pool, node, in, out, diag) != STATUS_OK) return false;
        for (int k = 0; k < node->out_count; k++)
            if (node->out[k]) node->out[k]->probe[0] = out[k];
    }
    return true;
}

#endif
