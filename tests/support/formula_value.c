/* Values of formulas: see formula_value.h. */
#include "tests/support/formula_value.h"

#include "tests/support/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void formula_fail(const Formula *f, const char *format, ...) {
    char text[4000];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fail_msg("formula: %.*s\n    %s, before: %.40s", (int)strcspn(f->line, "\n"), f->line,
             text, f->at);
    abort(); /* fail_msg does not return, but is not declared so */
}

Value value_new(Formula *f, int rank, const int64_t *dim) {
    Value value = {.rank = rank, .count = 1};
    for (int i = 0; i < rank; i++) value.count *= value.dim[i] = dim[i];
    value.v = ARENA_ARRAY(f->arena, double, (size_t)value.count + 1);
    value.error = ARENA_ARRAY(f->arena, double, (size_t)value.count + 1);
    return value;
}

Value value_number(Formula *f, double number) {
    Value value = value_new(f, 0, NULL);
    value.v[0] = number;
    return value;
}

Value value_tensor(Formula *f, const Tensor *tensor) {
    Value value = value_new(f, tensor->rank, tensor->dim);
    if (!tensor_data(tensor)) formula_fail(f, "the weights have no data");
    tensor_read_f64(tensor, 0, value.count, value.v);
    return value;
}

static double combine_one(char sign, double x, double y) {
    switch (sign) {
    case '+': return x + y;
    case '-': return x - y;
    case '*': return x * y;
    default: return x / y;
    }
}

Value value_combine(Formula *f, char sign, const Value *x, const Value *y) {
    const Value *large = x->count >= y->count ? x : y;
    const Value *small = large == x ? y : x;
    if (large->count % small->count) formula_fail(f, "shapes do not fit");
    Value out = value_new(f, large->rank, large->dim);
    for (int64_t i = 0; i < out.count; i++) {
        const int64_t a = i % x->count, b = i % y->count;
        const double v = combine_one(sign, x->v[a], y->v[b]);
        double error = x->error[a] + y->error[b];
        if (sign == '*')
            error = fabs(x->v[a]) * y->error[b] + fabs(y->v[b]) * x->error[a];
        if (sign == '/') error = (x->error[a] + fabs(v) * y->error[b]) / fabs(y->v[b]);
        out.v[i] = v;
        out.error[i] = error + FORMULA_EPSILON * fabs(v);
    }
    return out;
}

static double gelu(double x) {
    return 0.5 * x * (1 + erf(x / sqrt(2)));
}

static double relu(double x) {
    return x > 0 ? x : 0;
}

/* Functions of one element, with a bound on the slope near x. */
static const struct {
    const char *name;
    double (*call)(double x);
} ELEMENT_FUNCTIONS[] = {{"abs", fabs},  {"sqrt", sqrt}, {"exp", exp},  {"log", log},
                         {"tanh", tanh}, {"relu", relu}, {"gelu", gelu}};

static Value value_map(Formula *f, double (*call)(double), const Value *x) {
    Value out = value_new(f, x->rank, x->dim);
    for (int64_t i = 0; i < x->count; i++) {
        const double v = call(x->v[i]), e = x->error[i];
        const double up = fabs(call(x->v[i] + e) - v), down = fabs(call(x->v[i] - e) - v);
        out.v[i] = v;
        out.error[i] = fmax(up, down) + 4 * FORMULA_EPSILON * fabs(v);
    }
    return out;
}

bool value_map_named(Formula *f, const char *name, const Value *x, Value *out) {
    for (size_t i = 0; i < sizeof ELEMENT_FUNCTIONS / sizeof *ELEMENT_FUNCTIONS; i++) {
        if (strcmp(name, ELEMENT_FUNCTIONS[i].name) != 0) continue;
        *out = value_map(f, ELEMENT_FUNCTIONS[i].call, x);
        return true;
    }
    return false;
}

Value value_reduce(Formula *f, const char *name, const Value *x) {
    Value out = value_new(f, 0, NULL);
    const double n = (double)x->count;
    double sum = 0, squares = 0, most = -INFINITY, least = INFINITY, zeros = 0;
    for (int64_t i = 0; i < x->count; i++) {
        const double v = x->v[i];
        sum += v;
        squares += v * v;
        most = fmax(most, v);
        least = fmin(least, v);
        zeros += v == 0;
        out.error[0] += x->error[i] + (n + 1) * FORMULA_EPSILON * fabs(v);
    }
    double spread = 0;
    for (int64_t i = 0; i < x->count; i++) spread += pow(x->v[i] - sum / n, 2);
    const struct {
        const char *name;
        double v;
    } all[] = {{"sum", sum},   {"mean", sum / n},      {"variance", spread / n},
               {"min", least}, {"max", most},          {"zeros", zeros},
               {"count", n},   {"norm", sqrt(squares)}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i].name, name)) continue;
        out.v[0] = all[i].v;
        if (strcmp(name, "sum")) out.error[0] /= n;
        return out;
    }
    formula_fail(f, "there is no function %s", name);
}

Value value_product(Formula *f, const Value *x, const Value *y) {
    if (x->rank != 2 || y->rank < 1 || y->rank > 2 || x->dim[1] != y->dim[0])
        formula_fail(f, "the matrices do not fit");
    const int64_t rows = x->dim[0], inner = x->dim[1];
    const int64_t columns = y->rank == 2 ? y->dim[1] : 1;
    Value out = value_new(f, y->rank, (int64_t[]){rows, columns});
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            for (int64_t k = 0; k < inner; k++) {
                const int64_t a = i * inner + k, b = k * columns + j;
                const double v = x->v[a] * y->v[b];
                out.v[i * columns + j] += v;
                out.error[i * columns + j] +=
                    fabs(x->v[a]) * y->error[b] + fabs(y->v[b]) * x->error[a] +
                    (double)(inner + 1) * FORMULA_EPSILON * fabs(v);
            }
    return out;
}

Value value_transpose(Formula *f, const Value *x) {
    if (x->rank != 2) formula_fail(f, "t needs a matrix");
    Value out = value_new(f, 2, (int64_t[]){x->dim[1], x->dim[0]});
    for (int64_t i = 0; i < x->count; i++) {
        const int64_t to = i % x->dim[1] * x->dim[0] + i / x->dim[1];
        out.v[to] = x->v[i];
        out.error[to] = x->error[i];
    }
    return out;
}

Value value_keep(Formula *f, const Value *x, const Value *axis, const Value *entries) {
    const int a = (int)axis->v[0];
    if (a < 0 || a >= x->rank) formula_fail(f, "there is no such axis");
    int64_t dim[RANK_MAX], inner = 1;
    memcpy(dim, x->dim, sizeof dim);
    dim[a] = entries->count;
    for (int i = a + 1; i < x->rank; i++) inner *= x->dim[i];
    Value out = value_new(f, x->rank, dim);
    for (int64_t i = 0; i < out.count; i++) {
        const int64_t entry = (int64_t)entries->v[i / inner % dim[a]];
        if (entry < 0 || entry >= x->dim[a])
            formula_fail(f, "there is no entry %d", (int)entry);
        const int64_t from = (i / inner / dim[a] * x->dim[a] + entry) * inner + i % inner;
        out.v[i] = x->v[from];
        out.error[i] = x->error[from];
    }
    return out;
}

Value value_join(Formula *f, const Value *x, const Value *y) {
    int64_t dim[RANK_MAX] = {1};
    memcpy(dim, x->dim, sizeof dim);
    const int64_t row = x->rank > 1 ? x->count / x->dim[0] : 1;
    dim[0] = (x->count + y->count) / row;
    Value out = value_new(f, x->rank > 0 ? x->rank : 1, dim);
    for (int64_t i = 0; i < out.count; i++) {
        const bool first = i < x->count;
        out.v[i] = first ? x->v[i] : y->v[i - x->count];
        out.error[i] = first ? x->error[i] : y->error[i - x->count];
    }
    return out;
}

Value value_softmax(Formula *f, const Value *x) {
    Value out = value_map(f, exp, x);
    const int64_t row = x->rank > 0 ? x->dim[x->rank - 1] : 1;
    for (int64_t i = 0; i < x->count; i += row) {
        double sum = 0;
        for (int64_t k = 0; k < row; k++) sum += out.v[i + k];
        for (int64_t k = 0; k < row; k++) {
            out.v[i + k] /= sum;
            out.error[i + k] = (double)(row + 4) * FORMULA_EPSILON;
        }
    }
    return out;
}

Value value_matrix(Formula *f, const Value *x, const Value *rows, const Value *columns) {
    Value out = *x;
    out.rank = 2;
    out.dim[0] = (int64_t)rows->v[0];
    out.dim[1] = (int64_t)columns->v[0];
    if (out.dim[0] * out.dim[1] != x->count)
        formula_fail(f, "the matrix has another size");
    return out;
}

Value value_like(Formula *f, const Value *x, const Value *like) {
    if (x->count != like->count)
        formula_fail(f, "the shapes have other numbers of elements");
    Value out = *x;
    out.rank = like->rank;
    memcpy(out.dim, like->dim, sizeof out.dim);
    return out;
}
