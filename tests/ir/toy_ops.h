/* A small op table for the tests of graphs: one op for each kind of operand and
 * attribute. Types are inferred, nothing computes. */
#ifndef COMPRESS_TESTS_IR_TOY_OPS_H
#define COMPRESS_TESTS_IR_TOY_OPS_H

#include "ir/graph.h"

#define REAL_ROW(n)                                                                      \
    { .name = (n) }
#define INTEGER_ROW(n)                                                                   \
    { .name = (n), .flags = OPERAND_INTEGER }
#define OPTIONAL_ROW(n)                                                                  \
    { .name = (n), .flags = OPERAND_OPTIONAL }
#define VARIADIC_ROW(n)                                                                  \
    { .name = (n), .flags = OPERAND_VARIADIC }

static Status infer_first(const Node *node, Type *out, Diag *diag) {
    (void)diag;
    *out = node->in[0]->type;
    return STATUS_OK;
}

static Status infer_add(const Node *node, Type *out, Diag *diag) {
    *out = node->in[0]->type;
    if (type_equal(out, &node->in[1]->type)) return STATUS_OK;
    return diag_fail(diag, STATUS_MODEL, node->loc, NULL, "add: a and b differ in type");
}

/* x[..., K], weight[M, K] -> [..., M] */
static Status infer_linear(const Node *node, Type *out, Diag *diag) {
    const Type *x = &node->in[0]->type, *w = &node->in[1]->type;
    if (x->rank < 1 || w->rank != 2 || w->dim[1] != x->dim[x->rank - 1])
        return diag_fail(diag, STATUS_MODEL, node->loc, NULL,
                         "linear: x and weight do not fit");
    *out = *x;
    out->dim[x->rank - 1] = w->dim[0];
    return STATUS_OK;
}

/* mask?, x... -> x, so the first operand may be absent. */
static Status infer_blend(const Node *node, Type *out, Diag *diag) {
    (void)diag;
    *out = node->in[1]->type;
    return STATUS_OK;
}

typedef struct SumAttrs {
    RealList weights;
} SumAttrs;

typedef struct KnobsAttrs {
    bool flag;
    int64_t size;
    double rate;
    const char *label;
    int fn;
    IntList axes;
    RealList points;
    StringList tags;
    const Tree *extra;
} KnobsAttrs;

static const Field SUM_FIELDS[] = {F_REALS(SumAttrs, weights, 0, 0, "weights"), F_END};

static const Field KNOBS_FIELDS[] = {
    F_BOOL(KnobsAttrs, flag, "a flag"),
    F_INT(KnobsAttrs, size, 1, 100, "a size"),
    F_REAL(KnobsAttrs, rate, -1, 1, "a rate"),
    F_STRING(KnobsAttrs, label, "a label", .nullable = true, .empty = true),
    F_CHOICE(KnobsAttrs, fn, "relu|gelu|tanh", "a function"),
    F_INTS(KnobsAttrs, axes, 0, 9, "axes"),
    F_REALS(KnobsAttrs, points, 0, 0, "points"),
    F_STRINGS(KnobsAttrs, tags, "tags", .empty = true),
    F_TREE(KnobsAttrs, extra, NULL, "anything", .nullable = true),
    F_END,
};

static const KnobsAttrs KNOBS_DEFAULTS = {.size = 4, .rate = 0.5, .label = "none"};

static const Op TOY_INPUT = {.name = "input", .traits = OP_INPUT};
static const Op TOY_PARAM = {.name = "param", .traits = OP_PARAM};
static const Op TOY_ADD = {.name = "add",
                           .operands =
                               (const Operand[]){REAL_ROW("a"), REAL_ROW("b"), {0}},
                           .infer = infer_add};
static const Op TOY_LINEAR = {
    .name = "linear",
    .operands =
        (const Operand[]){REAL_ROW("x"), REAL_ROW("weight"), OPTIONAL_ROW("bias"), {0}},
    .infer = infer_linear};
static const Op TOY_SUM = {.name = "sum",
                           .operands = (const Operand[]){VARIADIC_ROW("x"), {0}},
                           .fields = SUM_FIELDS,
                           .attrs_size = sizeof(SumAttrs),
                           .infer = infer_first};
static const Op TOY_BLEND = {
    .name = "blend",
    .operands = (const Operand[]){OPTIONAL_ROW("mask"), VARIADIC_ROW("x"), {0}},
    .infer = infer_blend};
static const Op TOY_LOOKUP = {
    .name = "lookup",
    .operands = (const Operand[]){REAL_ROW("table"), INTEGER_ROW("index"), {0}},
    .infer = infer_first};
static const Op TOY_KNOBS = {.name = "knobs",
                             .operands = (const Operand[]){REAL_ROW("x"), {0}},
                             .fields = KNOBS_FIELDS,
                             .attrs_size = sizeof(KnobsAttrs),
                             .defaults = &KNOBS_DEFAULTS,
                             .infer = infer_first};

static const Op *const TOY_LIST[] = {&TOY_INPUT, &TOY_PARAM, &TOY_ADD,    &TOY_LINEAR,
                                     &TOY_SUM,   &TOY_BLEND, &TOY_LOOKUP, &TOY_KNOBS};
static const OpTable TOY_OPS = {TOY_LIST, sizeof TOY_LIST / sizeof *TOY_LIST};

#endif
