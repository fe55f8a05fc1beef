/* Nodes of a net: their operands and attributes, and messages about them. See net.h. */
#include "io/onnx/net/net.h"

#include <stdarg.h>
#include <string.h>

NetValue *net_operand(const NetNode *node, int i) {
    return i < node->in_count ? node->in[i] : NULL;
}

const OnnxAttribute *net_attribute(const NetNode *node, const char *name) {
    for (size_t i = 0; i < node->proto->n_attribute; i++) {
        const OnnxAttribute *attribute = node->proto->attribute[i];
        if (attribute->name && strcmp(attribute->name, name) == 0) return attribute;
    }
    return NULL;
}

int64_t net_int(const NetNode *node, const char *name, int64_t fallback) {
    const OnnxAttribute *attribute = net_attribute(node, name);
    return attribute ? attribute->i : fallback;
}

double net_real(const NetNode *node, const char *name, double fallback) {
    const OnnxAttribute *attribute = net_attribute(node, name);
    return attribute ? (double)attribute->f : fallback;
}

/* NULL when there is none; `length` bytes, not terminated. */
static const char *net_string(const NetNode *node, const char *name, size_t *length) {
    const OnnxAttribute *attribute = net_attribute(node, name);
    if (!attribute || !attribute->s.data) return NULL;
    *length = attribute->s.len;
    return (const char *)attribute->s.data;
}

bool net_string_is(const NetNode *node, const char *name, const char *value,
                   const char *fallback) {
    size_t length = strlen(fallback);
    const char *text = net_string(node, name, &length);
    if (!text) text = fallback;
    return length == strlen(value) && memcmp(text, value, length) == 0;
}

const int64_t *net_ints(const NetNode *node, const char *name, int *count) {
    static const int64_t NONE[1] = {0};
    const OnnxAttribute *attribute = net_attribute(node, name);
    if (!attribute) return NULL;
    *count = (int)attribute->n_ints;
    return attribute->n_ints > 0 ? attribute->ints : NONE;
}

bool net_is(const NetNode *node, const char *op) {
    return node && strcmp(node->op, op) == 0;
}

Status net_fail(const Net *net, const NetNode *node, Status status, Diag *diag,
                const char *fmt, ...) {
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return diag_fail(diag, status, LOC_FILE(net->path), NULL,
                     "node '%.200s' (%.100s): %s", node->name, node->op, text);
}
